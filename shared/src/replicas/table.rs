//! What is held where, and what has to be ordered.
use super::{Place, Spread, choose};
use crate::ids::{Generation, Step};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// So many steps are held: slots alternate between two, so older ones cannot be asked for.
const STEPS: usize = 2;
/// A shard that so many orders could not place is left as it is: the next step is another chance.
const TRIES: u32 = 3;

/// Which shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardKey {
    /// Of which step.
    pub step: Step,
    /// By which gang: an older one's are none (I-1).
    pub generation: Generation,
    /// Whose.
    pub rank: u32,
}

/// What a copy must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Its length.
    pub bytes: u64,
    /// Its digest, once somebody took it.
    pub xxh3: Option<u64>,
}

/// What a node is to hold from now on, besides what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The node.
    pub node: String,
    /// The shard.
    pub key: ShardKey,
    /// What it must be.
    pub content: Content,
}

/// How safe the last snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safety {
    /// No snapshot yet.
    Nothing,
    /// There is no other node that could hold anything.
    Alone,
    /// Copies are on their way.
    Copying,
    /// Some shards could not be copied to where they would be safe.
    Short,
    /// Every shard has copies as far apart as nodes are.
    Safe(Spread),
}

#[derive(Clone, Debug)]
struct Node {
    place: Place,
    held: BTreeSet<ShardKey>,
}

#[derive(Clone, Debug)]
struct Shard {
    content: Content,
    /// Who was ordered and has not answered.
    asked: Option<String>,
    /// Orders that came to nothing.
    tries: u32,
    /// Who could not: asked again only when nobody else is left.
    refused: BTreeSet<String>,
}

/// The table. Names are those of nodes; the leader's own is one of them where it is a node.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The leader's node, which holds copies only where no other is as far apart: what all nodes need of it goes first.
    leader: Option<String>,
    nodes: BTreeMap<String, Node>,
    /// The same by shard, of those that anybody holds.
    holders: BTreeMap<ShardKey, BTreeSet<String>>,
    shards: BTreeMap<ShardKey, Shard>,
    orders: Vec<Order>,
}

impl Table {
    /// Of a job whose leader's machine is this node, which is there from the beginning.
    pub fn led_by(leader: Place) -> Self {
        let mut table = Self {
            leader: Some(leader.name.clone()),
            ..Self::default()
        };
        table.joined(leader, []);
        table
    }

    /// A node is there, or there again, and holds so much.
    pub fn joined(&mut self, node: Place, held_keys: impl IntoIterator<Item = ShardKey>) {
        let name = node.name.clone();
        self.forget_asked(&name);
        self.forget_held(&name);
        let held = BTreeSet::new();
        self.nodes.insert(name.clone(), Node { place: node, held });
        for key in held_keys {
            self.hold(&name, key);
        }
        // It may be a better place than those that could be had before.
        self.place();
    }

    /// A node is gone, with its memory as far as anybody knows.
    pub fn left(&mut self, name: &str) {
        self.forget_held(name);
        self.nodes.remove(name);
        self.forget_asked(name);
        self.place();
    }

    /// A snapshot is complete: each rank's shard is in the memory of these nodes. Later steps, and the same one by older
    /// gangs, are history that did not happen.
    pub fn snapshot(
        &mut self,
        step: Step,
        generation: Generation,
        shards: impl IntoIterator<Item = (Vec<String>, Content)>,
    ) {
        self.shards.retain(|key, _| key.step < step);
        for (rank, (homes, content)) in (0..).zip(shards) {
            let key = ShardKey {
                step,
                generation,
                rank,
            };
            for home in homes {
                self.hold(&home, key);
            }
            let shard = Shard {
                content,
                asked: None,
                tries: 0,
                refused: BTreeSet::new(),
            };
            self.shards.insert(key, shard);
        }
        let oldest = self.steps().rev().nth(STEPS - 1);
        if let Some(oldest) = oldest {
            self.forget_before(oldest);
        }
        self.place();
    }

    /// Whether this node was asked to hold a shard, and has not answered.
    pub fn was_asked(&self, name: &str, key: ShardKey) -> bool {
        let shard = self.shards.get(&key);
        shard.is_some_and(|shard| shard.asked.as_deref() == Some(name))
    }

