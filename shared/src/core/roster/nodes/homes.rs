//! Where an instance is to run: its slot if it can be used, a free one, for a rank a rollout's (warm
//! standby, paper 5.2), or nowhere yet.
//!
//! ```text
//!             its slot is usable ──────────────────────────► stays
//!  rank ──┬── a free homogeneous slot of its pool ─────────► moves
//!         ├── a node with such slots is yet to join ────────► homeless: waits for it
//!         │   in mode semi-sync or async, policy role:
//!         ├── a free homogeneous slot of rollouts ──────────► moves
//!         ├── a rollout on a homogeneous slot, and not the
//!         │   last one ────────────────────────────────────► takes it; the rollout is homeless
//!         └── else ────────────────────────────────────────► homeless: waits for a slot
//! ```
//! A rollout whose slot was taken may in turn live in the rank's pool when a slot is free there.
use super::SlotRef;
use super::spec::{Labels, NodeSpec};
use crate::core::config::{Mode, Policy};
use crate::core::output::Severity;
use crate::core::roster::instance::{Instance, Life};
use crate::core::{Core, Mutation};
use crate::ids::{Generation, Incarnation, InstanceId, Role};
use std::collections::BTreeSet;
use std::fmt;

/// Where an instance is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// Where it was.
    Stays,
    /// In a free slot.
    Moves(SlotRef),
    /// In a rollout's slot.
    Takes {
        /// Whose.
        rollout: InstanceId,
        /// Which.
        slot: SlotRef,
    },
    /// Nowhere until a slot is free.
    Waits(NoHome),
}

/// Why there is no slot for an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHome {
    /// No slot of its pool is free.
    NoneFree,
    /// A node that has slots for it has not joined yet.
    NodeAwaited,
    /// Its rank has none.
    RankHasNone,
    /// Sync mode: every rollout generates the batch that the trainer waits for.
    SyncMode,
    /// The policy is `task`.
    TaskPolicy,
    /// Rollouts' slots are of another kind, or in another data centre.
    NotHomogeneous,
    /// Nobody would generate.
    LastRollout,
}

impl fmt::Display for NoHome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoHome::NoneFree => "no slot is free",
            NoHome::NodeAwaited => "a node with slots for it has not joined yet",
            NoHome::RankHasNone => "its rank has none",
            NoHome::SyncMode => "no rollout gives up its slot in sync mode",
            NoHome::TaskPolicy => "no rollout gives up its slot under policy `task`",
            NoHome::NotHomogeneous => {
                "no rollout has a slot of the same accelerator in the same data centre"
            }
            NoHome::LastRollout => "the last rollout does not give up its slot",
        })
    }
}

/// A change of slots that a restart brings; `Display` is its part of the plan's sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Who has no slot.
    pub who: InstanceId,
    /// What follows.
    pub home: Home,
    /// The slot it gets, with its node's name.
    pub slot: String,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = self.who;
        match &self.home {
            Home::Stays => write!(f, "{who} stays in its slot"),
            Home::Moves(_) => write!(f, "{who} moves to {}", self.slot),
            Home::Takes { rollout, .. } => write!(
                f,
                "{who} takes {rollout}'s {}, {rollout}'s requests go on elsewhere and it starts \
                 again when a slot is free",
                self.slot
            ),
            Home::Waits(why) => write!(f, "{who} waits for a slot: {why}"),
        }
    }
}

/// What is given to others already.
#[derive(Clone, Debug, Default)]
pub(in crate::core) struct Given {
    slots: BTreeSet<SlotRef>,
    rollouts: BTreeSet<InstanceId>,
}

impl Core {
    /// The changes of slots that a restart of these brings.
    pub(in crate::core) fn moves(&mut self, ids: &[InstanceId]) -> Vec<Move> {
        self.moves_beside(ids, &mut Given::default())
    }

