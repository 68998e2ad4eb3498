//! What is derived from one instance.
use super::super::Core;
use super::super::context::Turn;
use super::super::instance::{Instance, Life};
use super::Counts;
use crate::ids::{Incarnation, Role, WeightVersion};
use crate::phase::Phase;

/// What the index knows of one instance. Everything here follows from the instance, from
/// [`super::Globals`], from its requests, its leases and the pulls from it; whatever changes one of
/// these touches the instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::core) struct Facts {
    pub incarnation: Incarnation,
    /// Linked.
    pub linked: bool,
    /// Linked, and no verdict fell.
    pub sound: bool,
    /// A process of this life was started.
    pub spawned: bool,
    /// A verdict fell.
    pub condemned: bool,
    /// An engine generates; a rank computes.
    pub works: bool,
    /// An engine gets requests, as far as it can be linked to.
    pub serves: bool,
    /// An engine's version and requests, if it may get more.
    pub open: Option<(WeightVersion, u32)>,
    /// An agent worker's leases, if it may get more.
    pub free: Option<u32>,
    /// An agent worker holds trajectories.
    pub holds: bool,
    /// An engine's admission and version, if it is to pull the published one.
    pub behind: Option<(bool, Option<WeightVersion>)>,
    /// An engine's pullers, if it may get more.
    pub relay: Option<u32>,
    /// What it pulls, and from which relay; none: from the trainer.
    pub pull: Option<(WeightVersion, Option<Incarnation>)>,
    /// It is to go, or to move.
    pub going: bool,
    /// One that is to go or to move has nothing left to do.
    pub idle: bool,
    /// It waits for a slot.
    pub homeless: bool,
    /// It waits for a slot, or is gone for good.
    pub absent: bool,
    /// A rank failed it as a source just now.
    pub avoids_rank: bool,
    /// A hybrid engine holds its slot and is not paused.
    pub unpaused: bool,
    /// A hybrid engine that lives does not generate yet.
    pub unrolling: bool,
    /// A hybrid engine is to be told something.
    pub to_tell: Option<bool>,
}

/// What of it others than its role's own sets want to know.
impl Facts {
    /// What it counts as among its role.
    pub fn counts(&self) -> Counts {
        Counts {
            linked: self.linked.into(),
            sound: self.sound.into(),
            spawned: self.spawned.into(),
            condemned: self.condemned.into(),
            works: self.works.into(),
            serves: self.serves.into(),
            unpaused: self.unpaused.into(),
            unrolling: self.unrolling.into(),
            absent: self.absent.into(),
        }
    }

    /// What recoveries look at.
    pub fn recovery(&self) -> impl PartialEq + use<> {
        (
            (self.linked, self.spawned, self.condemned),
            (self.works, self.serves, self.holds, self.absent),
        )
    }

    /// What the planner of pulls looks at.
    pub fn planning(&self) -> impl PartialEq + use<> {
        (self.sound, self.behind, self.relay, self.pull)
    }
}

impl Core {
    pub(super) fn facts(&self, i: &Instance) -> Facts {
        let sound = i.attached() && i.condemned.is_none();
        let common = Facts {
            incarnation: i.incarnation,
            linked: i.attached(),
            sound,
            spawned: i.has_process() && !matches!(i.life, Life::Spawning { .. }),
            condemned: i.condemned.is_some(),
            going: i.going(),
            homeless: i.life == Life::Homeless,
            absent: i.life == Life::Homeless || i.life == Life::None && i.retiring,
            ..Facts::default()
        };
        match i.id.role {
            Role::Trainer => Facts {
                works: i.phase.is_trainer_compute(),
                ..common
            },
            Role::Hybrid | Role::Rollout => self.engine_facts(i, common),
            Role::Agent => {
                let leases = self.s.trajectories.leases(i.incarnation);
                let free = sound && !i.going() && leases < self.config.agent_concurrency;
                Facts {
                    free: free.then_some(leases),
                    holds: leases > 0,
                    idle: i.going() && leases == 0,
                    ..common
                }
            }
        }
    }

    fn engine_facts(&self, i: &Instance, common: Facts) -> Facts {
        let (sound, published) = (common.sound, self.s.published);
        let is_rank = |source: Incarnation| {
            let life = self.s.instances.life(source);
            life.is_some_and(|s| s.id.role == Role::Trainer)
        };
        let pulls_newest = i
            .pull
            .as_ref()
            .is_some_and(|p| Some(p.version) >= published);
        let behind = sound && !i.going() && i.version < published && !pulls_newest;
        let pullers = self.index.pullers_of(i.incarnation);
        let relay = sound
            && !i.going()
            && i.suspect.is_none()
            && !i.quarantined
            && i.version.is_some()
            && i.version == published
            && pullers < self.pullers_allowed();
        Facts {
            works: common.linked && i.suspect.is_none() && i.phase == Phase::Generating,
            idle: i.going() && pullers == 0 && self.running(i.incarnation) == 0,
            serves: i.admitted && i.suspect.is_none(),
            open: i
                .version
                .filter(|_| self.eligible(i))
                .map(|v| (v, self.running(i.incarnation))),
            behind: behind.then_some((i.admitted, i.version)),
            relay: relay.then_some(pullers),
            pull: i.pull.as_ref().map(|p| {
                let relay = p.sources.first().filter(|_| !p.from_trainer);
                (p.version, relay.copied())
            }),
            unpaused: Self::holds_slot(i) && i.turn != Turn::Paused,
            unrolling: Self::holds_slot(i) && i.condemned.is_none() && i.turn != Turn::Rolls,
            to_tell: self.due_command(i),
            avoids_rank: i.avoid.iter().any(|(source, _)| is_rank(*source)),
            ..common
        }
    }
}
