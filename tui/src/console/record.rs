//! Recordings: what a daemon said, a JSON object a line, so that a session can be looked at again and
//! sent along with a bug.
//!
//! ```text
//!  {"robust_console":2,"at":1767323045000,"place":"unix socket ..."}
//!  {"at":1767323045010,"status":{...}}     the first whole, then
//!  {"at":1767323045260,"status":{...}}
//!  {"at":1767323045261,"event":{...}}
//!  {"at":1767323045270,"phases":[{...}]}   those that ended
//!  {"at":1767323049000,"lost":"nobody listens there any more"}
//! ```
//! Unknown keys of a status are skipped, those that are missing are their defaults: a recording of an
//! older build plays. In format 1 there are no lines of phases: they are told from statuses. A line that
//! is cut off at the end, as after a crash, is left out.
use super::event::Event;
use robust_proto::v1;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufWriter, Write as _};
use std::path::Path;

/// The format this build writes, and the newest it reads.
pub const VERSION: u32 = 2;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
pub struct Head {
    /// [`VERSION`].
    pub robust_console: u32,
    /// Unix ms of its begin.
    pub at: u64,
    /// Where the daemon was, in words.
    pub place: String,
}

/// Something the daemon said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// How the job is.
    Status(Box<v1::Status>),
    /// The journal grew.
    Event(Box<v1::Event>),
    /// Phases that ended.
    Phases(Vec<v1::PhaseSpan>),
    /// The connection ended.
    Lost(String),
}

/// A line after the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Unix ms.
    pub at: u64,
    /// What.
    #[serde(flatten)]
    pub said: Said,
}

impl Said {
    /// What of an event is recorded.
    pub fn of(event: &Event) -> Option<Said> {
        match event {
            Event::Status { status, .. } => Some(Said::Status(status.clone())),
            Event::Logged { event, .. } => Some(Said::Event(event.clone())),
            Event::Phases { spans, .. } => Some(Said::Phases(spans.clone())),
            Event::Lost { reason, .. } => Some(Said::Lost(reason.clone())),
            _ => None,
        }
    }

    /// The event again, over this connection.
    pub fn event(self, link: u64) -> Event {
        match self {
            Said::Status(status) => Event::Status { link, status },
            Said::Event(event) => Event::Logged { link, event },
            Said::Phases(spans) => Event::Phases { link, spans },
            Said::Lost(reason) => Event::Lost { link, reason },
        }
    }
}

/// Writes a recording.
pub struct Recorder {
    out: BufWriter<File>,
}

impl Recorder {
    /// Begins one; a file that is there is not overwritten.
    pub fn create(path: &Path, at: u64, place: String) -> Result<Recorder, String> {
        let unwritable = |e| format!("{} cannot be written: {e}", path.display());
        let file = File::create_new(path).map_err(unwritable)?;
        let mut recorder = Recorder {
            out: BufWriter::new(file),
        };
        let head = Head {
            robust_console: VERSION,
            at,
            place,
        };
        recorder.line(&head).map_err(unwritable)?;
        Ok(recorder)
    }

    /// Takes in an event, if it is one that is recorded.
    pub fn take(&mut self, at: u64, event: &Event) -> std::io::Result<()> {
        match Said::of(event) {
            Some(said) => self.line(&Entry { at, said }),
            None => Ok(()),
        }
    }

    /// Everything is in the file.
    pub fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }

    fn line(&mut self, line: &impl Serialize) -> std::io::Result<()> {
        serde_json::to_writer(&mut self.out, line)?;
        self.out.write_all(b"\n")
    }
}

/// A recording that was read.
#[derive(Debug)]
pub struct Recording {
    /// Where the daemon was, in words.
    pub place: String,
    /// In the order of their times.
    pub entries: Vec<Entry>,
}

impl Recording {
    /// Reads one.
    pub fn open(path: &Path) -> Result<Recording, String> {
        let unreadable = |why: String| format!("{}: {why}", path.display());
        let file = File::open(path).map_err(|e| unreadable(e.to_string()))?;
        Recording::read(std::io::BufReader::new(file)).map_err(unreadable)
    }

