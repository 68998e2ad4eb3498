//! Changes of a role's values or of the gang's size, without a fault.
//!
//! ```text
//!  trainer:        accepted ──► planned ── step boundary ──► gang asked to end, new generation
//!  other roles:    accepted ──► rolling: one after the other, the next when the last one serves
//! ```
//! Both wait as long as somebody would have no slot to start in (its node is cordoned, all are taken).
//! A step boundary is when the gang has committed and published and has not begun anything, or when
//! it is not up anyway. No fault is counted and no budget touched; rollouts go on.
//! A life that began after the request is what was asked for, and is left alone.
use crate::core::config::CoreConfig;
use crate::core::gang::context::Context;
use crate::core::ops::refusal::{Refusal, Reply};
use crate::core::output::{Output, Record, Severity};
use crate::core::{Core, Mutation};
use crate::ids::{Incarnation, InstanceId, Role};
use serde::{Deserialize, Serialize};

/// A change of the gang that waits for a step boundary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// Ranks it will have.
    pub ranks: u32,
    /// The revision of the job file it will read.
    pub revision: u32,
    /// What for, in words.
    pub why: String,
    /// Only so that ranks leave slots that are drained.
    #[serde(default)]
    pub leaves: bool,
    /// It was said that it waits for slots.
    #[serde(default)]
    pub held_up: bool,
    /// All other roles start anew with it.
    #[serde(default)]
    pub task: bool,
    /// Those of them, that is, whose lives are older than this one: the others began after it was
    /// asked for. None: a state of before this was noted.
    #[serde(default)]
    pub before: Option<Incarnation>,
}

/// A role whose instances are restarted one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rolling {
    /// Which.
    pub role: Role,
    /// The first one.
    #[serde(default)]
    pub first: u32,
    /// The next one.
    pub next: u32,
    /// The first that is left alone; none: all are restarted.
    #[serde(default)]
    pub end: Option<u32>,
    /// A revision of the job file is what for; none: an operator asked for new processes.
    #[serde(default)]
    pub revision: Option<u32>,
    /// Lives from this one on began after it was asked for: they are what was asked for. None: a state
    /// of before this was noted, in which all are restarted.
    #[serde(default)]
    pub before: Option<Incarnation>,
}

impl Rolling {
    /// All of a role that live now.
    pub(in crate::core) fn all(role: Role, revision: Option<u32>, next_life: Incarnation) -> Self {
        Self {
            role,
            first: 0,
            next: 0,
            end: None,
            revision,
            before: Some(next_life),
        }
    }

    /// Whether a life began before it was asked for.
    fn concerns(&self, life: Incarnation) -> bool {
        self.before.is_none_or(|before| life < before)
    }

    fn why(&self) -> String {
        match self.revision {
            Some(revision) => format!("new values (revision {revision})"),
            None => crate::core::ops::replace::ON_REQUEST.to_owned(),
        }
    }
}

/// A change of the gang that is asked for.
#[derive(Clone, Debug)]
pub(in crate::core) struct Change {
    /// Ranks it is to have.
    pub ranks: u32,
    /// The revision of the job file it is to read; 0: the one it reads.
    pub revision: u32,
    /// What for, in words.
    pub why: String,
    /// Only so that ranks leave slots that are drained.
    pub leaves: bool,
    /// All other roles start anew with it.
    pub task: bool,
}

impl Change {
    /// Of the gang alone.
    pub fn of(ranks: u32, revision: u32, why: String) -> Self {
        Self {
            ranks,
            revision,
            why,
            leaves: false,
            task: false,
        }
    }
}

/// Ranks that a refusal offers instead.
const OFFERED: usize = 4;

/// Whether these values divide among so many ranks: whoever made them may not have known how many there are
/// by now.
pub(in crate::core) fn divides(
    known: &CoreConfig,
    values: &CoreConfig,
    ranks: u32,
) -> Result<(), Refusal> {
    let samples = u64::from(values.prompts) * u64::from(values.responses);
    match samples.is_multiple_of(u64::from(ranks.max(1))) {
        true => Ok(()),
        false => Err(Refusal::NotDivisible {
            count: ranks,
            samples,
            fits: fitting_ranks(known, samples, ranks),
        }),
    }
}

/// The numbers of ranks that divide a step's samples, nearest first.
fn fitting_ranks(config: &CoreConfig, samples: u64, count: u32) -> Vec<u32> {
    let spec = config.role(Role::Trainer);
    let most = spec.max.min(u32::try_from(samples).unwrap_or(u32::MAX));
    let mut fits: Vec<u32> = (spec.min.max(1)..=most.min(count.saturating_mul(2)))
        .filter(|n| samples.is_multiple_of(u64::from(*n)))
        .collect();
    fits.sort_by_key(|n| (n.abs_diff(count), *n));
    fits.truncate(OFFERED);
    fits
}

