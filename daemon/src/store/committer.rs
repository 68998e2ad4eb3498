//! Group commit: one thread turns the jobs that wait into one atomic, synced batch.
//!
//! ```text
//! submit ──► queue ──► [ job, job, job ] ──► one Batch ──► apply, flush, fdatasync ──► answers
//!                        while a group syncs, the next one gathers in the queue
//! ```
//! A job that is refused leaves nothing in the batch; the others of its group go on. When a commit
//! fails, every job of the group gets the error, and the database is opened anew before the next
//! group, because sled answers everything with its first error from then on.
//!
//! While there is no [`room`], jobs are refused before they run, but for those that nobody waits for
//! (events): these are kept, so many of them, and are the first when there is room again.
use super::condition::{Condition, Conditions};
use super::database::{self, Commit};
use super::durable::Durable;
use super::error::StoreError;
use super::keys::Key;
use super::room;
use super::txn::Txn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Jobs of one group at most; bounds the wait of the first one.
const GROUP_JOBS: usize = 4096;
/// A group is closed once it has this many bytes.
const GROUP_BYTES: usize = 4 << 20;

/// Jobs kept for when there is room again; later ones are refused.
const KEPT_JOBS: usize = 1024;
/// How often a full disk is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The open database, or the error that closed it.
pub type Slot = Result<sled::Db, StoreError>;

