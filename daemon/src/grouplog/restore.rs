//! A state directory made of the job's log.
use super::begin::tip;
use super::carried::{carried_in, opened};
use crate::state::{StateDir, StateDirError, remove_if_there, write_private};
use crate::store::{Replica, StoreError};
use robust_grouplog::{Base, GroupLog, LogError, Position, Seal, SealError};
use robust_remote::{Remote, RemoteError};

/// Why there is nothing to go on with.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The log was never written.
    #[error(
        "{url} has no log of a job `{job}`: compare [job] name and the address with those of the job that was lost"
    )]
    NoLog {
        /// Where.
        url: String,
        /// Whose.
        job: String,
    },
    /// There is a job already.
    #[error(
        "{dir} has a job already; --restore-from makes one: name an empty --state-dir, or start without it to go on"
    )]
    NotEmpty {
        /// The state directory.
        dir: String,
    },
    /// An earlier attempt was not ended.
    #[error(
        "{dir} has half of a job that --restore-from was to make there: give that again, or name another --state-dir"
    )]
    Half {
        /// The state directory.
        dir: String,
    },
    /// It cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The address is none.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// It cannot be written here.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its files cannot be written here.
    #[error(transparent)]
    State(#[from] StateDirError),
    /// Its secrets do not open.
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The life of the job.
    pub run: String,
    /// Where its store stands.
    pub at: Position,
}

/// Makes the store and the files of a job in an empty state directory, which is half of a job until [`restored`] is told.
///
/// # Errors
/// When there is a job already, there is no log, or something of it is missing, damaged or sealed otherwise.
pub async fn restore(
    (remote, job): (&Remote, &str),
    state: &StateDir,
    seal: Option<&Seal>,
) -> Result<Restored, RestoreError> {
    let url = remote.url().to_owned();
    let none = || RestoreError::NoLog {
        url: url.clone(),
        job: job.to_owned(),
    };
    let run = GroupLog::current(remote, job).await?.ok_or_else(none)?;
    let log = GroupLog::new(remote, job, &run);
    let mut replica = Replica::open(state.root())?;
    // One that was begun and not ended goes on.
    if !replica.is_empty() && !state.restoring().exists() {
        let dir = state.root().display().to_string();
        return Err(RestoreError::NotEmpty { dir });
    }
    let to = tip(&log).await?.ok_or_else(none)?;
    write_private(&state.restoring(), url.as_bytes())?;
    newest(&log, &mut replica, &to.at).await?;
    replica.forget_processes()?;
    write_files(&replica, state, seal)?;
    Ok(Restored { run, at: to.at })
}

/// All of it is there: from now on it is a job like any other.
///
/// # Errors
/// When the state directory cannot be written.
pub fn restored(state: &StateDir) -> Result<(), RestoreError> {
    Ok(remove_if_there(&state.restoring())?)
}

/// Brings a replica to a position, from a base where it is not on the way there already.
///
/// # Errors
/// When the log cannot be read, or the replica not be written.
pub async fn newest(
    log: &GroupLog,
    replica: &mut Replica,
    to: &Position,
) -> Result<(), RestoreError> {
    if let Some(at) = replica.at() {
        match log.chain(&at, to).await {
            Ok(Some(groups)) => return Ok(replica.apply(groups)?),
            // What it has was never acknowledged, or is older than all that is kept.
            Ok(None) | Err(LogError::Gap { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut failed = None;
    for base in log.bases().await?.into_iter().rev() {
        match from_base(log, replica, &base, to).await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            // The one before it is as good.
            Err(RestoreError::Log(error)) if !error.may_pass() => {
                tracing::warn!("the base at {} of the log is passed over: {error}", base.at);
                failed = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    let root = log.run().to_owned();
    Err(failed.unwrap_or(LogError::NoBase { root }).into())
}

/// Whether the base is on the way there.
async fn from_base(
    log: &GroupLog,
    replica: &mut Replica,
    base: &Base,
    to: &Position,
) -> Result<bool, RestoreError> {
    let Some(groups) = log.chain(&base.at, to).await? else {
        return Ok(false);
    };
    tracing::info!(
        "reading a base of {} KiB and {} groups after it from the job's log",
        base.bytes >> 10,
        groups.len()
    );
    let mut loading = replica.load()?;
    let reading = log.read_base::<StoreOrLog>(base, |entries| Ok(loading.add(entries)?));
    reading.await.map_err(|error| match error {
        StoreOrLog::Store(error) => RestoreError::Store(error),
        StoreOrLog::Log(error) => RestoreError::Log(error),
    })?;
    replica.loaded(loading, base.at)?;
    replica.apply(groups)?;
    Ok(true)
}

#[derive(Debug, thiserror::Error)]
enum StoreOrLog {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Writes the files that came with the store into the state directory, and removes those of their kinds that did not: what
/// an earlier term of this controller left, such as an authority that was dropped since, comes not back.
///
/// # Errors
/// When one cannot be written, or does not open with the secret.
pub fn write_files(
    replica: &Replica,
    state: &StateDir,
    seal: Option<&Seal>,
) -> Result<(), RestoreError> {
    let files = replica.files()?;
    for name in carried_in(state.root(), seal.is_some()) {
        if !files.iter().any(|(kept, _)| *kept == name) {
            remove_if_there(&state.root().join(name))?;
        }
    }
    for (name, kept) in files {
        match opened(&name, &kept, seal)? {
            Some(contents) => write_private(&state.root().join(&name), &contents)?,
            None => tracing::warn!(
                "{name} of the job's log is sealed, and `store.secret_file` names nothing to open it with"
            ),
        }
    }
    Ok(())
}
