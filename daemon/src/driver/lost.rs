//! Going on without the database: it was damaged and set aside, or is gone.
//!
//! ```text
//!  no job in the store ─► role processes of before are ended (nobody remembers them)
//!     ├─ no complete checkpoint, no whole snapshot in memory: the job begins anew
//!     └─ the newer of the two ─► committed is its step ─► the job goes on from there
//! ```
//! A snapshot in memory that the store may not have committed counts all the same: what its step was
//! trained on is gone with the store, so nobody else can consume it (I-3), and versions that may have
//! been seen do not come again with another content (I-4).
//!
//! What the manifests know is put on record again: which checkpoints there are, and what their steps
//! consumed. Steps after the newest checkpoint are trained anew, and trajectories of later batches are
//! generated anew; this is said, as is that the figures and events of before are in the database that
//! was set aside.
use super::adopt::{AdoptError, Past};
use super::saved::Saved;
use crate::launcher::OWNER_VARIABLE;
use crate::launcher::{self, kill_and_wait};
use crate::snapshots::SnapshotShards;
use crate::state::{StateDir, WrittenJob};
use crate::store::{OpenNote, Store};
use robust_ckpt::slot::{Seal, held};
use robust_ckpt::{Checkpoint, list, newest_complete};
use robust_proto::{INCARNATION_VARIABLE, v1};
use robust_remote::Remote;
use robust_shared::core::{CoreConfig, State};
use robust_shared::ids::{Incarnation, Step};
use robust_shared::job::{Job, WrittenBy};
use robust_shared::time::Time;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::timeout;

/// Rounds of looking for processes and killing them: one that was being started is seen in the next.
const ROUNDS: usize = 3;
/// Why this was asked, where nothing was set aside.
const NO_JOB: &str = "the store knows of no job";
/// How long the object store may take to say what is there.
const LOOK: Duration = Duration::from_secs(60);

/// What is left of a job that the store does not know; nothing of one that never was.
pub async fn without_database(
    state: &StateDir,
    store: &Store,
    (job, written): (&Job, WrittenJob),
    note: Option<OpenNote>,
) -> Result<Past, AdoptError> {
    let seen = end_strangers(state).await?;
    let dir = state.checkpoints();
    let unreadable = |source| AdoptError::Checkpoints {
        dir: dir.clone(),
        source,
    };
    let looking = {
        let dir = dir.clone();
        tokio::task::spawn_blocking(move || newest_complete(&dir))
    };
    let found = looking.await.map_err(|e| unreadable(e.into()))?;
    let found = found.map_err(unreadable)?;
    let why = match note {
        Some(note) => note.to_string(),
        None => NO_JOB.to_owned(),
    };
    let passed = found.rejected.join("; ");
    // Memory is named after the directory's path: of one that is new it is another job's.
    let memory = match written {
        WrittenJob::Same => in_memory(state, job),
        WrittenJob::New => None,
    };
    let checkpoint = found.checkpoint;
    if let Some(newest) = &checkpoint {
        remember(store, &dir, newest).await.map_err(|e| match e {
            Remember::Store(error) => AdoptError::Store(error),
            Remember::Read(source) => unreadable(source),
        })?;
    }
    let on_disk = checkpoint.as_ref().map(|c| c.step);
    let memory = memory.filter(|(step, _)| Some(*step) > on_disk);
    let past = match (memory, checkpoint) {
        (Some((step, shards)), _) => Past {
            said: Some(said(
                &why,
                &format!("snapshot in memory of step {step}"),
                &passed,
            )),
            saved: Some(of_memory(step, shards, job, seen)),
            unwritten: Some(step),
        },
        (None, Some(newest)) => Past {
            said: Some(said(
                &why,
                &format!("checkpoint of step {}", newest.step),
                &passed,
            )),
            saved: Some(at(&newest, job, seen)),
            unwritten: None,
        },
        (None, None) => {
            let new = why == NO_JOB && passed.is_empty();
            let text = format!("{why}; no checkpoint can be used: the job begins anew; {passed}");
            Past {
                said: (!new).then_some(text),
                ..Past::default()
            }
        }
    };
    Ok(past)
}

