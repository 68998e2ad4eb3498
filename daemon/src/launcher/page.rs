//! A log read piece by piece, by whoever remembers how far it is.
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Most bytes of a page.
pub const PAGE_BYTES: u32 = 64 << 10;

/// A part of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPage {
    /// What it says there; empty at its end.
    pub data: Vec<u8>,
    /// Bytes of the whole log, now.
    pub size: u64,
}

/// What a log says from `offset` on. One that is not there (yet) is empty.
pub fn page(path: &Path, offset: u64, bytes: u32) -> io::Result<LogPage> {
    let mut file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(LogPage::default()),
        opened => opened?,
    };
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(offset))?;
    let mut data = Vec::new();
    file.take(bytes.min(PAGE_BYTES).into())
        .read_to_end(&mut data)?;
    Ok(LogPage { data, size })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_log_is_read_in_pages_to_its_end_and_one_that_is_not_there_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rollout-0.log");
        assert_eq!(page(&path, 0, 10).unwrap(), LogPage::default());
        let text: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(&path, &text).unwrap();
        let mut read = Vec::new();
        loop {
            let LogPage { data, size } = page(&path, read.len() as u64, u32::MAX).unwrap();
            assert_eq!(size, 200_000);
            assert!(data.len() <= PAGE_BYTES as usize);
            if data.is_empty() {
                break;
            }
            read.extend(data);
        }
        assert_eq!(read, text);
        assert_eq!(page(&path, 300_000, 10).unwrap().data, Vec::<u8>::new());
    }
}
