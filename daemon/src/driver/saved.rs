//! What the daemon remembers across its own death: with every record what changed of it is written, in one
//! piece with the record.
//!
//! ```text
//!  Core::take_changes ──┐
//!  snapshots, digest ───┴─► LastWritten::take ─► Remembered ─► store ─► read ─► Saved ─► the next life
//! ```
use super::adopt::AdoptError;
use crate::snapshots::SnapshotShards;
use crate::store::keys::Key;
use crate::store::{Remembered, Store};
use robust_proto::v1;
use robust_shared::changed::Changed;
use robust_shared::core::{Changes, Entries, Entry, State};
use robust_shared::ids::{Generation, Step, WeightVersion};
use robust_shared::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Raised when older daemons could not read it. 1: all of it under one key. 2: what an engine has of the
/// weights was a part of its instance.
const VERSION: u32 = 3;
/// Slots alternate by parity, so no more than the last two steps' shards exist.
const KEPT_STEPS: usize = 2;

/// The snapshots that exist, by step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Snapshots {
    steps: BTreeMap<Step, SnapshotShards>,
    /// Shards to be written down again, or no more.
    #[serde(skip)]
    changed: Changed<(Step, u32)>,
}

/// A shard as it is stored, under its step and rank.
#[derive(Serialize, Deserialize)]
struct StoredShard {
    generation: Generation,
    shard: v1::SnapshotReply,
    /// Absent in those of earlier builds.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    home: String,
}

impl Snapshots {
    /// A step's snapshot is complete.
    pub fn add(&mut self, step: Step, shards: SnapshotShards) {
        // A gang that went back takes the later steps' slots again.
        for (later, gone) in self.steps.split_off(&step) {
            self.note(later, &gone);
        }
        self.note(step, &shards);
        self.steps.insert(step, shards);
        while self.steps.len() > KEPT_STEPS
            && let Some((first, gone)) = self.steps.pop_first()
        {
            self.note(first, &gone);
        }
    }

    /// A shard of a snapshot that is known is there now; whether it is known, and that very one.
    pub fn moved(
        &mut self,
        (step, generation, rank): (Step, Generation, u32),
        shard: v1::SnapshotReply,
    ) -> bool {
        let known = self.steps.get_mut(&step);
        let known = known.filter(|k| k.generation == generation);
        let place = known.and_then(|k| k.shards.get_mut(rank as usize));
        let same =
            |known: &v1::SnapshotReply| known.xxh3.is_none_or(|xxh3| Some(xxh3) == shard.xxh3);
        let Some(place) = place.filter(|known| same(known)) else {
            return false;
        };
        *place = shard;
        self.changed.note((step, rank));
        true
    }

    /// The node of a shard's rank says what it has, which counts whatever was said before.
    pub fn named(
        &mut self,
        (step, generation, rank): (Step, Generation, u32),
        (xxh3, blake3): (u64, Option<[u8; 32]>),
    ) {
        let known = self.steps.get_mut(&step);
        let known = known.filter(|k| k.generation == generation);
        if let Some(shard) = known.and_then(|k| k.shards.get_mut(rank as usize)) {
            shard.xxh3 = Some(xxh3);
            shard.blake3 = blake3.map(Vec::from);
            self.changed.note((step, rank));
        }
    }

    /// Somebody read a shard whole: its digests are known from now on, BLAKE3 if it was read from here.
    pub fn hashed(
        &mut self,
        (step, generation, rank): (Step, Generation, u32),
        xxh3: u64,
        blake3: Option<[u8; 32]>,
    ) {
        let known = self.steps.get_mut(&step);
        let known = known.filter(|k| k.generation == generation);
        let shard = known.and_then(|k| k.shards.get_mut(rank as usize));
        let Some(shard) = shard else { return };
        let named = blake3.filter(|_| shard.blake3.is_none());
        if shard.xxh3.is_none() || named.is_some() {
            shard.xxh3.get_or_insert(xxh3);
            shard.blake3 = named.map(Vec::from).or(shard.blake3.take());
            self.changed.note((step, rank));
        }
    }

