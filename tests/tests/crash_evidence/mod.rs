//! What was acknowledged and what was seen, against what is stored while no daemon runs.
use robust_shared::ids::TrajectoryId;
use robust_tests::{Daemon, consumed_once};
use robustd::store::{Store, StoredTrajectory};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// Trajectories of steps that lie back further may be removed (the store's default).
const KEPT_STEPS: u64 = 64;
/// Of the small job: prompts times responses.
const PER_STEP: usize = 16;

/// Everything so far.
#[derive(Default)]
pub struct Evidence {
    /// How much of each agent's log was read.
    read: BTreeMap<String, usize>,
    /// How many tokens of a turn agents were told to be stored, by trajectory and turn.
    tokens: BTreeMap<(u64, u64), usize>,
    /// Turns that they were told to be stored, and how many tokens each has.
    turns: BTreeMap<(u64, u64), usize>,
    /// How many turns those have whose end is stored.
    ended: BTreeMap<u64, u64>,
    /// What each turn said when it was first found stored.
    said: BTreeMap<(u64, usize), u64>,
    /// The newest step that was seen.
    step: u64,
    /// The newest version that was seen; whoever published it had been told that its step is committed.
    version: u64,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (turns, ended, step) = (self.turns.len(), self.ended.len(), self.step);
        let parts = self.tokens.len();
        write!(
            f,
            "step {step}; {turns} turns, {parts} in part, {ended} ends acknowledged, none lost"
        )
    }
}

impl Evidence {
    /// The newest step that was seen.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Takes a status in.
    pub fn see(&mut self, status: &Value) {
        let number = |key: &str| status[key].as_u64().unwrap_or(0);
        self.step = self.step.max(number("step"));
        self.version = self.version.max(number("weight_version"));
    }

    /// Without evidence nothing was shown.
    pub fn assert_it_is_some(&self) {
        let (turns, parts) = (self.turns.len(), self.tokens.len());
        assert!(turns > 50 && parts > 50 && self.ended.len() > 50, "{self}");
    }

    /// Everything, when no daemon runs.
    pub fn check(&mut self, daemon: &Daemon, what: &str) {
        self.read_logs(&daemon.state_dir().join("logs"));
        let what = &format!("{what}\n{}", daemon.logs());
        let found = robust_ckpt::newest_complete(&daemon.state_dir().join("ckpt")).unwrap();
        assert_eq!(found.rejected, [""; 0], "a torn checkpoint: {what}");
        let (store, note) = Store::open(&daemon.state_dir()).unwrap();
        assert_eq!(note, None, "the database was damaged: {what}");
        let checked = store.check(&mut |_| ()).unwrap();
        assert_eq!(checked.problems, [""; 0], "{what}");
        let consumed = consumed_once(&store, PER_STEP);
        let committed = consumed.values().max().map_or(0, |step| step.0);
        assert_eq!(checked.committed, committed, "{what}");
        let newest = found.checkpoint.map_or(0, |c| c.step.0);
        assert!(
            newest <= committed,
            "checkpoint {newest} > {committed}: {what}"
        );
        let seen = self.step.max(self.version);
        assert!(
            seen <= committed,
            "I-5: {seen} was seen, {committed} are committed: {what}"
        );
        self.step = committed;

        // What must not be lost is checked as long as it is there to be checked.
        let gone = |number: u64| TrajectoryId::from_key(number).batch + KEPT_STEPS <= committed;
        self.tokens.retain(|(number, _), _| !gone(*number));
        self.turns.retain(|(number, _), _| !gone(*number));
        self.ended.retain(|number, _| !gone(*number));
        self.said.retain(|(number, _), _| !gone(*number));
        for number in self.numbers() {
            let id = TrajectoryId::from_key(number);
            let stored = store.trajectory(id).unwrap();
            let stored = stored.unwrap_or_else(|| panic!("I-2: {id} is lost: {what}"));
            let by = consumed.get(&id).copied();
            assert_eq!(stored.consumed_by, by, "I-3: {id}: {what}");
            self.check_turns(number, &stored, &format!("{id}: {what}"));
        }
    }

    /// Those of which something was acknowledged.
    fn numbers(&self) -> Vec<u64> {
        let turns = self.tokens.keys().chain(self.turns.keys());
        let mut all: Vec<u64> = turns.map(|(number, _)| *number).collect();
        all.extend(self.ended.keys());
        all.sort_unstable();
        all.dedup();
        all
    }

    /// I-2 of one trajectory.
    fn check_turns(&mut self, number: u64, stored: &StoredTrajectory, what: &str) {
        let of = (number, 0)..=(number, u64::MAX);
        let lengths: Vec<usize> = stored.turns.iter().map(|t| length(&t.spans)).collect();
        for ((_, index), tokens) in self.turns.range(of.clone()) {
            let has = lengths.get(*index as usize);
            assert_eq!(has, Some(tokens), "I-2: turn {index} of {what}");
        }
        for ((_, index), tokens) in self.tokens.range(of) {
            let running = *index == stored.turns.len() as u64;
            let running = running.then(|| length(&stored.running));
            let has = lengths.get(*index as usize).copied().or(running);
            assert!(
                has >= Some(*tokens),
                "I-2: {has:?} of {tokens} tokens of turn {index} of {what}"
            );
        }
        if let Some(turns) = self.ended.get(&number) {
            let has = stored.finished.as_ref().map(|end| u64::from(end.turns));
            assert_eq!(has, Some(*turns), "I-2: the end of {what}");
        }
        for (index, turn) in stored.turns.iter().enumerate() {
            let says = xxhash_rust::xxh3::xxh3_64(format!("{turn:?}").as_bytes());
            let first = *self.said.entry((number, index)).or_insert(says);
            assert_eq!(first, says, "I-2: turn {index} is another one: {what}");
        }
    }

    /// What agents logged since: `.. kept: turn trajectory=12 turn=0 tokens=9`. A line that a kill cut off
    /// is of no acknowledgement; its process wrote nothing after it, and the next begins a new line.
    fn read_logs(&mut self, folder: &Path) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !name.starts_with("agent") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let whole = text.rfind('\n').map_or(0, |at| at + 1);
            let from = self.read.insert(name, whole).unwrap_or(0);
            for line in text[from..whole].lines() {
                if let Some((_, said)) = line.split_once("kept: ") {
                    self.acknowledged(said);
                }
            }
        }
    }

    fn acknowledged(&mut self, said: &str) {
        let field = |name: &str| -> u64 {
            let words = said.split(' ').filter_map(|word| word.split_once('='));
            let value = words.into_iter().find(|(key, _)| *key == name);
            value.unwrap_or_else(|| panic!("{said}")).1.parse().unwrap()
        };
        let (trajectory, turn) = (field("trajectory"), field("turn"));
        let tokens = field("tokens") as usize;
        match said.split(' ').next() {
            Some("turn") => {
                let first = *self.turns.entry((trajectory, turn)).or_insert(tokens);
                assert_eq!(
                    first, tokens,
                    "I-2: {trajectory}, turn {turn} was another one"
                );
            }
            Some("tokens") => {
                let most = self.tokens.entry((trajectory, turn)).or_default();
                *most = tokens.max(*most);
            }
            Some("end") => drop(self.ended.insert(trajectory, turn)),
            _ => panic!("{said}"),
        }
    }
}

fn length(spans: &[robust_proto::v1::Span]) -> usize {
    spans.iter().map(|span| span.ids.len()).sum()
}
