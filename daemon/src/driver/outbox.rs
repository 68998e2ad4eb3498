//! What the core wants done, in order, held back behind what is not durable yet.
//!
//! ```text
//!  core ──► [ o o R o | o R ] ──► front is no record ──────────────────────► effects
//!             covered ┘  u  later  front is a record: one write of all       ▲  ▲
//!                        │         records that wait, with the state ── durable │
//!                        └── waits for no record, and overtakes what is held ───┘
//! ```
//! One write is under way at a time. The driver goes on taking inputs meanwhile: what the core makes
//! of them queues behind (a process's exit is judged within a millisecond, whatever the disk takes),
//! and its records make the next write, as the store's own groups do. So outputs keep their order,
//! and none that follows a record leaves before it is durable (I-2 to I-5), nor before the state that
//! all of the written records led to.
//!
//! A few outputs wait for no record ([`Output::waits_for_records`]): a kill, evidence, a probe. They
//! leave as soon as they are decided, however long the disk takes; only a kill stays behind the start of
//! the very process that it is to end.
use super::Driver;
use super::saved::{LastWritten, SavedError};
use crate::store::{Durable, StoreError};
use futures::future::BoxFuture;
use robust_shared::core::{Output, Record};
use robust_shared::ids::TrajectoryId;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// How long records are tried again before the daemon gives up in order. On a full disk, until there is
/// room, or somebody wants the job to stop.
const PATIENCE: Duration = Duration::from_secs(20);
const RETRY: Duration = Duration::from_millis(500);

/// A write under way.
struct Write {
    /// Outputs at the queue's front that may leave once it is done.
    covers: usize,
    done: BoxFuture<'static, Result<(), StoreError>>,
}

/// The queue. See the module's doc.
#[derive(Default)]
pub(super) struct Outbox {
    queue: VecDeque<Output>,
    /// Outputs at the front that may leave now.
    free: usize,
    /// Outputs in it that wait for no record.
    urgent: usize,
    write: Option<Write>,
    hurried: Arc<AtomicBool>,
    saved: LastWritten,
}

impl Outbox {
    /// Somebody wants the end: a full disk is not waited for without end any more.
    pub fn hurry(&self) {
        self.hurried.store(true, Ordering::Release);
    }

    fn hurried(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.hurried)
    }

    /// More to do, behind all that waits.
    pub fn push(&mut self, output: Output) {
        self.urgent += usize::from(!output.waits_for_records());
        self.queue.push_back(output);
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether nothing can be done now: all that waits, if anything does, waits for a write.
    pub fn is_held(&self) -> bool {
        let waits = self.write.is_some() && self.free == 0;
        self.queue.is_empty() || (waits && self.overtakes().is_none())
    }

    /// The next that may be done now.
    pub fn pop(&mut self) -> Option<Output> {
        let first = self.queue.front()?;
        if self.free == 0 && (self.write.is_some() || matches!(first, Output::Record(_))) {
            return self.overtake();
        }
        self.free = self.free.saturating_sub(1);
        let first = self.queue.pop_front();
        self.left(first.as_ref());
        first
    }

    /// The first that waits for no record, though what is before it does.
    fn overtake(&mut self) -> Option<Output> {
        let at = self.overtakes()?;
        if let Some(write) = self.write.as_mut().filter(|write| at < write.covers) {
            write.covers -= 1;
        }
        let output = self.queue.remove(at);
        self.left(output.as_ref());
        output
    }

    fn overtakes(&self) -> Option<usize> {
        (self.urgent > 0)
            .then(|| Output::overtakes(&self.queue))
            .flatten()
    }

    fn left(&mut self, output: Option<&Output>) {
        if output.is_some_and(|output| !output.waits_for_records()) {
            self.urgent -= 1;
        }
    }

    /// The records to write now: all that wait, unless a write is under way or nothing waits for one.
    pub fn due(&self) -> Vec<Record> {
        let record = |output: &Output| match output {
            Output::Record(record) => Some(record.clone()),
            _ => None,
        };
        match &self.write {
            None if self.free == 0 => self.queue.iter().filter_map(record).collect(),
            _ => Vec::new(),
        }
    }

    /// The write of the records that were due is under way.
    pub fn begin(&mut self, done: BoxFuture<'static, Result<(), StoreError>>) {
        let covers = self.queue.len();
        self.write = Some(Write { covers, done });
    }

    /// Waits for the write under way, for ever when there is none. May be dropped and called again.
    pub async fn written(&mut self) -> Result<(), StoreError> {
        let Some(write) = &mut self.write else {
            return std::future::pending().await;
        };
        let result = (&mut write.done).await;
        self.free = write.covers;
        self.write = None;
        result
    }
}

