//! Slots, nodes and lives that end without a fault, held against what operators were promised.
use super::super::{Proc, World, id};
use super::Checker;
use robust_shared::core::{Mode, NodeState, Policy, SlotRef};
use robust_shared::ids::{Generation, Incarnation, InstanceId, NodeId, Role};
use std::time::Duration;

/// After its return the daemon knows nothing of requests that run.
const FORGETFUL: Duration = Duration::from_secs(10);

impl Checker {
    /// An operator says that a slot is sound again.
    pub(in super::super) fn slot_is_back(&mut self, slot: &SlotRef) {
        self.drained.remove(slot);
    }

    /// Whoever is in a slot leaves it when he can: its device is about to fail, or its node is about to leave.
    fn is_left(&self, slot: &SlotRef) -> bool {
        self.drained.contains(slot) || self.leaving.contains(&slot.node)
    }

    /// The same of one who was told before his node joined again.
    fn leaves(&self, who: InstanceId, slot: &SlotRef) -> bool {
        self.is_left(slot) || self.moving.get(&who) == Some(slot)
    }
}

impl World {
    /// Somebody is started only where something may run, and alone of its role.
    pub(super) fn check_slot(&mut self, who: InstanceId, slot: &SlotRef) {
        let name = self.core.node(slot.node).map(|n| n.name.clone());
        let name = name.unwrap_or_default();
        let here = self.core.node_state(slot.node) == Some(NodeState::Here);
        self.must(here, "slots", || {
            format!("{who} is started in {slot}, whose node is away")
        });
        let promises = &self.office.promises;
        let (lost, shut) = (
            promises.lost.contains(slot),
            promises.cordoned.contains(&name),
        );
        self.must(!lost, "slots", || {
            format!("{who} is started in {slot}, which is lost")
        });
        self.must(!shut, "slots", || {
            format!("{who} is started in {slot}, whose node is cordoned")
        });
        let spec = self.core.node(slot.node);
        let has = spec.is_some_and(|n| n.pools.get(&slot.pool).is_some_and(|n| slot.index < *n));
        let (pool, trains) = (self.config.pool(who.role), self.config.pool(Role::Trainer));
        let lodges = who.role == Role::Rollout && slot.pool == trains;
        let stands_by = matches!(who.role, Role::Trainer | Role::Hybrid)
            && slot.pool == self.config.pool(Role::Rollout)
            && self.config.mode != Mode::Sync
            && self.config.policy == Policy::Role;
        let fits = has && (slot.pool == pool || lodges || stands_by);
        self.must(fits, "slots", || {
            format!("{who} is started in {slot}, which is none of its own")
        });
        let other = self.places.iter().find(|(other, life)| {
            let taken = self.homes.get(*other) == Some(slot);
            // What runs on a node that has not joined again the controller cannot know; it is fenced
            // when the node joins, which `check_places` looks at.
            let ended = |p: &Proc| !p.alive || p.over || !self.machines.linked(p.machine);
            let gone = || self.procs.get(life).is_none_or(ended);
            **other != who
                && other.role == who.role
                && taken
                && !(gone() && self.is_over(**other, **life))
        });
        let other = other.map(|(other, life)| (*other, *life));
        self.must(other.is_none(), "slots", || {
            format!("{who} is started in {slot} beside {other:?}")
        });
        self.homes.insert(who, slot.clone());
    }

    /// Whether the controller has another idea of a place than that this life is there.
    fn is_over(&self, who: InstanceId, life: Incarnation) -> bool {
        self.core.is_current(life) != Some(who)
    }

    /// All ranks compute in one data centre on one kind of accelerator.
    pub(super) fn check_alike(&mut self, ranks: &[Incarnation]) {
        let spec = |life: &Incarnation| {
            let p = self.procs.get(life)?;
            Some(self.machines.all.get(p.machine)?.spec.labels.clone())
        };
        let labels: Vec<_> = ranks.iter().filter_map(spec).collect();
        let alike = labels.windows(2).all(|two| two[0].homogeneous(&two[1]));
        self.must(alike, "slots", || {
            format!("the gang {ranks:?} spans {labels:?}")
        });
    }

    /// A process is asked to end only for a reason that an operator gave, or to give up its slot.
    pub(super) fn check_retire(&mut self, life: Incarnation) {
        let Some(who) = self.core_place(life) else {
            // On record, and the daemon died before it started it: nobody is asked.
            let issued = self.checker.issued.contains(&life);
            return self.must(issued, "I-8", || {
                format!("{life}, nobody's, is asked to end")
            });
        };
        let waits = self.machines.waits(life).is_some();
        if self.procs.get(&life).map_or(!waits, |p| !p.alive || p.over) {
            // Killed a moment ago, maybe before it was started.
            return;
        }
        let idle = self.is_idle(life);
        let surplus = self.is_surplus(who);
        let drained = self
            .homes
            .get(&who)
            .is_some_and(|s| self.checker.leaves(who, s));
        let why = match who.role {
            Role::Trainer => self.gang_may_end(life),
            Role::Hybrid => {
                let rank = self.homes.get(&id(Role::Trainer, who.index));
                let changes = self.checker.changing || self.office.changes > 0;
                let home = self.homes.get(&who);
                let mut ranks = self.homes.iter().filter(|(r, _)| r.role == Role::Trainer);
                let taken = ranks.any(|(r, slot)| r.index != who.index && Some(slot) == home);
                let apart = rank != home || taken;
                surplus || apart || changes || self.office.rolling.remove(&who)
            }
            // What a rank needs a slot for costs whoever has it its work, surplus or not.
            Role::Rollout if surplus && !idle => self.stands_by(who),
            _ if surplus => {
                self.must(idle, "drain", || {
                    format!("{who} {life} is to end in the middle of work")
                });
                true
            }
            // For its slot's sake: what an operator asked for beside that is still to come.
            _ if drained && idle => true,
            _ if self.office.rolling.remove(&who) => true,
            _ if drained => {
                self.must(idle, "drain", || {
                    format!("{who} {life} moves in the middle of work")
                });
                true
            }
            Role::Rollout => self.stands_by(who),
            Role::Agent => false,
        };
        self.must(why, "I-8", || {
            format!("{who} {life} is asked to end in health")
        });
    }

