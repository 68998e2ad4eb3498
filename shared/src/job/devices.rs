//! Which devices an instance sees: those of its slots.
//!
//! ```text
//!  pools        agent 2    rollout 4          train 2
//!  devices         -      0  1  2  3             -        the trainer is built in, and computes on the CPU
//!                         └──┘ one engine of 2 slots
//! ```
//! `[[node]] devices` says it outright: of each pool there the device of every slot. A pool that is not
//! there has none that are its own, and one with an empty list sees none at all.
//!
//! Without that key the pools in which programs of the user's run lie one after the other over the
//! devices that the node has, by their names: that is an order which a job file, a joining node's `--pools`
//! and a restarted daemon all have. The other pools take none. Where the node has fewer devices than
//! these pools have slots nobody gets any: half of an assignment would put two programs on one device.
//!
//! What is numbered is what robustd itself sees: the entries of its own `CUDA_VISIBLE_DEVICES`, else the
//! machine's devices.
use super::error::{Problem, list, suggest};
use super::validate::bad;
use super::{Job, Node};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The variable that says which devices a process may use.
pub const DEVICES_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// The devices that a daemon sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SeenDevices {
    /// Nobody knows how many there are.
    #[default]
    Unknown,
    /// So many, numbered from 0.
    Counted(u32),
    /// Those of its own `CUDA_VISIBLE_DEVICES`, as they are written there.
    Listed(Vec<String>),
}

impl SeenDevices {
    /// Those of a `CUDA_VISIBLE_DEVICES`. An entry that names none hides those after it.
    pub fn listed(text: &str) -> Self {
        let entries = text.split(',').map(str::trim);
        let named = entries.take_while(|entry| !entry.is_empty() && !entry.starts_with('-'));
        Self::Listed(named.map(str::to_owned).collect())
    }

    fn count(&self) -> u32 {
        match self {
            Self::Unknown => 0,
            Self::Counted(count) => *count,
            Self::Listed(all) => u32::try_from(all.len()).unwrap_or(u32::MAX),
        }
    }

    /// The device of this number; none beyond the last one.
    fn at(&self, number: u32) -> Option<String> {
        match self {
            Self::Unknown => Some(number.to_string()),
            Self::Counted(count) => (number < *count).then(|| number.to_string()),
            Self::Listed(all) => all.get(number as usize).cloned(),
        }
    }
}

/// A job file names a device that a node does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "node `{node}` is to have device {device} for pool `{pool}`, and robustd sees {count} there{}; \
     correct its `devices`",
    whose(*.listed)
)]
pub struct NoSuchDevice {
    /// The node.
    pub node: String,
    /// The pool.
    pub pool: String,
    /// Its number, from 0.
    pub device: u32,
    /// How many there are.
    pub count: u32,
    /// Whether robustd's own environment says so.
    pub listed: bool,
}

fn whose(listed: bool) -> &'static str {
    match listed {
        true => " (its own CUDA_VISIBLE_DEVICES)",
        false => "",
    }
}

/// The devices of a node's slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotDevices {
    pools: BTreeMap<String, Pool>,
    /// Why no pool has any, though some were to.
    pub unassigned: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pool {
    /// The device of each slot; none at all: nothing is seen.
    devices: Vec<String>,
    /// Slots of a place.
    each: u32,
}

impl SlotDevices {
    /// The devices of a place of a pool, with commas; none where they are not this pool's to say.
    pub fn of_place(&self, pool: &str, place: u32) -> Option<String> {
        let each = self.pools.get(pool)?.each;
        let first = place.saturating_mul(each);
        self.of_slots(pool, first..first.saturating_add(each))
    }

    /// The same of some slots of it.
    pub fn of_slots(&self, pool: &str, slots: Range<u32>) -> Option<String> {
        let devices = &self.pools.get(pool)?.devices;
        let of = slots.filter_map(|slot| devices.get(slot as usize));
        Some(of.map(String::as_str).collect::<Vec<_>>().join(","))
    }

    /// Whether no pool has any of its own.
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }
}

impl Job {
    /// Whether it matters which devices a node with these pools has: some pool takes some.
    pub fn takes_devices_of(&self, node: &str, pools: &BTreeMap<String, u32>) -> bool {
        let named = self.node(node).is_some_and(|n| !n.devices.is_empty());
        named
            || pools
                .iter()
                .any(|(pool, slots)| *slots > 0 && self.takes_devices(pool))
    }

    /// The devices of the slots of a node with these pools.
    pub fn slot_devices(
        &self,
        node: &str,
        pools: &BTreeMap<String, u32>,
        seen: &SeenDevices,
    ) -> Result<SlotDevices, NoSuchDevice> {
        let named = self.node(node).map(|n| &n.devices);
        match named.filter(|named| !named.is_empty()) {
            Some(named) => self.named_devices(node, named, seen),
            None => Ok(self.devices_in_order(node, pools, seen)),
        }
    }

