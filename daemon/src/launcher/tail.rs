//! The last lines of a log.
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

const TAIL_BYTES: u64 = 4096;

/// What was written after `from`, its last 4 KiB, cut at a line's begin. Empty when unreadable.
pub fn tail(path: &Path, from: u64) -> String {
    read(path, from).unwrap_or_default()
}

fn read(path: &Path, from: u64) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let end = file.metadata()?.len();
    let start = from.max(end.saturating_sub(TAIL_BYTES));
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let text = if start > from {
        text.split_once('\n')
            .map_or(&*text, |(_, whole_lines)| whole_lines)
    } else {
        &text
    };
    Ok(text.trim_end().to_owned())
}
