//! Raised: an exception, panic or fatal error in the end of a log: Python's traceback, also one that a
//! logger puts its mark before, Rust's panic, C++'s `terminate`, and what Python's faulthandler writes when
//! a signal ends the process.
use super::fold::fold;

/// So many innermost frames tell one cause from another; those further out are how it was come to.
const FRAMES: usize = 3;

const TRACEBACK: &str = "Traceback (most recent call last):";
const PANIC: &str = "panicked at ";
const TERMINATE: &str = "terminate called after throwing an instance of '";
const FATAL: &str = "Fatal Python error: ";

/// What a program ended of, by what its run time wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Raised {
    /// `RuntimeError`, `torch.OutOfMemoryError`, `panic`, `c10::Error`, ...
    kind: String,
    /// What it says besides; may be empty.
    message: String,
    /// Innermost first: `model.py forward`. No line numbers, which change with every edit.
    frames: Vec<String>,
}

impl Raised {
    /// The last one in a text.
    pub fn last_in(text: &str) -> Option<Self> {
        let lines: Vec<&str> = text.lines().collect();
        (0..lines.len()).rev().find_map(|at| Self::at(&lines[at..]))
    }

    /// `RuntimeError: no such layer`.
    pub fn line(&self) -> String {
        match self.message.as_str() {
            "" => self.kind.clone(),
            message => format!("{}: {message}", self.kind),
        }
    }

    /// Whether somebody asked the program to end.
    pub fn is_interrupt(&self) -> bool {
        matches!(self.kind.as_str(), "KeyboardInterrupt" | "SystemExit")
    }

    /// What it is known again by.
    pub fn identity(&self) -> impl Iterator<Item = String> + '_ {
        let words = [fold(&self.kind), fold(&self.message)];
        words.into_iter().chain(self.frames.iter().cloned())
    }

    /// The one that begins with the first of these lines.
    fn at(lines: &[&str]) -> Option<Self> {
        let (first, rest) = lines.split_first()?;
        if let Some((mark, _)) = first.split_once(TRACEBACK) {
            return traceback(mark, rest);
        }
        if let Some((_, words)) = first.split_once(PANIC) {
            return Some(panic(words.trim(), rest));
        }
        if let Some((_, words)) = first.split_once(TERMINATE) {
            return Some(terminate(words, rest));
        }
        let (_, words) = first.split_once(FATAL)?;
        Some(fatal(words, rest))
    }
}

/// Python's, with what a logger wrote before each of its lines.
fn traceback(mark: &str, lines: &[&str]) -> Option<Raised> {
    let bare = lines.iter().map(|line| unmarked(mark, line));
    let (mut frames, mut raised) = (Vec::new(), None);
    for line in bare {
        if let Some(frame) = frame(line) {
            frames.push(frame);
        } else if !line.is_empty() && !line.starts_with(char::is_whitespace) {
            raised = Some(line);
            break;
        }
    }
    // Without it the log was cut off, or the process ended in the middle.
    let (kind, message) = kind_and_message(raised?);
    let frames = frames.into_iter().rev().take(FRAMES).collect();
    Some(Raised {
        kind,
        message,
        frames,
    })
}

/// A line without the mark of its logger, whose time may be another than the first line's.
fn unmarked<'a>(mark: &str, line: &'a str) -> &'a str {
    match line.split_at_checked(mark.len()) {
        Some((before, bare)) if fold(before) == fold(mark) => bare,
        // A logger may leave the blank at the end out where nothing follows.
        _ if !mark.is_empty() && fold(line) == fold(mark) => "",
        _ => line,
    }
}

/// `  File "/opt/vllm/engine.py", line 12, in step` (faulthandler leaves the second comma out).
fn frame(line: &str) -> Option<String> {
    let (path, rest) = line.trim_start().strip_prefix("File \"")?.split_once('"')?;
    let file = path.rsplit('/').next().unwrap_or(path);
    let function = rest.split_once(" in ").map_or("", |(_, name)| name.trim());
    Some(format!("{} {}", fold(file), fold(function)))
}

fn kind_and_message(line: &str) -> (String, String) {
    let (kind, message) = line.split_once(": ").unwrap_or((line, ""));
    let kind = kind.trim_end_matches(':').trim();
    (kind.to_owned(), message.trim().to_owned())
}

/// Rust's: `thread 'main' panicked at src/rank.rs:12:34:` and the message in the next line; before 1.73
/// `thread 'main' panicked at 'message', src/rank.rs:12:34`.
fn panic(words: &str, lines: &[&str]) -> Raised {
    let quoted = words.strip_prefix('\'').and_then(|w| w.rsplit_once("', "));
    let (message, place) = match quoted {
        Some((message, place)) => (message, place),
        None => (lines.first().copied().unwrap_or_default(), words),
    };
    let file = place.split(':').next().unwrap_or(place);
    Raised {
        kind: "panic".to_owned(),
        message: message.trim().to_owned(),
        frames: vec![fold(file)],
    }
}

/// C++'s: the type, and in the next line `  what():  message`.
fn terminate(words: &str, lines: &[&str]) -> Raised {
    let what = lines.first().and_then(|l| l.trim().strip_prefix("what():"));
    Raised {
        kind: words.trim_end_matches('\'').to_owned(),
        message: what.unwrap_or_default().trim().to_owned(),
        frames: Vec::new(),
    }
}

/// faulthandler's: other threads may come first, and of each the innermost frame does.
fn fatal(words: &str, lines: &[&str]) -> Raised {
    let struck = lines.iter().position(|l| l.starts_with("Current thread"));
    let lines = lines.iter().skip(struck.unwrap_or_default());
    let frames = lines
        .skip_while(|line| frame(line).is_none())
        .map_while(|line| frame(line));
    Raised {
        kind: "Fatal Python error".to_owned(),
        message: words.trim().to_owned(),
        frames: frames.take(FRAMES).collect(),
    }
}