impl Core {
    pub(in crate::core) fn on_update(
        &mut self,
        role: Role,
        config: CoreConfig,
        revision: u32,
        changes: &[String],
    ) -> Result<Reply, Refusal> {
        self.ask().running_job()?;
        let words = changes.join(", ");
        let when = match role {
            Role::Hybrid => {
                let why = "a hybrid has the values of rollouts; update `rollout`".to_owned();
                return Err(Refusal::WrongRole { role, why });
            }
            Role::Trainer => {
                let ranks = self.s.roster.instances().count(Role::Trainer);
                divides(&self.config, &config, ranks)?;
                let when = self.plan_change(Change::of(
                    ranks,
                    revision,
                    format!("its values change: {words}"),
                ))?;
                self.next_config = Some(Box::new(config));
                when
            }
            Role::Rollout | Role::Agent => {
                if self.s.orders.is_rolling(role) {
                    let what = format!("an update of {role}");
                    return Err(Refusal::Busy { what });
                }
                self.adopt(config);
                self.s.orders.use_revision(role, revision);
                self.note_revision(revision);
                let next_life = self.s.roster.next_incarnation();
                let rolling = |role| Rolling::all(role, Some(revision), next_life);
                self.s.orders.roll(rolling(role));
                if role == Role::Rollout && self.s.roster.instances().count(Role::Hybrid) > 0 {
                    self.s.orders.roll_anew(rolling(Role::Hybrid));
                }
                "now, one after the other".to_owned()
            }
        };
        let text = format!("{role} gets new values (revision {revision}): {words}");
        self.event(Severity::Info, "update", None, text);
        Ok(Reply::Updated {
            role,
            revision,
            when,
        })
    }

    /// Accepts a change of the gang; says when it comes.
    pub(in crate::core) fn plan_change(&mut self, change: Change) -> Result<String, Refusal> {
        if self.s.orders.is_planned_firmly() {
            let what = "another change of the trainer".to_owned();
            return Err(Refusal::Busy { what });
        }
        let when = match self.gang_is_at_boundary() {
            true => "now".to_owned(),
            false => format!("when step {} is committed", self.s.committed.next()),
        };
        let revision = match change.revision {
            0 => self.revision_of(Role::Trainer),
            new => new,
        };
        self.note_revision(revision);
        self.s.orders.plan(Planned {
            ranks: change.ranks,
            revision,
            why: change.why,
            leaves: change.leaves,
            held_up: false,
            task: change.task,
            before: Some(self.s.roster.next_incarnation()),
        });
        Ok(when)
    }

    /// The revision of the job file that a role's processes read.
    pub(in crate::core) fn revision_of(&self, role: Role) -> u32 {
        self.s.orders.revision_of(role)
    }

    /// On record before it is answered: a restarted daemon goes on with it. 0: no other one.
    pub(in crate::core) fn note_revision(&mut self, revision: u32) {
        let revision = self.s.orders.accept(revision);
        let record = Record::Revised { revision };
        if !self.config.mutant(Mutation::ForgetRequest) {
            self.out.push(Output::Record(record));
        }
    }

    /// New values; how many instances there are stays what it is.
    fn adopt(&mut self, config: CoreConfig) {
        let counts = Role::ALL.map(|role| (role, self.config.count(role)));
        self.config = config;
        // How many an agent worker may hold may be another number now.
        self.s.roster.touch_role(Role::Agent);
        for (role, count) in counts {
            self.config.set_count(role, count);
        }
        if let Some(next) = &mut self.next_config {
            **next = self.config.clone();
        }
    }

