//! Orders: what operators asked for that is not done yet, and which revision of the job file is whose.
use crate::core::config::CoreConfig;
use crate::core::mutation::Mutation;
use crate::core::ops::pause::Pause;
use crate::core::ops::planned::{Planned, Rolling};
use crate::ids::{Role, Step};
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What operators asked for that is not done yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Orders {
    /// The newest revision of the job file that was accepted.
    #[serde(default)]
    revision: u32,
    /// The revision each role reads; the first where none is said.
    #[serde(default)]
    revisions: BTreeMap<Role, u32>,
    /// What waits for a step boundary.
    #[serde(default)]
    planned: Option<Planned>,
    /// Roles whose instances are restarted one after the other.
    #[serde(default)]
    rolling: Vec<Rolling>,
    /// An operator wants nothing new begun.
    #[serde(default)]
    pause: Option<Pause>,
    /// When the last pause ended.
    #[serde(default)]
    resumed_at: Time,
}

/// The revision of the job file.
impl Orders {
    /// The newest that was accepted; 0: the first.
    pub fn revision(&self) -> u32 {
        self.revision
    }

    /// The one that a role's processes read.
    pub fn revision_of(&self, role: Role) -> u32 {
        let role = if role == Role::Hybrid {
            Role::Rollout
        } else {
            role
        };
        self.revisions.get(&role).copied().unwrap_or(0)
    }

    /// One was accepted (0: no other one than before). Which is the newest now.
    pub fn accept(&mut self, revision: u32) -> u32 {
        self.revision = self.revision.max(revision);
        self.revision
    }

    /// A role's processes read this one from now on.
    pub fn use_revision(&mut self, role: Role, revision: u32) {
        self.revisions.insert(role, revision);
    }
}

/// The pause; the module `pause` draws the machine.
impl Orders {
    /// The pause that is wanted or reached.
    pub fn pause(&self) -> Option<Pause> {
        self.pause
    }

    /// Whether the last step before the pause is over.
    pub fn is_paused(&self) -> bool {
        self.pause.is_some_and(|pause| pause.reached)
    }

    /// When the last pause ended.
    pub fn resumed_at(&self) -> Time {
        self.resumed_at
    }

    /// The last step for which work may be begun.
    pub fn last_to_begin(&self, config: &CoreConfig) -> Step {
        let pause = self.pause;
        let pause = pause.filter(|_| !config.mutant(Mutation::BeginPaused));
        pause.map_or(Step(u64::MAX), |pause| pause.after)
    }

    /// Nothing beyond a step is to be begun.
    pub fn pause_after(&mut self, pause: Pause) {
        self.pause = Some(pause);
    }

    /// The pause is over.
    pub fn resume(&mut self, now: Time) {
        (self.pause, self.resumed_at) = (None, now);
    }

    /// Whether the last step before the pause is over now, and was not before. `idle`: the gang has
    /// published what it committed.
    pub fn settle_pause(&mut self, committed: Step, idle: bool) -> bool {
        let over = |pause: &&mut Pause| !pause.reached && committed >= pause.after && idle;
        let reached = self.pause.as_mut().filter(over);
        reached.map(|pause| pause.reached = true).is_some()
    }

    /// A seeded bug: a restarted daemon forgets the pause.
    pub fn lose_pause(&mut self) {
        self.pause = None;
    }
}

/// The change of the gang that waits for a step boundary; the module `planned` draws the machine.
impl Orders {
    /// It.
    pub fn planned(&self) -> Option<&Planned> {
        self.planned.as_ref()
    }

    /// Whether another change has to wait: one that waits for slots, or only leaves some, gives way.
    pub fn is_planned_firmly(&self) -> bool {
        let planned = self.planned.as_ref();
        planned.is_some_and(|p| !p.held_up && !p.leaves)
    }

    /// A change is to come, in the place of one that gives way.
    pub fn plan(&mut self, planned: Planned) {
        self.planned = Some(planned);
    }

    /// It is not needed any more.
    pub fn drop_planned(&mut self) {
        self.planned = None;
    }

    /// It waits for slots. Whether that is news.
    pub fn hold_up(&mut self) -> bool {
        let planned = self.planned.as_mut();
        planned.is_some_and(|p| !std::mem::replace(&mut p.held_up, true))
    }

    /// Takes it to be carried out, if that may be with so many ranks: they read its revision from now on.
    pub fn take_planned(&mut self, may: impl Fn(u32) -> bool) -> Option<Planned> {
        let planned = self.planned.take_if(|planned| may(planned.ranks))?;
        self.use_revision(Role::Trainer, planned.revision);
        Some(planned)
    }