    /// Slots on devices that announced their failure, and who was told to leave a node that joined again.
    pub(in super::super) fn note_drained(&mut self) {
        for node in std::mem::take(&mut self.checker.joined) {
            let there = self.homes.iter().filter(|(_, slot)| slot.node == node);
            let there = there.map(|(who, slot)| (*who, slot.clone()));
            self.checker.moving.extend(there);
        }
        for life in std::mem::take(&mut self.checker.announced) {
            let home = self.core_place(life).and_then(|who| self.homes.get(&who));
            self.checker.drained.extend(home.cloned());
        }
    }

    fn core_place(&self, life: Incarnation) -> Option<InstanceId> {
        let newest = self.places.iter().find(|(_, newest)| **newest == life);
        newest.map(|(who, _)| *who)
    }

    /// Whether an operator wants fewer.
    pub(in super::super) fn is_surplus(&self, who: InstanceId) -> bool {
        let wanted = self.office.promises.counts.get(&who.role);
        wanted.is_some_and(|wanted| who.index >= *wanted)
    }

    fn is_idle(&self, life: Incarnation) -> bool {
        let since = self.now.since(self.daemon.back_at);
        let forgot = self.daemon.life > 0 && since < FORGETFUL;
        let p = self.procs.get(&life);
        let serves = p.is_some_and(|p| p.requests > 0 && p.works() && p.linked)
            && self.generates_for_somebody(life);
        let mut leases = self.daemon.leases.values();
        let holds = leases.any(|(agent, _)| *agent == life);
        forgot || !(serves || holds)
    }

    /// An accepted change of the gang, between two steps.
    fn gang_may_end(&mut self, life: Incarnation) -> bool {
        let generation = self.procs.get(&life).map(|p| p.generation);
        let computes = self.gang.computes().filter(|g| Some(*g) == generation);
        // A program that tells no steps is never between two.
        let never = self.config.own_loop.is_some_and(|own| !own.commits);
        self.must(never || computes.is_none(), "drain", || {
            format!("the gang of {life} is to end in the middle of a step")
        });
        let drained = |(who, slot): (&InstanceId, &SlotRef)| {
            who.role == Role::Trainer && self.checker.is_left(slot)
        };
        let drained = self.homes.iter().any(drained);
        self.checker.changing
            || ((drained || self.office.changes > 0) && {
                self.checker.changing = true;
                true
            })
    }

    /// A rollout gives its slot to a rank: not in sync mode, and others go on generating.
    fn stands_by(&mut self, who: InstanceId) -> bool {
        let allowed = self.config.mode != Mode::Sync && self.config.policy == Policy::Role;
        // One whose end the controller has not heard of yet serves as far as it can know, also where the same
        // input goes on to replace it for another reason.
        let unheard = |life: &Incarnation, p: &Proc| {
            let replaced_for_another = !p.end_heard && self.machines.linked(p.machine);
            self.core.is_current(*life) == Some(p.id) || replaced_for_another
        };
        let serves = |(life, p): (&Incarnation, &Proc)| {
            let other = p.id.role == Role::Rollout && p.id != who;
            other && self.life(p.id) == *life && (p.alive || unheard(life, p))
        };
        let others = self.procs.iter().any(serves);
        self.must(others, "standby", || {
            format!("the last rollout {who} gives up its slot")
        });
        self.checker.given.extend(self.homes.get(&who).cloned());
        allowed
    }

    /// A new gang is started.
    pub(super) fn check_generation(&mut self, generation: Generation) {
        if generation > self.gang.newest && std::mem::take(&mut self.checker.changing) {
            self.office.changes = self.office.changes.saturating_sub(1);
        }
    }

    /// What is fenced is over.
    pub(super) fn check_fence(&mut self, node: NodeId, life: Incarnation) {
        let there = self
            .core
            .is_current(life)
            .and_then(|who| self.homes.get(&who));
        let current = there.is_some_and(|slot| slot.node == node);
        self.must(!current, "I-8", || {
            format!("{life} is fenced on {node}, where it lives")
        });
    }

    /// Slots that rollouts gave up are used, and nothing that is over runs where it is heard of.
    pub(super) fn check_places(&mut self) {
        for slot in std::mem::take(&mut self.checker.given) {
            let ranks = self
                .homes
                .iter()
                .filter(|(who, _)| who.role == Role::Trainer);
            let taken = ranks.into_iter().any(|(_, home)| *home == slot);
            self.must(taken, "standby", || {
                format!("a rollout gave up {slot} for nobody")
            });
        }
        if !self.machines.live {
            return;
        }
        let stale = self.procs.iter().find(|(life, p)| {
            p.alive
                && !p.over
                && self.machines.linked(p.machine)
                && self.core.is_current(**life).is_none()
        });
        let stale = stale.map(|(life, p)| (p.id, *life));
        self.must(stale.is_none(), "I-1", || {
            format!("{stale:?} is over and nobody ends it")
        });
    }
}