    fn read(from: impl BufRead) -> Result<Recording, String> {
        // As bytes: one that is cut off may end within a character.
        let mut lines = from.split(b'\n').enumerate();
        let first = lines.next().and_then(|(_, line)| line.ok());
        let head: Option<Head> = first.and_then(|line| serde_json::from_slice(&line).ok());
        let Some(head) = head else {
            return Err("is no recording of robustctl".to_owned());
        };
        if head.robust_console > VERSION {
            let theirs = head.robust_console;
            return Err(format!(
                "was made by a newer robustctl (format {theirs}, this one reads up to {VERSION})"
            ));
        }
        let mut entries: Vec<Entry> = Vec::new();
        let mut bad = None;
        for (number, line) in lines {
            let line = line.map_err(|e| format!("line {}: {e}", number + 1))?;
            // Only the last line may be cut off.
            if let Some(problem) = bad {
                return Err(problem);
            }
            match serde_json::from_slice::<Entry>(&line) {
                Ok(entry) => {
                    // A clock that was set back shall not make time run backwards.
                    let last = entries.last().map_or(head.at, |e| e.at);
                    let at = entry.at.max(last);
                    entries.push(Entry { at, ..entry });
                }
                Err(e) => bad = Some(format!("line {}: {e}", number + 1)),
            }
        }
        if entries.is_empty() {
            return Err("holds nothing".to_owned());
        }
        Ok(Recording {
            place: head.place,
            entries,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> Result<Recording, String> {
        Recording::read(text.as_bytes())
    }

    #[test]
    fn what_was_recorded_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("session.jsonl");
        let status = v1::Status {
            job: "arith".into(),
            step: 7,
            ..Default::default()
        };
        let status = Box::new(status);
        let reason = "gone".to_owned();
        let spans = vec![v1::PhaseSpan {
            phase: "update".into(),
            ..Default::default()
        }];
        let said = [
            Said::Status(status),
            Said::Phases(spans),
            Said::Lost(reason),
        ];
        let mut recorder = Recorder::create(&path, 5, "here".into()).unwrap();
        for (at, said) in (10..).zip(said.clone()) {
            recorder.take(at, &said.event(3)).unwrap();
        }
        recorder.take(12, &Event::Tick).unwrap();
        recorder.flush().unwrap();
        let recording = Recording::open(&path).unwrap();
        let read: Vec<Said> = recording.entries.into_iter().map(|e| e.said).collect();
        assert_eq!(read, said);
        let again = Recorder::create(&path, 5, String::new());
        assert!(again.is_err(), "a recording is never overwritten");
    }

    #[test]
    fn a_newer_format_and_another_file_are_refused_in_a_sentence() {
        let newer = read("{\"robust_console\":3,\"at\":1,\"place\":\"\"}\n").unwrap_err();
        assert!(newer.contains("made by a newer robustctl"), "{newer}");
        let other = read("hello\n").unwrap_err();
        assert!(other.contains("is no recording"), "{other}");
    }

    #[test]
    fn a_line_cut_off_at_the_end_is_left_out_and_one_in_the_middle_is_not() {
        let head = "{\"robust_console\":1,\"at\":1,\"place\":\"\"}\n";
        let lost = "{\"at\":2,\"lost\":\"gone\"}\n";
        let cut = "{\"at\":3,\"lo\n";
        assert_eq!(
            read(&format!("{head}{lost}{cut}")).unwrap().entries.len(),
            1
        );
        let problem = read(&format!("{head}{cut}{lost}")).unwrap_err();
        assert!(problem.starts_with("line 2"), "{problem}");
    }

    #[test]
    fn a_recording_that_is_cut_anywhere_is_read_up_to_there() {
        let head = "{\"robust_console\":2,\"at\":1,\"place\":\"größe\"}\n";
        let lines = "{\"at\":2,\"lost\":\"später\"}\n{\"at\":3,\"lost\":\"日本\"}\n";
        let text = format!("{head}{lines}");
        // Where a line is whole, also without its end.
        let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        for cut in 0..=text.len() {
            let whole = ends.iter().filter(|end| **end <= cut).count();
            let read = Recording::read(&text.as_bytes()[..cut]);
            let entries = read.map(|recording| recording.entries.len());
            match whole {
                0 => assert!(entries.unwrap_err().contains("is no recording"), "at {cut}"),
                1 => assert_eq!(entries.unwrap_err(), "holds nothing", "at {cut}"),
                whole => assert_eq!(entries, Ok(whole - 1), "at {cut}"),
            }
        }
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_turn_time_around() {
        let head = "{\"robust_console\":1,\"at\":100,\"place\":\"\"}\n";
        let lines = "{\"at\":150,\"lost\":\"a\"}\n{\"at\":90,\"lost\":\"b\"}\n";
        let recording = read(&format!("{head}{lines}")).unwrap();
        let times: Vec<u64> = recording.entries.iter().map(|e| e.at).collect();
        assert_eq!(times, [150, 150]);
    }
}