    /// A job that was stopped goes on with so many ranks. Nothing runs that would have to be restarted, so
    /// what waited is done, unless `later`: batches that are open do not divide among the new number of
    /// ranks.
    pub fn begin_anew(&mut self, ranks: u32, later: bool) {
        let planned = self.planned.take();
        let revision = planned.as_ref().map(|planned| planned.revision);
        if later {
            self.planned = Some(Planned {
                ranks,
                revision: revision.unwrap_or(self.revision),
                why: format!("the job goes on with {ranks} ranks"),
                leaves: false,
                held_up: false,
                task: false,
                before: None,
            });
        } else if let Some(revision) = revision {
            self.use_revision(Role::Trainer, revision);
        }
        self.rolling.clear();
    }
}

/// Roles whose instances are restarted one after the other.
impl Orders {
    /// All of them.
    pub fn rolling(&self) -> &[Rolling] {
        &self.rolling
    }

    /// Whether a role is among them.
    pub fn is_rolling(&self, role: Role) -> bool {
        self.rolling.iter().any(|r| r.role == role)
    }

    /// One more.
    pub fn roll(&mut self, rolling: Rolling) {
        self.rolling.push(rolling);
    }

    /// One that may be among them already begins anew.
    pub fn roll_anew(&mut self, rolling: Rolling) {
        self.rolling.retain(|r| r.role != rolling.role);
        self.rolling.push(rolling);
    }

    /// The one at this place came to its next instance.
    pub fn roll_on(&mut self, at: usize) {
        if let Some(rolling) = self.rolling.get_mut(at) {
            rolling.next += 1;
        }
    }

    /// The one at this place is done.
    pub fn end_rolling(&mut self, at: usize) {
        self.rolling.remove(at);
    }

    /// Everything is restarted at once instead.
    pub fn stop_rolling(&mut self) {
        self.rolling.clear();
    }
}

/// What is written down of it.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The newest revision.
    pub revision: u32,
    /// That of each role.
    pub revisions: BTreeMap<Role, u32>,
    /// What waits for a step boundary.
    pub planned: Option<Planned>,
    /// Who is restarted one after the other.
    pub rolling: Vec<Rolling>,
    /// The pause.
    pub pause: Option<Pause>,
}

impl Orders {
    /// Takes up what was written down.
    pub fn put_back(&mut self, parts: Parts) {
        *self = Self {
            revision: parts.revision,
            revisions: parts.revisions,
            planned: parts.planned,
            rolling: parts.rolling,
            pause: parts.pause,
            resumed_at: self.resumed_at,
        };
    }

    /// The same of what is written down apart.
    pub fn put_back_resumed_at(&mut self, at: Time) {
        self.resumed_at = at;
    }

    /// Which role reads which revision.
    pub fn revisions(&self) -> &BTreeMap<Role, u32> {
        &self.revisions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(orders: &mut Orders, held_up: bool) {
        orders.begin_anew(4, true);
        if held_up {
            assert!(orders.hold_up());
        }
    }

    #[test]
    fn a_pause_is_reached_once_when_its_step_is_over_and_published() {
        let mut orders = Orders::default();
        assert!(!orders.settle_pause(Step(9), true), "nobody asked for one");
        orders.pause_after(Pause {
            after: Step(2),
            since: Time(1),
            reached: false,
        });
        let settled = [(1, true), (2, false), (2, true), (2, true)];
        let settled = settled.map(|(step, idle)| orders.settle_pause(Step(step), idle));
        assert_eq!(settled, [false, false, true, false]);
        orders.resume(Time(5));
        assert_eq!((orders.is_paused(), orders.resumed_at()), (false, Time(5)));
    }

    #[test]
    fn a_change_of_the_gang_that_waits_for_slots_gives_way_and_says_so_once() {
        let mut orders = Orders::default();
        planned(&mut orders, false);
        assert!(orders.is_planned_firmly());
        planned(&mut orders, true);
        assert!(!orders.is_planned_firmly());
        assert!(!orders.hold_up(), "it was said");
    }

    #[test]
    fn ranks_read_the_revision_of_their_change_when_it_is_carried_out_and_not_before() {
        let mut orders = Orders::default();
        orders.accept(7);
        planned(&mut orders, false);
        assert_eq!(orders.take_planned(|ranks| ranks != 4), None);
        assert_eq!(orders.revision_of(Role::Trainer), 0);
        assert!(orders.take_planned(|_| true).is_some());
        assert_eq!(orders.revision_of(Role::Trainer), 7);
        assert_eq!(orders.planned(), None);
    }

    #[test]
    fn a_job_that_goes_on_has_what_waited_unless_its_batches_do_not_divide() {
        let mut orders = Orders::default();
        orders.accept(7);
        planned(&mut orders, false);
        orders.begin_anew(4, false);
        assert_eq!(orders.planned(), None);
        assert_eq!(orders.revision_of(Role::Trainer), 7);
    }
}
