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
//!  unknown, after the daemon was away ──► whatever the context asks for
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
use super::{Around, Gang};
use crate::core::config::CoreConfig;
use crate::core::effects::Cx;
use crate::core::output::Severity;
use crate::core::roster::instance::Instance;
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

crate::wire::named! {
    Context:
    /// The word shown to operators.
    word {
        Rolling = "rolling",
        ToTraining = "to training",
        Training = "training",
        ToRolling = "to rolling",
    }
}

impl Context {
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

    /// Whether it was told to pause (or to go on), and did not answer yet.
    pub fn awaits(self, paused: bool) -> bool {
        match self {
            Turn::Pausing { .. } => paused,
            Turn::Resuming { .. } => !paused,
            Turn::Rolls | Turn::Paused | Turn::Unknown => false,
        }
    }
}

impl Gang {
    /// Whose turn its slots are.
    pub fn context(&self) -> Context {
        self.context
    }

    /// Whether the ranks may compute.
    pub fn ranks_have_their_slots(&self) -> bool {
        self.context == Context::Training
    }

    /// Whether a hybrid engine of this turn may be given requests.
    pub fn lets_generate(&self, turn: Turn) -> bool {
        turn == Turn::Rolls && self.context.wants_engines()
    }

    /// What a hybrid engine is to be told: true to go on, false to pause. `current`: it has the published
    /// version.
    pub fn due_command(&self, engine: &Instance, current: bool) -> Option<bool> {
        if !engine.holds_slot() || !engine.attached() || engine.condemned().is_some() {
            return None;
        }
        match (self.context.wants_engines(), engine.turn()) {
            (false, Turn::Rolls | Turn::Resuming { .. } | Turn::Unknown) => Some(false),
            (true, Turn::Paused | Turn::Pausing { .. } | Turn::Unknown) if current => Some(true),
            _ => None,
        }
    }

    /// Gives the slots to whom the finished prompts ask for. `unpaused`: engines that still hold theirs,
    /// `unrolling`: those that live and do not generate yet.
    pub fn switch(
        &mut self,
        cx: &mut Cx<'_>,
        around: &Around<'_>,
        (unpaused, unrolling): (u32, u32),
    ) {
        let next = match self.context {
            Context::Rolling | Context::ToRolling if around.enough_is_finished(cx.config) => {
                Context::ToTraining
            }
            Context::ToRolling if unrolling == 0 => Context::Rolling,
            Context::ToTraining if unpaused == 0 => Context::Training,
            Context::Training if self.is_the_engines_turn(cx.config, around) => Context::ToRolling,
            same => same,
        };
        if next != self.context {
            self.enter(cx, around, next);
        }
    }

    fn enter(&mut self, cx: &mut Cx<'_>, around: &Around<'_>, next: Context) {
        let before = std::mem::replace(&mut self.context, next);
        let since = std::mem::replace(&mut self.context_since, cx.now);
        if before.switches() && !next.switches() {
            let took = cx.now.since(since).as_millis();
            let step = around.committed.next();
            let finished = around.finished_of_next();
            let prompts = around.prompts_of_next(cx.config);
            let text = format!(
                "the trainer's slots went over to {}: {took} ms, at {finished} of {prompts} prompts \
                 of step {step}",
                next.word()
            );
            cx.event(Severity::Info, "context", None, text);
        }
    }

    /// Nothing is left for the ranks to do before the engines generated more.
    fn is_the_engines_turn(&self, config: &CoreConfig, around: &Around<'_>) -> bool {
        self.is_idle_after(around.committed) && !around.enough_is_finished(config)
    }
}
