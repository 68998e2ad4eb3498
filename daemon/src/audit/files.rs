//! The files of the audit log.
//!
//! ```text
//!  audit.1.jsonl  audit.2.jsonl  ..  audit.jsonl     audit.head: where the chain ends
//! ```
//! A line is written, then the head over the one before: at no time is the head of a line that is not there.
//! After a power cut it may be an older one, which is true of its line, too.
use super::MOST_FILES;
use super::kept::{Line, number_of};
use robust_proto::v1::AuditEntry;
use robust_shared::audit::{FILE, HEAD, Head, older_file, older_number};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A place in the log: a file's number, and a place in it. The default is its begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    file: u64,
    at: u64,
}

/// Appends.
#[derive(Debug)]
pub(super) struct Writer {
    state: PathBuf,
    file: File,
    bytes: u64,
    most_bytes: u64,
    head: Head,
    /// Where that is noted.
    noted: File,
}

impl Writer {
    /// Opens the log, and says the highest number of an entry in it.
    pub fn open(state: &Path, most_bytes: u64) -> io::Result<(Self, u64)> {
        let mut file = private(&state.join(FILE))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let whole = text
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |at| at + 1);
        text.truncate(whole);
        file.set_len(whole as u64)?;
        let mut id = entries(&text).map(|e| e.id).max();
        let mut head = last_head(&text);
        if let Some(&number) = older(state)?.last() {
            let before = std::fs::read(state.join(older_file(number)))?;
            id = id.max(entries(&before).map(|e| e.id).max());
            head = head.or_else(|| last_head(&before));
        }
        let mut noted = noted(&state.join(HEAD))?;
        let mut known = String::new();
        noted.read_to_string(&mut known).ok();
        // Where lines are gone the chain goes on from what was noted, so that the gap stays to be seen.
        let known = Head::parse(&known).filter(|known| head.is_none_or(|head| known.n > head.n));
        let head = known.or(head).unwrap_or_else(|| Head::begin(&text));
        let writer = Self {
            state: state.to_owned(),
            file,
            bytes: whole as u64,
            most_bytes,
            head,
            noted,
        };
        Ok((writer, id.unwrap_or(0)))
    }

    /// Appends an entry, and says as which line; with `synced` it is on disk when this returns.
    pub fn append(&mut self, entry: &AuditEntry, synced: bool) -> io::Result<Line> {
        if self.bytes >= self.most_bytes {
            self.rotate()?;
        }
        let (line, head) = self.head.seal(&serde_json::to_string(entry)?);
        let line = line + "\n";
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            // A part of a line would be taken for a damage.
            self.file.set_len(self.bytes)?;
            return Err(error);
        }
        self.bytes += line.len() as u64;
        self.head = head;
        if synced {
            self.file.sync_data()?;
        }
        self.noted.write_all_at(head.text().as_bytes(), 0)?;
        Ok((head.n, line))
    }

    /// The file becomes an older one, and a new one is begun.
    fn rotate(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        let older = older(&self.state)?;
        let number = older.last().map_or(1, |last| last + 1);
        let path = self.state.join(FILE);
        std::fs::rename(&path, self.state.join(older_file(number)))?;
        self.file = private(&path)?;
        self.bytes = 0;
        File::open(&self.state)?.sync_all()?;
        let surplus = (older.len() + 1).saturating_sub(MOST_FILES);
        for number in older.into_iter().take(surplus) {
            std::fs::remove_file(self.state.join(older_file(number)))?;
        }
        Ok(())
    }
}

fn private(path: &Path) -> io::Result<File> {
    options().append(true).open(path)
}

fn noted(path: &Path) -> io::Result<File> {
    options().write(true).open(path)
}

/// For its owner alone; a link that somebody laid there is not followed.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).create(true).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW);
    options
}

/// The numbers of the older files, in order.
pub(super) fn older(state: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(state)? {
        numbers.extend(entry?.file_name().to_str().and_then(older_number));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Lines that are no entries, as a crash of a former build may have left, are passed over.
fn entries(text: &[u8]) -> impl Iterator<Item = AuditEntry> + '_ {
    let lines = text.split_inclusive(|b| *b == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line).ok())
}