/// The trajectories that nobody is to write to once this is on record. Nobody works on what is consumed;
/// the table of leases must not grow with the job.
fn over_with(record: &Record) -> &[TrajectoryId] {
    match record {
        Record::Discarded { trajectories } | Record::Committed { trajectories, .. } => trajectories,
        Record::SetAside { trajectory, .. } => std::slice::from_ref(trajectory),
        _ => &[],
    }
}

/// Tries until it is written, or patience is over.
async fn patiently(
    first: Durable<()>,
    again: impl Fn() -> Durable<()> + Send,
    describe: String,
    hurried: Arc<AtomicBool>,
) -> Result<(), StoreError> {
    let began = Instant::now();
    let mut attempt = first;
    loop {
        match attempt.await {
            Ok(()) => {
                let ms = began.elapsed().as_millis();
                tracing::debug!(ms, "recorded: {describe}");
                return Ok(());
            }
            Err(error) if error.is_refusal() => return Err(error),
            Err(error) => {
                let is_full = matches!(error, StoreError::Full { .. });
                let over = match is_full {
                    true => hurried.load(Ordering::Acquire),
                    false => began.elapsed() > PATIENCE,
                };
                if over {
                    return Err(error);
                }
                // The store itself tells when the disk is full, and when it is no more.
                if !is_full {
                    tracing::error!("nothing goes on before this can be stored: {error}");
                }
                tokio::time::sleep(RETRY).await;
                attempt = again();
            }
        }
    }
}

