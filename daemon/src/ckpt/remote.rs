//! Background upload of checkpoints to an object store.
//!
//! ```text
//!  on disk ── offered ──► busy ── shards, then the manifest ──► over there ─► what need not stay goes
//!                │          └─ failed: an event, and the next checkpoint is another chance
//!                └► Behind: an earlier one is still on its way; skipped and counted, never queued
//! ```
//! Nobody waits for it: neither the trainer nor the disk.
use super::{CkptEvent, Offer};
use robust_ckpt::{Retention, folder_name, list};
use robust_remote::{Local, Remote, RemoteError, Uploaded};
use robust_shared::ids::Step;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::UnboundedSender;

/// What is put where.
#[derive(Clone, Debug)]
pub struct RemoteConfig {
    /// The store.
    pub remote: Remote,
    /// The life of the job, which everything of it is put under.
    pub run: String,
    /// Where checkpoints are on disk.
    pub dir: PathBuf,
    /// At least so many steps between two that are put.
    pub every: u64,
    /// Which stay there.
    pub keep: Retention,
}

impl RemoteConfig {
    /// Removes what need not stay there, after the upload of a step; the error is a sentence.
    pub(super) async fn tidy(&self, step: Step) -> Result<(), String> {
        let listed = list(&self.dir).unwrap_or_default();
        let pinned = listed.iter().filter(|l| l.pinned).map(|l| l.step);
        let pinned: BTreeSet<Step> = pinned.collect();
        let tidied = self.remote.tidy(&self.run, &self.keep, &pinned).await;
        let url = self.remote.url();
        let untidy = |error| format!("after the upload of step {step} to {url}: {error}");
        tidied.map(drop).map_err(untidy)
    }
}

/// How it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteStanding {
    /// The last step that was put.
    pub step: Option<Step>,
    /// Bytes sent in this life of the daemon.
    pub sent_bytes: u64,
    /// Checkpoints skipped because an earlier one was still on its way. Normal: 0.
    pub skipped: u64,
    /// Uploads that failed.
    pub failed: u64,
    /// Why the last one failed; none once one succeeded.
    pub failing: Option<String>,
    /// The step on its way.
    under_way: Option<Step>,
}

impl RemoteStanding {
    /// Whether nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.under_way.is_none()
    }

    /// Whether a step comes too soon after the last one that was put.
    pub(super) fn is_soon(&self, step: Step, every: u64) -> bool {
        self.step
            .is_some_and(|last| step > last && step.0 - last.0 < every)
    }

    /// A step was put, or was not.
    pub(super) fn note<T>(&mut self, step: Step, put: &Result<T, RemoteError>) {
        self.under_way = None;
        match put {
            Ok(_) => {
                self.step = Some(step);
                self.failing = None;
            }
            Err(error) => {
                self.failed += 1;
                self.failing = Some(error.to_string());
            }
        }
    }
}

/// Puts checkpoints in the background. Cheap to clone; the thread ends with the last clone, once
/// what is on its way has arrived or failed.
#[derive(Clone)]
pub struct Uploader {
    wishes: Sender<Step>,
    every: u64,
    url: String,
    standing: Arc<Mutex<RemoteStanding>>,
}

impl Uploader {
    /// Starts the thread.
    pub fn start(config: RemoteConfig, events: UnboundedSender<CkptEvent>) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (wishes, receiver) = channel();
        let (every, url) = (config.every, config.remote.url().to_owned());
        let standing = Arc::default();
        let thread = Thread {
            config,
            events,
            runtime,
            standing: Arc::clone(&standing),
        };
        std::thread::Builder::new()
            .name("uploads".to_owned())
            .spawn(move || thread.run(&receiver))?;
        Ok(Self {
            wishes,
            every,
            url,
            standing,
        })
    }

    /// Offers the checkpoint of a step that is on disk; never waits. None when it is too soon after
    /// the last one.
    pub fn offer(&self, step: Step) -> Option<Offer> {
        let soon = self.standing().is_soon(step, self.every);
        (!soon).then(|| self.offer_now(step))
    }

    /// The same, however soon.
    pub fn offer_now(&self, step: Step) -> Offer {
        let mut standing = lock(&self.standing);
        if standing.under_way.is_some() || self.wishes.send(step).is_err() {
            standing.skipped += 1;
            return Offer::Behind;
        }
        standing.under_way = Some(step);
        Offer::Taken
    }

    /// How it stands.
    pub fn standing(&self) -> RemoteStanding {
        lock(&self.standing).clone()
    }

    /// Where to.
    pub fn url(&self) -> &str {
        &self.url
    }
}

pub(super) fn lock(standing: &Mutex<RemoteStanding>) -> std::sync::MutexGuard<'_, RemoteStanding> {
    standing.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Thread {
    config: RemoteConfig,
    events: UnboundedSender<CkptEvent>,
    runtime: Runtime,
    standing: Arc<Mutex<RemoteStanding>>,
}

impl Thread {
    fn run(&self, wishes: &Receiver<Step>) {
        while let Ok(step) = wishes.recv() {
            let begun = Instant::now();
            let uploaded = self.runtime.block_on(self.upload(step));
            if uploaded.is_ok() {
                self.tidy(step);
            }
            // Before the event, so that whoever sees it can offer the next one.
            lock(&self.standing).note(step, &uploaded);
            let event = match uploaded {
                Ok(Uploaded { bytes, .. }) => CkptEvent::Uploaded {
                    step,
                    bytes,
                    took: begun.elapsed(),
                    url: self.config.remote.url().to_owned(),
                },
                Err(error) => CkptEvent::NotUploaded {
                    step,
                    url: self.config.remote.url().to_owned(),
                    error,
                },
            };
            self.tell(event);
        }
    }

    async fn upload(&self, step: Step) -> Result<Uploaded, RemoteError> {
        let RemoteConfig {
            remote, run, dir, ..
        } = &self.config;
        let local = Local::open(&dir.join(folder_name(step.0)))?;
        let mut sent = |bytes| lock(&self.standing).sent_bytes += bytes;
        remote.upload(run, local, &mut sent).await
    }

    fn tidy(&self, step: Step) {
        if let Err(text) = self.runtime.block_on(self.config.tidy(step)) {
            self.tell(CkptEvent::Untidy(text));
        }
    }

    fn tell(&self, event: CkptEvent) {
        // The receiver is gone when the daemon ends.
        let _ = self.events.send(event);
    }
}

#[cfg(test)]
#[path = "remote_tests.rs"]
mod tests;
