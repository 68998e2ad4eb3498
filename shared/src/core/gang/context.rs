//! Whose turn the trainer's slots are: the ranks' or the hybrid engines'.
//!
//! ```text
//!      enough prompts of the next batch are finished        every engine is paused or gone
//!   ┌───────────────────────────────► to training ───────────────────────────────┐
//!   │                                      ▲                                     ▼
//! rolling                                  │ enough meanwhile                training
//!   ▲                                      │                                     │
//!   └──────────────────────────────── to rolling ◄───────────────────────────────┘
//!     every engine that is there goes on           committed, published, and not enough of the next
//! ```
//! Enough is `job.switch_at` of the prompts in semi-sync, all of them in sync. While no rollout of its
//! own slot lives, it is all of them in semi-sync too: else nobody would generate the rest.
//!
//! The ranks compute (`Prepare`, `TrainStep`) in *training* only. Restoring and publishing copy memory
//! and are done in every context, so a gang that dies while the engines roll recovers beneath them.
//! A job begins in *training*: the slots go to the engines when the first version is published.
//!
//! An engine is paused with its requests sent away (they go on elsewhere from the tokens they have),
//! and goes on once it verified the published version:
//! ```text
//!           Pause                  Switched               Resume, when current
//!  rolls ───────────► pausing ───────────────► paused ───────────────────────► resuming ─► rolls
//!    ▲                   │ no answer within the rule's window: killed              │
//!    └── a new life ◄────┴────────────────────────────────────────────────────────┘
//! ```
//! - It dies while it rolls: its requests go on elsewhere, its new life joins when it is current.
//! - It dies while it pauses or is paused: a dead engine holds no slot, so the ranks go on. Its new
//!   life starts at once, so that it is warm when its turn comes, and is paused when it links.
//! - It dies in the switch back: nobody waits for it.
//! - It is asked to end, or killed, while it rolls: it computes until it has ended, and the ranks wait
//!   for that, for as long as for an answer to a command.
//! - The gang dies: while it trains, the engines stay paused (two switches take longer than a
//!   restart from memory); in the other contexts the machine goes on as it was.
//! - The daemon restarts: what an engine was told is forgotten, and it is told again what the context
//!   asks for. Both commands may come twice.
//! - A late answer of an older life is fenced (I-1); one to an older command finds the engine in
//!   another turn and changes nothing. Whoever drives this sends one command at a time per engine.
use crate::core::output::{Output, Severity};
use crate::core::roster::instance::Instance;
use crate::core::roster::instances::Current;
use crate::core::roster::nodes::NodeState;
use crate::core::state::{JobState, Stage};
use crate::core::{Core, Mode};
use crate::ids::{Incarnation, InstanceId, Role, Step};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// Whose turn the trainer's slots are; the module draws the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Context {
    /// The hybrid engines generate.
    Rolling,
    /// The engines are being paused.
    ToTraining,
    /// The ranks have their slots.
    #[default]
    Training,
    /// The engines are being let go on.
    ToRolling,
}

impl Context {
    /// The word shown to operators.
    pub fn word(self) -> &'static str {
        match self {
            Context::Rolling => "rolling",
            Context::ToTraining => "to training",
            Context::Training => "training",
            Context::ToRolling => "to rolling",
        }
    }

    /// Whether the slots are changing hands.
    pub fn switches(self) -> bool {
        matches!(self, Context::ToTraining | Context::ToRolling)
    }

    fn wants_engines(self) -> bool {
        matches!(self, Context::Rolling | Context::ToRolling)
    }
}

/// What a hybrid engine was told last, and whether it did it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Turn {
    /// It generates what it is given; every new process does.
    #[default]
    Rolls,
    /// Told to pause.
    Pausing {
        /// When.
        since: Time,
    },
    /// It computes nothing.
    Paused,
    /// Told to go on.
    Resuming {
        /// When.
        since: Time,
    },
    /// The daemon was away: it may be paused or not.
    Unknown,
}

impl Turn {
    /// Since when a command waits for its answer.
    pub fn waits_since(self) -> Option<Time> {
        match self {
            Turn::Pausing { since } | Turn::Resuming { since } => Some(since),
            _ => None,
        }
    }
}

impl Core {
    /// Whether the ranks may compute.
    pub(in crate::core) fn ranks_have_their_slots(&self) -> bool {
        self.s.gang.context == Context::Training
    }

    /// Whether an engine may be given requests as far as its slot goes.
    pub(in crate::core) fn has_its_turn(&self, engine: &Instance) -> bool {
        engine.id.role != Role::Hybrid
            || (engine.turn == Turn::Rolls && self.s.gang.context.wants_engines())
    }

    /// Does what the finished prompts ask for, and tells the engines.
    pub(in crate::core) fn advance_context(&mut self) {
        if self.config.hybrids == 0 {
            return;
        }
        let engines = self.index().counts(Role::Hybrid);
        let next = match self.s.gang.context {
            Context::Rolling | Context::ToRolling if self.enough_is_finished() => {
                Context::ToTraining
            }
            Context::ToRolling if engines.unrolling == 0 => Context::Rolling,
            Context::ToTraining if engines.unpaused == 0 => Context::Training,
            Context::Training if self.is_the_engines_turn() => Context::ToRolling,
            same => same,
        };
        if next != self.s.gang.context {
            self.enter_context(next);
        }
        while let Some(id) = self.index().to_tell() {
            self.command_engine(id);
        }
    }

