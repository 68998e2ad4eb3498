//! The thread that writes checkpoints, one at a time.
use super::room::{LOOK_EVERY, Room};
use super::save::{now, save};
use super::{CkptEvent, Config, Offer, Request, WriteError};
use crate::store::{Store, StoreError, StoredCheckpoint};
use robust_ckpt::{
    Checkpoint, CkptError, Known, Listed, folder, folder_name, folders, list, manifest,
};
use robust_shared::ids::Step;
use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Instant;
use tokio::sync::mpsc::UnboundedSender;

/// Writes checkpoints in the background. Cheap to clone; the thread ends with the last clone, once
/// what it writes is written.
#[derive(Clone)]
pub struct Checkpointer {
    requests: Sender<Work>,
    events: UnboundedSender<CkptEvent>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    busy: AtomicBool,
    skipped: AtomicU64,
}

impl Checkpointer {
    /// Starts the thread, which first brings the index in line with the manifests on disk.
    pub fn start(
        config: Config,
        store: Store,
        events: UnboundedSender<CkptEvent>,
    ) -> io::Result<Self> {
        std::fs::create_dir_all(&config.dir)?;
        let (requests, receiver) = channel();
        let state = Arc::new(State::default());
        let worker = Worker {
            config,
            store,
            events: events.clone(),
            state: Arc::clone(&state),
            room: Room::default(),
        };
        std::thread::Builder::new()
            .name("checkpoints".to_owned())
            .spawn(move || worker.run(&receiver))?;
        Ok(Self {
            requests,
            events,
            state,
        })
    }

    /// Offers a committed step; never waits.
    pub fn offer(&self, request: Request) -> Offer {
        match self.begin() {
            Some(turn) => turn.write(request),
            None => Offer::Behind,
        }
    }

    /// The turn of a committed step whose shards have to be gathered first; none while an earlier one is being written.
    pub fn begin(&self) -> Option<Turn> {
        if self.state.busy.swap(true, Ordering::AcqRel) {
            self.state.skipped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(Turn {
            checkpointer: self.clone(),
            begun: Instant::now(),
            taken: false,
        })
    }

    /// Steps skipped because an earlier one was still being written. Normal: 0, or a few where
    /// checkpoints are frequent and the disk is slow.
    pub fn skipped(&self) -> u64 {
        self.state.skipped.load(Ordering::Relaxed)
    }
}

/// The only checkpoint that is being made; dropped before it is written, the next one may be.
pub struct Turn {
    checkpointer: Checkpointer,
    begun: Instant,
    taken: bool,
}

impl Turn {
    /// Has it written.
    pub fn write(self, request: Request) -> Offer {
        self.write_keeping(request, ())
    }

    /// Has it written, and what its shards need to stay is kept until it is.
    pub fn write_keeping(mut self, request: Request, kept: impl Send + 'static) -> Offer {
        let requests = &self.checkpointer.requests;
        let write = Write {
            request,
            offered: self.begun,
            _kept: Box::new(kept),
        };
        self.taken = requests.send(Work::Write(write)).is_ok();
        match self.taken {
            true => Offer::Taken,
            false => Offer::Behind,
        }
    }

    /// It cannot be.
    pub fn fail(self, step: Step, error: WriteError) {
        self.end(CkptEvent::Failed { step, error });
    }

    /// It is not written here, and this came of it.
    pub fn end(self, event: CkptEvent) {
        let events = self.checkpointer.events.clone();
        // Before the event, so that whoever sees it can offer the next one.
        drop(self);
        // The receiver is gone when the daemon ends.
        let _ = events.send(event);
    }

    /// Says so at once.
    pub fn tell(&self, event: CkptEvent) {
        // The receiver is gone when the daemon ends.
        let _ = self.checkpointer.events.send(event);
    }

    /// The step's checkpoint is elsewhere, as this event says: what was brought here of others goes as if it were here.
    pub fn tidy(mut self, step: Step, event: CkptEvent) {
        let requests = &self.checkpointer.requests;
        self.taken = requests.send(Work::Tidy(step, event)).is_ok();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.taken {
            self.checkpointer.state.busy.store(false, Ordering::Release);
        }
    }
}

/// What the thread is given.
enum Work {
    Write(Write),
    /// After a checkpoint elsewhere, of which it tells then.
    Tidy(Step, CkptEvent),
}

struct Write {
    request: Request,
    offered: Instant,
    /// What is let go of once it is written.
    _kept: Box<dyn Any + Send>,
}

struct Worker {
    config: Config,
    store: Store,
    events: UnboundedSender<CkptEvent>,
    state: Arc<State>,
    room: Room,
}

impl Worker {
    fn run(&self, requests: &Receiver<Work>) {
        if let Err(error) = self.reindex() {
            self.tell(CkptEvent::Untidy(format!(
                "checkpoints could not be indexed: {error}"
            )));
        }
        while let Some(work) = self.next(requests) {
            let event = match work {
                Work::Write(write) => match self.room.look(&self.config, &write.request) {
                    Some(paused) => paused,
                    None => self.attempt(&write.request, write.offered),
                },
                Work::Tidy(step, event) => {
                    self.tidy_after(step);
                    event
                }
            };
            // Before the event, so that whoever sees it can offer the next one.
            self.state.busy.store(false, Ordering::Release);
            self.tell(event);
        }
    }

