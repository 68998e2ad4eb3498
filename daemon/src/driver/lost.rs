//! Going on without the database: it was damaged and set aside, or is gone.
//!
//! ```text
//!  no job in the store ─► role processes of before are ended (nobody remembers them)
//!     ├─ no complete checkpoint: the job begins anew
//!     └─ a checkpoint ─► committed is its step ─► the job goes on from there
//! ```
//! What the manifests know is put on record again: which checkpoints there are, and what their steps
//! consumed. Steps after the newest checkpoint are trained anew, and trajectories of later batches are
//! generated anew; this is said, as is that the figures and events of before are in the database that
//! was set aside.
use super::adopt::{AdoptError, Past};
use super::end::kill_and_wait;
use super::saved::Saved;
use super::spawn::{INCARNATION_VARIABLE, OWNER_VARIABLE};
use crate::launcher;
use crate::state::StateDir;
use crate::store::{OpenNote, Store};
use robust_ckpt::{Checkpoint, list, newest_complete};
use robust_shared::core::{CoreConfig, State};
use robust_shared::ids::Incarnation;
use robust_shared::job::Job;

/// Rounds of looking for processes and killing them: one that was being started is seen in the next.
const ROUNDS: usize = 3;

/// What is left of a job that the store does not know; nothing of one that never was.
pub async fn without_database(
    state: &StateDir,
    store: &Store,
    job: &Job,
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
        None => "the store knows of no job".to_owned(),
    };
    let passed = found.rejected.join("; ");
    let Some(newest) = found.checkpoint else {
        let nothing = why.starts_with("the store") && passed.is_empty();
        return Ok(Past {
            saved: None,
            said: (!nothing).then(|| format!("{why}; {passed} no checkpoint: the job begins anew")),
        });
    };
    remember(store, &dir, &newest).await.map_err(|e| match e {
        Remember::Store(error) => AdoptError::Store(error),
        Remember::Read(source) => unreadable(source),
    })?;
    Ok(Past {
        said: Some(said(&why, &newest, &passed)),
        saved: Some(at(&newest, job, seen)),
    })
}

fn said(why: &str, newest: &Checkpoint, passed: &str) -> String {
    let step = newest.step;
    let passed = match passed {
        "" => String::new(),
        passed => format!("; passed over: {passed}"),
    };
    format!(
        "{why}. The job goes on from the checkpoint of step {step}{passed}: what was trained after \
         step {step} is trained anew, and trajectories of batches after it are generated anew; \
         roles of before were ended"
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