    fn note(&mut self, step: Step, shards: &SnapshotShards) {
        let ranks = (0..).zip(&shards.shards).map(|(rank, _)| (step, rank));
        self.changed.note_all(ranks);
    }

    /// The shards that changed since this was last asked; all of them the first time, or if that is wanted.
    fn take_changed(&mut self, whole: bool) -> Vec<(Step, u32)> {
        match self.changed.take() {
            Some(changed) if !whole => changed,
            _ => {
                let of = |(step, s): (&Step, &SnapshotShards)| {
                    let ranks = (0..).zip(&s.shards).map(|(rank, _)| rank);
                    let step = *step;
                    ranks.map(move |rank| (step, rank)).collect::<Vec<_>>()
                };
                self.steps.iter().flat_map(of).collect()
            }
        }
    }

    fn stored(&self, step: Step, rank: u32) -> Option<StoredShard> {
        let snapshot = self.steps.get(&step)?;
        Some(StoredShard {
            generation: snapshot.generation,
            shard: snapshot.shards.get(rank as usize)?.clone(),
            home: snapshot
                .homes
                .get(rank as usize)
                .cloned()
                .unwrap_or_default(),
        })
    }

    /// Takes in the next rank's shard of a step; whether it is the next.
    fn put_back(&mut self, step: Step, rank: u32, stored: StoredShard) -> bool {
        let snapshot = self.steps.entry(step).or_default();
        snapshot.generation = stored.generation;
        let next = snapshot.shards.len() == rank as usize;
        snapshot.shards.push(stored.shard);
        if !stored.home.is_empty() {
            snapshot.homes.resize(rank as usize, String::new());
            snapshot.homes.push(stored.home);
        }
        next
    }

    /// The oldest and the newest step of which there is one.
    pub fn span(&self) -> Option<(Step, Step)> {
        let ends = (self.steps.first_key_value()?, self.steps.last_key_value()?);
        Some((*ends.0.0, *ends.1.0))
    }

    /// Where all shards are.
    pub fn paths(&self) -> Vec<PathBuf> {
        let shards = self.steps.values().flat_map(|s| &s.shards);
        shards.map(|s| PathBuf::from(&s.path)).collect()
    }

    /// All of them.
    pub fn all(&self) -> &BTreeMap<Step, SnapshotShards> {
        &self.steps
    }

    /// A step's snapshot.
    pub fn get(&self, step: Step) -> Option<&SnapshotShards> {
        self.steps.get(&step)
    }
}

/// The daemon's memory. As it is here it was written until version 1, under one key.
#[derive(Clone, Debug, Deserialize)]
pub struct Saved {
    /// When it was written: the next life's clock starts after it.
    pub at: Time,
    /// The core's.
    pub core: State,
    /// The driver's.
    pub snapshots: Snapshots,
    /// The newest version that was published, with the digest of its content.
    #[serde(default)]
    pub published: Option<(WeightVersion, String)>,
}

impl Saved {
    /// A memory of the core's alone.
    pub fn new(at: Time, core: State) -> Self {
        Self {
            at,
            core,
            snapshots: Snapshots::default(),
            published: None,
        }
    }
}

/// Why a memory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// It is not one.
    #[error("the saved state cannot be read: {0}")]
    Unreadable(String),
    /// A newer robustd wrote it.
    #[error("the saved state has version {0}, this robustd knows {VERSION}; use the newer one")]
    Newer(u32),
}

/// When it was written, and as what: known before anything else is read.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    at: Time,
}

impl Header {
    fn check(&self) -> Result<(), SavedError> {
        match self.version > VERSION {
            true => Err(SavedError::Newer(self.version)),
            false => Ok(()),
        }
    }
}

/// What was last written of what is compared to know whether it changed.
#[derive(Debug, Default)]
pub struct LastWritten {
    published: Option<(WeightVersion, String)>,
}

