//! What is derived from one instance.
use super::near::Rack;
use super::{Counts, Place};
use crate::core::gang::context::Turn;
use crate::core::roster::instance::{Instance, Life, Pull};
use crate::core::work::Takes;
use crate::core::{Core, Mutation};
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
    /// Which work it takes.
    pub takes: Option<Takes>,
    /// An agent worker holds trajectories.
    pub holds: bool,
    /// Where an engine is.
    pub place: Place,
    /// An engine's admission and version, if it is to pull the published one, and whether it can wait
    /// for a relay: nobody waits for it, and no source failed it just now.
    pub behind: Option<(bool, bool, Option<WeightVersion>)>,
    /// An engine has the published version, or pulls it where others can read, and may serve.
    pub has: bool,
    /// Whether it is still pulling and how many pull from it, if it may serve more.
    pub relay: Option<(bool, u32)>,
    /// It was taken out while others pull from it, or will not finish the pull that others read from.
    pub strands: bool,
    /// It has the published version, or pulls it, and others still pull an older one from it.
    pub outdated: bool,
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
    /// A hybrid engine holds its slot and is not paused, or one that left it has not ended yet.
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
            relays: self.has.into(),
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
        (
            (self.sound, self.behind, self.has, self.relay),
            (self.strands, self.outdated, self.pull, self.place),
        )
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
                let leases = self.s.work.requests.table().leases(i.incarnation);
                let takes = sound && !i.going();
                Facts {
                    takes: takes.then_some(Takes::Trajectories),
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
        // One that has all of an older version changes over to that first. Between turns it waits for as
        // long as a request takes, and where versions come faster it would never change over.
        let occupied = |p: &Pull| Some(p.version) >= published || !p.reads();
        let occupied = i.pull.as_ref().is_some_and(occupied);
        let behind = sound && !i.going() && i.version < published && !occupied;
        let pullers = self.index.pullers_of(i.incarnation);
        let pulls = || self.index.pulls_of(i.incarnation).map(|(v, _)| Some(*v));
        let read_early = pulls().any(|version| version > i.version);
        let (has, growing) = self.has_published(i);
        Facts {
            works: common.linked && i.suspect.is_none() && i.phase == Phase::Generating,
            idle: i.going() && pullers == 0 && self.s.work.rollouts.running(i.incarnation) == 0,
            serves: i.admitted && i.suspect.is_none(),
            takes: i.version.filter(|_| self.eligible(i)).map(Takes::Requests),
            place: self.place_of(i),
            behind: behind.then_some((!self.is_urgent(i), i.admitted, i.version)),
            has,
            relay: (has && pullers < self.pullers_allowed()).then_some((growing, pullers)),
            strands: read_early && (i.going() || i.condemned.is_some())
                || pullers > 0 && i.quarantined,
            outdated: has && pulls().any(|version| version < published),
            pull: i.pull.as_ref().filter(|p| p.reads()).map(|p| {
                let relay = p.sources.first().filter(|_| !p.from_trainer);
                (p.version, relay.copied())
            }),
            unpaused: Self::holds_slot(i) && i.turn != Turn::Paused || i.leaving.is_some(),
            unrolling: Self::holds_slot(i) && i.condemned.is_none() && i.turn != Turn::Rolls,
            to_tell: self.due_command(i),
            avoids_rank: i.avoid.iter().any(|(source, _)| is_rank(*source)),
            ..common
        }
    }

    /// Whether others may pull the published version from an engine, and whether it is still pulling
    /// it itself: then they get what it verified, as it comes.
    fn has_published(&self, i: &Instance) -> (bool, bool) {
        let published = self.s.published;
        let sound = i.attached() && i.condemned.is_none();
        let serves = sound && !i.going() && i.suspect.is_none() && !i.quarantined;
        let whole = i.version.is_some() && i.version == published;
        let pulls = i.pull.as_ref().map(|p| p.version);
        let readable = i.readable == published || self.config.mutant(Mutation::RelayUnready);
        let growing = !whole && pulls.is_some() && pulls == published && readable;
        let all = i.pull.as_ref().is_some_and(|p| !p.reads());
        (serves && (whole || growing), growing && !all)
    }

    /// Whether requests may be routed to it, whatever its version.
    pub(in crate::core) fn eligible(&self, r: &Instance) -> bool {
        r.id.role.is_engine()
            && r.attached()
            && r.admitted
            && (r.suspect.is_none() || self.config.mutant(Mutation::RouteToSuspect))
            && r.condemned.is_none()
            && self.has_its_turn(r)
            && !r.going()
    }

    fn place_of(&self, i: &Instance) -> Place {
        let node = i.slot.as_ref().map(|slot| slot.node);
        let spec = node.and_then(|node| self.s.nodes.get(node));
        Place {
            node,
            rack: spec.and_then(|n| Rack::of(&n.spec.labels)),
        }
    }
}