    /// Copies of a step that could not be made may be asked for again, of anybody.
    pub fn again(&mut self, step: Step) {
        for (_, shard) in self.shards.iter_mut().filter(|(key, _)| key.step == step) {
            shard.tries = 0;
            shard.refused.clear();
        }
        self.place();
    }

    /// Nobody can be told now to give this node what it is to hold: it is asked again when that has changed.
    pub fn postponed(&mut self, name: &str, key: ShardKey) {
        if let Some(shard) = self.shards.get_mut(&key) {
            shard.asked.take_if(|asked| asked == name);
        }
    }

    /// This node can be given a shard by nobody, whatever is tried.
    pub fn cannot(&mut self, name: &str, key: ShardKey) {
        if let Some(shard) = self.shards.get_mut(&key) {
            shard.asked.take_if(|asked| asked == name);
            // Asked again for want of another: that is a try.
            if !shard.refused.insert(name.to_owned()) {
                shard.tries += 1;
            }
        }
        self.place_those([key]);
    }

    /// Nodes that there are.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// A node holds a shard, whole.
    pub fn held(&mut self, name: &str, key: ShardKey, xxh3: u64) {
        self.hold(name, key);
        if let Some(shard) = self.shards.get_mut(&key) {
            shard.content.xxh3 = Some(xxh3);
            shard.asked.take_if(|asked| asked == name);
        }
        self.place_those([key]);
    }

    /// A node could not hold a shard, or does not any more.
    pub fn not_held(&mut self, name: &str, key: ShardKey) {
        self.unhold(name, key);
        if let Some(shard) = self.shards.get_mut(&key)
            && shard.asked.take_if(|asked| asked == name).is_some()
        {
            shard.refused.insert(name.to_owned());
            shard.tries += 1;
        }
        self.place_those([key]);
    }

    /// What is to be ordered now; each is handed out once.
    pub fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    /// The oldest step that copies are of any use for; holders remove what is older.
    pub fn oldest(&self) -> Option<Step> {
        self.steps().next()
    }

    /// Nodes that say they hold a shard.
    pub fn holders(&self, key: ShardKey) -> impl Iterator<Item = &str> {
        let holders = self.holders.get(&key);
        holders.into_iter().flatten().map(String::as_str)
    }

    /// Shards that somebody says to hold.
    pub fn known(&self) -> impl Iterator<Item = ShardKey> {
        self.holders.keys().copied()
    }

