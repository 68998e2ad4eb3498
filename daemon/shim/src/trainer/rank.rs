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
//!
//! A program whose loop is its own ([`OwnLoop`]) asks for no batch: a step begins where the one before
//! ended, and ends with its figures, or with the next version that it publishes. Where its state is its
//! own too there is nothing to restore, and what is kept of a step is its number. One that ends with code
//! 0 between two steps had nothing left to do.

use robust_proto::v1::{Call, ServedVersion};
use robust_role::DaemonEpoch;
use robust_role::calls::Failure;
use robust_shared::core::OwnLoop;
use robust_shared::job::Level;

use super::dues::{Dues, Figures, News, Said, Step, not_finite, numeric};
use super::hands::Hands;
use super::version::LastVersion;
use super::words::{Answer, Ask, Attached, CanaryAnswer, PROTOCOL, Place, Tensor};

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

/// A rank.
pub struct Rank<H> {
    attached: Attached,
    own: Option<OwnLoop>,
    /// A program that says nothing is up.
    silent_up: bool,
    hands: H,
    dues: Dues,
    stage: Stage,
    version: LastVersion,
    /// The step that the program is at is one that it did in this life.
    is_new: bool,
    waiting: Option<Ask>,
    over: bool,
    /// The program had nothing left to do.
    ended: bool,
    said: Vec<Said>,
}

impl<H: Hands> Rank<H> {
    /// No program attached yet. `own` is its loop, where that is its own.
    pub fn new(attached: Attached, own: Option<OwnLoop>, hands: H) -> Self {
        Self {
            dues: Dues::new(attached.generation),
            attached,
            own,
            silent_up: false,
            hands,
            stage: Stage::New,
            version: LastVersion::default(),
            is_new: false,
            waiting: None,
            over: false,
            ended: false,
            said: Vec::new(),
        }
    }