trait Job: Send {
    fn run(&mut self, txn: &mut Txn<'_>) -> bool;
    /// Whether it may be kept for later.
    fn waits(&self) -> bool;
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

struct Work<T, F> {
    write: Option<F>,
    outcome: Option<Result<T, StoreError>>,
    waits: bool,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for Work<T, F>
where
    T: Send,
    F: FnOnce(&mut Txn<'_>) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, txn: &mut Txn<'_>) -> bool {
        self.outcome = self.write.take().map(|write| write(txn));
        matches!(self.outcome, Some(Ok(_)))
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let answer = match (self.outcome, committed) {
            (Some(outcome), committed) => outcome.and_then(|value| committed.map(|()| value)),
            // It never ran: the database could not be opened again.
            (None, committed) => Err(committed.err().unwrap_or(StoreError::Closed)),
        };
        // Nobody waits any more: the writer dropped its `Durable`.
        let _ = self.reply.send(answer);
    }
}

/// Takes jobs for the committer thread, and ends it when dropped.
pub struct Committer {
    queue: Option<Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    pub(super) fn start(
        path: PathBuf,
        slot: Arc<RwLock<Slot>>,
        mut commit: Box<dyn Commit>,
        conditions: Conditions,
    ) -> std::io::Result<Self> {
        let (queue, jobs) = channel();
        let told = conditions.clone();
        commit.tells(Box::new(move |condition| told.set(condition)));
        let thread = std::thread::Builder::new()
            .name("store-commit".to_owned())
            .spawn(move || {
                Groups {
                    path,
                    slot,
                    commit,
                    next_journal: None,
                    conditions,
                    full: false,
                    kept: Vec::new(),
                }
                .run(&jobs)
            })?;
        Ok(Self {
            queue: Some(queue),
            thread: Some(thread),
        })
    }

    /// Queues a write. It runs on the committer thread after all that were queued before; one that
    /// `waits` may run later, when there is room.
    pub fn submit<T, F>(&self, write: F, waits: bool) -> Durable<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Txn<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let work = Box::new(Work {
            write: Some(write),
            outcome: None,
            waits,
            reply,
        });
        if let Some(queue) = &self.queue {
            // A send that fails drops the reply, which the receiver sees as `Closed`.
            let _ = queue.send(work);
        }
        Durable::new(answer)
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Groups {
    path: PathBuf,
    slot: Arc<RwLock<Slot>>,
    commit: Box<dyn Commit>,
    next_journal: Option<u64>,
    conditions: Conditions,
    /// There was no room when it was last looked.
    full: bool,
    kept: Vec<Box<dyn Job>>,
}

impl Groups {
    fn run(&mut self, jobs: &Receiver<Box<dyn Job>>) {
        while let Some(first) = self.next(jobs) {
            let room = room::look(&*self.commit, &self.path, &self.conditions, self.full);
            self.full = room.is_err();
            if let Err(full) = room {
                first.into_iter().for_each(|job| self.put_off(job, &full));
                continue;
            }
            let mut group = std::mem::take(&mut self.kept);
            group.extend(first);
            let attempt = catch_unwind(AssertUnwindSafe(|| self.group(&mut group, jobs)));
            let result = attempt
                .unwrap_or_else(|panic| Err(database::panicked(&self.path, "committing", &panic)));
            match &result {
                Ok(()) => self.conditions.set(Condition::Sound),
                Err(error) => {
                    tracing::error!("{} writes failed: {error}", group.len());
                    self.close(error.clone());
                }
            }
            for job in group {
                job.answer(result.clone());
            }
        }
    }

    /// The next job, or none yet while the disk is full; nothing when the store closes.
    fn next(&self, jobs: &Receiver<Box<dyn Job>>) -> Option<Option<Box<dyn Job>>> {
        if !self.full {
            return jobs.recv().ok().map(Some);
        }
        match jobs.recv_timeout(LOOK_EVERY) {
            Ok(job) => Some(Some(job)),
            Err(RecvTimeoutError::Timeout) => Some(None),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    fn put_off(&mut self, job: Box<dyn Job>, full: &StoreError) {
        if job.waits() && self.kept.len() < KEPT_JOBS {
            self.kept.push(job);
        } else {
            job.answer(Err(full.clone()));
        }
    }

    fn group(
        &mut self,
        group: &mut Vec<Box<dyn Job>>,
        jobs: &Receiver<Box<dyn Job>>,
    ) -> Result<(), StoreError> {
        let db = self.database()?;
        let next = match self.next_journal {
            Some(next) => next,
            None => last_journal(&db, &self.path)? + 1,
        };
        let mut txn = Txn::new(&db, &self.path, next);
        group.iter_mut().for_each(|job| run_job(job, &mut txn));
        while group.len() < GROUP_JOBS && txn.bytes() < GROUP_BYTES {
            let Ok(job) = jobs.try_recv() else { break };
            group.push(job);
            group
                .last_mut()
                .into_iter()
                .for_each(|job| run_job(job, &mut txn));
        }
        self.next_journal = Some(txn.next_journal);
        txn.files(self.commit.files())?;
        txn.keep_job();
        let number = database::last_group(&db, &self.path)? + 1;
        let Some(group) = txn.into_group(number) else {
            return Ok(());
        };
        self.commit.commit(&db, group)?;
        database::set_mark(&self.path, number);
        Ok(())
    }

    /// The open database; opens it when the last commit failed.
    fn database(&self) -> Result<sled::Db, StoreError> {
        let mut slot = self.slot.write().unwrap_or_else(PoisonError::into_inner);
        if slot.is_err() {
            *slot = database::open_existing(&self.path);
            if slot.is_ok() {
                tracing::info!("database {} opened again", self.path.display());
            }
        }
        slot.clone()
    }

    /// Readers must not see what is not durable, and sled is of no use after its first error.
    fn close(&mut self, error: StoreError) {
        if let StoreError::Full { .. } = &error {
            let space = self.commit.space().map_or((0, 0), |s| (s.free, s.total));
            let wanted = room::reserve(space.1);
            self.conditions.set(Condition::Full {
                free: space.0,
                wanted,
            });
            self.full = true;
        }
        *self.slot.write().unwrap_or_else(PoisonError::into_inner) = Err(error);
        self.next_journal = None;
    }
}

fn run_job(job: &mut Box<dyn Job>, txn: &mut Txn<'_>) {
    if job.run(txn) {
        txn.keep_job()
    } else {
        txn.drop_job()
    }
}

fn last_journal(tree: &sled::Tree, path: &std::path::Path) -> Result<u64, StoreError> {
    let (from, to) = (Key::Journal(0).encode(), Key::Journal(u64::MAX).encode());
    let last = tree.range(from..=to).keys().next_back();
    let last = last
        .transpose()
        .map_err(|e| StoreError::sled("read", path, e))?;
    Ok(match last.and_then(|key| Key::decode(&key)) {
        Some(Key::Journal(seq)) => seq,
        _ => 0,
    })
}
