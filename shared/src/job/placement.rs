//! Where every instance of the job runs: which slot of which pool of which node.
//!
//! An instance takes one slot of its role's pool; the slots of a pool are filled node by node, in
//! the file's order. Roles that name the same pool share its slots (colocation): each slot then
//! holds at most one instance of each of them. A hybrid engine is on the slot of its rank.
use super::error::{Problem, list, suggest};
use super::{Job, Node};
use crate::ids::{InstanceId, Role};
use std::collections::BTreeSet;

/// An instance's slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Who.
    pub id: InstanceId,
    /// The node's name.
    pub node: String,
    /// The pool's name.
    pub pool: String,
    /// The slot within the pool on that node, from 0.
    pub slot: u32,
}

impl Job {
    /// The slot of every instance, by role and index, or the number of slots missing and where.
    pub fn placement(&self) -> Result<Vec<Place>, Problem> {
        let mut places = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            fits_machine(at, node)?;
        }
        for role in Role::ALL {
            places.extend(self.place_role(role)?);
        }
        Ok(places)
    }

    fn place_role(&self, role: Role) -> Result<Vec<Place>, Problem> {
        let (pool, pin, count_key) = (self.pool(role), self.pin(role), count_key(role));
        let candidates = self.candidates(role)?;
        let mut slots = candidates
            .iter()
            .flat_map(|(node, slots)| (0..*slots).map(move |slot| (node.to_string(), slot)));
        let mut places = Vec::new();
        let wanted = self.count(role);
        for index in 0..wanted {
            let Some((node, slot)) = slots.next() else {
                break;
            };
            places.push(Place {
                id: InstanceId { role, index },
                node,
                pool: pool.to_owned(),
                slot,
            });
        }
        if places.len() as u64 == u64::from(wanted) {
            return Ok(places);
        }
        let there = places.len() as u64;
        let each = |(node, slots): &(&str, u32)| format!("node `{node}` has {slots}");
        let mut has = candidates.iter().map(each).collect::<Vec<_>>().join(", ");
        if pin.is_some() {
            has.push_str(" and the role is bound to it");
        }
        let raise = format!("raise `{pool}` in a node's `pools`");
        let fix = match there {
            0 => raise,
            _ => format!("lower `{count_key}` to {there} or {raise}"),
        };
        Err(Problem::MissingSlots {
            key: count_key.to_owned(),
            pool: pool.to_owned(),
            wanted: u64::from(wanted),
            has,
            missing: u64::from(wanted) - there,
            fix,
        })
    }

    /// The nodes a role may use, with the slots its pool has there.
    fn candidates(&self, role: Role) -> Result<Vec<(&str, u32)>, Problem> {
        let pool = self.pool(role);
        if !self.nodes.iter().any(|n| n.pools.contains_key(pool)) {
            let known: BTreeSet<&str> = self
                .nodes
                .iter()
                .flat_map(|n| n.pools.keys())
                .map(String::as_str)
                .collect();
            let known: Vec<&str> = known.into_iter().collect();
            let hint = match suggest(pool, &known) {
                near if near.starts_with("did") => near,
                _ => format!("the pools are {}", list(&known, "and")),
            };
            let key = format!("{role}.pool");
            return Err(Problem::UnknownPool {
                key,
                pool: pool.to_owned(),
                hint,
            });
        }
        let slots = |n: &Node| n.pools.get(pool).copied().unwrap_or(0);
        let Some(pin) = self.pin(role) else {
            return Ok(self
                .nodes
                .iter()
                .map(|n| (n.name.as_str(), slots(n)))
                .collect());
        };
        match self.nodes.iter().find(|n| n.name == pin) {
            Some(node) => Ok(vec![(node.name.as_str(), slots(node))]),
            None => {
                let names: Vec<&str> = self.nodes.iter().map(|n| n.name.as_str()).collect();
                let (key, known) = (format!("{role}.node"), list(&names, "and"));
                Err(Problem::UnknownNode {
                    key,
                    node: pin.to_owned(),
                    known,
                })
            }
        }
    }

    pub(crate) fn pin(&self, role: Role) -> Option<&str> {
        match role {
            Role::Trainer | Role::Hybrid => self.trainer.node.as_deref(),
            Role::Rollout => self.rollout.node.as_deref(),
            Role::Agent => self.agent.node.as_deref(),
        }
    }
}

/// The dotted key of a role's number of instances.
pub(super) fn count_key(role: Role) -> &'static str {
    match role {
        Role::Trainer | Role::Hybrid => "trainer.ranks",
        Role::Rollout => "rollout.replicas",
        Role::Agent => "agent.workers",
    }
}

fn fits_machine(at: usize, node: &Node) -> Result<(), Problem> {
    let taken: u64 = node.pools.values().map(|&slots| u64::from(slots)).sum();
    let Some(slots) = node.slots.filter(|&slots| taken > u64::from(slots)) else {
        return Ok(());
    };
    let each = |(pool, slots): (&String, &u32)| format!("{pool} {slots}");
    Err(Problem::Overcommitted {
        key: format!("node.{at}.slots"),
        node: node.name.clone(),
        slots,
        taken,
        pools: node.pools.iter().map(each).collect::<Vec<_>>().join(", "),
        missing: taken - u64::from(slots),
    })
}
