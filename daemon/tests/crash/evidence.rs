//! What was acknowledged, as the roles wrote it down, against what is stored.
use super::Site;
use robust_shared::core::Record;
use robust_shared::ids::{Step, TrajectoryId};
use robustd::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};

/// Trajectories of steps that lie back further may be removed (the store's default).
const KEPT_STEPS: u64 = 64;

/// Everything that was acknowledged so far.
#[derive(Default)]
pub struct Evidence {
    /// How much of the log was read.
    read: u64,
    /// Turns: what they say, by trajectory and number.
    turns: BTreeMap<(u64, u32), String>,
    ended: BTreeSet<u64>,
    /// What each rank came to at each step, the first time.
    states: BTreeMap<(String, u64), String>,
    /// What each version's content was, the first time.
    versions: BTreeMap<u64, String>,
}

impl Evidence {
    pub fn new(site: &Site) -> Self {
        File::create(site.file("acknowledged")).unwrap();
        Self::default()
    }

    /// The last version that was published: whoever published it had been told that its step is
    /// committed (I-5).
    pub fn published(&mut self, site: &Site) -> u64 {
        self.read(site, "reading on");
        self.versions.keys().next_back().copied().unwrap_or(0)
    }

    /// Takes in what was written since, and compares it with what was written before.
    fn read(&mut self, site: &Site, what: &str) {
        let mut log = File::open(site.file("acknowledged")).unwrap();
        log.seek(SeekFrom::Start(self.read)).unwrap();
        for line in BufReader::new(log).split(b'\n') {
            let line = line.unwrap();
            let text = String::from_utf8(line).unwrap();
            let words: Vec<&str> = text.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            match words[0] {
                "turn" => {
                    let key = (number(1), number(2) as u32);
                    let first = self.turns.entry(key).or_insert(words[3].into());
                    assert_eq!(first, words[3], "{what}: turn {key:?} was another one");
                }
                "end" => {
                    self.ended.insert(number(1));
                }
                "state" => {
                    let (key, state) = ((words[1].to_owned(), number(2)), words[3..].join(" "));
                    let first = self.states.entry(key.clone()).or_insert(state.clone());
                    assert_eq!(*first, state, "{what}: rank and step {key:?} differ (I-9)");
                }
                "publish" => {
                    let first = self.versions.entry(number(1)).or_insert(words[2].into());
                    assert_eq!(first, words[2], "{what}: version {} differs", words[1]);
                }
                other => panic!("{other}"),
            }
            self.read += text.len() as u64 + 1;
        }
    }

    /// What can be seen while the daemon has the store.
    pub fn check_outside(&mut self, site: &Site, what: &str) {
        self.read(site, what);
        let ckpt = site.state().join("ckpt");
        // Verified twice: a folder that is collected meanwhile is no damage.
        let rejected = || robust_ckpt::newest_complete(&ckpt).unwrap().rejected;
        let again = |first: Vec<String>| first.is_empty() || rejected().is_empty();
        assert!(again(rejected()), "{what}: {:?}", rejected());
    }

    /// Everything, when no daemon runs.
    pub fn check(&mut self, site: &Site, what: &str) {
        self.read(site, what);
        let found = robust_ckpt::newest_complete(&site.state().join("ckpt")).unwrap();
        assert_eq!(found.rejected, [""; 0], "{what}: a torn checkpoint");
        let newest = found.checkpoint.map_or(0, |c| c.step.0);
        let written = newest_written(&site.log());
        let (store, note) = Store::open(&site.state()).unwrap();
        assert_eq!(note, None, "{what}: the database was damaged");
        let committed = committed(&store, what);
        let published = self.versions.keys().next_back().copied().unwrap_or(0);
        assert!(published <= committed, "{what}: v{published} > {committed}");
        assert!(
            newest <= committed,
            "{what}: checkpoint {newest} > {committed}"
        );
        assert!(
            written <= newest,
            "{what}: the checkpoint of {written} is gone"
        );
        self.check_turns(&store, committed, what);
        // What must not be lost is checked as long as it is there to be checked.
        let gone = |number: u64| TrajectoryId::from_key(number).batch + KEPT_STEPS <= committed;
        self.turns.retain(|(number, _), _| !gone(*number));
        self.ended.retain(|number| !gone(*number));
    }

    fn check_turns(&self, store: &Store, committed: u64, what: &str) {
        let mut numbers: BTreeSet<u64> = self.turns.keys().map(|(number, _)| *number).collect();
        numbers.extend(&self.ended);
        for number in numbers {
            let id = TrajectoryId::from_key(number);
            if id.batch + KEPT_STEPS <= committed {
                continue;
            }
            let stored = store.trajectory(id).unwrap();
            let stored = stored.unwrap_or_else(|| panic!("{what}: trajectory {id} is lost (I-2)"));
            let acknowledged = self.turns.range((number, 0)..=(number, u32::MAX));
            for ((_, index), content) in acknowledged {
                let turn = stored.turns.get(*index as usize);
                let turn = turn.unwrap_or_else(|| panic!("{what}: turn {index} of {id} is lost"));
                let is = format!("{:016x}", super::fake::agent::content(turn));
                assert_eq!(is, *content, "{what}: turn {index} of {id}");
            }
            let ended = stored.finished.is_some() || !self.ended.contains(&number);
            assert!(ended, "{what}: the end of {id} is lost (I-2)");
            let consumed = (id.batch <= committed).then_some(Step(id.batch));
            assert_eq!(stored.consumed_by, consumed, "{what}: {id} (I-3)");
        }
    }
}

/// The last committed step; each was committed once, and nothing consumed by two (I-3).
fn committed(store: &Store, what: &str) -> u64 {
    let (mut consumed, mut last) = (BTreeSet::new(), 0);
    for (_, record) in store.journal_since(0, usize::MAX).unwrap() {
        let Record::Committed {
            step, trajectories, ..
        } = record
        else {
            continue;
        };
        assert_eq!(
            step.0,
            last + 1,
            "{what}: steps are committed one after the other"
        );
        last = step.0;
        for id in trajectories {
            assert!(consumed.insert(id), "{what}: {id} is consumed twice (I-3)");
        }
    }
    last
}

/// The last checkpoint that the daemon said is written.
fn newest_written(log: &str) -> u64 {
    let said = log.lines().filter_map(|line| {
        let rest = line.split("checkpoint of step ").nth(1)?;
        let (step, rest) = rest.split_once(": ")?;
        rest.contains(" MiB in ")
            .then(|| step.parse::<u64>().ok())?
    });
    said.max().unwrap_or(0)
}
