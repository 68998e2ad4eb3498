//! Placement: where an instance is to run, and who would have no slot, as things are (`homes` draws the rules).
use super::homes::{Given, Home, Move, NoHome};
use super::slots::Slots;
use super::spec::{Labels, NodeSpec, SlotRef};
use super::table::NodeTable;
use crate::core::config::{CoreConfig, Mode, Policy};
use crate::core::mutation::Mutation;
use crate::core::roster::instance::{Instance, Life};
use crate::core::roster::instances::Instances;
use crate::core::weights::Weights;
use crate::ids::{InstanceId, Role};
use crate::time::Time;

/// What decides where an instance is to run. It changes nothing.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) struct Placement<'a> {
    /// The instant.
    pub now: Time,
    /// Pools, pins, and what mode and policy allow.
    pub config: &'a CoreConfig,
    /// Who is where.
    pub instances: &'a Instances,
    /// The machines.
    pub nodes: &'a NodeTable,
    /// Which slots are taken, and which are free; up to date.
    pub slots: &'a Slots,
    /// Who serves.
    pub weights: &'a Weights,
}

impl Placement<'_> {
    /// The changes of slots that a restart of these brings, beside what is given to others already.
    pub fn moves(&self, ids: &[InstanceId], given: &mut Given) -> Vec<Move> {
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
                Home::Moves(slot) | Home::Takes { slot, .. } => self.nodes.named(slot),
                Home::Stays | Home::Waits(_) => String::new(),
            };
            moves.push(Move { who, home, slot });
        }
        moves
    }

    /// Whether an instance that starts anew would have a slot to start in.
    pub fn is_housed(&self, id: InstanceId) -> bool {
        !matches!(self.home(id, &Given::default()), Home::Waits(_))
    }

    /// Whether an instance is to leave its slot: a process works in it, and it would have another one.
    pub fn may_leave(&self, id: InstanceId) -> bool {
        let works = |i: &Instance| !i.going() && i.condemned().is_none() && i.has_process();
        self.instances.get(id).is_some_and(works) && self.is_housed(id)
    }

    /// Ranks of a gang of this size that would have no slot. New ones take none that is rollouts'.
    pub fn ranks_without_slot(&self, ranks: u32) -> u32 {
        let mut now = self.instances.ids(Role::Trainer);
        let first = u32::try_from(now.len()).unwrap_or(u32::MAX);
        now.truncate(ranks as usize);
        let mut given = Given::default();
        let homeless = |m: &&Move| matches!(m.home, Home::Waits(_));
        let moves = self.moves(&now, &mut given);
        let mut lack = u32::try_from(moves.iter().filter(homeless).count()).unwrap_or(u32::MAX);
        for index in first..ranks {
            let role = Role::Trainer;
            if !self.room_for_rank(&Instance::new(InstanceId { role, index }), &mut given) {
                lack += 1;
            }
        }
        lack
    }

    /// Whether there is a free slot of its own pool for one more rank, which is given to it.
    fn room_for_rank(&self, rank: &Instance, given: &mut Given) -> bool {
        let own = |slot: &SlotRef| slot.pool == self.config.pool(Role::Trainer);
        match self.trainer_home(rank, given) {
            Home::Moves(slot) if own(&slot) => given.slots.insert(slot),
            _ => false,
        }
    }

    /// Free slots that a new instance of a role may have, beside those that wait for one.
    pub fn room(&self, role: Role) -> u32 {
        let pin = self.config.role(role).node;
        let pinned = |node: &str| pin.as_ref().is_none_or(|pin| pin == node);
        let on = |slot: &&SlotRef| {
            let node = self.nodes.get(slot.node);
            node.is_some_and(|n| pinned(&n.spec.name))
        };
        let homeless = self.instances.role(role);
        let homeless = homeless.filter(|i| i.life() == Life::Homeless).count();
        let free = self.slots.free(role).filter(on).count();
        u32::try_from(free.saturating_sub(homeless)).unwrap_or(u32::MAX)
    }

    /// Whether a rank sits in a slot that is about to fail.
    pub fn is_rank_in_drained_slot(&self) -> bool {
        let drained = self.slots.draining();
        let mut takers = drained.flat_map(|slot| self.slots.takers(slot));
        takers.any(|id| id.role == Role::Trainer)
    }

    /// Whether a hybrid engine is not where its rank is, or is where another rank is.
    pub fn is_apart_from_rank(&self, engine: InstanceId) -> bool {
        let rank = |index: u32| InstanceId {
            role: Role::Trainer,
            index,
        };
        let slot = |id: InstanceId| self.instances.get(id).and_then(|i| i.slot());
        let own = slot(engine);
        let of_another = |r: &Instance| r.id().index != engine.index && r.slot() == own;
        let apart = match slot(rank(engine.index)) {
            Some(rank) => own != Some(rank),
            None => own.is_some() && self.instances.role(Role::Trainer).any(of_another),
        };
        let waits = |i: &Instance| matches!(i.life(), Life::Waiting { .. });
        apart && !self.instances.get(engine).is_some_and(waits)
    }

    /// Where an instance is to run, beside what is given to others already.
    pub fn home(&self, id: InstanceId, given: &Given) -> Home {
        let Some(i) = self.instances.get(id) else {
            return Home::Waits(NoHome::NoneFree);
        };
        let usable = i.slot().is_some_and(|s| self.nodes.usable(s));
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
            ..i.id()
        };
        let slot = self.instances.get(rank).and_then(|r| r.slot().cloned());
        match slot.filter(|slot| self.nodes.usable(slot)) {
            Some(slot) if i.slot() == Some(&slot) => Home::Stays,
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
            self.nodes.get(slot.node).is_some_and(|node| {
                fits(&node.spec) && pin.is_none_or(|name| *name == node.spec.name)
            })
        };
        let free = self.slots.free(role);
        let free = free.filter(|slot| !given.slots.contains(*slot));
        // The first of the node with the fewest faults; most have none, and of those the first is enough.
        let mut best: Option<(u64, &SlotRef)> = None;
        for slot in free.filter(fits) {
            let faults = self.faults_at(slot);
            if best.is_none_or(|(fewest, _)| faults < fewest) {
                best = Some((faults, slot));
            }
            if faults == 0 {
                break;
            }
        }
        best.map(|(_, slot)| slot.clone())
    }

    /// What the faults of a slot's node count now.
    fn faults_at(&self, slot: &SlotRef) -> u64 {
        let half_life = self.config.cordon_half_life;
        self.nodes.fault_weight(slot.node, self.now, half_life)
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
        if self.nodes.awaits(self.config.pool(Role::Trainer), fits) {
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
        let labels = |slot: &SlotRef| self.nodes.get(slot.node).map(|n| n.spec.labels.clone());
        let others = self.instances.role(Role::Trainer);
        let mut others = others
            .filter(|r| r.id() != i.id())
            .filter_map(|r| r.slot())
            .filter(|slot| self.nodes.usable(slot));
        if let Some(slot) = others.next() {
            return labels(slot);
        }
        // All of it moves, if it has to: to where it was, or to where there is room for all.
        let ranks = self.instances.count(Role::Trainer) as usize;
        // One that waits has no slot; where it was last says what the gang is like all the same. Else
        // it would take any slot, alone, and keep its fellows from going where there is room for all.
        let last = || i.before().map(|(_, slot)| slot);
        let own = i.slot().or_else(last).and_then(labels);
        let mut seen: Vec<(Labels, usize)> = own.iter().map(|own| (own.clone(), 0)).collect();
        for slot in self.slots.free(Role::Trainer) {
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
        let mut agents = self.instances.role(Role::Agent);
        let shared = self.config.pool(Role::Agent) == self.config.pool(Role::Rollout);
        shared && agents.any(|i| i.slot().is_none_or(|slot| !self.nodes.usable(slot)))
    }

    /// Whether ranks may use slots that are rollouts'.
    fn may_borrow(&self) -> Result<(), NoHome> {
        match (self.config.policy, self.config.mode) {
            (Policy::Task, _) => Err(NoHome::TaskPolicy),
            (_, Mode::Sync) => Err(NoHome::SyncMode),
            (Policy::Role, Mode::SemiSync | Mode::Async) => Ok(()),
        }
    }

    /// The rollout that gives its slot to a rank: one that serves nobody, else where fewer faults were, else
    /// the last by index.
    fn standby(
        &self,
        like: impl Fn(&NodeSpec) -> bool,
        given: &Given,
    ) -> Result<(InstanceId, SlotRef), NoHome> {
        let housed = |r: &&Instance| {
            let slot = r.slot();
            !given.rollouts.contains(&r.id()) && slot.is_some_and(|s| self.nodes.usable(s))
        };
        let rollouts = self.instances.role(Role::Rollout).filter(housed);
        let rollouts: Vec<_> = rollouts.collect();
        if rollouts.is_empty() {
            return Err(NoHome::NoneFree);
        }
        let fits = |slot: &SlotRef| {
            let node = self.nodes.get(slot.node);
            node.is_some_and(|n| like(&n.spec)) && self.slots.takers(slot).count() == 1
        };
        let candidates = rollouts.iter().filter_map(|r| {
            let slot = r.slot().filter(|slot| fits(slot))?;
            let serves = r.attached() && self.weights.of(r.id()).is_admitted();
            Some((serves, *r, slot))
        });
        let least = |(serves, r, slot): &(bool, &Instance, &SlotRef)| {
            (
                *serves,
                self.faults_at(slot),
                std::cmp::Reverse(r.id().index),
            )
        };
        let Some((_, chosen, slot)) = candidates.min_by_key(least) else {
            return Err(NoHome::NotHomogeneous);
        };
        // In a restart of the whole task none has a process, and those that have a slot start at once.
        // A rollout that runs does not give way to one that only starts, and may fail to.
        let starts = |r: &Instance| {
            !chosen.has_process()
                && matches!(r.life(), Life::Waiting { until } if until <= self.now)
        };
        let serves = |r: &&&Instance| {
            r.id() != chosen.id() && (r.attached() || starts(r)) && r.condemned().is_none()
        };
        match rollouts.iter().any(|r| serves(&r)) || self.config.mutant(Mutation::TakeLastRollout) {
            true => Ok((chosen.id(), slot.clone())),
            false => Err(NoHome::LastRollout),
        }
    }

    /// As many rollouts may live in the trainer's pool as ranks live in the rollouts'.
    fn lodging(&self, id: InstanceId, given: &Given) -> Home {
        let away = |role: Role| {
            let pool = self.config.pool(role);
            let slots = self.instances.role(role).filter_map(|i| i.slot());
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
