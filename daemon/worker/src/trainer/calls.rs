//! The calls of the driver, each done once.

use std::path::PathBuf;

use robust_ckpt::CkptError;
use robust_proto::manifest::canary_to_proto;
use robust_proto::v1::call::Body;
use robust_proto::v1::call_reply::Result as Answer;
use robust_proto::v1::{
    Call, Floats, LogprobsReply, OldLogprobs, Publish, Restore, RestoreReply, Sample,
    ServedVersion, Snapshot, SnapshotReply, Update, UpdateReply,
};
use robust_role::calls::{Calls, Failure};
use robust_role::serve::as_served;
use robust_role::snapshot::{Slots, State};
use robust_role::{DaemonEpoch, Deed, Facts, Injected, Link};
use robust_shared::phase::Phase;
use robust_weights::PublishError;

use super::canary;
use super::exchange::{Exchange, ExchangeError};
use super::regions::{self, Regions};
use super::restore::{RestoreError, restore};
use super::state::TrainState;
use crate::model::adam::AdamError;
use crate::model::grpo::{GradOut, GrpoError, TrainBatch};

/// Why a call failed; the text goes to the driver.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The call does not follow from the rank's state.
    #[error("{what} of step {asked}, but this rank's state is of step {own}")]
    Order {
        /// The call.
        what: &'static str,
        /// Its step.
        asked: u64,
        /// The state's step.
        own: u64,
    },
    /// It is a call to ranks of the user's.
    #[error("a whole step is asked for, and a built-in rank is asked for its parts")]
    WholeStep,
    /// See [`RestoreError`].
    #[error("restore: {0}")]
    Restore(#[from] RestoreError),
    /// See [`GrpoError`].
    #[error("training: {0}")]
    Grpo(#[from] GrpoError),
    /// See [`AdamError`].
    #[error("numeric fault: {0}")]
    Adam(#[from] AdamError),
    /// See [`ExchangeError`].
    #[error("gradient exchange: {0}")]
    Exchange(#[from] ExchangeError),
    /// The slot cannot be written.
    #[error("snapshot: {0}")]
    Snapshot(#[from] CkptError),
    /// See [`PublishError`].
    #[error("publish: {0}")]
    Publish(#[from] PublishError),
    /// See [`Injected`].
    #[error(transparent)]
    Injected(#[from] Injected),
}

impl CallError {
    /// Whether loss or gradient were no numbers; the rank's state is then unchanged.
    fn is_numeric(&self) -> bool {
        matches!(
            self,
            CallError::Adam(AdamError::NonFiniteGradient(_))
                | CallError::Grpo(GrpoError::NonFinite { .. })
        )
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self {
            reason: error.to_string(),
            numeric: error.is_numeric(),
        }
    }
}

/// A rank: what it answers, and what it works with.
pub(super) struct Rank {
    pub calls: Calls,
    pub work: Work,
}

impl Rank {
    /// Does a call, or remembers having done it, and answers.
    pub fn answer(&mut self, epoch: DaemonEpoch, call: Call) {
        let Self { calls, work } = self;
        let reply = calls.answer(call, |body| Ok(work.perform(body)?));
        work.link.phase(Phase::AwaitBatch, work.state.step);
        work.link.reply(epoch, reply);
    }
}

/// Everything that calls work with.
pub(super) struct Work {
    pub generation: u64,
    pub folder: PathBuf,
    pub link: Link,
    pub facts: Facts,
    pub regions: Regions,
    pub exchange: Exchange,
    pub slots: Slots,
    pub state: TrainState,
    /// The step whose update the state has, if it came by one.
    pub updated: Option<u64>,
    /// Whether a version is published with what it must answer.
    pub makes_canaries: bool,
}

impl Work {
    fn perform(&mut self, call: Body) -> Result<Answer, CallError> {
        match call {
            Body::Restore(request) => self.restore(&request).map(Answer::Restore),
            Body::OldLogprobs(request) => self.old_logprobs(&request).map(Answer::Logprobs),
            Body::Update(request) => self.update(&request).map(Answer::Update),
            Body::Snapshot(request) => self.snapshot(&request).map(Answer::Snapshot),
            Body::Publish(request) => self.publish(&request).map(Answer::Publish),
            Body::Train(_) | Body::OwnStep(_) => Err(CallError::WholeStep),
        }
    }

    fn restore(&mut self, request: &Restore) -> Result<RestoreReply, CallError> {
        self.enter(Phase::LoadCheckpoint, request.step)?;
        self.facts.set_step(None);
        self.updated = None;
        self.exchange
            .set_peers(&request.peers, self.regions.gradient_bytes())?;
        restore(&mut self.state, request, &self.folder)?;
        self.slots.prepare(self.state.model.params().len())?;
        self.facts.set_step(Some(self.state.step));
        Ok(RestoreReply {
            step: self.state.step,
        })
    }

    fn old_logprobs(&mut self, request: &OldLogprobs) -> Result<LogprobsReply, CallError> {
        if self.updated == Some(request.step) {
            return Ok(not_needed(request));
        }
        self.in_order("old logprobs", request.step, self.state.step + 1)?;
        self.enter(Phase::OldLogprob, request.step)?;
        Ok(LogprobsReply {
            rows: self.state.old_logprobs(&request.samples)?,
        })
    }

    fn update(&mut self, request: &Update) -> Result<UpdateReply, CallError> {
        self.in_order("update", request.step, self.state.step + 1)?;
        if self.state.has_reference() {
            self.enter(Phase::RefLogprob, request.step)?;
        }
        let batch = self.state.batch(&request.samples)?;
        self.enter(Phase::Update, request.step)?;
        let own = self.gradient(&batch, request)?;
        let kl = if self.state.has_reference() {
            own.ref_kl
        } else {
            own.kl
        };
        let statistics = [own.loss, own.clip_frac, own.entropy, kl];
        let region = &self.regions.gradients[(request.step % 2) as usize];
        let exchange = &mut self.exchange;
        let (gradient, statistics) = exchange.sum(request.step, region, own.grad, statistics)?;
        let adam = self.state.apply(request.step, &gradient)?;
        self.updated = Some(request.step);
        self.facts.set_step(Some(request.step));
        let [loss, clip_fraction, entropy, kl] = statistics;
        Ok(UpdateReply {
            loss,
            grad_norm: adam.grad_norm,
            clip_fraction: Some(clip_fraction),
            entropy: Some(entropy),
            kl: Some(kl),
        })
    }

    fn snapshot(&mut self, request: &Snapshot) -> Result<SnapshotReply, CallError> {
        self.in_order("snapshot", request.step, self.state.step)?;
        self.enter(Phase::Snapshot, request.step)?;
        let (params, adam) = (self.state.model.params(), &self.state.adam);
        let [weights, m, v] = [params.as_bytes(), adam.m_bytes(), adam.v_bytes()];
        let state = State {
            step: self.state.step,
            generation: self.generation,
            adam_step: adam.step_count(),
            weights: &weights,
            m: &m,
            v: &v,
        };
        Ok(self.slots.write(&state)?)
    }

    fn publish(&mut self, request: &Publish) -> Result<ServedVersion, CallError> {
        self.in_order("publish", request.version, self.state.step)?;
        self.enter(Phase::Publish, request.version)?;
        let (params, dtype) = (self.state.model.params(), self.regions.dtype);
        let weights = &mut self.regions.weights;
        let served = weights.publish(request.version, |to| regions::fill(to, params, dtype))?;
        let mut served = as_served(&served);
        let corrupt = |deed| deed == Deed::CorruptWeights;
        if self.link.take_fault(Phase::Publish, corrupt).is_some() {
            self.regions.weights.damage(request.version);
        }
        if self.makes_canaries {
            let canary = canary::of(&self.state.model);
            served.canary = Some(canary_to_proto(&canary));
        }
        self.facts.set_served(served.clone());
        Ok(served)
    }

    /// This rank's share of the gradient; no number, if a fault on request says so.
    fn gradient(&self, batch: &TrainBatch, request: &Update) -> Result<GradOut, GrpoError> {
        let tokens = request.batch_trainable_tokens;
        let nan = self
            .link
            .take_fault(Phase::Update, |deed| deed == Deed::Nan);
        if nan.is_none() {
            return self.state.gradient(batch, &request.samples, tokens);
        }
        let mut samples = request.samples.clone();
        for sample in &mut samples {
            sample.advantage = f64::NAN;
        }
        self.state.gradient(batch, &samples, tokens)
    }

    /// Enters a phase of a call, which fails there if a fault on request says so.
    fn enter(&self, phase: Phase, step: u64) -> Result<(), Injected> {
        self.link.phase(phase, step);
        self.link.raise(phase)
    }

    fn in_order(&self, what: &'static str, asked: u64, expected: u64) -> Result<(), CallError> {
        if asked == expected {
            return Ok(());
        }
        Err(CallError::Order {
            what,
            asked,
            own: self.state.step,
        })
    }
}

/// What is answered to a daemon that started again, and does not know in which parts its predecessor asked for them: the
/// step is over here. So all ranks were asked for its update, as this one has had all of their gradients. Each answers that
/// from memory, or, if it could not fetch a gradient, does it again with its own rows: nobody reads these. They are no
/// numbers, so that a step in which somebody did would fail and not be learned from.
fn not_needed(request: &OldLogprobs) -> LogprobsReply {
    let row = |sample: &Sample| Floats {
        values: vec![f32::NAN; sample.ids.len().saturating_sub(1)],
    };
    LogprobsReply {
        rows: request.samples.iter().map(row).collect(),
    }
}