    /// What is to be said now, in its order.
    pub fn said(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.said)
    }

    /// Whether the program attached, or is up without.
    pub fn is_up(&self) -> bool {
        self.stage != Stage::New || self.silent_up
    }

    /// A program that says nothing is up.
    pub fn on_up(&mut self) {
        self.silent_up = true;
        self.go_on();
    }

    /// Whether a program that ends with code 0 now has nothing left to do.
    pub fn may_end(&self) -> bool {
        self.own.is_some() && matches!(self.stage, Stage::At(_))
    }

    /// It did end so.
    pub fn on_ended(&mut self) {
        self.ended = true;
        self.waiting = None;
        self.go_on();
    }

    /// The daemon calls.
    pub fn on_call(&mut self, epoch: DaemonEpoch, call: Call) {
        match self.dues.take_in(epoch, call) {
            News::Said(said) => return self.said.push(said),
            News::Due(Some(step)) => self.is_on_record(step),
            News::Due(None) => {}
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
        self.version.end(version, served);
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
        self.take_up_nothing();
        if self.ended {
            self.answer_for_the_ended();
        }
        if let Some(ask) = self.waiting.take() {
            let failed = self.hands.exception().map(Err);
            match failed.unwrap_or_else(|| self.reply_to(&ask)) {
                Ok(Some(answer)) => self.answer(answer),
                Ok(None) => self.waiting = Some(ask),
                Err(reason) => self.answer(Answer::Error { reason }),
            }
        }
        // It may have attached just now, and ask for nothing ever after.
        self.take_up_nothing();
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
            Ask::Publish { version, tensors } => match version {
                Some(version) => self.begin_this_version(*version, tensors),
                None => self.begin_next_version(tensors),
            },
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

    /// A program whose state is its own is where the daemon says that it is.
    fn take_up_nothing(&mut self) {
        let begins = matches!(self.stage, Stage::New | Stage::Attached) && self.is_up();
        if !begins || self.keeps_state() {
            return;
        }
        if let Some(step) = self.dues.restore().map(|restore| restore.step) {
            self.stage = Stage::At(step);
            self.hands.is_at(Some(step));
            let said = self.dues.end_restore(Ok(step));
            self.said.extend(said);
        }
    }

    fn keeps_state(&self) -> bool {
        self.own.is_none_or(|own| own.keeps_state)
    }

    /// Nothing comes any more of a program that had nothing left to do.
    fn answer_for_the_ended(&mut self) {
        let Stage::At(step) = self.stage else { return };
        if let Some(version) = self.dues.publish().filter(|due| !self.has_told(*due)) {
            let reason = format!(
                "the program ended without publishing the weights of step {step}; call publish() after each \
                 commit()"
            );
            let said = self.dues.end_publish(version, Err(reason));
            self.said.extend(said);
        }
        if self.dues.step().is_some() {
            let said = self.dues.end_step(Ok(None));
            self.said.extend(said);
        }
    }

    fn restore(&mut self) -> Result<Option<Answer>, String> {
        match self.stage {
            Stage::At(step) if !self.keeps_state() => {
                let places = Vec::new();
                return Ok(Some(Answer::State { step, places }));
            }
            Stage::Attached if !self.keeps_state() => return Ok(None),
            Stage::Attached | Stage::Restoring(_) => {}
            _ => return Err(self.out_of_order("restore()", "once, before batches()")),
        }
        let Some(step) = self.dues.restore().map(|restore| restore.step) else {
            return Ok(None);
        };
        match self.find_state() {
            Ok(places) => {
                self.hands.is_at(None);
                self.stage = Stage::Restoring(step);
                Ok(Some(Answer::State { step, places }))
            }
            Err(reason) => {
                // The daemon has other sources, perhaps: the program waits for the next.
                let said = self.dues.end_restore(Err(reason));
                self.said.extend(said);
                Ok(None)
            }
        }
    }

    /// Where what this rank needs of the state is that is to be taken up.
    fn find_state(&mut self) -> Result<Vec<Place>, String> {
        let Some(restore) = self.dues.restore() else {
            return Ok(Vec::new());
        };
        let shards = &restore.shards;
        let (found, ranks) = (shards.len(), self.attached.world_size as usize);
        if shards.is_empty() || self.attached.reshards {
            return self.hands.look_at(shards);
        }
        if found != ranks {
            return Err(format!(
                "{found} ranks wrote the state of step {}, and this gang has {ranks}: with \
                 `trainer.command.snapshot = \"slot\"` states are kept rank by rank, so the number of ranks \
                 must stay; \"dcp\" keeps those that any number can take up",
                restore.step
            ));
        }
        let own = self.attached.rank as usize;
        self.hands.look_at(&shards[own..=own])
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
                let said = self.dues.end_restore(Ok(step));
                self.said.extend(said);
                Ok(Answer::Done)
            }
            Err(reason) => {
                self.stage = Stage::Attached;
                let said = self.dues.end_restore(Err(reason.clone()));
                self.said.extend(said);
                Err(reason)
            }
        }
    }

    fn batch(&mut self) -> Result<Option<Answer>, String> {
        if self.own.is_some() {
            return Err(self.not_at_this_level("batches()", Level::Data));
        }
        let Stage::At(step) = self.stage else {
            return Err(
                self.out_of_order("the next batch", "after restore() and after each commit()")
            );
        };
        let (of, tokens, path) = match self.next_step(step)? {
            Some(Step::Batch(train)) => {
                let path = self.hands.lay_batch(&train)?;
                (train.step, train.batch_trainable_tokens, path)
            }
            _ => return Ok(None),
        };
        self.stage = Stage::Computing(of);
        Ok(Some(Answer::Batch {
            step: of,
            path,
            batch_tokens: tokens,
        }))
    }

    /// The step after this one, if it is asked for.
    fn next_step(&mut self, step: u64) -> Result<Option<Step>, String> {
        if self.dues.publish().is_some_and(|due| !self.has_told(due)) {
            return Err(format!(
                "publish() was not called for step {step}, and all engines wait for these weights; call \
                 job.publish(model) after restore() and after each commit()"
            ));
        }
        let Some(due) = self.dues.step().cloned() else {
            return Ok(None);
        };
        if due.number() != step + 1 {
            let asked = due.number();
            let reason = format!("step {asked} is asked for, the program is at {step}");
            self.end_step(Err(Failure::of_the_call(reason.clone())));
            return Err(reason);
        }
        Ok(Some(due))
    }

    /// Numbers that are none fail the call, and the program waits for its end: a state that came of them
    /// must never be written.
    fn figures(
        &mut self,
        step: u64,
        figures: &Figures,
        tensors: &[Tensor],
    ) -> Result<Option<Answer>, String> {
        if self.own.is_some_and(|own| !own.commits) {
            return Err(self.not_at_this_level("commit()", Level::State));
        }
        if self.own.is_some()
            && let Stage::At(now) = self.stage
            && now + 1 == step
        {
            if self.next_step(now)?.is_none() {
                return Ok(None);
            }
            self.stage = Stage::Computing(step);
        }
        if self.stage == Stage::Computing(step) && self.dues.step().is_some() {
            let failure = match self.hands.spoils() {
                true => Some(numeric("loss", "NaN, on request")),
                false => not_finite(figures),
            };
            let failed = failure.is_some();
            self.end_step(failure.map_or(Ok(figures), Err));
            if failed {
                return Ok(None);
            }
            self.stage = Stage::Summed(step);
        }
        if self.stage != Stage::Summed(step) {
            return match self.dues.step().is_none() && self.stage == Stage::Computing(step) {
                true => Ok(None),
                false => Err(self.out_of_order("commit()", "once for each step")),
            };
        }
        if !self.dues.wants_snapshot(step) {
            return Ok(None);
        }
        let place = self.hands.begin_state(step, tensors).inspect_err(|reason| {
            tracing::error!(reason, "the state has no place");
        });
        match place {
            Ok(place) => {
                self.stage = Stage::Writing(step);
                let of = step;
                Ok(Some(Answer::Write { of, place }))
            }
            Err(reason) => {
                let said = self.dues.end_snapshot(Err(reason.clone()));
                self.said.extend(said);
                Err(reason)
            }
        }
    }

    fn written(&mut self, step: u64) -> Result<Option<Answer>, String> {
        if self.stage == Stage::Writing(step) {
            self.end_state(step)?;
        }
        match self.stage {
            Stage::At(now) if now == step => Ok(Some(Answer::Done)),
            Stage::Written(now) if now == step => Ok(None),
            _ => Err(self.out_of_order("written", "after commit() was told where")),
        }
    }

    fn end_state(&mut self, step: u64) -> Result<(), String> {
        let shard = self.hands.end_state(step);
        let failed = shard.as_ref().err().cloned();
        let said = self.dues.end_snapshot(shard);
        self.said.extend(said);
        if let Some(reason) = failed {
            return Err(reason);
        }
        self.hands.is_at(Some(step));
        self.stage = Stage::Written(step);
        Ok(())
    }

    fn is_on_record(&mut self, step: u64) {
        if self.stage == Stage::Written(step) {
            self.stage = Stage::At(step);
            self.is_new = true;
        }
    }

    fn begin_version(&mut self, version: u64, tensors: &[Tensor]) -> Result<Answer, String> {
        if self.stage != Stage::At(version) {
            return Err(self.out_of_order("publish()", "after restore() and after each commit()"));
        }
        let place = self.hands.begin_version(version, tensors)?;
        self.version.begin(version);
        self.is_new = false;
        let of = version;
        Ok(Answer::Write { of, place })
    }

    /// The version of the step that the program is at. One that came back with a state of its own has
    /// another than the version that went out: there is nothing to write then.
    fn begin_this_version(
        &mut self,
        version: u64,
        tensors: &[Tensor],
    ) -> Result<Option<Answer>, String> {
        let wanted = self.is_new || self.dues.publish().is_some();
        if wanted || self.keeps_state() {
            return self.begin_version(version, tensors).map(Some);
        }
        Ok(self.dues.step().map(|_| Answer::Done))
    }

    /// The version of the step that the program is at, where nobody has that one yet; else that of the
    /// next step, which is over with it.
    fn begin_next_version(&mut self, tensors: &[Tensor]) -> Result<Option<Answer>, String> {
        if self.own.is_none_or(|own| !own.commits) {
            return Err(self.not_at_this_level("publish()", Level::Weights));
        }
        match self.stage {
            Stage::At(now) => {
                let wanted = self.dues.publish().is_some_and(|due| !self.has_told(due));
                if self.is_new || wanted {
                    return self.begin_version(now, tensors).map(Some);
                }
                if self.next_step(now)?.is_some() {
                    self.end_step(Ok(&Figures::new()));
                    self.stage = Stage::Summed(now + 1);
                }
                Ok(None)
            }
            Stage::Summed(step) if self.dues.wants_snapshot(step) => {
                let begun = self.hands.begin_state(step, &[]);
                begun.and_then(|_| self.end_state(step)).map(|()| None)
            }
            Stage::Attached | Stage::Summed(_) | Stage::Written(_) => Ok(None),
            _ => Err(self.out_of_order("publish()", "between two steps")),
        }
    }

    fn end_version(
        &mut self,
        version: u64,
        canary: Option<CanaryAnswer>,
    ) -> Result<Answer, String> {
        if !self.version.is_begun(version) {
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
        self.version.tell(version);
        Ok(Answer::Done)
    }

    fn has_told(&self, version: u64) -> bool {
        self.version.is_told(version)
    }

    /// What the daemon asked to be published may be served by now.
    fn answer_publish(&mut self) {
        let Some((version, served)) = self.version.ended() else {
            return;
        };
        let said = self.dues.end_publish(version, served.clone());
        self.said.extend(said);
    }

    fn end_step(&mut self, result: Result<&Figures, Failure>) {
        let said = self.dues.end_step(result.map(Some));
        self.said.extend(said);
    }

    fn answer(&mut self, answer: Answer) {
        self.said.push(Said::Answer(answer));
    }

    fn not_at_this_level(&self, what: &str, level: Level) -> String {
        format!(
            "{what} is for programs of level \"{}\", and the job file says that this one is of level \"{}\"; \
             change trainer.command.level",
            level.name(),
            self.attached.level.name()
        )
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

#[cfg(test)]
mod tests;