impl Driver {
    /// Carries out what may be, and has the records that hold back the rest written.
    pub(super) fn release(&mut self) -> Result<(), SavedError> {
        while let Some(output) = self.outbox.pop() {
            self.effect(output);
        }
        let records = self.outbox.due();
        if records.is_empty() {
            return Ok(());
        }
        let settling = self.parts.leases.end(records.iter().flat_map(over_with));
        let now = self.parts.clock.now();
        let (core, saved) = (self.core.take_changes(), &mut self.outbox.saved);
        let changes = saved.take(now, core, &mut self.snapshots, &self.version_digest)?;
        let (count, puts) = (records.len(), changes.puts.len());
        let describe = format!("{count} records, {puts} entries of the state");
        let store = self.parts.store.clone();
        let write = move || store.record(records.clone(), changes.clone());
        let hurried = self.outbox.hurried();
        self.outbox.begin(Box::pin(async move {
            // A late turn of what is thrown away is thrown away with it: the record comes after it.
            settling.over().await;
            patiently(write(), write, describe, hurried).await
        }));
        self.due_lost = self.lost_nodes();
        if self.published.elapsed() >= self.status_min() {
            self.due_view = Some(self.look());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures::FutureExt;
    use robust_shared::core::{Output, SlotRef};
    use robust_shared::ids::{Generation, Incarnation, InstanceId, NodeId, Role, WeightVersion};
    use tokio::sync::oneshot;

    const ID: InstanceId = InstanceId {
        role: Role::Rollout,
        index: 0,
    };

    fn effect(n: u64) -> Output {
        Output::Resume {
            engine: Incarnation(n),
        }
    }

    fn start(n: u64) -> Output {
        Output::Spawn {
            id: ID,
            incarnation: Incarnation(n),
            generation: Generation(0),
            node: NodeId::LEADER,
            slot: SlotRef {
                node: NodeId::LEADER,
                pool: "rollout".to_owned(),
                index: 0,
            },
            revision: 0,
        }
    }

    fn kill(n: u64) -> Output {
        Output::Kill {
            id: ID,
            incarnation: Incarnation(n),
            node: None,
            reason: "it hangs".to_owned(),
        }
    }

    fn record(n: u64) -> Output {
        Output::Record(Record::Published {
            version: WeightVersion(n),
        })
    }

    /// Everything that may be done now, and how many records are to be written then.
    fn leave(outbox: &mut Outbox) -> (Vec<Output>, usize) {
        let left = std::iter::from_fn(|| outbox.pop()).collect();
        (left, outbox.due().len())
    }

    fn begin(outbox: &mut Outbox) -> oneshot::Sender<Result<(), StoreError>> {
        let (done, waits) = oneshot::channel();
        outbox.begin(waits.map(|answer| answer.unwrap()).boxed());
        done
    }

    #[tokio::test]
    async fn nothing_that_follows_a_record_leaves_before_it_is_durable_and_the_order_holds() {
        let mut outbox = Outbox::default();
        for output in [effect(1), record(2), effect(3), record(4), effect(5)] {
            outbox.push(output);
        }
        assert_eq!(leave(&mut outbox), (vec![effect(1)], 2));
        let done = begin(&mut outbox);
        assert!(outbox.is_held());
        // Decided while the disk works: it queues behind, whatever it is, and makes the next write.
        for output in [effect(6), record(7), effect(8)] {
            outbox.push(output);
        }
        assert_eq!(leave(&mut outbox), (vec![], 0));
        assert!(outbox.written().now_or_never().is_none());
        done.send(Ok(())).unwrap();
        outbox.written().await.unwrap();
        let covered = vec![record(2), effect(3), record(4), effect(5), effect(6)];
        assert_eq!(leave(&mut outbox), (covered, 1));
        let done = begin(&mut outbox);
        done.send(Ok(())).unwrap();
        outbox.written().await.unwrap();
        assert_eq!(leave(&mut outbox), (vec![record(7), effect(8)], 0));
        assert!(outbox.is_empty() && outbox.is_held());
    }

    #[tokio::test]
    async fn a_kill_overtakes_what_a_write_holds_back_and_nothing_else_does() {
        let mut outbox = Outbox::default();
        // While nothing is held, everything leaves in its order.
        for output in [effect(1), kill(2), record(3), effect(4), kill(5)] {
            outbox.push(output);
        }
        assert_eq!(leave(&mut outbox), (vec![effect(1), kill(2), kill(5)], 1));
        let done = begin(&mut outbox);
        for output in [record(6), kill(7), effect(8)] {
            outbox.push(output);
        }
        assert!(!outbox.is_held());
        assert_eq!(leave(&mut outbox), (vec![kill(7)], 0));
        assert!(outbox.is_held());
        done.send(Ok(())).unwrap();
        outbox.written().await.unwrap();
        // What the write covers is as much as it was, less what left before.
        assert_eq!(leave(&mut outbox), (vec![record(3), effect(4)], 1));
    }

    #[tokio::test]
    async fn what_leaves_early_out_of_what_a_write_covers_lets_nothing_else_leave_with_it() {
        let mut outbox = Outbox::default();
        for output in [record(1), start(2), kill(2), effect(3)] {
            outbox.push(output);
        }
        assert_eq!(leave(&mut outbox), (vec![], 1), "it is not started yet");
        let done = begin(&mut outbox);
        for output in [record(4), effect(5)] {
            outbox.push(output);
        }
        assert_eq!(leave(&mut outbox), (vec![], 0));
        done.send(Ok(())).unwrap();
        outbox.written().await.unwrap();
        let covered = vec![record(1), start(2), kill(2), effect(3)];
        assert_eq!(leave(&mut outbox), (covered, 1));
        assert_eq!(outbox.urgent, 0);
    }

    #[tokio::test]
    async fn a_write_that_cannot_be_done_is_told_and_without_one_there_is_nothing_to_wait_for() {
        let mut outbox = Outbox::default();
        assert!(outbox.written().now_or_never().is_none());
        outbox.push(record(1));
        let done = begin(&mut outbox);
        done.send(Err(StoreError::Closed)).unwrap();
        outbox.written().await.unwrap_err();
    }
}