    /// Carries out what is planned for the gang, if it is time.
    pub(in crate::core) fn carry_out_planned(&mut self) {
        if self.s.orders.planned().is_none() || !self.gang_is_at_boundary() {
            return;
        }
        self.derive();
        if self.s.roster.counts(Role::Trainer).condemned > 0 {
            // Its restart is decided already; it comes right after.
            return;
        }
        if self.s.orders.planned().is_some_and(|p| p.leaves)
            && !self
                .s
                .placement(self.now, &self.config)
                .is_rank_in_drained_slot()
        {
            // A fault took the gang elsewhere already.
            self.s.orders.drop_planned();
            return;
        }
        if self.s.committed.0 >= self.config.steps || self.lacks_slots() {
            return;
        }
        // Batches that are open keep their shape: ranks that do not divide them wait.
        let batches = self.s.work.requests.table();
        let Some(planned) = self.s.orders.take_planned(|ranks| batches.divides(ranks)) else {
            return;
        };
        if let Some(config) = self.next_config.take() {
            self.adopt(*config);
        }
        let text = format!("the trainer gang is restarted: {}", planned.why);
        self.event(Severity::Info, "planned", None, text);
        self.resize_gang(planned.ranks);
        // It replaces no gang that failed: its first fault is a first fault.
        self.form_gang(self.config.mutant(Mutation::CountPlanned));
        let ranks = self.s.roster.instances().ids(Role::Trainer);
        self.replace(&ranks, &planned.why);
        if planned.task {
            self.replace_others(&planned.why, planned.before);
        }
    }

    /// Whether a rank of the gang as it is planned would have no slot: nobody who works is stopped for
    /// that; the change waits.
    fn lacks_slots(&mut self) -> bool {
        let Some(ranks) = self.s.orders.planned().map(|p| p.ranks) else {
            return true;
        };
        let lacking = |core: &Self| {
            let placement = core.s.placement(core.now, &core.config);
            placement.ranks_without_slot(ranks) > 0
        };
        // Nodes that were cordoned for their faults are used again one after the other, as far as it takes.
        if lacking(self) {
            for id in self.s.roster.instances().ids(Role::Trainer) {
                if lacking(self) {
                    self.ensure_housed(id);
                }
            }
        }
        let lacks = lacking(self);
        if lacks && self.s.orders.hold_up() {
            let text = "the trainer's change waits: not every rank would have a slot".to_owned();
            self.event(Severity::Warn, "planned", None, text);
        }
        lacks
    }

    fn resize_gang(&mut self, ranks: u32) {
        let hybrids = self.s.roster.instances().count(Role::Hybrid) > 0;
        for role in [Role::Hybrid, Role::Trainer] {
            if role == Role::Hybrid && !hybrids {
                continue;
            }
            while self.s.roster.instances().count(role) > ranks {
                let index = self.s.roster.instances().count(role) - 1;
                let id = InstanceId { role, index };
                self.retire(id);
                self.vacate(id);
                self.s.roster.drop_place(role);
            }
            while self.s.roster.instances().count(role) < ranks {
                self.s.roster.add_place(role);
            }
            self.config.set_count(role, ranks);
        }
    }

    /// A hybrid engine lives with its rank: one that is new, or whose rank moved, starts in its rank's
    /// slot; one whose slot another rank has now leaves it.
    pub(in crate::core) fn rehouse_hybrids(&mut self) {
        let mut moved = self.s.roster.instances().ids(Role::Hybrid);
        moved.retain(|id| {
            self.s
                .placement(self.now, &self.config)
                .is_apart_from_rank(*id)
        });
        self.replace(&moved, "its rank has another slot");
    }

    /// Goes on restarting the roles whose values changed, one instance after the other.
    pub(in crate::core) fn roll(&mut self) {
        for at in (0..self.s.orders.rolling().len()).rev() {
            while self.roll_on(at) {}
        }
    }

    /// Comes to the next instance of a role, if it is time; whether there may be another one to come to.
    fn roll_on(&mut self, at: usize) -> bool {
        let rolling = self.s.orders.rolling()[at];
        let Rolling { role, next, .. } = rolling;
        let id = InstanceId { role, index: next };
        let past_end = rolling.end.is_some_and(|end| next >= end);
        let Some(i) = self.s.roster.instances().get(id).filter(|_| !past_end) else {
            self.s.orders.end_rolling(at);
            return false;
        };
        let serves = |index: u32| {
            let before = self.s.roster.instances().get(InstanceId { role, index });
            before.is_none_or(|i| {
                let admitted = self.s.weights.of(i.id()).is_admitted();
                !i.has_process()
                    || i.attached() && (admitted || i.quarantined() || role != Role::Rollout)
            })
        };
        if next > rolling.first && !serves(next - 1) {
            return false;
        }
        if role == Role::Hybrid && self.s.gang.context() != Context::Rolling {
            // Its slot is its rank's now.
            return false;
        }
        let restarts = i.has_process()
            && !i.going()
            && i.condemned().is_none()
            && rolling.concerns(i.incarnation());
        if restarts && !self.ensure_housed(id) {
            // Nobody who works is stopped to wait for a slot.
            return false;
        }
        self.s.orders.roll_on(at);
        if restarts {
            self.replace(&[id], &rolling.why());
        }
        true
    }
}
