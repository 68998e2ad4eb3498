//! The page on which a program writes its phases.
//!
//! ```text
//!   byte 0   "RBSTPHAS"   8  version, u32   16  entries written so far, u64      all little-endian
//!   64 and on: 63 entries of 64 bytes, entry N at 64 + (N - 1) % 63 * 64
//!              0  N, u64    8  step, u64    16  time, ns of CLOCK_MONOTONIC, u64   24  phase, 40 bytes, zeros after it
//! ```
//! The program writes an entry from its second word on, then the entry's number, then the number of
//! entries. No message is sent and no lock taken: whoever reads sees what a stopped program wrote
//! last, and a program in any language can write it. Who reads is late by its own pace, so the last 63
//! entries are kept: a phase that lasted a moment is told, too.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// The page's length.
pub const BYTES: usize = 4096;
/// Its first bytes.
pub const MAGIC: [u8; 8] = *b"RBSTPHAS";
const VERSION: u32 = 1;
const COUNT_AT: usize = 16;
const ENTRY: usize = 64;
const ENTRIES: u64 = 63;
const NAME_AT: usize = 24;

/// A change of phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The phase's name, as the program wrote it.
    pub phase: String,
    /// The step that it is about.
    pub step: u64,
}

/// The page as its reader has it.
#[derive(Debug)]
pub struct Page {
    file: File,
    /// Entries that were read.
    read: u64,
}

impl Page {
    /// Makes an empty page at `path`.
    pub fn make(path: &Path) -> io::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?;
        let mut page = [0; BYTES];
        page[..8].copy_from_slice(&MAGIC);
        page[8..12].copy_from_slice(&VERSION.to_le_bytes());
        file.write_all_at(&page, 0)?;
        Ok(Self { file, read: 0 })
    }

    /// The changes since the last look, in their order. Of more than the page keeps the first are lost.
    pub fn changes(&mut self) -> Vec<Change> {
        let mut page = [0; BYTES];
        if self.file.read_exact_at(&mut page, 0).is_err() {
            return Vec::new();
        }
        let written = word(&page, COUNT_AT);
        let first = self.read.max(written.saturating_sub(ENTRIES)) + 1;
        let changes = (first..=written).filter_map(|number| entry(&page, number));
        self.read = self.read.max(written);
        changes.collect()
    }
}

fn entry(page: &[u8; BYTES], number: u64) -> Option<Change> {
    let at = ENTRY + ((number - 1) % ENTRIES) as usize * ENTRY;
    // Another number: the program is writing a later one there.
    if word(page, at) != number {
        return None;
    }
    let name = &page[at + NAME_AT..at + ENTRY];
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(Change {
        phase: String::from_utf8_lossy(name).into_owned(),
        step: word(page, at + 8),
    })
}

fn word(page: &[u8; BYTES], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&page[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn write(page: &Page, number: u64, phase: &str, step: u64) {
        let at = (ENTRY + ((number - 1) % ENTRIES) as usize * ENTRY) as u64;
        let mut name = [0; ENTRY - NAME_AT];
        name[..phase.len()].copy_from_slice(phase.as_bytes());
        page.file.write_all_at(&name, at + NAME_AT as u64).unwrap();
        page.file.write_all_at(&step.to_le_bytes(), at + 8).unwrap();
        page.file.write_all_at(&number.to_le_bytes(), at).unwrap();
        let count = number.to_le_bytes();
        page.file.write_all_at(&count, COUNT_AT as u64).unwrap();
    }

    #[test]
    fn every_phase_is_told_once_and_in_order_also_when_the_ring_comes_round() {
        let dir = tempfile::tempdir().unwrap();
        let mut page = Page::make(&dir.path().join("page")).unwrap();
        assert_eq!(page.changes(), []);
        let mut number = 0;
        for round in 0..10 {
            for _ in 0..20 {
                number += 1;
                write(&page, number, "update", number * 2);
            }
            let changes = page.changes();
            assert_eq!(changes.len(), 20, "round {round}");
            assert_eq!(changes[19].step, number * 2);
            assert_eq!(changes[0].phase, "update");
        }
        assert_eq!(page.changes(), []);
    }

    #[test]
    fn of_more_changes_than_the_page_keeps_the_last_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut page = Page::make(&dir.path().join("page")).unwrap();
        for number in 1..=100 {
            write(&page, number, "snapshot", number);
        }
        let steps: Vec<u64> = page.changes().iter().map(|c| c.step).collect();
        assert_eq!(steps, (38..=100).collect::<Vec<u64>>());
    }
}