    /// The same beside what is given to others already.
    pub(in crate::core) fn moves_beside(
        &mut self,
        ids: &[InstanceId],
        given: &mut Given,
    ) -> Vec<Move> {
        self.sync();
        let mut moves = Vec::new();
        for &who in ids {
            let home = self.home(who, given);
            match &home {
                Home::Stays => continue,
                Home::Moves(slot) => {
                    given.slots.insert(slot.clone());
                }
                Home::Takes { rollout, slot } => {
                    given.slots.insert(slot.clone());
                    given.rollouts.insert(*rollout);
                }
                Home::Waits(_) => {}
            }
            let slot = match &home {
                Home::Moves(slot) | Home::Takes { slot, .. } => self.named(slot),
                Home::Stays | Home::Waits(_) => String::new(),
            };
            moves.push(Move { who, home, slot });
        }
        moves
    }

    /// Whether there is a free slot of its own pool for one more rank, which is given to it.
    pub(in crate::core) fn room_for_rank(&self, rank: &Instance, given: &mut Given) -> bool {
        let own = |slot: &SlotRef| slot.pool == self.config.pool(Role::Trainer);
        match self.trainer_home(rank, given) {
            Home::Moves(slot) if own(&slot) => given.slots.insert(slot),
            _ => false,
        }
    }

    /// Gives an instance a slot, if there is one for it.
    pub(in crate::core) fn house(&mut self, id: InstanceId) -> Option<SlotRef> {
        self.sync();
        let slot = match self.home(id, &Given::default()) {
            Home::Stays => return self.s.instances.get(id).and_then(|i| i.slot.clone()),
            Home::Moves(slot) => Some(slot),
            Home::Takes { rollout, slot } => {
                self.displace(rollout, id);
                Some(slot)
            }
            Home::Waits(_) => None,
        };
        if let Some(i) = self.s.instances.get_mut(id) {
            let left = std::mem::replace(&mut i.slot, slot.clone());
            if let Some(left) = left.filter(|_| i.incarnation.0 != 0) {
                i.before = Some((i.incarnation, left));
            }
        }
        slot
    }

    /// Starts those that wait for a slot, as far as there are any.
    pub(super) fn house_homeless(&mut self) {
        self.sync();
        if !std::mem::take(&mut self.slots_due) {
            return;
        }
        // Places of a role are alike, but for engines, which come with their ranks.
        let mut full = BTreeSet::new();
        let homeless = self.index.homeless();
        let forgets = self.config.mutant(Mutation::ForgetHomeless);
        for id in homeless.into_iter().filter(|_| !forgets) {
            let waits = |i: &Instance| i.life == Life::Homeless && !i.retiring;
            let waits = self.s.instances.get(id).is_some_and(waits);
            if !waits || full.contains(&id.role) {
                continue;
            }
            if self.house(id).is_some() {
                self.issue(&[id]);
            } else if id.role != Role::Hybrid {
                full.insert(id.role);
            }
        }
    }

    /// A rollout gives its slot to a rank: it is asked to end, its requests go on elsewhere.
    fn displace(&mut self, rollout: InstanceId, rank: InstanceId) {
        self.retire(rollout);
        if self.s.instances.get(rollout).is_some_and(|i| i.retiring) {
            return self.vacate(rollout);
        }
        self.note_replaced(rollout, &format!("{rank} needs its slot"));
        let none = Incarnation(0);
        if let Some(i) = self.reborn(rollout, none, Generation(0)) {
            (i.life, i.slot) = (Life::Homeless, None);
        }
        let text = format!("{rollout} gives its slot to {rank} and waits for another");
        self.event(Severity::Warn, "standby", Some(rollout), text);
    }

    pub(in crate::core) fn home(&self, id: InstanceId, given: &Given) -> Home {
        let Some(i) = self.s.instances.get(id) else {
            return Home::Waits(NoHome::NoneFree);
        };
        let usable = i.slot.as_ref().is_some_and(|s| self.s.nodes.usable(s));
        match id.role {
            Role::Hybrid => self.rank_home(i),
            _ if usable => Home::Stays,
            Role::Trainer => self.trainer_home(i, given),
            Role::Rollout | Role::Agent => match self.free_slot(id.role, given, |_| true) {
                Some(slot) => Home::Moves(slot),
                None => self.lodging(id, given),
            },
        }
    }