    /// What a node says it holds.
    pub fn held_by(&self, name: &str) -> impl Iterator<Item = ShardKey> + use<'_> {
        let node = self.nodes.get(name);
        node.into_iter().flat_map(|node| node.held.iter().copied())
    }

    /// How safe a step's snapshot is.
    pub fn safety(&self, step: Step) -> Safety {
        let of_step: Vec<_> = self.shards.iter().filter(|(k, _)| k.step == step).collect();
        let spread = |(key, _): &(&ShardKey, &Shard)| Spread::of(&self.copies(**key));
        let is_short = |(key, shard): &(&ShardKey, &Shard)| {
            self.wanted(**key, shard, |_| 0).is_some() || self.copies(**key).is_empty()
        };
        match of_step.iter().map(spread).min() {
            None => Safety::Nothing,
            Some(_) if self.nodes.len() < 2 => Safety::Alone,
            Some(_) if of_step.iter().any(|(_, s)| s.asked.is_some()) => Safety::Copying,
            Some(_) if of_step.iter().any(is_short) => Safety::Short,
            Some(spread) => Safety::Safe(spread),
        }
    }

    /// Whether somebody was asked to hold a copy of a shard and has not answered.
    pub fn is_on_its_way(&self, key: ShardKey) -> bool {
        self.shards
            .get(&key)
            .is_some_and(|shard| shard.asked.is_some())
    }

    /// The newest snapshot's step.
    pub fn newest(&self) -> Option<Step> {
        self.shards.last_key_value().map(|(key, _)| key.step)
    }

    fn steps(&self) -> impl DoubleEndedIterator<Item = Step> {
        let steps: BTreeSet<Step> = self.shards.keys().map(|key| key.step).collect();
        steps.into_iter()
    }

    fn forget_asked(&mut self, name: &str) {
        for shard in self.shards.values_mut() {
            shard.asked.take_if(|asked| asked == name);
            shard.refused.remove(name);
            shard.tries = 0;
        }
    }

    /// Nobody goes back to steps before this one any more.
    fn forget_before(&mut self, oldest: Step) {
        let first = ShardKey {
            step: oldest,
            generation: Generation(0),
            rank: 0,
        };
        self.shards = self.shards.split_off(&first);
        self.holders = self.holders.split_off(&first);
        for node in self.nodes.values_mut() {
            node.held = node.held.split_off(&first);
        }
    }

    fn hold(&mut self, name: &str, key: ShardKey) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.held.insert(key);
            self.holders.entry(key).or_default().insert(name.to_owned());
        }
    }

    fn unhold(&mut self, name: &str, key: ShardKey) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.held.remove(&key);
        }
        if let Some(holders) = self.holders.get_mut(&key) {
            holders.remove(name);
            if holders.is_empty() {
                self.holders.remove(&key);
            }
        }
    }

    fn forget_held(&mut self, name: &str) {
        let held = self.nodes.get(name).map(|node| node.held.clone());
        for key in held.unwrap_or_default() {
            self.unhold(name, key);
        }
    }

    /// Where a shard is.
    fn copies(&self, key: ShardKey) -> Vec<&Place> {
        let nodes = self.holders(key).filter_map(|name| self.nodes.get(name));
        nodes.map(|node| &node.place).collect()
    }

    /// Who should hold it too, if anybody.
    fn wanted(
        &self,
        key: ShardKey,
        shard: &Shard,
        load: impl Fn(&str) -> u64 + Copy,
    ) -> Option<&Place> {
        let copies = self.copies(key);
        let nodes = || self.nodes.values().map(|node| &node.place);
        let fresh = nodes().filter(|node| !shard.refused.contains(&node.name));
        choose(&copies, fresh, load).or_else(|| choose(&copies, nodes(), load))
    }

    /// Bytes that each node holds and was asked to hold of a step. The leader's holds more than any other.
    fn loads(&self, step: Step) -> BTreeMap<String, u64> {
        let mut loads = BTreeMap::<String, u64>::new();
        for (key, shard) in self.shards.iter().filter(|(key, _)| key.step == step) {
            let asked = shard.asked.as_deref();
            let asked = asked.filter(|name| !self.holders(*key).any(|holder| holder == *name));
            for name in self.holders(*key).chain(asked) {
                let load = loads.entry(name.to_owned()).or_default();
                *load = load.saturating_add(shard.content.bytes);
            }
        }
        if let Some(leader) = &self.leader {
            loads.insert(leader.clone(), u64::MAX);
        }
        loads
    }

    fn place(&mut self) {
        let keys: Vec<ShardKey> = self.shards.keys().copied().collect();
        self.place_those(keys);
    }

    /// Orders a further copy of each of these that needs one; they come in the order of their steps.
    fn place_those(&mut self, keys: impl IntoIterator<Item = ShardKey>) {
        let mut loads = None::<(Step, BTreeMap<String, u64>)>;
        for key in keys {
            let open = |shard: &&Shard| shard.asked.is_none() && shard.tries < TRIES;
            let Some(shard) = self.shards.get(&key).filter(open) else {
                continue;
            };
            // What needs no copy costs no look at what everybody holds.
            if self.wanted(key, shard, |_| 0).is_none() {
                continue;
            }
            let (_, of_step) = match loads.take() {
                Some((step, known)) if step == key.step => loads.insert((step, known)),
                _ => loads.insert((key.step, self.loads(key.step))),
            };
            let load = |name: &str| of_step.get(name).copied().unwrap_or_default();
            let place = self
                .shards
                .get(&key)
                .and_then(|s| self.wanted(key, s, load));
            let Some(name) = place.map(|place| place.name.clone()) else {
                continue;
            };
            let Some(shard) = self.shards.get_mut(&key) else {
                continue;
            };
            let load = of_step.entry(name.clone()).or_default();
            *load = load.saturating_add(shard.content.bytes);
            shard.asked = Some(name.clone());
            self.orders.push(Order {
                node: name,
                key,
                content: shard.content,
            });
        }
    }
}
