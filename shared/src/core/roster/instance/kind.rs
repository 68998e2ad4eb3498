//! What is known of an instance because of its role.
use super::{Health, is_default};
use crate::core::detect::agent_unable::GivenBack;
use crate::core::gang::context::Turn;
use crate::ids::{Incarnation, InstanceId, Role};
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// A place, and what only instances of its role have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Place {
    /// Its name.
    pub id: InstanceId,
    /// What its process is.
    pub kind: Kind,
}

/// What a process is, by its role.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A rank of the trainer.
    Rank(Rank),
    /// A rollout or hybrid engine.
    Engine(Engine),
    /// An agent worker.
    Agent(Agent),
}

/// A rank of the trainer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rank {
    /// Time in phases without exchange, in the step under way.
    pub alone: Duration,
    /// Steps in a row in which that was too long.
    pub slow_steps: u32,
}

/// An engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Engine {
    /// It is being probed until then, and gets no traffic.
    pub suspect: Option<Time>,
    /// What its probes said.
    pub health: Health,
    /// An operator took it out; restarts do not end that.
    pub quarantined: bool,
    /// Sources whose chunks it found corrupt, and nobody else did.
    pub corrupt_sources: BTreeSet<Incarnation>,
    /// Of a hybrid: whether it has its slot.
    pub turn: Turn,
    /// Of a hybrid: an incarnation before that was to end while it had its slot, and until when its end is
    /// waited for.
    pub leaving: Option<(Incarnation, Time)>,
}

/// An agent worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Agent {
    /// What it gave back since it last finished a trajectory.
    pub given_back: GivenBack,
}

impl Kind {
    /// Of a role, without a process.
    pub fn of(role: Role) -> Self {
        match role {
            Role::Trainer => Kind::Rank(Rank::default()),
            Role::Hybrid | Role::Rollout => Kind::Engine(Engine::default()),
            Role::Agent => Kind::Agent(Agent::default()),
        }
    }

    /// Of the next incarnation: what outlives a process.
    pub fn reborn(&self) -> Self {
        match self {
            Kind::Rank(_) => Kind::Rank(Rank::default()),
            Kind::Engine(engine) => Kind::Engine(Engine {
                quarantined: engine.quarantined,
                leaving: engine.leaving,
                ..Engine::default()
            }),
            Kind::Agent(_) => Kind::Agent(Agent::default()),
        }
    }
}

/// A place as it is stored: beside what all instances have, as every build stored it. What belongs to another
/// role is not so there.
#[derive(Serialize, Deserialize)]
struct Stored {
    id: InstanceId,
    #[serde(default, skip_serializing_if = "is_default")]
    given_back: GivenBack,
    #[serde(default, skip_serializing_if = "is_default")]
    suspect: Option<Time>,
    #[serde(default, skip_serializing_if = "is_default")]
    health: Health,
    #[serde(default, skip_serializing_if = "is_default")]
    quarantined: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    alone: Duration,
    #[serde(default, skip_serializing_if = "is_default")]
    slow_steps: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    corrupt_sources: BTreeSet<Incarnation>,
    #[serde(default, skip_serializing_if = "is_default")]
    turn: Turn,
    #[serde(default, skip_serializing_if = "is_default")]
    leaving: Option<(Incarnation, Time)>,
}

impl From<Stored> for Place {
    fn from(s: Stored) -> Self {
        let kind = match s.id.role {
            Role::Trainer => Kind::Rank(Rank {
                alone: s.alone,
                slow_steps: s.slow_steps,
            }),
            Role::Hybrid | Role::Rollout => Kind::Engine(Engine {
                suspect: s.suspect,
                health: s.health,
                quarantined: s.quarantined,
                corrupt_sources: s.corrupt_sources,
                turn: s.turn,
                leaving: s.leaving,
            }),
            Role::Agent => Kind::Agent(Agent {
                given_back: s.given_back,
            }),
        };
        Self { id: s.id, kind }
    }
}

impl From<Place> for Stored {
    fn from(place: Place) -> Self {
        let (mut rank, mut engine) = (Rank::default(), Engine::default());
        let mut agent = Agent::default();
        match place.kind {
            Kind::Rank(of) => rank = of,
            Kind::Engine(of) => engine = of,
            Kind::Agent(of) => agent = of,
        }
        Self {
            id: place.id,
            given_back: agent.given_back,
            suspect: engine.suspect,
            health: engine.health,
            quarantined: engine.quarantined,
            alone: rank.alone,
            slow_steps: rank.slow_steps,
            corrupt_sources: engine.corrupt_sources,
            turn: engine.turn,
            leaving: engine.leaving,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::core::roster::instance::Instance;
    use serde_json::{Value, json};

    /// An instance as a build stored it for which every instance had what any role has.
    fn stored(role: Role) -> Value {
        let mut stored =
            serde_json::to_value(Instance::new(InstanceId { role, index: 1 })).unwrap();
        let of_all_roles = json!({
            "given_back": GivenBack::default(),
            "suspect": 5,
            "health": Health::default(),
            "quarantined": true,
            "alone": Duration::from_secs(2),
            "slow_steps": 3,
            "corrupt_sources": [7],
            "turn": "Paused",
            "leaving": [6, 9],
        });
        for (field, value) in of_all_roles.as_object().unwrap() {
            stored[field] = value.clone();
        }
        stored
    }

    #[test]
    fn an_instance_of_a_build_that_kept_every_role_s_fields_is_read_as_its_role_has_them() {
        let kind = |role| {
            let read: Instance = serde_json::from_value(stored(role)).unwrap();
            read.place.kind
        };
        let engine = Engine {
            suspect: Some(Time(5)),
            health: Health::default(),
            quarantined: true,
            corrupt_sources: [Incarnation(7)].into(),
            turn: Turn::Paused,
            leaving: Some((Incarnation(6), Time(9))),
        };
        assert_eq!(kind(Role::Hybrid), Kind::Engine(engine));
        let rank = Rank {
            alone: Duration::from_secs(2),
            slow_steps: 3,
        };
        assert_eq!(kind(Role::Trainer), Kind::Rank(rank));
        assert_eq!(kind(Role::Agent), Kind::Agent(Agent::default()));
    }

    #[test]
    fn an_instance_is_read_back_as_it_was_stored() {
        for role in Role::ALL {
            let read: Instance = serde_json::from_value(stored(role)).unwrap();
            let again = serde_json::to_value(&read).unwrap();
            let again: Instance = serde_json::from_value(again).unwrap();
            assert_eq!(read, again);
        }
    }
}