    /// A hybrid engine lives with its rank.
    fn rank_home(&self, i: &Instance) -> Home {
        let rank = InstanceId {
            role: Role::Trainer,
            ..i.id
        };
        let slot = self.s.instances.get(rank).and_then(|r| r.slot.clone());
        match slot.filter(|slot| self.s.nodes.usable(slot)) {
            Some(slot) if i.slot.as_ref() == Some(&slot) => Home::Stays,
            Some(slot) => Home::Moves(slot),
            None => Home::Waits(NoHome::RankHasNone),
        }
    }

    fn free_slot(
        &self,
        role: Role,
        given: &Given,
        fits: impl Fn(&NodeSpec) -> bool,
    ) -> Option<SlotRef> {
        let pin = self.config.roles.get(&role).and_then(|r| r.node.as_ref());
        let fits = |slot: &&SlotRef| {
            self.s.nodes.get(slot.node).is_some_and(|node| {
                fits(&node.spec) && pin.is_none_or(|name| *name == node.spec.name)
            })
        };
        let free = self.index.slots().free(role);
        free.filter(|slot| !given.slots.contains(*slot))
            .find(fits)
            .cloned()
    }

    fn trainer_home(&self, i: &Instance, given: &Given) -> Home {
        let labels = self.gang_labels(i);
        let pin = self.config.roles.get(&Role::Trainer);
        let pin = pin.and_then(|r| r.node.as_ref());
        let fits = |of: &NodeSpec| {
            let like = labels.as_ref().is_none_or(|l| l.homogeneous(&of.labels));
            like && pin.is_none_or(|name| *name == of.name)
        };
        if let Some(slot) = self.free_slot(Role::Trainer, given, fits) {
            return Home::Moves(slot);
        }
        if self.s.nodes.awaits(self.config.pool(Role::Trainer), fits) {
            return Home::Waits(NoHome::NodeAwaited);
        }
        if let Err(why) = self.may_borrow() {
            return Home::Waits(why);
        }
        // A slot that no rollout has costs nobody anything, unless agent workers wait for one there:
        // they can live nowhere else.
        let lent = match self.agents_wait_for_rollouts_slots() {
            true => None,
            false => self.free_slot(Role::Rollout, given, fits),
        };
        if let Some(slot) = lent {
            return Home::Moves(slot);
        }
        match self.standby(fits, given) {
            Ok((rollout, slot)) => Home::Takes { rollout, slot },
            Err(why) => Home::Waits(why),
        }
    }

    /// What all slots of the gang must be like: as those of its other ranks, else as free ones of
    /// which there are enough for all, the kind it had before others.
    fn gang_labels(&self, i: &Instance) -> Option<Labels> {
        let labels = |slot: &SlotRef| self.s.nodes.get(slot.node).map(|n| n.spec.labels.clone());
        let others = self.s.instances.role(Role::Trainer);
        let mut others = others
            .filter(|r| r.id != i.id)
            .filter_map(|r| r.slot.as_ref())
            .filter(|slot| self.s.nodes.usable(slot));
        if let Some(slot) = others.next() {
            return labels(slot);
        }
        // All of it moves, if it has to: to where it was, or to where there is room for all.
        let ranks = self.s.instances.count(Role::Trainer) as usize;
        // One that waits has no slot; where it was last says what the gang is like all the same. Else
        // it would take any slot, alone, and keep its fellows from going where there is room for all.
        let last = || i.before.as_ref().map(|(_, slot)| slot);
        let own = i.slot.as_ref().or_else(last).and_then(labels);
        let mut seen: Vec<(Labels, usize)> = own.iter().map(|own| (own.clone(), 0)).collect();
        for slot in self.index.slots().free(Role::Trainer) {
            let Some(of) = labels(slot) else { continue };
            let at = match seen.iter().position(|(known, _)| known.homogeneous(&of)) {
                Some(at) => at,
                None => {
                    seen.push((of, 0));
                    seen.len() - 1
                }
            };
            seen[at].1 += 1;
            if seen[at].1 >= ranks {
                return Some(seen[at].0.clone());
            }
        }
        own
    }

