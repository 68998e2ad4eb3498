//! Where a single controller's log goes on.
//!
//! ```text
//!  the store stands at           the log's tip is          then
//!  ─────────────────────────     ─────────────────────     ──────────────────────────────────────────────────────
//!  anywhere                      nowhere                   a base, which begins the log
//!  the tip                                                 groups follow, in a new term
//!  one group before it                                     the same: the last group was never acknowledged
//!  after it, of the same term                              a base: the log missed what was not acknowledged
//!  no place, no earlier          of any term               a base: it was written without its log for a while
//!  earlier, or in no chain to it                           refused: another controller went on, or this is an old copy
//! ```
use super::bases;
use crate::store::{Store, StoreError};
use robust_grouplog::{Entry, GroupLog, LogError, Position};

/// Why a log cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// It went on without this state directory.
    #[error(
        "the job's log goes on to {tip}, and this state directory has {here}: another controller went on with the job, or \
         this is an old copy of its state; stop the other one, or begin with an empty --state-dir and --restore-from {url}"
    )]
    Elsewhere {
        /// Where the log stands.
        tip: Position,
        /// Where the store stands, in words.
        here: String,
        /// The log.
        url: String,
    },
    /// What was taken over is not what counts.
    #[error(
        "the job's log counts to {tip}, and what this controller took over of it is {here}: another one took its place meanwhile"
    )]
    Passed {
        /// Where the log stands.
        tip: Position,
        /// Where the store stands, in words.
        here: String,
    },
    /// It cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The term in which a single controller goes on with the log, and after which position.
///
/// # Errors
/// When the log has more than this store, or one of both cannot be read.
pub async fn begin(
    log: &GroupLog,
    store: &Store,
    url: &str,
) -> Result<(u64, Position), BeginError> {
    let (here, number) = store.place_in_log()?;
    let Some(tip) = tip(log).await? else {
        return based(log, store, 1, number).await;
    };
    let epoch = tip.epoch + 1;
    let elsewhere = || BeginError::Elsewhere {
        tip,
        here: here.map_or_else(
            || format!("{number} groups that name no place in it"),
            |at| at.to_string(),
        ),
        url: url.to_owned(),
    };
    match here {
        Some(here) if here.number <= tip.number => match missing(log, &here, &tip).await? {
            Some(chain) if chain.len() <= 1 => Ok((epoch, here)),
            _ => Err(elsewhere()),
        },
        Some(here) if here.epoch == tip.epoch => based(log, store, epoch, number).await,
        None if number >= tip.number => based(log, store, epoch, number).await,
        _ => Err(elsewhere()),
    }
}

/// The groups between the two; none where no chain leads from one to the other.
async fn missing(
    log: &GroupLog,
    here: &Position,
    tip: &Position,
) -> Result<Option<Vec<Entry>>, LogError> {
    match log.chain(here, tip).await {
        // Groups are removed once a base has them: the store is older than that.
        Err(LogError::Gap { .. }) => Ok(None),
        chain => chain,
    }
}

/// Where the log stands: at its last group, or at a base that was made since.
pub(super) async fn tip(log: &GroupLog) -> Result<Option<Position>, LogError> {
    let bases = log.bases().await?;
    let bases = bases.into_iter().map(|base| base.at);
    let group = log.tip().await?.map(|entry| entry.at);
    Ok(bases.chain(group).max_by_key(|at| (at.epoch, at.number)))
}

async fn based(
    log: &GroupLog,
    store: &Store,
    epoch: u64,
    number: u64,
) -> Result<(u64, Position), BeginError> {
    let at = Position::of_base(log.run(), epoch, number);
    put_base(log, store, at).await?;
    Ok((epoch, at))
}

/// The base that a log begins with.
///
/// # Errors
/// When the store cannot be read, or the log not be written.
pub async fn put_base(log: &GroupLog, store: &Store, at: Position) -> Result<(), BeginError> {
    let base = bases::put(log, &store.dumper(), at).await?;
    tracing::info!(
        "the job's log begins with a base of {} KiB",
        base.bytes >> 10
    );
    Ok(())
}
