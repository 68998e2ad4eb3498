//! The thread that writes checkpoints, one at a time.
use super::staging::{HostMemory, SnapshotMemory};
use super::{CkptError, CkptEvent, Config, Offer, Request, find, manifest, write};
use crate::store::{Store, StoreError, StoredCheckpoint};
use robust_shared::ids::Step;
use robust_shared::time::Time;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::UnboundedSender;

/// Writes checkpoints in the background. Cheap to clone; the thread ends with the last clone, once
/// what it writes is written.
#[derive(Clone)]
pub struct Checkpointer {
    requests: Sender<(Request, Instant)>,
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
        Self::start_with(config, store, events, Box::new(HostMemory))
    }

    /// Like [`Self::start`], staging in other memory.
    pub fn start_with(
        config: Config,
        store: Store,
        events: UnboundedSender<CkptEvent>,
        memory: Box<dyn SnapshotMemory>,
    ) -> io::Result<Self> {
        std::fs::create_dir_all(&config.dir)?;
        let (requests, receiver) = channel();
        let state = Arc::new(State::default());
        let worker = Worker {
            config,
            store,
            events,
            memory,
            state: Arc::clone(&state),
        };
        std::thread::Builder::new()
            .name("checkpoints".to_owned())
            .spawn(move || worker.run(&receiver))?;
        Ok(Self { requests, state })
    }

    /// Offers a committed step; never waits.
    pub fn offer(&self, request: Request) -> Offer {
        if self.state.busy.swap(true, Ordering::AcqRel)
            || self.requests.send((request, Instant::now())).is_err()
        {
            self.state.skipped.fetch_add(1, Ordering::Relaxed);
            return Offer::Behind;
        }
        Offer::Taken
    }

    /// Steps skipped because an earlier one was still being written. Normal: 0, or a few where
    /// checkpoints are frequent and the disk is slow.
    pub fn skipped(&self) -> u64 {
        self.state.skipped.load(Ordering::Relaxed)
    }
}

struct Worker {
    config: Config,
    store: Store,
    events: UnboundedSender<CkptEvent>,
    memory: Box<dyn SnapshotMemory>,
    state: Arc<State>,
}

impl Worker {
    fn run(&self, requests: &Receiver<(Request, Instant)>) {
        if let Err(error) = self.reindex() {
            self.tell(CkptEvent::Untidy(format!(
                "checkpoints could not be indexed: {error}"
            )));
        }
        while let Ok((request, offered)) = requests.recv() {
            let step = request.step;
            let written = self.write(&request);
            let event = match written {
                Ok(direct) => {
                    let bytes = request.shards.iter().map(|s| s.bytes).sum();
                    if let Err(error) = self.tidy(step, bytes) {
                        let text = format!("after the checkpoint of step {step}: {error}");
                        self.tell(CkptEvent::Untidy(text));
                    }
                    CkptEvent::Written {
                        step,
                        bytes,
                        took: offered.elapsed(),
                        direct,
                    }
                }
                Err(error) => CkptEvent::Failed { step, error },
            };
            // Before the event, so that whoever sees it can offer the next one.
            self.state.busy.store(false, Ordering::Release);
            self.tell(event);
        }
    }

    fn tell(&self, event: CkptEvent) {
        // The receiver is gone when the daemon ends.
        let _ = self.events.send(event);
    }

    fn write(&self, request: &Request) -> Result<bool, CkptError> {
        let dir = self.config.dir.join(find::folder_name(request.step.0));
        // The step may have been committed before, by a gang that was rolled back.
        remove(&dir)?;
        std::fs::create_dir(&dir).map_err(CkptError::io("make", &dir))?;
        let shards = || {
            let mut direct = true;
            for shard in &request.shards {
                let to = dir.join(manifest::shard_file(shard.rank));
                direct &= write::copy_shard(shard, &to, &*self.memory)?;
            }
            write::sync_dir(&dir)?;
            manifest::store(&dir, request)?;
            write::sync_dir(&self.config.dir)?;
            Ok(direct)
        };
        shards().inspect_err(|_| {
            // Gives its space back; the error at hand is the one to tell.
            let _ = remove(&dir);
        })
    }

    /// Indexes the new checkpoint, then removes those beyond the number to keep, and leftovers of
    /// attempts before it that never got their manifest.
    fn tidy(&self, step: Step, bytes: u64) -> Result<(), CkptError> {
        self.store.put_checkpoint(entry(step, bytes)).wait()?;
        let folders =
            find::folders(&self.config.dir).map_err(CkptError::io("list", &self.config.dir))?;
        let (complete, partial): (Vec<_>, Vec<_>) = folders
            .into_iter()
            .partition(|(_, dir)| dir.join(manifest::FILE).exists());
        // Newer ones stem from a gang that was rolled back behind them: they are history that did
        // not happen, and must not be found as the newest.
        let surplus = complete.iter().filter(|(n, _)| *n <= step.0).count();
        let surplus = surplus.saturating_sub(self.config.keep.max(1));
        let abandoned = complete.iter().filter(|(n, _)| *n > step.0);
        for (number, dir) in complete.iter().take(surplus).chain(abandoned) {
            remove(dir)?;
            self.store.remove_checkpoint(Step(*number)).wait()?;
        }
        partial.iter().try_for_each(|(_, dir)| remove(dir))
    }

    /// The manifests are the truth: the index may stem from before a crash, or be new and empty.
    fn reindex(&self) -> Result<(), StoreError> {
        let folders = find::folders(&self.config.dir).unwrap_or_default();
        let found: Vec<_> = folders
            .iter()
            .filter_map(|(_, dir)| manifest::load(dir).ok().flatten())
            .collect();
        let indexed = self.store.checkpoints()?;
        for gone in indexed
            .iter()
            .filter(|i| !found.iter().any(|f| f.step == i.step))
        {
            self.store.remove_checkpoint(gone.step).wait()?;
        }
        for new in found
            .iter()
            .filter(|f| !indexed.iter().any(|i| i.step == f.step))
        {
            let bytes = new.shards.iter().map(|s| s.bytes).sum();
            self.store.put_checkpoint(entry(new.step, bytes)).wait()?;
        }
        Ok(())
    }
}

fn entry(step: Step, bytes: u64) -> StoredCheckpoint {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let at = Time(u64::try_from(since.as_micros()).unwrap_or(u64::MAX));
    StoredCheckpoint {
        step,
        folder: find::folder_name(step.0),
        bytes,
        at,
    }
}

/// The manifest goes first: a checkpoint half removed does not exist.
fn remove(dir: &Path) -> Result<(), CkptError> {
    let absent_is_fine = |result: io::Result<()>| match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    absent_is_fine(std::fs::remove_file(dir.join(manifest::FILE)))
        .and_then(|()| absent_is_fine(std::fs::remove_dir_all(dir)))
        .map_err(CkptError::io("remove", dir))
}