/// Refuses to begin anew where nodes put a checkpoint into the object store that is newer than all that is left here.
pub async fn refuse_while_elsewhere(
    state: &StateDir,
    job: &Job,
    remote: Option<&Remote>,
) -> Result<(), AdoptError> {
    let by_nodes = job.checkpoint.written_by == WrittenBy::Nodes;
    let Some(remote) = remote.filter(|_| by_nodes) else {
        return Ok(());
    };
    let Some(run) = state.known_run().filter(|run| !run.is_empty()) else {
        return Ok(());
    };
    let url = || remote.url().to_owned();
    let no_answer = |why| AdoptError::NoAnswer { url: url(), why };
    let looked = timeout(LOOK, remote.newest(&run, Step(u64::MAX))).await;
    let looked = looked.map_err(|_| no_answer(format!("no answer within {LOOK:?}")))?;
    let (newest, _) = looked.map_err(|error| no_answer(error.to_string()))?;
    let on_disk = newest_complete(&state.checkpoints()).ok();
    let on_disk = on_disk.and_then(|found| found.checkpoint).map(|c| c.step);
    let here = on_disk.max(in_memory(state, job).map(|(step, _)| step));
    match newest.map(|kept| kept.place.step) {
        Some(step) if Some(step) > here => Err(AdoptError::InStore {
            step,
            url: url(),
            run,
            state: state.root().display().to_string(),
        }),
        _ => Ok(()),
    }
}

/// The newest step of which every rank's snapshot is whole in this machine's memory.
fn in_memory(state: &StateDir, job: &Job) -> Option<(Step, SnapshotShards)> {
    let folder = state.snapshots();
    let whole = |slot: u64| {
        let seals = (0..job.trainer.ranks).map(|rank| {
            let path = folder.join(format!("trainer-{rank}.slot{slot}"));
            Some((held(&path)?, path))
        });
        let seals: Vec<_> = seals.collect::<Option<_>>()?;
        let (step, generation) = {
            let taken = seals.first()?.0.taken;
            (taken.step, taken.generation)
        };
        let same = |(seal, _): &(Seal, PathBuf)| {
            (seal.taken.step, seal.taken.generation) == (step, generation)
        };
        let shard = |(seal, path): &(Seal, PathBuf)| v1::SnapshotReply {
            step: step.0,
            path: path.display().to_string(),
            bytes: seal.taken.bytes,
            xxh3: None,
            generation: generation.0,
            adam_step: Some(seal.adam_step),
            blake3: None,
        };
        let shards = seals.iter().map(shard).collect();
        let found = SnapshotShards {
            generation,
            shards,
            homes: Vec::new(),
        };
        seals.iter().all(same).then_some((step, found))
    };
    (0..2).filter_map(whole).max_by_key(|(step, _)| *step)
}

/// The memory of the job as it was when the snapshot was taken.
fn of_memory(step: Step, shards: SnapshotShards, job: &Job, seen: Incarnation) -> Saved {
    let config = CoreConfig::from(job);
    let core = State::at_checkpoint(&config, step, shards.generation, seen);
    let mut saved = Saved::new(Time::default(), core);
    saved.snapshots.add(step, shards);
    saved
}

fn said(why: &str, from: &str, passed: &str) -> String {
    let passed = match passed {
        "" => String::new(),
        passed => format!("; passed over: {passed}"),
    };
    format!(
        "{why}. The job goes on from the {from}{passed}: what was trained after it is trained anew, \
         and trajectories of batches after it are generated anew; roles of before were ended"
    )
}

/// The memory of the job as it was when the checkpoint was made.
fn at(newest: &Checkpoint, job: &Job, seen: Incarnation) -> Saved {
    let (step, generation) = (newest.step, newest.generation);
    let core = State::at_checkpoint(&CoreConfig::from(job), step, generation, seen);
    Saved::new(newest.at.unwrap_or_default(), core)
}

enum Remember {
    Store(crate::store::StoreError),
    Read(std::io::Error),
}

/// Puts on record what the manifests know of steps up to the one gone on from.
async fn remember(
    store: &Store,
    dir: &std::path::Path,
    newest: &Checkpoint,
) -> Result<(), Remember> {
    let listed = list(dir).map_err(Remember::Read)?;
    let known = listed.into_iter().filter_map(|l| l.manifest.ok());
    let up_to = known.filter(|c| c.step <= newest.step);
    let consumed = up_to.map(|c| (c.step, c.consumed)).collect();
    let marked = store.mark_consumed(consumed).await;
    marked.map_err(Remember::Store)
}

/// Ends role processes of this state directory that nobody remembers; the highest incarnation seen.
async fn end_strangers(state: &StateDir) -> Result<Incarnation, AdoptError> {
    let owner = (OWNER_VARIABLE, state.root().as_os_str());
    let mut seen = Incarnation(0);
    for _ in 0..ROUNDS {
        let left = launcher::owned_by(owner, INCARNATION_VARIABLE);
        if left.is_empty() {
            return Ok(seen);
        }
        tracing::warn!("ending {} role processes that nobody remembers", left.len());
        seen = left.iter().map(|(n, _)| *n).max().unwrap_or(seen).max(seen);
        let unkilled = kill_and_wait(left).await.map_err(AdoptError::Strangers)?;
        if !unkilled.is_empty() {
            return Err(AdoptError::Unkilled { pids: unkilled });
        }
    }
    Ok(seen)
}
