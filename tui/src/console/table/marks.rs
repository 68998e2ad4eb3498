//! The rows that an operator marked, so that a key acts on all of them. They are known by name: a mark stays with its
//! instance when rows come, go or change places.
use std::collections::BTreeSet;

/// Marked rows, by name.
#[derive(Debug, Default)]
pub struct Marks(BTreeSet<String>);

impl Marks {
    /// Whether the row of this name is marked.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// How many are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Marks it, or unmarks it.
    pub fn turn(&mut self, name: String) {
        if !self.0.remove(&name) {
            self.0.insert(name);
        }
    }

    /// Marks them too.
    pub fn add(&mut self, names: impl IntoIterator<Item = String>) {
        self.0.extend(names);
    }

    /// Unmarks all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Those of other names are gone, and their marks with them.
    pub fn keep(&mut self, names: &BTreeSet<String>) {
        self.0.retain(|name| names.contains(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_turned_and_goes_with_its_row() {
        let mut marks = Marks::default();
        marks.turn("rollout-1".to_owned());
        marks.add(["rollout-2", "rollout-3"].map(str::to_owned));
        marks.turn("rollout-2".to_owned());
        assert_eq!((marks.count(), marks.has("rollout-2")), (2, false));
        marks.keep(&["rollout-3", "agent-0"].map(str::to_owned).into());
        assert!(marks.has("rollout-3") && marks.count() == 1);
        marks.clear();
        assert_eq!(marks.count(), 0);
    }
}