    fn agents_wait_for_rollouts_slots(&self) -> bool {
        let mut agents = self.s.instances.role(Role::Agent);
        let shared = self.config.pool(Role::Agent) == self.config.pool(Role::Rollout);
        shared
            && agents.any(|i| {
                i.slot
                    .as_ref()
                    .is_none_or(|slot| !self.s.nodes.usable(slot))
            })
    }

    /// Whether ranks may use slots that are rollouts'.
    fn may_borrow(&self) -> Result<(), NoHome> {
        match (self.config.policy, self.config.mode) {
            (Policy::Task, _) => Err(NoHome::TaskPolicy),
            (_, Mode::Sync) => Err(NoHome::SyncMode),
            (Policy::Role, Mode::SemiSync | Mode::Async) => Ok(()),
        }
    }

    /// The rollout that gives its slot to a rank: one that serves nobody, else the last by index.
    fn standby(
        &self,
        like: impl Fn(&NodeSpec) -> bool,
        given: &Given,
    ) -> Result<(InstanceId, SlotRef), NoHome> {
        let housed = |r: &&Instance| {
            let slot = r.slot.as_ref();
            !given.rollouts.contains(&r.id) && slot.is_some_and(|s| self.s.nodes.usable(s))
        };
        let rollouts: Vec<_> = self
            .s
            .instances
            .role(Role::Rollout)
            .filter(housed)
            .collect();
        if rollouts.is_empty() {
            return Err(NoHome::NoneFree);
        }
        let fits = |slot: &SlotRef| {
            let node = self.s.nodes.get(slot.node);
            node.is_some_and(|n| like(&n.spec)) && self.index.slots().takers(slot).count() == 1
        };
        let candidates = rollouts.iter().filter_map(|r| {
            let slot = r.slot.as_ref().filter(|slot| fits(slot))?;
            let serves = r.attached() && self.s.weights.of(r.id).is_admitted();
            Some((serves, *r, slot))
        });
        let Some((_, chosen, slot)) =
            candidates.min_by_key(|(serves, r, _)| (*serves, std::cmp::Reverse(r.id.index)))
        else {
            return Err(NoHome::NotHomogeneous);
        };
        // In a restart of the whole task none has a process, and those that have a slot start at once.
        // A rollout that runs does not give way to one that only starts, and may fail to.
        let starts = |r: &Instance| {
            !chosen.has_process() && matches!(r.life, Life::Waiting { until } if until <= self.now)
        };
        let serves = |r: &&&Instance| {
            r.id != chosen.id && (r.attached() || starts(r)) && r.condemned.is_none()
        };
        match rollouts.iter().any(|r| serves(&r)) || self.config.mutant(Mutation::TakeLastRollout) {
            true => Ok((chosen.id, slot.clone())),
            false => Err(NoHome::LastRollout),
        }
    }

    /// As many rollouts may live in the trainer's pool as ranks live in the rollouts'.
    fn lodging(&self, id: InstanceId, given: &Given) -> Home {
        let away = |role: Role| {
            let pool = self.config.pool(role);
            let slots = self.s.instances.role(role).filter_map(|i| i.slot.as_ref());
            slots.filter(|slot| slot.pool != pool).count()
        };
        // A rank's slot is no place for an engine of several.
        let fits = id.role == Role::Rollout && self.config.rollout_slots <= 1;
        let slot = (fits && away(Role::Trainer) > away(Role::Rollout))
            .then(|| self.free_slot(Role::Trainer, given, |_| true))
            .flatten();
        match slot {
            Some(slot) => Home::Moves(slot),
            None => Home::Waits(NoHome::NoneFree),
        }
    }
}
