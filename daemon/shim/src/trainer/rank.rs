//! A rank between two that ask: the daemon, whose calls each want an answer, and the program, which asks
//! one thing after the other and waits for it. No I/O of its own: what touches memory and files is
//! [`Hands`].
//!
//! ```text
//!            the program              the daemon
//!   new ──── attach ───► attached
//!                           │ restore ◄── Restore ──► restored
//!                           ▼
//!   ┌──────────────────► at step N ── publish ──► published ◄── Publish N ── answered ──┐
//!   │                       │ batch ◄──── Train N+1                                     │
//!   │                       ▼                                                           │
//!   │                   computing ── figures ──► Train answered ◄── Snapshot            │
//!   │                       ▼                                                           │
//!   │                    writing ── written ──► Snapshot answered                       │
//!   └── on record ──────── written ◄──────────── Publish N+1, or Train N+2 ─────────────┘
//! ```
//! The daemon asks for a version, or for another step, only once the step before is on record: that is
//! how the program hears of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use robust_proto::v1::call::Body;
use robust_proto::v1::call_reply::Result as Reply;
use robust_proto::v1::{
    Call, CallReply, Restore, RestoreReply, ServedVersion, SnapshotReply, Train, UpdateReply,
};
use robust_role::DaemonEpoch;
use robust_role::calls::{Asked, Begun, Calls, Failure};

use super::words::{Answer, Ask, Attached, CanaryAnswer, PROTOCOL, Place, Tensor};

/// What a rank does to memory and files; errors are sentences.
pub trait Hands {
    /// Where the tensors of this state lie.
    fn look_at(&mut self, shard: &SnapshotReply) -> Result<Place, String>;
    /// What was looked at is still what it was.
    fn is_unchanged(&mut self) -> Result<(), String>;
    /// Lays a batch where the program finds it.
    fn lay_batch(&mut self, train: &Train) -> Result<PathBuf, String>;
    /// Makes room for the state of a step.
    fn begin_state(&mut self, step: u64, tensors: &[Tensor]) -> Result<Place, String>;
    /// The state was written.
    fn end_state(&mut self, step: u64) -> Result<SnapshotReply, String>;
    /// Makes room for a version.
    fn begin_version(&mut self, version: u64, tensors: &[Tensor]) -> Result<Place, String>;
    /// The version was written: it is served from now on, and [`Rank::on_served`] is told.
    fn end_version(&mut self, version: u64, canary: Option<CanaryAnswer>) -> Result<(), String>;
    /// An exception on request is due: its sentence.
    fn exception(&mut self) -> Option<String>;
    /// Numbers that are none are due, on request.
    fn spoils(&mut self) -> bool;
    /// The rank's state is of this step now; none: of no step.
    fn is_at(&mut self, step: Option<u64>);
}

/// What a rank says.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// To the daemon.
    Reply(DaemonEpoch, Box<CallReply>),
    /// To its program.
    Answer(Answer),
}

/// A call that waits.
#[derive(Debug, Clone)]
struct Due<T> {
    epoch: DaemonEpoch,
    asked: Asked,
    body: T,
}

/// Where the program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It did not attach.
    New,
    /// It has no state yet.
    Attached,
    /// It was told which state to take up.
    Restoring(u64),
    /// Its state is of this step.
    At(u64),
    /// It has the batch of this step.
    Computing(u64),
    /// It told this step's figures.
    Summed(u64),
    /// It copies this step's state.
    Writing(u64),
    /// This step's state is written, and not known to be on record.
    Written(u64),
}

/// The version that the program wrote last.
#[derive(Debug, Clone, PartialEq)]
enum Version {
    None,
    Begun(u64),
    /// And what is served, as soon as it is.
    Told(u64, Option<Box<Result<ServedVersion, String>>>),
}

/// A rank.
pub struct Rank<H> {
    attached: Attached,
    hands: H,
    calls: Calls,
    stage: Stage,
    version: Version,
    waiting: Option<Ask>,
    restore: Option<Due<Restore>>,
    train: Option<Due<Train>>,
    snapshot: Option<Due<u64>>,
    publish: Option<Due<u64>>,
    over: bool,
    said: Vec<Said>,
}

impl<H: Hands> Rank<H> {
    /// No program attached yet.
    pub fn new(attached: Attached, hands: H) -> Self {
        Self {
            calls: Calls::of(attached.generation),
            attached,
            hands,
            stage: Stage::New,
            version: Version::None,
            waiting: None,
            restore: None,
            train: None,
            snapshot: None,
            publish: None,
            over: false,
            said: Vec::new(),
        }
    }

