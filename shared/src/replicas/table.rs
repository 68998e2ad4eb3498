//! What is held where, and what has to be ordered.
use super::{Place, Spread, choose};
use crate::core::Labels;
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
    labels: Labels,
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
    pub fn joined(&mut self, node: Place, held: impl IntoIterator<Item = ShardKey>) {
        let Place { name, labels } = node;
        self.forget_asked(&name);
        let held = held.into_iter().collect();
        self.nodes.insert(name, Node { labels, held });
        // It may be a better place than those that could be had before.
        self.place();
    }

    /// A node is gone, with its memory as far as anybody knows.
    pub fn left(&mut self, name: &str) {
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
                if let Some(node) = self.nodes.get_mut(&home) {
                    node.held.insert(key);
                }
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
        self.shards
            .retain(|key, _| oldest.is_none_or(|o| key.step >= o));
        self.place();
    }

    /// A node holds a shard, whole.
    pub fn held(&mut self, name: &str, key: ShardKey, xxh3: u64) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.held.insert(key);
        }
        if let Some(shard) = self.shards.get_mut(&key) {
            shard.content.xxh3 = Some(xxh3);
            shard.asked.take_if(|asked| asked == name);
        }
        self.place();
    }

    /// A node could not hold a shard, or does not any more.
    pub fn not_held(&mut self, name: &str, key: ShardKey) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.held.remove(&key);
        }
        if let Some(shard) = self.shards.get_mut(&key)
            && shard.asked.take_if(|asked| asked == name).is_some()
        {
            shard.refused.insert(name.to_owned());
            shard.tries += 1;
        }
        self.place();
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
        let has = move |(_, node): &(&String, &Node)| node.held.contains(&key);
        self.nodes.iter().filter(has).map(|(name, _)| name.as_str())
    }

    /// What a node says it holds.
    pub fn held_by(&self, name: &str) -> impl Iterator<Item = ShardKey> + use<'_> {
        let node = self.nodes.get(name);
        node.into_iter().flat_map(|node| node.held.iter().copied())
    }

    /// How safe a step's snapshot is.
    pub fn safety(&self, step: Step) -> Safety {
        let of_step: Vec<_> = self.shards.iter().filter(|(k, _)| k.step == step).collect();
        let spread = |(key, _): &(&ShardKey, &Shard)| {
            let copies = self.copies(**key);
            Spread::of(&copies.iter().collect::<Vec<_>>())
        };
        let is_short = |(key, shard): &(&ShardKey, &Shard)| {
            self.wanted(**key, shard).is_some() || self.copies(**key).is_empty()
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
        }
    }

    fn places(&self, which: impl Fn(&str, &Node) -> bool) -> Vec<Place> {
        let there = self.nodes.iter().filter(|(name, node)| which(name, node));
        let place = |(name, node): (&String, &Node)| Place {
            name: name.clone(),
            labels: node.labels.clone(),
        };
        there.map(place).collect()
    }

    /// Where a shard is.
    fn copies(&self, key: ShardKey) -> Vec<Place> {
        self.places(|_, node| node.held.contains(&key))
    }

    /// Who should hold it too, if anybody.
    fn wanted(&self, key: ShardKey, shard: &Shard) -> Option<Place> {
        let (copies, nodes) = (self.copies(key), self.places(|_, _| true));
        let fresh = self.places(|name, _| !shard.refused.contains(name));
        let load = |name: &str| self.load(name, key.step);
        let copies: Vec<&Place> = copies.iter().collect();
        choose(&copies, &fresh, load)
            .or_else(|| choose(&copies, &nodes, load))
            .cloned()
    }

    /// What a node holds and was asked to hold of a step; the leader's holds more than any other.
    fn load(&self, name: &str, step: Step) -> u64 {
        let Some(node) = self.nodes.get(name) else {
            return 0;
        };
        let counts = |(key, shard): &(&ShardKey, &Shard)| {
            key.step == step && (node.held.contains(key) || shard.asked.as_deref() == Some(name))
        };
        let shards = self.shards.iter().filter(counts);
        let held: u64 = shards.map(|(_, shard)| shard.content.bytes).sum();
        match self.leader.as_deref() == Some(name) {
            true => u64::MAX,
            false => held,
        }
    }

    fn place(&mut self) {
        let open = |(key, shard): (&ShardKey, &Shard)| {
            (shard.asked.is_none() && shard.tries < TRIES).then_some(*key)
        };
        let keys: Vec<ShardKey> = self.shards.iter().filter_map(open).collect();
        for key in keys {
            let place = self.shards.get(&key).and_then(|s| self.wanted(key, s));
            if let (Some(Place { name, .. }), Some(shard)) = (place, self.shards.get_mut(&key)) {
                shard.asked = Some(name.clone());
                self.orders.push(Order {
                    node: name,
                    key,
                    content: shard.content,
                });
            }
        }
    }
}
