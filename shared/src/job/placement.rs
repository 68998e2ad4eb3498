//! Where every instance of the job runs: which slot of which pool of which node.
//!
//! An instance takes one place of its role's pool; the places of a pool are filled node by node, in
//! the file's order. A place is a slot, and in a pool of programs of several slots (`slots` of
//! `[rollout.command]` or `[trainer.command]`) so many slots in a row of one node. Roles that name the same pool share its slots
//! (colocation): each slot then holds at most one instance of each of them. A hybrid engine is on the
//! slot of its rank. Services take their slots from the end of a pool, and nobody shares those.
//!
//! ```text
//!  pool of 7, engines of 2, a service of 1:   [0 1] [2 3] [4 5]  6
//!                                             place 0, 1, 2      the service
//! ```
use super::error::{Problem, list, suggest};
use super::validate::bad;
use super::{Job, Launcher, Node};
use crate::ids::{InstanceId, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// An instance's slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Who.
    pub id: InstanceId,
    /// The node's name.
    pub node: String,
    /// The pool's name.
    pub pool: String,
    /// The first of its slots within the pool on that node, from 0.
    pub slot: u32,
    /// How many slots it has.
    pub slots: u32,
}

/// The slots of one process of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePlace {
    /// The service's name.
    pub service: String,
    /// Which of its processes, from 0.
    pub index: u32,
    /// The node's name.
    pub node: String,
    /// The pool's name.
    pub pool: String,
    /// The first of its slots within the pool on that node.
    pub slot: u32,
    /// How many slots it has.
    pub slots: u32,
}