impl LastWritten {
    /// What is to be written with the next records. It must be, before this is called again.
    pub fn take(
        &mut self,
        at: Time,
        core: Changes,
        snapshots: &mut Snapshots,
        published: &Option<(WeightVersion, String)>,
    ) -> Result<Remembered, SavedError> {
        let version = VERSION;
        let mut changes = Remembered {
            whole: core.whole,
            ..Remembered::default()
        };
        changes
            .puts
            .push((Key::Written, encode(&Header { version, at })?));
        for (key, entry) in core.puts {
            let bytes = entry.encode(key).map_err(unreadable)?;
            changes.puts.push((Key::Entry(key), bytes));
        }
        changes
            .removed
            .extend(core.removed.into_iter().map(Key::Entry));
        for (step, rank) in snapshots.take_changed(core.whole) {
            let key = Key::Shard(step.0, rank);
            match snapshots.stored(step, rank) {
                Some(shard) => changes.puts.push((key, encode(&shard)?)),
                None => changes.removed.push(key),
            }
        }
        if core.whole || self.published != *published {
            changes.puts.push((Key::Published, encode(published)?));
            self.published.clone_from(published);
        }
        Ok(changes)
    }
}

fn unreadable(why: impl std::fmt::Display) -> SavedError {
    SavedError::Unreadable(why.to_string())
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>, SavedError> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, SavedError> {
    ciborium::from_reader(bytes).map_err(|e: ciborium::de::Error<_>| unreadable(e))
}

/// The memory that a store has; none of a new one.
pub fn read(store: &Store) -> Result<Option<Saved>, AdoptError> {
    let stored = store.remembered()?;
    if stored.is_empty() {
        let former = store.former_state()?;
        return Ok(former.map(|bytes| decode_former(&bytes)).transpose()?);
    }
    Ok(Some(of_entries(stored)?))
}

/// Decodes the memory of version 1.
fn decode_former(bytes: &[u8]) -> Result<Saved, SavedError> {
    decode::<Header>(bytes)?.check()?;
    decode(bytes)
}

fn of_entries(stored: Vec<(Key, Vec<u8>)>) -> Result<Saved, SavedError> {
    let (mut entries, mut snapshots) = (Entries::default(), Snapshots::default());
    let (mut at, mut published) = (None, None);
    // Before anything else of it is read: a newer build's may be unreadable.
    if let Some((_, bytes)) = stored.iter().find(|(key, _)| *key == Key::Written) {
        let header = decode::<Header>(bytes)?;
        header.check()?;
        at = Some(header.at);
    }
    for (key, bytes) in stored {
        match key {
            Key::Entry(key) => {
                let entry = Entry::decode(key, &bytes).map_err(unreadable)?;
                entries.put(key, entry);
            }
            Key::Shard(step, rank) => {
                let next = snapshots.put_back(Step(step), rank, decode(&bytes)?);
                next.then_some(()).ok_or_else(|| {
                    unreadable(format!(
                        "a shard before rank {rank} of step {step} is missing"
                    ))
                })?;
            }
            Key::Published => published = decode(&bytes)?,
            _ => {}
        }
    }
    let core = entries.state().map_err(unreadable)?;
    let (Some(at), Some(core)) = (at, core) else {
        return Err(unreadable("it is not there whole"));
    };
    Ok(Saved {
        snapshots,
        published,
        ..Saved::new(at, core)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_shared::core::{Core, CoreConfig, EntryKey, Input};
    use std::time::Duration;

    #[test]
    fn what_the_node_of_a_rank_says_of_its_shard_counts_and_another_one_does_not_take_its_place() {
        let mut snapshots = Snapshots::default();
        snapshots.add(Step(4), shards(2));
        let of = (Step(4), Generation(2), 0);
        let known = |snapshots: &Snapshots| {
            let shard = &snapshots.get(Step(4)).unwrap().shards[0];
            (shard.xxh3, shard.blake3.clone(), shard.path.clone())
        };
        snapshots.named(of, (7, None));
        snapshots.named(of, (9, Some([1; 32])));
        let (xxh3, blake3, path) = known(&snapshots);
        assert_eq!((xxh3, blake3), (Some(9), Some(vec![1; 32])));
        let brought = |xxh3| v1::SnapshotReply {
            path: "kept".to_owned(),
            xxh3: Some(xxh3),
            ..v1::SnapshotReply::default()
        };
        assert!(!snapshots.moved(of, brought(7)));
        assert_eq!(known(&snapshots).2, path);
        assert!(snapshots.moved(of, brought(9)));
        assert_eq!(known(&snapshots).2, "kept");
        assert!(!snapshots.moved((Step(4), Generation(1), 0), brought(9)));
    }

    fn shards(generation: u64) -> SnapshotShards {
        let shard = |path: &str| v1::SnapshotReply {
            path: path.to_owned(),
            generation,
            ..Default::default()
        };
        SnapshotShards {
            homes: Vec::new(),
            generation: Generation(generation),
            shards: ["a", "b"].map(shard).to_vec(),
        }
    }

    /// A job, and a daemon that takes what changed of it and writes it to a store.
    struct Daemon {
        core: Core,
        snapshots: Snapshots,
        published: Option<(WeightVersion, String)>,
        last: LastWritten,
        at: Time,
    }

    impl Daemon {
        fn new(core: Core) -> Self {
            Self {
                core,
                snapshots: Snapshots::default(),
                published: None,
                last: LastWritten::default(),
                at: Time(1_000_000_000),
            }
        }

        /// The keys that a record of now writes and removes.
        fn record(&mut self, store: &Store) -> (Vec<Key>, Vec<Key>) {
            self.at = self.at + Duration::from_secs(1);
            self.core.handle(self.at, Input::Timeout);
            let core = self.core.take_changes();
            let changes = self
                .last
                .take(self.at, core, &mut self.snapshots, &self.published);
            let changes = changes.unwrap();
            let puts = changes.puts.iter().map(|(key, _)| key.clone()).collect();
            let removed = changes.removed.clone();
            store.record(Vec::new(), changes).wait().unwrap();
            (puts, removed)
        }

        fn assert_read_back(&self, store: &Store) {
            let saved = read(store).unwrap().unwrap();
            assert_eq!(saved.at, self.at);
            assert_eq!(saved.core, *self.core.state());
            assert_eq!(saved.snapshots, self.snapshots);
            assert_eq!(saved.published, self.published);
        }
    }

    #[test]
    fn a_record_writes_what_changed_and_reading_gives_back_all_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path()).unwrap();
        assert!(read(&store).unwrap().is_none());
        let mut daemon = Daemon::new(Core::new(CoreConfig::default()));
        daemon.core.handle(daemon.at, Input::Start);
        assert!(
            daemon.record(&store).0.len() > 8,
            "all of it the first time"
        );
        daemon.assert_read_back(&store);
        // Nothing but the time changed.
        let quiet = vec![Key::Written, Key::Entry(EntryKey::Now)];
        assert_eq!(daemon.record(&store), (quiet.clone(), vec![]));
        for (step, generation) in [(1, 1), (2, 1), (3, 1)] {
            daemon.snapshots.add(Step(step), shards(generation));
            daemon.published = Some((WeightVersion(step), "digest".to_owned()));
            daemon.record(&store);
            daemon.assert_read_back(&store);
        }
        daemon
            .snapshots
            .hashed((Step(3), Generation(1), 1), 9, None);
        let one = [quiet.clone(), vec![Key::Shard(3, 1)]].concat();
        assert_eq!(daemon.record(&store), (one, vec![]));
        daemon
            .snapshots
            .hashed((Step(3), Generation(1), 1), 9, None);
        assert_eq!(
            daemon.record(&store),
            (quiet.clone(), vec![]),
            "known already"
        );
        // A gang that went back has fewer ranks than the one whose slots it takes.
        let fewer = SnapshotShards {
            homes: Vec::new(),
            shards: shards(2).shards[..1].to_vec(),
            ..shards(2)
        };
        daemon.snapshots.add(Step(2), fewer);
        let gone = [(2, 1), (3, 0), (3, 1)].map(|(step, rank)| Key::Shard(step, rank));
        let one = [quiet, vec![Key::Shard(2, 0)]].concat();
        assert_eq!(daemon.record(&store), (one, gone.to_vec()));
        daemon.assert_read_back(&store);
        // The next life writes all of it first, and leaves nothing of the one before.
        let mut next = Daemon::new(Core::restore(
            CoreConfig::default(),
            daemon.core.state().clone(),
        ));
        next.at = daemon.at;
        next.record(&store);
        next.assert_read_back(&store);
    }

    /// The databases that the last builds of their schemas left, after three steps of the demo job.
    #[test]
    fn what_was_remembered_under_one_key_is_read_and_brought_over_by_the_first_record() {
        for schema in 1..=3 {
            let dir = tempfile::tempdir().unwrap();
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/store");
            let packed = format!("{folder}/schema-{schema}.tar.gz");
            let mut tar = std::process::Command::new("tar");
            let unpacked = tar.arg("-xzf").arg(packed).arg("-C").arg(dir.path());
            assert!(unpacked.status().unwrap().success());
            let (store, _) = Store::open(dir.path()).unwrap();
            assert_eq!(store.remembered().unwrap(), []);
            assert!(store.former_state().unwrap().is_some());
            let saved = read(&store).unwrap().unwrap();
            assert_eq!(saved.core.committed(), Step(3), "schema {schema}");
            assert_eq!(saved.snapshots.span().map(|(_, last)| last), Some(Step(3)));
            let mut next = Daemon::new(Core::restore(CoreConfig::default(), saved.core));
            (next.at, next.snapshots, next.published) =
                (saved.at, saved.snapshots, saved.published);
            next.record(&store);
            next.assert_read_back(&store);
            assert_eq!(store.former_state().unwrap(), None);
            let checked = store.check(&mut |_| ()).unwrap();
            assert_eq!(checked.problems, [""; 0]);
            drop(store);
            let (store, note) = Store::open(dir.path()).unwrap();
            assert_eq!(note, None);
            next.assert_read_back(&store);
        }
    }

    #[test]
    fn what_a_newer_daemon_wrote_is_refused_before_it_is_read_and_what_is_not_whole_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path()).unwrap();
        let mut daemon = Daemon::new(Core::new(CoreConfig::default()));
        daemon.record(&store);
        let gone = Remembered {
            removed: vec![Key::Entry(EntryKey::Gang)],
            ..Remembered::default()
        };
        store.record(Vec::new(), gone).wait().unwrap();
        let error = read(&store).unwrap_err().to_string();
        assert!(error.contains("it has no entry Gang"), "{error}");
        let (version, at) = (VERSION + 1, daemon.at);
        let newer = Remembered {
            puts: vec![(Key::Written, encode(&Header { version, at }).unwrap())],
            ..Remembered::default()
        };
        store.record(Vec::new(), newer).wait().unwrap();
        let error = read(&store).unwrap_err().to_string();
        assert!(error.contains("use the newer one"), "{error}");
    }

    #[test]
    fn the_last_two_snapshots_are_known_and_going_back_forgets_the_later_ones() {
        let mut snapshots = Snapshots::default();
        for step in 1..=4 {
            snapshots.add(Step(step), shards(1));
        }
        assert!(snapshots.get(Step(2)).is_none());
        assert!(snapshots.get(Step(3)).is_some());
        snapshots.add(Step(3), shards(2));
        assert!(snapshots.get(Step(4)).is_none());
        assert_eq!(snapshots.get(Step(3)), Some(&shards(2)));
    }
}
