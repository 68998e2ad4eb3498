//! The controller as a pure state machine. See [`Input`] and [`Output`] for its two edges.
//!
//! # Driving it
//! One input with the time it happened, then outputs until there are none, then sleep until the next
//! input or [`Core::next_timeout`] (then [`Input::Timeout`]):
//! ```text
//!   core.handle(now, input);
//!   while let Some(output) = core.poll_output() { .. }   // a Record: persist it and core.take_changes(),
//!   wake_at(core.next_timeout());                        // then go on with what follows it
//! ```
//! A driver that stood still says so before what it hears then ([`Input::StoodStill`]).
//! A kill on a verdict, evidence and probes wait for no record ([`Output::waits_for_records`]).
//!
//! After a restart of the driver: [`Core::restore`] with the last state persisted, then
//! `TrajectoryFinished` for all in the store after the committed step, then `Attached`, `Spawned` or
//! `Exited` for every instance that was (not) taken over (an exit may cost finished work, which must
//! not come back after it), then [`Input::Start`]. What was outstanding is issued
//! again, with the same generation and step. A process taken over may link later: its grace is
//! `attach_timeout`.
//!
//! A repeated `Restore`, `TrainStep` or `Publish` of a gang replaces the one the driver is running:
//! a rank whose link broke may have lost its call. Workers answer a repeated call from memory.
//!
//! # The machines
//! Each is drawn beside its states, and a test fails where one is not in the drawing:
//!
//! | machine | states | drawn in |
//! | --- | --- | --- |
//! | the job | `JobState`, `Outcome` | `state` |
//! | an instance | `Life` | `roster/instance` |
//! | a node | `NodeState` | `roster/nodes/table` |
//! | the gang | `Stage` | `gang` |
//! | whose the trainer's slots are; one engine in that | `Context`, `Turn` | `gang/context` |
//! | a trajectory | `Place` | `work/trajectories/table` |
//! | what a pull's source has for it | `Supply` | `weights/holder` |
//! | an incident | `IncidentOutcome` | `recover/incident` |
//! | a pause, a fault that waits, a planned change | | `ops/pause`, `ops/armed`, `ops/planned` |
mod ahead;
mod cells;
mod config;
mod detect;
mod door;
mod effects;
mod entries;
mod gang;
mod input;
#[cfg(any(test, feature = "inspect"))]
pub mod inspect;
mod mutation;
mod ops;
mod output;
mod recover;
mod roster;
mod router;
mod start;
mod state;
mod timers;
mod view;
mod weights;
mod witness;
mod work;
mod worth;

#[cfg(test)]
mod tests;

pub use crate::fault::Fault;
pub use ahead::{Ahead, LifeAhead, RequestAhead, StartAhead};
pub use cells::{CELL_TABLES, Cell, CellTable, Machine};
pub use config::*;
pub use detect::{InForce, LONGEST_S, RULES, Rule, RuleSet, Setting, Source};
pub use entries::{Changes, CodedError, Entries, Entry, EntryError, EntryKey};
pub use gang::context::Context;
pub use gang::own_loop::OwnLoop;
pub use input::*;
pub use mutation::Mutation;
pub use ops::armed::{Armed, ArmedOn};
pub use ops::pause::PauseView;
pub use ops::refusal::{Refusal, Reply, UNDER_WAY};
pub use output::*;
pub use recover::budget::{Budget, Budgets, FaultKind, Strikes};
pub use recover::cause::memory::{for_memory, killed_by_limit, killed_for_memory};
pub use recover::cause::{Cause, Causes, Fingerprint, Recurring};
pub use recover::deaths::Taken;
pub use recover::incident::*;
pub use recover::restart::{Action, Case, FirstIteration, Plan, decide};
pub use recover::root::{Root, root};
pub use recover::testimony::{Answer, ProcessState, Seen, Testimony};
pub use roster::instance::Restarted;
pub use roster::nodes::{
    Faults, Home, Labels, Move, NoHome, Node, NodeFault, NodeSpec, NodeState, SlotRef,
};
pub use router::check::difference;
pub use state::State;
pub use view::{InstanceView, NodeView, View};
pub use weights::PullOrder;
pub use work::trajectories::{
    Past, Place, Provenance, SETBACKS, Setback, SetbackKind, Trajectory, staleness,
};

use crate::ids::{Incarnation, InstanceId, Role};
use crate::time::Time;
use crate::wire;
use effects::Effects;
use gang::Stage;
use state::JobState;
use std::time::Duration;
use timers::Timers;

/// The controller. Sans I/O: no clock, no randomness; the same inputs give the same outputs.
#[derive(Clone, Debug)]
pub struct Core {
    config: CoreConfig,
    s: State,
    timers: Timers,
    /// The values that the gang has from the next step boundary on.
    next_config: Option<Box<CoreConfig>>,
    out: Effects,
    now: Time,
    /// Between restore and [`Input::Start`] only facts are taken in, nothing is wanted.
    started: bool,
    rejoin: bool,
    /// Until then nobody is judged: what they said while nobody listened is being heard.
    hears_until: Time,
    /// Lives with smaller numbers began under an earlier daemon: what they did after its last record is not known here.
    own_from: Incarnation,
}

/// Parts that make each other possible are done with each other after so many passes at most; what is left
/// then is done with the next input.
const MOST_PASSES: usize = 8;