    /// The next step offered. While there was no room for the last one, the disk is looked at.
    fn next(&self, requests: &Receiver<Work>) -> Option<Work> {
        while self.room.is_paused() {
            match requests.recv_timeout(LOOK_EVERY) {
                Ok(next) => return Some(next),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => self
                    .room
                    .look_again(&self.config)
                    .into_iter()
                    .for_each(|event| self.tell(event)),
            }
        }
        requests.recv().ok()
    }

    fn attempt(&self, request: &Request, offered: Instant) -> CkptEvent {
        let step = request.step;
        match save(&self.config, request) {
            Ok(saved) => {
                let took = offered.elapsed();
                // One that was offered while it seemed full, and fits after all.
                self.room
                    .look_again(&self.config)
                    .into_iter()
                    .for_each(|event| self.tell(event));
                self.tidy_after(step);
                CkptEvent::Written {
                    step,
                    generation: request.generation,
                    bytes: request.shards.iter().map(|s| s.bytes).sum(),
                    unchanged: saved.unchanged,
                    took,
                    direct: saved.direct,
                }
            }
            Err(error) => {
                let paused = self.room.failed(&self.config, request, &error);
                paused.unwrap_or_else(|| CkptEvent::Failed {
                    step,
                    error: error.into(),
                })
            }
        }
    }

    fn tell(&self, event: CkptEvent) {
        // The receiver is gone when the daemon ends.
        let _ = self.events.send(event);
    }

    fn tidy_after(&self, step: Step) {
        if let Err(error) = self.tidy(step) {
            let text = format!("after the checkpoint of step {step}: {error}");
            self.tell(CkptEvent::Untidy(text));
        }
    }

    /// Removes what need not stay, and leftovers of attempts before this one that never got their
    /// manifest; then the index is brought in line.
    fn tidy(&self, step: Step) -> Result<(), WriteError> {
        let (dir, disk) = (&self.config.dir, &*self.config.disk);
        let listed = list(dir).map_err(CkptError::io("list", dir))?;
        // Newer ones stem from a gang that was rolled back behind them: they are history that did
        // not happen, and must not be found as the newest.
        let (abandoned, kept): (Vec<_>, Vec<_>) = listed.iter().partition(|l| l.step > step);
        let known: Vec<_> = kept.into_iter().map(known).collect();
        let surplus = self.config.keep.surplus(&known);
        let gone = |l: &&Listed| surplus.contains(&l.step);
        let abandoned = abandoned.into_iter();
        for old in abandoned.chain(listed.iter().filter(gone)) {
            folder::remove(disk, &old.dir)?;
        }
        let left = folders(dir)
            .map_err(CkptError::io("list", dir))?
            .into_iter();
        for (_, partial) in left.filter(|(_, dir)| !dir.join(manifest::FILE).exists()) {
            folder::remove(disk, &partial)?;
        }
        Ok(self.reindex()?)
    }

    /// The manifests are the truth: the index may stem from before a crash, or be new and empty, or
    /// an operator collected some.
    fn reindex(&self) -> Result<(), StoreError> {
        let listed = list(&self.config.dir).unwrap_or_default();
        let found: Vec<_> = listed.into_iter().filter_map(|l| l.manifest.ok()).collect();
        let indexed = self.store.checkpoints()?;
        for gone in indexed
            .iter()
            .filter(|i| !found.iter().any(|f| f.step == i.step))
        {
            self.store.remove_checkpoint(gone.step).wait()?;
        }
        for new in found.iter().filter(|f| {
            !indexed
                .iter()
                .any(|i| i.step == f.step && Some(i.at) == f.at)
        }) {
            self.store.put_checkpoint(entry(new)).wait()?;
        }
        Ok(())
    }
}

fn known(listed: &Listed) -> Known {
    Known {
        step: listed.step,
        reward: listed.manifest.as_ref().ok().and_then(|c| c.reward),
        pinned: listed.pinned,
        usable: listed.manifest.is_ok(),
    }
}

fn entry(checkpoint: &Checkpoint) -> StoredCheckpoint {
    StoredCheckpoint {
        step: checkpoint.step,
        folder: folder_name(checkpoint.step.0),
        bytes: checkpoint.bytes(),
        at: checkpoint.at.unwrap_or_else(now),
    }
}
