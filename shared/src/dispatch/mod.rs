//! How the driver's calls reach the trainer's ranks, all in one place.
//!
//! The driver is a single controller: it calls a *group* of ranks as if it were one worker. How a
//! call fans out and how its replies come together is a property of the call's type:
//!
//! | call | fan-out | each rank gets | the driver gets |
//! | --- | --- | --- | --- |
//! | [`Restore`](calls::Restore) | one to all | the same | the step, which must be the same everywhere |
//! | [`OldLogprobs`](calls::OldLogprobs) | split | its run of samples | all samples' logprobs, in order |
//! | [`Update`](calls::Update) | split | its run of samples | shares summed; the gradient norm must agree |
//! | [`Train`](calls::Train) | split | its run of samples | the ranks' figures, averaged |
//! | [`OwnStep`](calls::OwnStep) | one to all | the same | the ranks' figures, averaged, or that all ended |
//! | [`Snapshot`](calls::Snapshot) | one to all | the same | every rank's shard, in rank order |
//! | [`Publish`](calls::Publish) | one to all | the same | the manifest, which must agree, and where it is |
//!
//! [`TABLE`] is that table as data; its fan-out column comes from the same types that do the work.
//! *Split* cuts the samples into contiguous runs of equal length; where the ranks do not divide them,
//! copies of the first samples are appended, and dropped again when replies come together.
//!
//! Nothing is sent here: [`WorkerGroup::plan`] says what each rank is to get, whoever drives sends
//! it, and [`Gather::finish`] turns the ranks' replies into the call's result.
//!
//! A call that does not exist, or arguments of another call, do not compile:
//!
//! ```compile_fail
//! use robust_shared::dispatch::{WorkerGroup, calls};
//! let group = WorkerGroup::new(2).unwrap();
//! let plan = group.plan::<calls::Snapshto>(calls::Snapshot { step: robust_shared::ids::Step(1) });
//! ```
//! ```compile_fail
//! # use robust_shared::dispatch::{WorkerGroup, calls};
//! # let group = WorkerGroup::new(2).unwrap();
//! let plan = group.plan::<calls::Publish>(calls::Snapshot { step: robust_shared::ids::Step(1) });
//! ```
//! ```
//! use robust_shared::dispatch::{WorkerGroup, calls};
//! use robust_shared::ids::Step;
//! let group = WorkerGroup::new(2).unwrap();
//! let (sends, _gather) = group.plan::<calls::Snapshot>(calls::Snapshot { step: Step(1) }).unwrap();
//! assert_eq!(sends.len(), 2);
//! ```

pub mod calls;
mod fanout;

#[cfg(test)]
mod tests;

pub use fanout::{AllToAll, Dispatch, FanOut, OneToAll, RankZero, Split, SplitDp};

use crate::batch::BatchError;
use fanout::Scattered;

/// A call to a group of ranks.
pub trait WorkerCall {
    /// The driver's argument.
    type Whole;
    /// One rank's argument.
    type Args;
    /// One rank's reply.
    type Reply;
    /// What the driver gets.
    type Output;
    /// How `Whole` becomes one `Args` per rank.
    type Fan: FanOut<Self::Whole, Self::Args>;
    /// The name in keys, logs and events.
    const NAME: &'static str;
    /// What [`Self::gather`] does, for [`TABLE`].
    const GATHERS: &'static str;

    /// Puts the replies (in rank order, one per rank called) together.
    fn gather(replies: Vec<Self::Reply>, shape: &Shape) -> Result<Self::Output, DispatchError>;
}

/// How a split call was cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Samples per rank; empty for calls that are not split.
    pub samples: Vec<usize>,
    /// How many of the last samples are padding.
    pub padding: usize,
}

