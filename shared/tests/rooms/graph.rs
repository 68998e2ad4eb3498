//! Who imports whom, and the circles in that.
use super::tree::Tree;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

/// From one room to another.
pub type Edge = (String, String);

/// The rooms of a crate: from one to another, with every line where one names the other.
#[derive(Debug, Default)]
pub struct Graph {
    edges: BTreeMap<String, BTreeMap<String, BTreeSet<(String, usize)>>>,
}

impl Graph {
    /// Takes up a crate, or a module of it; its files are named as they lie below this folder. What of the module is
    /// in none of its rooms is a room as well, under the module's name.
    pub fn add(&mut self, tree: &Tree, below: &Path) {
        for path in &tree.paths {
            let shown = tree.shown.iter().find(|(name, _)| *name == path.to);
            let to = match tree.rooms.contains(&path.to) {
                true => &path.to,
                false => shown.map_or(&path.to, |(_, room)| room),
            };
            let to = match (tree.rooms.contains(to), &tree.top) {
                (true, _) => to,
                (false, Some(top)) => top,
                (false, None) => continue,
            };
            if *to == path.room {
                continue;
            }
            let file = path.file.strip_prefix(below).unwrap_or(&path.file);
            let lines = self.edges.entry(path.room.clone()).or_default();
            let lines = lines.entry(to.clone()).or_default();
            lines.insert((file.display().to_string(), path.line));
        }
    }

    /// The shortest way from a room to another, both ends with it.
    fn way(&self, from: &str, to: &str) -> Option<Vec<String>> {
        let mut open = VecDeque::from([vec![from.to_owned()]]);
        let mut seen = BTreeSet::new();
        while let Some(way) = open.pop_front() {
            let last = way.last()?;
            if last == to {
                return Some(way);
            }
            if seen.insert(last.clone()) {
                let next = self.edges.get(last).into_iter().flat_map(BTreeMap::keys);
                open.extend(next.map(|room| [way.as_slice(), std::slice::from_ref(room)].concat()));
            }
        }
        None
    }

    /// The edges that lie on a circle.
    pub fn circular(&self) -> BTreeSet<Edge> {
        let edges = self
            .edges
            .iter()
            .flat_map(|(from, all)| all.keys().map(move |to| (from, to)));
        let circular = edges.filter(|(from, to)| self.way(to, from).is_some());
        circular
            .map(|(from, to)| (from.clone(), to.clone()))
            .collect()
    }

    /// The shortest circle that an edge is part of, with every line that makes it.
    pub fn explain(&self, (from, to): &Edge) -> String {
        let back = self.way(to, from).unwrap_or_default();
        let circle = [std::slice::from_ref(from), &back].concat();
        let mut said = format!("{}\n", circle.join(" -> "));
        for pair in circle.windows(2) {
            said += &self.lines(&(pair[0].clone(), pair[1].clone()));
        }
        said
    }

    /// The rooms that a room imports.
    pub fn imports(&self, room: &str) -> Vec<&str> {
        let to = self.edges.get(room).into_iter().flat_map(BTreeMap::keys);
        to.map(String::as_str).collect()
    }

    /// Every line with which one room imports another.
    pub fn lines(&self, (from, to): &Edge) -> String {
        let mut said = format!("  {from} -> {to}\n");
        let lines = self.edges.get(from).and_then(|all| all.get(to));
        for (file, line) in lines.into_iter().flatten() {
            said += &format!("    {file}:{line}\n");
        }
        said
    }
}
