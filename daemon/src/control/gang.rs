//! The gang as the controller calls it.
use super::calls::{CallError, GangCalls};
use super::collate::CollateError;
use super::wire::WireCall;
use crate::store::StoreError;
use futures::future::try_join_all;
use robust_shared::batch::BatchError;
use robust_shared::core::CallFault;
use robust_shared::dispatch::{DispatchError, WorkerGroup};
use robust_shared::grpo::GrpoError;
use robust_shared::ids::{Generation, Incarnation};
use robust_shared::job::Job;

/// Why the gang did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// A rank's call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The call could not be fanned out, or its replies do not fit together.
    #[error(transparent)]
    Dispatch(#[from] DispatchError),
    /// The batch is not one.
    #[error("the batch: {0}")]
    Batch(BatchError),
    /// The trajectories make no batch.
    #[error(transparent)]
    Collate(#[from] CollateError),
    /// The rewards have no advantages.
    #[error("advantages: {0}")]
    Grpo(#[from] GrpoError),
    /// The trajectories cannot be read.
    #[error("reading the batch's trajectories: {0}")]
    Store(#[from] StoreError),
    /// There is nothing to restore from.
    #[error(
        "step {step} cannot be restored: {}; bring a checkpoint of step {step} back, or one after \
         which nothing is missing, or start the job again with --fresh",
        tried.join("; ")
    )]
    NothingToRestore {
        /// The committed step.
        step: u64,
        /// What was tried, and why it did not do.
        tried: Vec<String>,
        /// The rank that refused a state last, if one did.
        rank: Option<Incarnation>,
    },
}

impl StepError {
    /// The rank that reported it.
    pub fn rank(&self) -> Option<Incarnation> {
        match self {
            Self::Call(CallError::Failed { rank, .. }) => Some(*rank),
            Self::NothingToRestore { rank, .. } => *rank,
            _ => None,
        }
    }

    /// What kind of failure it is.
    pub fn fault(&self) -> CallFault {
        match self {
            Self::Call(CallError::Failed { numeric: true, .. }) => CallFault::Numeric,
            _ => CallFault::Exception,
        }
    }
}

/// One life of the gang.
#[derive(Clone, Debug)]
pub struct Gang {
    /// The way to the ranks.
    pub calls: GangCalls,
    /// Its fencing number.
    pub generation: Generation,
    /// Members in rank order.
    pub ranks: Vec<Incarnation>,
    /// Tells work that is done again from the first time; 0: the first.
    pub attempt: u64,
    /// Who trains.
    pub trains: Trains,
}

/// Who the ranks of a gang are, and so how a step is asked of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trains {
    /// The built-in trainer: old logprobs and update apart.
    #[default]
    BuiltIn,
    /// Programs of the user's, which are given whole batches.
    Program,
    /// Programs of the user's with a loop of their own, which are given nothing.
    OwnLoop,
}

impl Trains {
    /// In this job.
    pub fn of(job: &Job) -> Self {
        match (&job.trainer.command, job.own_loop()) {
            (None, _) => Self::BuiltIn,
            (Some(_), None) => Self::Program,
            (Some(_), Some(_)) => Self::OwnLoop,
        }
    }
}

impl Gang {
    /// The same gang, whose calls are none that it answered before.
    pub(super) fn again(&self, attempt: u64) -> Self {
        Self {
            attempt,
            ..self.clone()
        }
    }

    /// Makes one call of the dispatch table and waits for all replies. `number` (a step or a
    /// version) makes its key: the same work asked for again has the same key.
    pub(super) async fn call<C: WireCall>(
        &self,
        number: u64,
        whole: C::Whole,
    ) -> Result<C::Output, StepError> {
        let key = format!("{}/{}/{number}", C::NAME, self.generation);
        self.call_by::<C>(self.named(key), whole).await
    }

    /// The same for a part of the work, told from other parts by a number of its own.
    pub(super) async fn call_part<C: WireCall>(
        &self,
        number: u64,
        part: u64,
        whole: C::Whole,
    ) -> Result<C::Output, StepError> {
        let key = format!("{}/{}/{number}/{part:x}", C::NAME, self.generation);
        self.call_by::<C>(self.named(key), whole).await
    }

    fn named(&self, key: String) -> String {
        match self.attempt {
            0 => key,
            n => format!("{key}/again-{n}"),
        }
    }

    async fn call_by<C: WireCall>(
        &self,
        key: String,
        whole: C::Whole,
    ) -> Result<C::Output, StepError> {
        let count = u32::try_from(self.ranks.len()).unwrap_or(u32::MAX);
        let (sends, gather) = WorkerGroup::new(count)?.plan::<C>(whole)?;
        let replies = sends
            .into_iter()
            .map(|(rank, args)| self.one::<C>(rank, args, &key));
        Ok(gather.finish(try_join_all(replies).await?)?)
    }

    async fn one<C: WireCall>(
        &self,
        rank: u32,
        args: C::Args,
        key: &str,
    ) -> Result<(u32, C::Reply), StepError> {
        let no_rank = || DispatchError::NoReply {
            call: C::NAME,
            rank,
        };
        let to = *self.ranks.get(rank as usize).ok_or_else(no_rank)?;
        let body = C::body(args)?;
        let result = self
            .calls
            .call(self.generation, to, key.to_owned(), body)
            .await?;
        let reply = C::reply(result);
        let wrong = || CallError::WrongReply {
            key: key.to_owned(),
            rank: to,
        };
        Ok((rank, reply.ok_or_else(wrong)?))
    }
}