    fn named_devices(
        &self,
        node: &str,
        named: &BTreeMap<String, Vec<u32>>,
        seen: &SeenDevices,
    ) -> Result<SlotDevices, NoSuchDevice> {
        let mut pools = BTreeMap::new();
        for (pool, numbers) in named {
            let device = |number: &u32| {
                seen.at(*number).ok_or_else(|| NoSuchDevice {
                    node: node.to_owned(),
                    pool: pool.clone(),
                    device: *number,
                    count: seen.count(),
                    listed: matches!(seen, SeenDevices::Listed(_)),
                })
            };
            let devices = numbers.iter().map(device).collect::<Result<_, _>>()?;
            let each = self.place_slots(pool);
            pools.insert(pool.clone(), Pool { devices, each });
        }
        Ok(SlotDevices {
            pools,
            unassigned: None,
        })
    }

    fn devices_in_order(
        &self,
        node: &str,
        pools: &BTreeMap<String, u32>,
        seen: &SeenDevices,
    ) -> SlotDevices {
        let takes = |(pool, slots): &(&String, &u32)| **slots > 0 && self.takes_devices(pool);
        let wanted: Vec<(&String, &u32)> = pools.iter().filter(takes).collect();
        let slots: u64 = wanted.iter().map(|(_, slots)| u64::from(**slots)).sum();
        let (mut assigned, mut next) = (SlotDevices::default(), 0);
        let count = seen.count();
        if count == 0 {
            return assigned;
        }
        if slots > u64::from(count) {
            let names: Vec<String> = wanted
                .iter()
                .map(|(pool, n)| format!("{pool} {n}"))
                .collect();
            assigned.unassigned = Some(format!(
                "node `{node}` has {count} devices and {slots} slots for your programs ({}): no \
                 program is given devices of its own; say with `devices` of the `[[node]]` which \
                 slot has which",
                names.join(", ")
            ));
            return assigned;
        }
        for (pool, slots) in wanted {
            let numbers = next..next + *slots;
            next += *slots;
            let pool_of = Pool {
                devices: numbers.filter_map(|number| seen.at(number)).collect(),
                each: self.place_slots(pool),
            };
            assigned.pools.insert(pool.clone(), pool_of);
        }
        assigned
    }

    /// Whether programs of the user's run in a pool: the built-in roles compute on the CPU.
    fn takes_devices(&self, pool: &str) -> bool {
        let engines = self.rollout.command.is_some();
        let of_engines = engines && self.rollout.pool == pool;
        let of_hybrids = engines && self.hybrid() && self.trainer.pool == pool;
        let of_trainers = self.trainer.command.is_some() && self.trainer.pool == pool;
        let mut services = self.services.values();
        of_engines || of_hybrids || of_trainers || services.any(|s| s.pool.as_deref() == Some(pool))
    }

    fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Refuses devices that cannot be the slots'.
    pub(super) fn check_devices(&self) -> Result<(), Problem> {
        for (at, node) in self.nodes.iter().enumerate() {
            let mut whose: BTreeMap<u32, &str> = BTreeMap::new();
            for (pool, devices) in &node.devices {
                let key = format!("node.{at}.devices.{pool}");
                self.check_pools_devices(&key, node, pool, devices)?;
                for device in devices {
                    if let Some(other) = whose.insert(*device, pool).filter(|other| *other != pool)
                    {
                        let must = format!(
                            "pool `{other}` has device {device}, too; give each pool its own, or \
                             let roles share a device by sharing a pool"
                        );
                        return Err(bad(&key, format!("{devices:?}"), must));
                    }
                }
            }
        }
        Ok(())
    }

    fn check_pools_devices(
        &self,
        key: &str,
        node: &Node,
        pool: &str,
        devices: &[u32],
    ) -> Result<(), Problem> {
        let refused = |must: String| Err(bad(key, format!("{devices:?}"), must));
        let Some(slots) = node.pools.get(pool) else {
            let pools: Vec<&str> = node.pools.keys().map(String::as_str).collect();
            let hint = match suggest(pool, &pools) {
                near if near.starts_with("did") => near,
                _ => format!("its pools are {}", list(&pools, "and")),
            };
            return refused(format!("node `{}` has no pool `{pool}`; {hint}", node.name));
        };
        if !devices.is_empty() && devices.len() < *slots as usize {
            let count = devices.len();
            return refused(format!(
                "pool `{pool}` has {slots} slots there, and {count} of them a device: name one for \
                 each slot, or none at all ([]) where its programs are to see none"
            ));
        }
        let once: BTreeSet<&u32> = devices.iter().collect();
        if once.len() < devices.len() && self.has_several_slots(pool) {
            return refused(
                "a program of several slots would have a device twice; name each once".to_owned(),
            );
        }
        Ok(())
    }

    fn has_several_slots(&self, pool: &str) -> bool {
        let mut services = self.services.values();
        let of_service = services.any(|s| s.pool.as_deref() == Some(pool) && s.slots > 1);
        self.place_slots(pool) > 1 || of_service
    }
}