/// Why a call was not made or has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DispatchError {
    /// A group of no ranks.
    #[error("a worker group needs at least one rank")]
    NoRanks,
    /// An all-to-all call without one argument per rank.
    #[error("{call}: {got} arguments for {ranks} ranks")]
    Arguments {
        /// The call.
        call: &'static str,
        /// Arguments given.
        got: usize,
        /// Ranks of the group.
        ranks: u32,
    },
    /// The samples could not be split.
    #[error("{call}: {source}")]
    Batch {
        /// The call.
        call: &'static str,
        /// Why.
        source: BatchError,
    },
    /// A rank did not reply.
    #[error("{call}: no reply of rank {rank}")]
    NoReply {
        /// The call.
        call: &'static str,
        /// The rank.
        rank: u32,
    },
    /// A rank that was not called, or replied before.
    #[error("{call}: unexpected reply of rank {rank}")]
    UnexpectedReply {
        /// The call.
        call: &'static str,
        /// The rank.
        rank: u32,
    },
    /// A rank replied for another number of samples than it got.
    #[error("{call}: rank {rank} replied for {got} samples, it got {expected}")]
    Rows {
        /// The call.
        call: &'static str,
        /// The rank.
        rank: usize,
        /// Samples it got.
        expected: usize,
        /// Samples it replied for.
        got: usize,
    },
    /// Ranks contradict each other where they must agree: the gang has diverged.
    #[error("{call}: rank {rank} has {what} {got}, rank 0 has {expected}")]
    Disagree {
        /// The call.
        call: &'static str,
        /// The first rank that differs from rank 0.
        rank: usize,
        /// In what.
        what: &'static str,
        /// Rank 0's.
        expected: String,
        /// This rank's.
        got: String,
    },
}

/// The ranks that are called together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerGroup {
    ranks: u32,
}

/// What to send: each rank called, and its arguments.
pub type Sends<A> = Vec<(u32, A)>;

impl WorkerGroup {
    /// A group of ranks `0..ranks`.
    pub fn new(ranks: u32) -> Result<Self, DispatchError> {
        if ranks == 0 {
            return Err(DispatchError::NoRanks);
        }
        Ok(Self { ranks })
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// What each rank is to get, and what will put the replies together.
    pub fn plan<C: WorkerCall>(
        &self,
        whole: C::Whole,
    ) -> Result<(Sends<C::Args>, Gather<C>), DispatchError> {
        let Scattered { sends, shape } = C::Fan::scatter(C::NAME, whole, self.ranks)?;
        let called = sends.iter().map(|(rank, _)| *rank).collect();
        Ok((
            sends,
            Gather {
                called,
                shape,
                call: std::marker::PhantomData,
            },
        ))
    }
}

/// Waits for the replies of one planned call.
#[derive(Clone, Debug)]
pub struct Gather<C> {
    called: Vec<u32>,
    shape: Shape,
    call: std::marker::PhantomData<fn() -> C>,
}

impl<C: WorkerCall> Gather<C> {
    /// The ranks whose replies are due.
    pub fn called(&self) -> &[u32] {
        &self.called
    }

    /// The call's result from one reply of each rank called, in any order.
    pub fn finish(self, replies: Vec<(u32, C::Reply)>) -> Result<C::Output, DispatchError> {
        let mut slots: Vec<Option<C::Reply>> = self.called.iter().map(|_| None).collect();
        for (rank, reply) in replies {
            let at = self.called.iter().position(|&called| called == rank);
            match at.and_then(|at| slots.get_mut(at)) {
                Some(slot @ None) => *slot = Some(reply),
                _ => {
                    return Err(DispatchError::UnexpectedReply {
                        call: C::NAME,
                        rank,
                    });
                }
            }
        }
        let missing = |(slot, &rank): (Option<C::Reply>, &u32)| {
            slot.ok_or(DispatchError::NoReply {
                call: C::NAME,
                rank,
            })
        };
        let ordered: Result<Vec<_>, _> = slots.into_iter().zip(&self.called).map(missing).collect();
        C::gather(ordered?, &self.shape)
    }
}

/// A line of [`TABLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The call's name.
    pub name: &'static str,
    /// How it fans out.
    pub dispatch: Dispatch,
    /// How its replies come together.
    pub gathers: &'static str,
}

impl Row {
    const fn of<C: WorkerCall>() -> Self {
        let dispatch = <C::Fan as FanOut<C::Whole, C::Args>>::DISPATCH;
        Self {
            name: C::NAME,
            dispatch,
            gathers: C::GATHERS,
        }
    }
}

/// Every call to the trainer.
pub const TABLE: [Row; 5] = [
    Row::of::<calls::Restore>(),
    Row::of::<calls::OldLogprobs>(),
    Row::of::<calls::Update>(),
    Row::of::<calls::Snapshot>(),
    Row::of::<calls::Publish>(),
];
