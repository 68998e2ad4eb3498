//! What is remembered of the services in `STATE/services.json`.
use crate::state::{StateDirError, write_private};
use robust_shared::service::ServiceId;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The layout of the file.
const FORMAT: u32 = 1;

/// The file's content, and where it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    path: PathBuf,
    written: Page,
    /// What it is to say.
    pub page: Page,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Page {
    format: u32,
    /// The highest number that a life had.
    pub last_life: u64,
    /// The job was paused because a service was missing.
    pub paused: bool,
    pub services: Vec<Entry>,
}

/// An instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub id: ServiceId,
    /// The ports that it was lent for good.
    pub ports: Vec<u16>,
    /// Its present life; 0: none.
    pub life: u64,
    /// Its shim's process id; 0: not known.
    pub pid: u32,
    /// Tells that process from a later one of its id.
    pub start_time: u64,
    /// Whether this life has answered.
    pub up: bool,
}

impl Book {
    /// As an earlier daemon left it; one that cannot be read is begun anew.
    pub fn open(path: PathBuf) -> Self {
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) => {
                if error.kind() != std::io::ErrorKind::NotFound {
                    tracing::warn!("{} cannot be read: {error}", path.display());
                }
                Vec::new()
            }
        };
        let page = read(&text, &path);
        Self {
            path,
            written: page.clone().unwrap_or_default(),
            page: page.unwrap_or(Page {
                format: FORMAT,
                ..Page::default()
            }),
        }
    }

    /// The entry of an instance.
    pub fn of(&mut self, id: &ServiceId) -> Option<&mut Entry> {
        self.page.services.iter_mut().find(|e| e.id == *id)
    }

    /// Writes what changed.
    pub fn save(&mut self) -> Result<(), StateDirError> {
        if self.page == self.written {
            return Ok(());
        }
        let text = serde_json::to_vec_pretty(&self.page).unwrap_or_default();
        write_private(&self.path, &text)?;
        self.written.clone_from(&self.page);
        Ok(())
    }
}

fn read(text: &[u8], path: &Path) -> Option<Page> {
    if text.is_empty() {
        return None;
    }
    match serde_json::from_slice::<Page>(text) {
        Ok(page) if page.format == FORMAT => Some(page),
        Ok(page) => {
            tracing::warn!("{} has layout {}: begun anew", path.display(), page.format);
            None
        }
        Err(error) => {
            tracing::warn!("{} is no list of services: {error}", path.display());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_was_saved_comes_back_and_what_is_no_book_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("services.json");
        let mut book = Book::open(path.clone());
        book.page.last_life = 3;
        book.page.services.push(Entry {
            id: ServiceId {
                name: "judge".to_owned(),
                index: 0,
            },
            ports: vec![20001],
            life: 3,
            pid: 42,
            start_time: 7,
            up: true,
        });
        book.save().unwrap();
        assert_eq!(Book::open(path.clone()).page, book.page);
        std::fs::write(&path, "{").unwrap();
        assert_eq!(Book::open(path).page.last_life, 0);
    }
}