    fn enter_context(&mut self, next: Context) {
        let before = std::mem::replace(&mut self.s.gang.context, next);
        let since = std::mem::replace(&mut self.s.gang.context_since, self.now);
        if before.switches() && !next.switches() {
            let took = self.now.since(since).as_millis();
            let step = self.s.committed.next();
            let finished = self.s.work.requests.table().finished_prompts(step);
            let prompts = self.prompts_of(step);
            let text = format!(
                "the trainer's slots went over to {}: {took} ms, at {finished} of {prompts} prompts \
                 of step {step}",
                next.word()
            );
            self.event(Severity::Info, "context", None, text);
        }
    }

    /// Whether enough of the next batch is finished for the ranks to have their slots.
    pub(in crate::core) fn enough_is_finished(&self) -> bool {
        let step = self.s.committed.next();
        if step.0 > self.config.steps {
            return true;
        }
        let prompts = f64::from(self.prompts_of(step));
        let finished = f64::from(self.s.work.requests.table().finished_prompts(step));
        finished >= prompts || finished >= prompts * self.switching_point()
    }

    /// Prompts of a batch: one that is open keeps the shape it began with.
    fn prompts_of(&self, step: Step) -> u32 {
        let open = self.s.work.requests.table().batch_prompts(step.0);
        open.unwrap_or(self.config.prompts)
    }

    fn switching_point(&self) -> f64 {
        let mut rollouts = self.s.instances.role(Role::Rollout);
        match rollouts.any(Instance::has_process) || self.config.hybrids == 0 {
            true => self.config.switch_at,
            false => 1.0,
        }
    }

    /// Nothing is left for the ranks to do before the engines generated more.
    fn is_the_engines_turn(&self) -> bool {
        let serves = self.s.gang.serves.map(|v| v.0) == Some(self.s.committed.0);
        self.s.gang.stage == Stage::Ready && serves && !self.enough_is_finished()
    }

    /// Whether an engine holds its slot; one without a linked process holds none, one whose link is
    /// broken is judged by its grace, and one that is condemned computes until it is killed.
    pub(in crate::core) fn holds_slot(i: &Instance) -> bool {
        i.id.role == Role::Hybrid && i.was_attached()
    }

    /// An engine that is to end computes until it does: its slot is not its rank's before. Nobody hears
    /// of an end on a node that is lost, and no rank computes there.
    pub(in crate::core) fn note_leaving(&mut self, id: InstanceId) {
        let slot = self.s.instances.get(id).and_then(|i| i.slot.as_ref());
        let node = slot.and_then(|slot| self.s.nodes.get(slot.node));
        if node.is_none_or(|node| node.state != NodeState::Here) {
            return;
        }
        let until = self.now + self.config.rules.context_switch.window.of(id.role);
        let i = self.s.instances.get_mut(id);
        if let Some(i) = i.filter(|i| Self::holds_slot(i) && i.turn != Turn::Paused) {
            i.leaving = Some((i.incarnation, until));
        }
    }

    /// A process ended whose place has another life already.
    pub(in crate::core) fn has_left(&mut self, life: Incarnation) {
        let left = |i: &&Instance| i.leaving.is_some_and(|(who, _)| who == life);
        let engine = self.s.instances.role(Role::Hybrid).find(left);
        let Some(id) = engine.map(|i| i.id) else {
            return;
        };
        if let Some(i) = self.s.instances.get_mut(id) {
            i.leaving = None;
        }
    }

    /// What an engine is to be told: true to go on, false to pause.
    pub(in crate::core) fn due_command(&self, i: &Instance) -> Option<bool> {
        if !Self::holds_slot(i) || !i.attached() || i.condemned.is_some() {
            return None;
        }
        let current = self.s.weights.is_current(i.id);
        match (self.s.gang.context.wants_engines(), i.turn) {
            (false, Turn::Rolls | Turn::Resuming { .. } | Turn::Unknown) => Some(false),
            (true, Turn::Paused | Turn::Pausing { .. } | Turn::Unknown) if current => Some(true),
            _ => None,
        }
    }

    fn command_engine(&mut self, id: InstanceId) {
        let since = self.now;
        let due = self.s.instances.get(id).and_then(|i| self.due_command(i));
        let Some(i) = self.s.instances.get_mut(id) else {
            return;
        };
        let engine = i.incarnation;
        match due {
            Some(true) => {
                i.turn = Turn::Resuming { since };
                self.out.push(Output::Resume { engine });
            }
            Some(false) => {
                i.turn = Turn::Pausing { since };
                // A probe would be sent away like any request; its answer is what it is judged by now.
                i.suspect = None;
                self.out.push(Output::Pause { engine });
            }
            None => {}
        }
    }

    /// An engine answered a command, or refused it.
    pub(in crate::core) fn on_switched(&mut self, engine: Current, paused: bool, ok: bool) {
        let now = self.now;
        let i = self.s.instances.of_mut(engine);
        let awaited = match i.turn {
            Turn::Pausing { .. } => paused,
            Turn::Resuming { .. } => !paused,
            _ => false,
        };
        if !awaited || i.condemned.is_some() {
            return;
        }
        if !ok {
            return self.switch_failed(engine.id, "it refused");
        }
        i.last_sign = now;
        i.turn = match paused {
            true => Turn::Paused,
            false => Turn::Rolls,
        };
        if !paused {
            i.tokens_at = now;
        }
    }

    /// The daemon was away: engines may have been told what is not on record, or not what is.
    pub(in crate::core) fn forget_turns(&mut self) {
        if self.s.job == JobState::Running {
            for i in self.s.instances.iter_mut() {
                // One that had not linked by the last record may have done so, and been told, since.
                if i.id.role == Role::Hybrid && i.has_process() {
                    i.turn = Turn::Unknown;
                }
            }
        }
    }

    /// Whether a part of a batch may be prepared for before the rest is finished.
    pub(in crate::core) fn prepares(&self) -> bool {
        self.config.mode == Mode::SemiSync && self.ranks_have_their_slots()
    }
}