/// Whoever drives the core wakes when a timeout is due; so much later, it stood still itself.
pub const STALL: Duration = Duration::from_secs(1);
/// For so long it hears what waited meanwhile, before it holds anybody's silence against them.
const HEARING: Duration = Duration::from_secs(1);

impl Core {
    /// A job that was never started.
    pub fn new(config: CoreConfig) -> Self {
        let s = State::new(&config);
        Self::with(config, s, false)
    }

    /// Goes on from a persisted state ([`Entries::state`]), with a job that was stopped too.
    pub fn restore(config: CoreConfig, state: State) -> Self {
        let state = state.resumed(&config);
        Self::with(config, state, true)
    }

    fn with(config: CoreConfig, s: State, rejoin: bool) -> Self {
        let now = s.last_now;
        let mut config = config;
        for role in Role::ALL {
            // Scaled while it ran: what is there counts, not what it began with.
            config.set_count(role, s.roster.instances().wanted(role));
        }
        let own_from = s.roster.next_incarnation();
        let mut core = Self {
            config,
            s,
            own_from,
            timers: Timers::default(),
            next_config: None,
            out: Effects::default(),
            now,
            started: false,
            rejoin,
            hears_until: Time(0),
        };
        for node in core.s.roster.nodes().ids() {
            let (roster, config) = (&core.s.roster, &core.config);
            core.timers.arm_node(roster, config, node, now);
        }
        core.s.weights.look_again();
        core.s.recover.look_again();
        core.derive();
        core
    }

    /// Takes one input that happened at `now`.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.now = self.now.max(now);
        if self
            .next_timeout()
            .is_some_and(|due| self.now.since(due) > STALL)
        {
            self.stood_still();
        }
        if std::mem::take(&mut self.rejoin) {
            self.rejoin();
        }
        self.s.last_now = self.now;
        if !input.is_sign_of_node() {
            self.lose_silent_nodes();
        }
        self.take(input);
        if self.started && self.s.job == JobState::Running {
            self.advance();
            self.account();
        }
        self.derive();
    }

    /// Nobody listened meanwhile, and nobody saw what anybody did.
    fn on_stood_still(&mut self) {
        self.stood_still();
        self.s.roster.unwatched(self.now);
        self.hears_until = self.now + HEARING;
    }

    /// The next thing to do, in order; none when all is done.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop()
    }

    /// What it knows of the job, the rules in force among it.
    pub fn config(&self) -> &CoreConfig {
        &self.config
    }

    /// What to persist with a record: what changed since this was last asked, all of it the first time. It
    /// must be persisted whole, and before what is taken next.
    pub fn take_changes(&mut self) -> Changes {
        self.s.take_changes()
    }

    /// All that it remembers.
    pub fn state(&self) -> &State {
        &self.s
    }

    /// The place whose present life this is. None: it is fenced, and its link is to be refused.
    pub fn is_current(&self, incarnation: Incarnation) -> Option<InstanceId> {
        self.s.roster.instances().life(incarnation).map(|i| i.id())
    }

    /// Does whatever can be done now, from verdicts to dispatches, until nothing more can be: what one part
    /// makes possible a later one uses in the same pass, and an earlier one in the next.
    fn advance(&mut self) {
        for _ in 0..MOST_PASSES {
            let before = self.done_so_far();
            self.pass();
            if self.done_so_far() == before || self.s.job != JobState::Running {
                return;
            }
        }
    }

    /// Differs after a pass in which a part did something that others may have waited for.
    fn done_so_far(&self) -> (usize, Stage, Context) {
        let gang = &self.s.gang;
        (self.out.len(), gang.stage(), gang.context())
    }

    fn pass(&mut self) {
        let parts = [
            Self::check_deadlines,
            Self::carry_out_planned,
            Self::roll,
            Self::settle_slots,
            Self::advance_context,
            Self::advance_gang,
            Self::settle_pause,
            Self::plan_pulls,
            Self::answer_routes,
            Self::dispatch,
            Self::advance_recoveries,
        ];
        for part in parts {
            if self.s.job == JobState::Running {
                part(self);
            }
        }
    }

    fn event(&mut self, severity: Severity, kind: &str, id: Option<InstanceId>, text: String) {
        self.out.event(self.now, severity, kind, id, text);
    }

    fn finish(&mut self, outcome: Outcome) {
        self.s.job = JobState::Over(outcome.clone());
        self.armory().disarm_places("the job is over");
        // On record before anybody acts on it, also where no interval ends with it: to a restarted
        // daemon every process that was ended for it would have failed.
        match self.s.ledger.close(self.now) {
            Some(closed) => self.out.push(Output::Record(Record::Interval(closed))),
            None => self.note_revision(0),
        }
        self.out.push(Output::Finish { outcome });
    }

    /// Tells the ETTR ledger what this instant counts.
    fn account(&mut self) {
        if self.s.job != JobState::Running {
            return;
        }
        self.derive();
        let (value, cause) = self.moment().worth();
        let before = self.s.ledger.doing();
        if let Some(closed) = self.s.ledger.turn(self.now, value, cause) {
            self.out.push(Output::Record(Record::Interval(closed)));
        }
        self.spend(cause, before);
    }
}

impl Outcome {
    /// What a job that ended so is about, as operators see it.
    pub fn shown(&self) -> wire::JobState {
        match self {
            Outcome::Completed => wire::JobState::Completed,
            Outcome::Stopped => wire::JobState::Stopped,
            Outcome::Failed { .. } => wire::JobState::Failed,
        }
    }
}