    /// What is to be said now, in its order.
    pub fn said(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.said)
    }

    /// Whether the program attached.
    pub fn is_attached(&self) -> bool {
        self.stage != Stage::New
    }

    /// The daemon calls.
    pub fn on_call(&mut self, epoch: DaemonEpoch, call: Call) {
        let (asked, body) = match self.calls.begin(call) {
            Begun::Answered(reply) => return self.said.push(Said::Reply(epoch, reply)),
            Begun::New(asked, body) => (asked, body),
        };
        macro_rules! due {
            ($body:expr) => {
                Some(Due {
                    epoch,
                    asked,
                    body: $body,
                })
            };
        }
        match body {
            Body::Restore(restore) => self.restore = due!(restore),
            Body::Train(train) => {
                self.is_on_record(train.step.saturating_sub(1));
                self.train = due!(train);
            }
            Body::Snapshot(snapshot) => self.snapshot = due!(snapshot.step),
            Body::Publish(publish) => {
                self.is_on_record(publish.version);
                self.publish = due!(publish.version);
            }
            Body::OldLogprobs(_) | Body::Update(_) => {
                let reason = "this rank is a program of the user's, which is given whole steps";
                self.fail(epoch, asked, reason.to_owned());
            }
        }
        self.go_on();
    }

    /// The program asks.
    pub fn on_ask(&mut self, ask: Ask) {
        match self.over {
            true => self.answer(Answer::Over),
            false => {
                self.waiting = Some(ask);
                self.go_on();
            }
        }
    }

    /// A version that the program wrote is served now, or cannot be.
    pub fn on_served(&mut self, version: u64, served: Result<ServedVersion, String>) {
        if self.version == Version::Told(version, None) {
            self.version = Version::Told(version, Some(Box::new(served)));
        }
        self.go_on();
    }

    /// Nothing more comes from the daemon.
    pub fn on_over(&mut self) {
        self.over = true;
        if self.waiting.take().is_some() {
            self.answer(Answer::Over);
        }
    }

    /// Answers what can be answered by now.
    fn go_on(&mut self) {
        if let Some(ask) = self.waiting.take() {
            let failed = self.hands.exception().map(Err);
            match failed.unwrap_or_else(|| self.reply_to(&ask)) {
                Ok(Some(answer)) => self.answer(answer),
                Ok(None) => self.waiting = Some(ask),
                Err(reason) => self.answer(Answer::Error { reason }),
            }
        }
        self.answer_publish();
    }

    /// The answer; none: not yet.
    fn reply_to(&mut self, ask: &Ask) -> Result<Option<Answer>, String> {
        match ask {
            Ask::Attach { protocol, .. } => self.attach(*protocol).map(Some),
            Ask::Restore => self.restore(),
            Ask::Restored { step, error } => self.restored(*step, error.clone()).map(Some),
            Ask::Batch => self.batch(),
            Ask::Figures {
                step,
                figures,
                tensors,
            } => self.figures(*step, figures, tensors),
            Ask::Written { step } => self.written(*step),
            Ask::Publish { version, tensors } => self.begin_version(*version, tensors).map(Some),
            Ask::Published { version, canary } => {
                self.end_version(*version, canary.clone()).map(Some)
            }
        }
    }

    fn attach(&mut self, protocol: u32) -> Result<Answer, String> {
        if protocol != PROTOCOL {
            return Err(format!(
                "the package speaks version {protocol} of the protocol and this robust-shim version \
                 {PROTOCOL}; install the python package that came with it"
            ));
        }
        match self.stage {
            Stage::New => {
                self.stage = Stage::Attached;
                Ok(Answer::Attached(Box::new(self.attached.clone())))
            }
            _ => Err("this rank's program has attached already; call attach() once".to_owned()),
        }
    }

    fn restore(&mut self) -> Result<Option<Answer>, String> {
        match self.stage {
            Stage::Attached | Stage::Restoring(_) => {}
            _ => return Err(self.out_of_order("restore()", "once, before batches()")),
        }
        let Some(due) = &self.restore else {
            return Ok(None);
        };
        let step = due.body.step;
        match self.find_state() {
            Ok(place) => {
                self.hands.is_at(None);
                self.stage = Stage::Restoring(step);
                Ok(Some(Answer::State { step, place }))
            }
            Err(reason) => {
                // The daemon has other sources, perhaps: the program waits for the next.
                self.end_restore(Err(reason));
                Ok(None)
            }
        }
    }

    /// Where this rank's part of the state is that is to be taken up.
    fn find_state(&mut self) -> Result<Option<Place>, String> {
        let Some(due) = &self.restore else {
            return Ok(None);
        };
        let shards = &due.body.shards;
        let (found, ranks) = (shards.len(), self.attached.world_size as usize);
        if shards.is_empty() {
            return Ok(None);
        }
        if found != ranks {
            return Err(format!(
                "{found} ranks wrote the state of step {}, and this gang has {ranks}: states of programs \
                 are kept rank by rank, so the number of ranks must stay",
                due.body.step
            ));
        }
        let shard = &shards[self.attached.rank as usize];
        self.hands.look_at(shard).map(Some)
    }

    fn restored(&mut self, step: u64, error: Option<String>) -> Result<Answer, String> {
        if self.stage != Stage::Restoring(step) {
            return Err(self.out_of_order("restored", "after its state was told"));
        }
        let result = match error {
            Some(error) => Err(error),
            None => self.hands.is_unchanged(),
        };
        match result {
            Ok(()) => {
                self.stage = Stage::At(step);
                self.hands.is_at(Some(step));
                self.end_restore(Ok(step));
                Ok(Answer::Done)
            }
            Err(reason) => {
                self.stage = Stage::Attached;
                self.end_restore(Err(reason.clone()));
                Err(reason)
            }
        }
    }

    fn end_restore(&mut self, result: Result<u64, String>) {
        if let Some(due) = self.restore.take() {
            let result = result.map(|step| Reply::Restore(RestoreReply { step }));
            self.end(due, result);
        }
    }

    fn batch(&mut self) -> Result<Option<Answer>, String> {
        let Stage::At(step) = self.stage else {
            return Err(
                self.out_of_order("the next batch", "after restore() and after each commit()")
            );
        };
        if let Some(due) = &self.publish
            && !self.has_told(due.body)
        {
            return Err(format!(
                "publish() was not called for step {step}, and all engines wait for these weights; call \
                 job.publish(model) after restore() and after each commit()"
            ));
        }
        let Some(due) = &self.train else {
            return Ok(None);
        };
        if due.body.step != step + 1 {
            let reason = format!(
                "step {} is asked for, the program is at {step}",
                due.body.step
            );
            self.end_train(Err(Failure::of_the_call(reason.clone())));
            return Err(reason);
        }
        let (of, tokens) = (due.body.step, due.body.batch_trainable_tokens);
        let path = self.hands.lay_batch(&due.body)?;
        self.stage = Stage::Computing(of);
        Ok(Some(Answer::Batch {
            step: of,
            path,
            batch_tokens: tokens,
        }))
    }

    /// Numbers that are none fail the call, and the program waits for its end: a state that came of them
    /// must never be written.
    fn figures(
        &mut self,
        step: u64,
        figures: &BTreeMap<String, String>,
        tensors: &[Tensor],
    ) -> Result<Option<Answer>, String> {
        if self.stage == Stage::Computing(step) && self.train.is_some() {
            let failure = match self.hands.spoils() {
                true => Some(numeric("loss", "NaN, on request")),
                false => not_finite(figures),
            };
            let failed = failure.is_some();
            let reply = figures_of(figures);
            self.end_train(failure.map_or(Ok(reply), Err));
            if failed {
                return Ok(None);
            }
            self.stage = Stage::Summed(step);
        }
        if self.stage != Stage::Summed(step) {
            return match self.train.is_none() && self.stage == Stage::Computing(step) {
                true => Ok(None),
                false => Err(self.out_of_order("commit()", "once for each batch")),
            };
        }
        if self.snapshot.as_ref().is_none_or(|due| due.body != step) {
            return Ok(None);
        }
        let place = self.hands.begin_state(step, tensors).inspect_err(|reason| {
            tracing::error!(reason, "the state has no place");
        });
        match place {
            Ok(place) => {
                self.stage = Stage::Writing(step);
                Ok(Some(Answer::Write { place }))
            }
            Err(reason) => {
                self.end_snapshot(Err(reason.clone()));
                Err(reason)
            }
        }
    }

    fn written(&mut self, step: u64) -> Result<Option<Answer>, String> {
        if self.stage == Stage::Writing(step) {
            let shard = self.hands.end_state(step);
            let failed = shard.as_ref().err().cloned();
            self.end_snapshot(shard);
            if let Some(reason) = failed {
                return Err(reason);
            }
            self.hands.is_at(Some(step));
            self.stage = Stage::Written(step);
        }
        match self.stage {
            Stage::At(now) if now == step => Ok(Some(Answer::Done)),
            Stage::Written(now) if now == step => Ok(None),
            _ => Err(self.out_of_order("written", "after commit() was told where")),
        }
    }

    fn is_on_record(&mut self, step: u64) {
        if self.stage == Stage::Written(step) {
            self.stage = Stage::At(step);
        }
    }

    fn begin_version(&mut self, version: u64, tensors: &[Tensor]) -> Result<Answer, String> {
        if self.stage != Stage::At(version) {
            return Err(self.out_of_order("publish()", "after restore() and after each commit()"));
        }
        let place = self.hands.begin_version(version, tensors)?;
        self.version = Version::Begun(version);
        Ok(Answer::Write { place })
    }

    fn end_version(
        &mut self,
        version: u64,
        canary: Option<CanaryAnswer>,
    ) -> Result<Answer, String> {
        if self.version != Version::Begun(version) {
            return Err(self.out_of_order("published", "after publish() was told where"));
        }
        if self.attached.canary.is_some() && canary.is_none() {
            return Err(
                "the job's engines are verified by what the weights answer to a fixed prompt, and \
                 publish() was given no answer; pass the model itself, or canary=, or take `canary` out \
                 of [rollout.command] verify"
                    .to_owned(),
            );
        }
        self.hands.end_version(version, canary)?;
        self.version = Version::Told(version, None);
        Ok(Answer::Done)
    }

    fn has_told(&self, version: u64) -> bool {
        matches!(self.version, Version::Told(of, _) if of == version)
    }

    /// What the daemon asked to be published may be served by now.
    fn answer_publish(&mut self) {
        let Version::Told(version, Some(served)) = &self.version else {
            return;
        };
        let served = (**served).clone();
        if let Some(due) = self.publish.take_if(|due| due.body == *version) {
            self.end(due, served.map(Reply::Publish));
        }
    }

    fn end_train(&mut self, result: Result<UpdateReply, Failure>) {
        if let Some(due) = self.train.take() {
            let reply = self.calls.end(due.asked, result.map(Reply::Update));
            self.said.push(Said::Reply(due.epoch, Box::new(reply)));
        }
    }

    fn end_snapshot(&mut self, result: Result<SnapshotReply, String>) {
        if let Some(due) = self.snapshot.take() {
            self.end(due, result.map(Reply::Snapshot));
        }
    }

    fn end<T>(&mut self, due: Due<T>, result: Result<Reply, String>) {
        let reply = self
            .calls
            .end(due.asked, result.map_err(Failure::of_the_call));
        self.said.push(Said::Reply(due.epoch, Box::new(reply)));
    }

    fn fail(&mut self, epoch: DaemonEpoch, asked: Asked, reason: String) {
        let reply = self.calls.end(asked, Err(Failure::of_the_call(reason)));
        self.said.push(Said::Reply(epoch, Box::new(reply)));
    }

    fn answer(&mut self, answer: Answer) {
        self.said.push(Said::Answer(answer));
    }

    fn out_of_order(&self, what: &str, when: &str) -> String {
        let now = match self.stage {
            Stage::New => "it has not attached".to_owned(),
            Stage::Attached => "it has no state yet".to_owned(),
            Stage::Restoring(step) => format!("it takes up the state of step {step}"),
            Stage::At(step) => format!("its state is of step {step}"),
            Stage::Computing(step) => format!("it has the batch of step {step}"),
            Stage::Summed(step) | Stage::Writing(step) | Stage::Written(step) => {
                format!("it commits step {step}")
            }
        };
        format!("{what} comes {when}; the program asked for it while {now}")
    }
}

fn numeric(name: &str, value: &str) -> Failure {
    Failure {
        reason: format!("numeric fault: {name} is {value}"),
        numeric: true,
    }
}

/// The first figure that is no finite number.
fn not_finite(figures: &BTreeMap<String, String>) -> Option<Failure> {
    let wrong = figures
        .iter()
        .find(|(_, text)| !text.parse::<f64>().is_ok_and(f64::is_finite));
    wrong.map(|(name, text)| numeric(name, text))
}

/// What the program told; a figure that it did not tell is 0.
fn figures_of(figures: &BTreeMap<String, String>) -> UpdateReply {
    let of = |name: &str| {
        let text = figures.get(name);
        text.and_then(|text| text.parse().ok()).unwrap_or(0.0)
    };
    UpdateReply {
        loss: of("loss"),
        grad_norm: of("grad_norm"),
        clip_fraction: of("clip_fraction"),
        entropy: of("entropy"),
        kl: of("kl"),
    }
}

#[cfg(test)]
#[path = "rank_tests.rs"]
mod tests;
