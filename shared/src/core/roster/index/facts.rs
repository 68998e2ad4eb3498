//! What is derived from one instance.
use super::Counts;
use crate::core::config::CoreConfig;
use crate::core::gang::Gang;
use crate::core::gang::context::Turn;
use crate::core::mutation::Mutation;
use crate::core::roster::instance::{Instance, Life};
use crate::core::roster::nodes::NodeTable;
use crate::core::weights::{Peer, Place, Rack, Weights};
use crate::core::work::{Takes, Work};
use crate::ids::{Incarnation, Role};
use crate::phase::Phase;

/// What the index knows of one instance. Everything here follows from the instance, from
/// [`super::Globals`], from its requests, its leases and the pulls from it; whatever changes one of
/// these touches the instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
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
    /// An engine fetches weights.
    pub pulls: bool,
    /// An engine gets requests, as far as it can be linked to.
    pub serves: bool,
    /// Which work it takes.
    pub takes: Option<Takes>,
    /// An agent worker holds trajectories.
    pub holds: bool,
    /// What the weights are told of an engine.
    pub peer: Option<Peer>,
    /// It is to go, or to move.
    pub going: bool,
    /// One that is to go or to move has nothing left to do.
    pub idle: bool,
    /// It waits for a slot.
    pub homeless: bool,
    /// It waits for a slot, or is gone for good.
    pub absent: bool,
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
            pulls: self.pulls.into(),
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
}

/// What the facts of an instance follow from, besides who is where.
#[derive(Clone, Copy, Debug)]
pub struct Others<'a> {
    /// The job's values.
    pub config: &'a CoreConfig,
    /// Whose turn the trainer's slots are.
    pub gang: &'a Gang,
    /// Who has which version.
    pub weights: &'a Weights,
    /// Who has which work.
    pub work: &'a Work,
}

impl Others<'_> {
    /// What is derived from an instance, and from where it is.
    pub fn facts(&self, nodes: &NodeTable, i: &Instance) -> Facts {
        let sound = i.attached() && i.condemned().is_none();
        let common = Facts {
            incarnation: i.incarnation(),
            linked: i.attached(),
            sound,
            spawned: i.has_process() && !matches!(i.life(), Life::Spawning { .. }),
            condemned: i.condemned().is_some(),
            going: i.going(),
            homeless: i.life() == Life::Homeless,
            absent: i.life() == Life::Homeless || i.life() == Life::None && i.retiring(),
            ..Facts::default()
        };
        match i.id().role {
            Role::Trainer => Facts {
                works: i.phase().is_trainer_compute(),
                ..common
            },
            Role::Hybrid | Role::Rollout => self.engine_facts(nodes, i, common),
            Role::Agent => {
                let leases = self.work.requests.table().leases(i.incarnation());
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

    fn engine_facts(&self, nodes: &NodeTable, i: &Instance, common: Facts) -> Facts {
        let holder = self.weights.of(i.id());
        let serves = self.work.rollouts.running(i.incarnation()) > 0
            || self.weights.pullers_of(i.incarnation()) > 0;
        Facts {
            works: common.linked && i.suspect().is_none() && i.phase() == Phase::Generating,
            pulls: common.linked && i.phase() == Phase::PullWeights,
            idle: i.going() && !serves,
            serves: holder.is_admitted() && i.suspect().is_none(),
            takes: holder
                .version()
                .filter(|_| self.eligible(i))
                .map(Takes::Requests),
            peer: Some(peer(nodes, i)),
            unpaused: i.holds_slot() && i.turn() != Turn::Paused || i.leaving().is_some(),
            unrolling: i.holds_slot() && i.condemned().is_none() && i.turn() != Turn::Rolls,
            to_tell: self.gang.due_command(i, self.weights.is_current(i.id())),
            ..common
        }
    }

    /// Whether requests may be routed to it, whatever its version.
    fn eligible(&self, r: &Instance) -> bool {
        r.id().role.is_engine()
            && r.attached()
            && self.weights.of(r.id()).is_admitted()
            && (r.suspect().is_none() || self.config.mutant(Mutation::RouteToSuspect))
            && r.condemned().is_none()
            && (r.id().role != Role::Hybrid || self.gang.lets_generate(r.turn()))
            && !r.going()
    }
}

/// What the weights are told of an engine.
fn peer(nodes: &NodeTable, i: &Instance) -> Peer {
    let node = i.slot().map(|slot| slot.node);
    let spec = node.and_then(|node| nodes.get(node));
    Peer {
        life: i.incarnation(),
        sound: i.attached() && i.condemned().is_none(),
        condemned: i.condemned().is_some(),
        going: i.going(),
        suspect: i.suspect().is_some(),
        quarantined: i.quarantined(),
        place: Place {
            node,
            rack: spec.and_then(|n| Rack::of(&n.spec.labels)),
        },
    }
}