/// The last lines of the chain, so many at least if there are, in order.
pub(super) fn lines_of(state: &Path, least: usize) -> io::Result<Vec<Line>> {
    let older = older(state)?.into_iter().rev().map(older_file);
    let mut lines = VecDeque::new();
    for name in [FILE.to_owned()].into_iter().chain(older) {
        if lines.len() >= least {
            break;
        }
        for line in lines_in(&state.join(name))?.into_iter().rev() {
            lines.push_front(line);
        }
    }
    Ok(lines.into())
}

/// The lines of the chain in a file, which may not be there.
fn lines_in(path: &Path) -> io::Result<Vec<Line>> {
    let text = match std::fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let whole = text.split_inclusive(|b| *b == b'\n');
    let whole = whole.filter(|line| line.ends_with(b"\n"));
    let numbered =
        |line: &[u8]| Some((number_of(line)?, String::from_utf8_lossy(line).into_owned()));
    Ok(whole.filter_map(numbered).collect())
}

/// Takes the lines after this one out of the files, and returns them.
pub(super) fn cut_after(state: &Path, last: u64) -> io::Result<Vec<Line>> {
    let mut cut = Vec::new();
    let older = older(state)?.into_iter().map(older_file);
    for name in older.chain([FILE.to_owned()]) {
        let path = state.join(name);
        let late: Vec<Line> = lines_in(&path)?
            .into_iter()
            .filter(|(n, _)| *n > last)
            .collect();
        if late.is_empty() {
            continue;
        }
        // Lines of a build without a chain stay as well.
        let text = std::fs::read(&path)?;
        let stays =
            |line: &&[u8]| line.ends_with(b"\n") && number_of(line).is_none_or(|n| n <= last);
        let text: Vec<u8> = text
            .split_inclusive(|b| *b == b'\n')
            .filter(stays)
            .flatten()
            .copied()
            .collect();
        let beside = path.with_extension("new");
        let mut file = options().write(true).truncate(true).open(&beside)?;
        file.write_all(&text)?;
        file.sync_data()?;
        std::fs::rename(beside, &path)?;
        cut.extend(late);
    }
    match std::fs::remove_file(state.join(HEAD)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    Ok(cut)
}

/// Appends lines of the chain to a file of the log, as they are.
pub(super) fn lines_to(
    state: &Path,
    name: &str,
    lines: impl Iterator<Item = Line>,
) -> io::Result<()> {
    let path = state.join(name);
    let mut file = private(&path)?;
    // A line that a crash cut off is nobody's.
    let text = std::fs::read(&path)?;
    let whole = text
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |at| at + 1);
    file.set_len(whole as u64)?;
    for (_, line) in lines {
        file.write_all(line.as_bytes())?;
    }
    file.sync_data()
}

fn last_head(text: &[u8]) -> Option<Head> {
    let mut lines = text.rsplit(|b| *b == b'\n').filter(|line| !line.is_empty());
    lines.find_map(Head::after)
}

/// Opens all files from a place on, with their numbers.
pub(super) fn open_from(state: &Path, from: Position) -> io::Result<Vec<(u64, File)>> {
    let older = older(state)?;
    let newest = older.last().map_or(1, |last| last + 1);
    let mut parts = Vec::new();
    for number in older.into_iter().filter(|number| *number >= from.file) {
        parts.push((number, File::open(state.join(older_file(number)))?));
    }
    match File::open(state.join(FILE)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        file => parts.push((newest, file?)),
    }
    Ok(parts)
}

/// Whole lines only: one that is being written is for the next time.
pub(super) fn read(
    parts: Vec<(u64, File)>,
    from: Position,
) -> io::Result<(Vec<AuditEntry>, Position)> {
    let (mut entries, mut end) = (Vec::new(), from);
    for (number, mut file) in parts {
        let at = match number == from.file {
            true => from.at,
            false => 0,
        };
        file.seek(SeekFrom::Start(at))?;
        let at = read_file(BufReader::new(file), at, &mut entries)?;
        end = Position { file: number, at };
    }
    Ok((entries, end))
}

fn read_file(
    mut file: BufReader<File>,
    mut at: u64,
    entries: &mut Vec<AuditEntry>,
) -> io::Result<u64> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = file.read_until(b'\n', &mut line)?;
        if read == 0 || !line.ends_with(b"\n") {
            return Ok(at);
        }
        at += read as u64;
        entries.extend(serde_json::from_slice::<AuditEntry>(&line).ok());
    }
}
