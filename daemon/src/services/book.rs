//! What is remembered of the services in `STATE/services.json`, written on a thread of its own: the
//! driver must not wait for the disk. What has to come after a page is on disk is done there, too.
use crate::state::write_private;
use robust_shared::service::ServiceId;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

/// The layout of the file.
const FORMAT: u32 = 1;

/// The file's content, and the way to who writes it.
#[derive(Debug)]
pub(super) struct Book {
    /// What is written, or is on its way.
    written: Page,
    /// What it is to say.
    pub page: Page,
    writer: Sender<Write>,
}

/// A page to write, if it is another than the one before, and what is done then.
struct Write {
    text: Option<Vec<u8>>,
    then: Box<dyn FnOnce() + Send>,
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
    /// As an earlier daemon left it; one that cannot be read is begun anew. The error is of the thread that
    /// writes it.
    pub fn open(path: PathBuf) -> io::Result<Self> {
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
        let (writer, writes) = channel();
        let writing = std::thread::Builder::new().name("services".to_owned());
        writing.spawn(move || write_all(&path, &writes))?;
        Ok(Self {
            written: page.clone().unwrap_or_default(),
            page: page.unwrap_or(Page {
                format: FORMAT,
                ..Page::default()
            }),
            writer,
        })
    }

    /// The entry of an instance.
    pub fn of(&mut self, id: &ServiceId) -> Option<&mut Entry> {
        self.page.services.iter_mut().find(|e| e.id == *id)
    }

    /// Has what changed written.
    pub fn save(&mut self) {
        if self.page != self.written {
            self.save_then(|| ());
        }
    }

    /// Has what changed written, and then this done.
    pub fn save_then(&mut self, then: impl FnOnce() + Send + 'static) {
        let changed = self.page != self.written;
        let text = changed.then(|| serde_json::to_vec_pretty(&self.page).unwrap_or_default());
        self.written.clone_from(&self.page);
        let then = Box::new(then);
        // The writer ends with this book.
        let _ = self.writer.send(Write { text, then });
    }

    /// Waits until everything so far is written and done.
    pub async fn settled(&mut self) {
        let (settled, waits) = oneshot::channel();
        self.save_then(move || {
            // Whoever waited may have left.
            let _ = settled.send(());
        });
        let _ = waits.await;
    }
}

fn write_all(path: &Path, writes: &Receiver<Write>) {
    while let Ok(Write { text, then }) = writes.recv() {
        let written = text.map(|text| write_private(path, &text));
        if let Some(Err(error)) = written {
            tracing::error!("what is known of the services is not written: {error}");
        }
        then();
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

    #[tokio::test]
    async fn what_was_saved_comes_back_and_what_is_no_book_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("services.json");
        let open = || Book::open(path.clone()).unwrap();
        let mut book = open();
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
        let seen = path.clone();
        let (written, first) = oneshot::channel();
        book.save_then(move || written.send(seen.exists()).unwrap());
        assert!(
            first.await.unwrap(),
            "it is on disk before what comes after it"
        );
        assert_eq!(open().page, book.page);
        book.page.last_life = 4;
        book.save();
        book.settled().await;
        assert_eq!(open().page.last_life, 4);
        std::fs::write(&path, "{").unwrap();
        assert_eq!(open().page.last_life, 0);
    }
}