impl Job {
    /// The slot of every instance, by role and index, or the number of slots missing and where.
    pub fn placement(&self) -> Result<Vec<Place>, Problem> {
        let mut places = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            fits_machine(at, node)?;
        }
        self.service_places()?;
        self.check_several_slots(Role::Rollout)?;
        self.check_several_slots(Role::Trainer)?;
        for role in Role::ALL {
            places.extend(self.place_role(role)?);
        }
        if self.launcher() == Launcher::Node {
            self.check_one_a_node()?;
        }
        Ok(places)
    }

    /// How many slots of a pool are one place of it: those of the program that has it for itself.
    pub fn place_slots(&self, pool: &str) -> u32 {
        let of = |role: &Role| (self.pool(*role) == pool).then(|| self.slots_each(*role));
        let most = [Role::Rollout, Role::Trainer].iter().filter_map(of).max();
        most.unwrap_or(1).max(1)
    }

    fn launcher(&self) -> Launcher {
        let command = self.trainer.command.as_ref();
        command.map(|c| c.launcher).unwrap_or_default()
    }

    /// How many slots a program of this role is to have.
    fn slots_each(&self, role: Role) -> u32 {
        match role {
            Role::Rollout => self.rollout.command.as_ref().map_or(1, |c| c.slots),
            Role::Trainer => self.trainer.command.as_ref().map_or(1, |c| c.slots),
            Role::Agent | Role::Hybrid => 1,
        }
    }

    /// The slots of a pool that its place of this number is.
    pub fn slots_of_place(&self, pool: &str, place: u32) -> Range<u32> {
        let each = self.place_slots(pool);
        let first = place.saturating_mul(each);
        first..first.saturating_add(each)
    }

    /// The places for roles that a node with these pools has: what services leave of them.
    pub fn places(&self, node: &str, pools: &BTreeMap<String, u32>) -> BTreeMap<String, u32> {
        let taken = self.service_places().unwrap_or_default();
        let left = |pool: &String, slots: u32| {
            let here = taken.iter().filter(|p| p.node == node && p.pool == *pool);
            let left = slots.saturating_sub(here.map(|p| p.slots).sum());
            left / self.place_slots(pool)
        };
        let each = pools.iter();
        each.map(|(pool, slots)| (pool.clone(), left(pool, *slots)))
            .collect()
    }

    /// The slots of every process of every service that has a pool, or how many are missing.
    pub fn service_places(&self) -> Result<Vec<ServicePlace>, Problem> {
        let mut left: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        for node in &self.nodes {
            let pools = node.pools.iter();
            left.extend(pools.map(|(pool, slots)| ((node.name.as_str(), pool.as_str()), *slots)));
        }
        let mut places = Vec::new();
        for (service, s) in &self.services {
            let Some(pool) = &s.pool else { continue };
            self.check_pool(&format!("service.{service}.pool"), pool)?;
            for index in 0..s.replicas {
                let mut nodes = self.nodes.iter().map(|n| n.name.as_str());
                let has = |node: &&str| left.get(&(*node, pool)).is_some_and(|l| *l >= s.slots);
                let Some(node) = nodes.find(has) else {
                    return Err(self.no_slots_for_service(service, index));
                };
                let end = left.entry((node, pool)).or_default();
                *end = end.saturating_sub(s.slots);
                places.push(ServicePlace {
                    service: service.clone(),
                    index,
                    node: node.to_owned(),
                    pool: pool.clone(),
                    slot: *end,
                    slots: s.slots,
                });
            }
        }
        Ok(places)
    }

    fn no_slots_for_service(&self, name: &str, placed: u32) -> Problem {
        let s = self.services.get(name);
        let (replicas, slots) = s.map_or((0, 1), |s| (s.replicas, s.slots));
        let pool = s.and_then(|s| s.pool.as_deref()).unwrap_or_default();
        let each = |n: &Node| {
            let slots = n.pools.get(pool).copied().unwrap_or(0);
            format!("node `{}` has {slots}", n.name)
        };
        let has: Vec<String> = self.nodes.iter().map(each).collect();
        Problem::MissingSlots {
            key: format!("service.{name}.replicas"),
            pool: pool.to_owned(),
            wanted: u64::from(replicas) * u64::from(slots),
            has: has.join(", ") + " for all services",
            missing: u64::from(replicas - placed) * u64::from(slots),
            fix: format!("raise `{pool}` in a node's `pools`"),
        }
    }

    /// A program of several slots has them on one node, in a pool of its own.
    fn check_several_slots(&self, role: Role) -> Result<(), Problem> {
        let (each, pool) = (self.slots_each(role), self.pool(role));
        let (key, what) = match role {
            Role::Trainer => ("trainer.command.slots", "a rank"),
            _ => ("rollout.command.slots", "an engine"),
        };
        if each == 1 {
            return Ok(());
        }
        let mut others = [Role::Rollout, Role::Trainer, Role::Agent].into_iter();
        let there = |r: &Role| *r != role && (self.count(*r) > 0 || !self.may_be_without(*r));
        if let Some(other) = others.find(|r| there(r) && self.pool(*r) == pool) {
            let must = format!(
                "{what} of several slots needs a pool of its own, and {other} shares `{pool}`; \
                 give one of them another `pool`"
            );
            return Err(bad(key, each, must));
        }
        let free = self.candidates(role)?;
        match free.iter().max_by_key(|(_, slots)| *slots) {
            Some((node, most)) if *most < each => {
                let way = match role {
                    Role::Trainer => "is several ranks",
                    _ => "is not built yet",
                };
                let must = format!(
                    "{what} over several nodes {way}: node `{node}` has the most slots of pool \
                     `{pool}`, {most}; use at most so many, or raise it in the node's `pools`"
                );
                Err(bad(key, each, must))
            }
            _ => Ok(()),
        }
    }

    /// Programs that start the ranks of their node are one a node, wherever they may come to be.
    fn check_one_a_node(&self) -> Result<(), Problem> {
        let (each, pool) = (self.slots_each(Role::Trainer), &self.trainer.pool);
        for (node, slots) in self.candidates(Role::Trainer)? {
            let room = slots / each.max(1);
            if room > 1 {
                let must = format!(
                    "there is one program a node, and pool `{pool}` of node `{node}` has room for \
                     {room}; raise `trainer.command.slots` to all that it has, or lower \
                     `trainer.ranks` to the number of nodes"
                );
                return Err(bad("trainer.command.launcher", "\"node\"", must));
            }
        }
        Ok(())
    }

    fn place_role(&self, role: Role) -> Result<Vec<Place>, Problem> {
        if self.count(role) == 0 && self.may_be_without(role) {
            // Then its pool may be nobody's.
            return Ok(Vec::new());
        }
        let pool = self.pool(role);
        let (candidates, each) = (self.candidates(role)?, self.place_slots(pool));
        let mut free = candidates.iter().flat_map(|(node, slots)| {
            (0..slots / each).map(move |place| (node.to_string(), place * each))
        });
        let mut places = Vec::new();
        for index in 0..self.count(role) {
            let Some((node, slot)) = free.next() else {
                break;
            };
            places.push(Place {
                id: InstanceId { role, index },
                node,
                pool: pool.to_owned(),
                slot,
                slots: each,
            });
        }
        match places.len() as u64 == u64::from(self.count(role)) {
            true => Ok(places),
            false => Err(self.no_slots(role, &candidates, places.len() as u64)),
        }
    }

    fn no_slots(&self, role: Role, candidates: &[(&str, u32)], there: u64) -> Problem {
        let (pool, count_key) = (self.pool(role), count_key(role));
        let (wanted, each) = (u64::from(self.count(role)), self.place_slots(pool));
        let has = |(node, slots): &(&str, u32)| format!("node `{node}` has {slots}");
        let mut has = candidates.iter().map(has).collect::<Vec<_>>().join(", ");
        if each > 1 {
            has.push_str(&format!(" and an instance takes {each} of one node"));
        }
        if self.pin(role).is_some() {
            has.push_str(" and the role is bound to it");
        }
        let raise = format!("raise `{pool}` in a node's `pools`");
        let fix = match there {
            0 => raise,
            _ => format!("lower `{count_key}` to {there} or {raise}"),
        };
        Problem::MissingSlots {
            key: count_key.to_owned(),
            pool: pool.to_owned(),
            wanted: wanted * u64::from(each),
            has,
            missing: (wanted - there) * u64::from(each),
            fix,
        }
    }

    fn check_pool(&self, key: &str, pool: &str) -> Result<(), Problem> {
        if self.nodes.iter().any(|n| n.pools.contains_key(pool)) {
            return Ok(());
        }
        let pools = self.nodes.iter().flat_map(|n| n.pools.keys());
        let known: BTreeSet<&str> = pools.map(String::as_str).collect();
        let known: Vec<&str> = known.into_iter().collect();
        let hint = match suggest(pool, &known) {
            near if near.starts_with("did") => near,
            _ => format!("the pools are {}", list(&known, "and")),
        };
        Err(Problem::UnknownPool {
            key: key.to_owned(),
            pool: pool.to_owned(),
            hint,
        })
    }

    /// The nodes a role may use, with the slots its pool has there beside the services'.
    fn candidates(&self, role: Role) -> Result<Vec<(&str, u32)>, Problem> {
        let pool = self.pool(role);
        self.check_pool(&format!("{role}.pool"), pool)?;
        let taken = self.service_places()?;
        let slots = |n: &Node| {
            let here = taken.iter().filter(|p| p.node == n.name && p.pool == pool);
            let all = n.pools.get(pool).copied().unwrap_or(0);
            all.saturating_sub(here.map(|p| p.slots).sum())
        };
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
