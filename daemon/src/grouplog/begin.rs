//! Where a single controller's log goes on.
//!
//! ```text
//!  the store stands at           the log's tip is          then
//!  ─────────────────────────     ─────────────────────     ──────────────────────────────────────────────────────
//!  anywhere                      nowhere                   a base, which begins the log
//!  the tip                                                 groups follow, in a new term
//!  one group before it                                     the same: the last group was never acknowledged
//!  after it, of the same term or a later one               a base: the log missed what was not acknowledged
//!  a base of as much that was made here                    the same: it was not noted here any more
//!  no place, no earlier          of any term               a base: it was written without its log for a while
//!  earlier, or in no chain to it                           refused: another controller went on, or this is an old copy
//! ```
use super::bases;
use super::carried::Carried;
use crate::store::{Store, StoreError};
use robust_grouplog::{Entry, GroupLog, LogError, Position};
use robust_remote::Remote;
use std::time::Duration;
use tokio::time::{Instant, sleep};

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
    /// The log is of another life of the job, which nobody ended.
    #[error(
        "{url} has the log of another life of the job, up to {tip}: to go on with that, begin with an empty --state-dir and \
         --restore-from {url}; to begin the job anew, start with --fresh, or with [ha] give the job another name, and it is written over no more"
    )]
    AnotherLife {
        /// Where that log stands.
        tip: Position,
        /// The log.
        url: String,
    },
    /// Nobody knows which log counts.
    #[error(
        "{url} has a log of the job, up to {tip}, and etcd does not know how far it counts: its keys were lost or removed. To go \
         on, end all controllers of the job, and start one with --alone in an empty --state-dir with --restore-from {url}; to \
         begin anew, give the job another name"
    )]
    NoHead {
        /// Where that log stands.
        tip: Position,
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
    carried: &mut Carried,
    url: &str,
) -> Result<(u64, Position), BeginError> {
    let (here, number) = store.place_in_log()?;
    let Some(tip) = tip(log).await? else {
        return put_base((log, 1), store, carried).await;
    };
    let epoch = tip.at.epoch + 1;
    let elsewhere = || BeginError::Elsewhere {
        tip: tip.at,
        here: here.map_or_else(
            || format!("{number} groups that name no place in it"),
            |at| at.to_string(),
        ),
        url: url.to_owned(),
    };
    match here {
        Some(here) if here.number <= tip.at.number => match missing(log, &here, &tip.at).await? {
            Some(chain) if chain.len() <= 1 => Ok((epoch, here)),
            // Made of just what is here, and this daemon ended before that was noted.
            _ if tip.is_base && tip.at.number == number => {
                put_base((log, epoch), store, carried).await
            }
            _ => Err(elsewhere()),
        },
        Some(here) if here.epoch >= tip.at.epoch => {
            let epoch = epoch.max(here.epoch + 1);
            put_base((log, epoch), store, carried).await
        }
        None if number >= tip.at.number => put_base((log, epoch), store, carried).await,
        _ => Err(elsewhere()),
    }
}

/// Whether there is no log of another life of the job than `run` that somebody could mean to go on with.
///
/// # Errors
/// When there is, or the log cannot be read.
pub async fn no_other_life(remote: &Remote, job: &str, run: &str) -> Result<(), BeginError> {
    let url = remote.url().to_owned();
    match newest_life(remote, job).await? {
        Some((life, tip)) if life != run => Err(BeginError::AnotherLife { tip, url }),
        _ => Ok(()),
    }
}

/// Whether there is no log of the job at all.
///
/// # Errors
/// When there is, or the log cannot be read.
pub async fn no_life(remote: &Remote, job: &str) -> Result<(), BeginError> {
    let url = remote.url().to_owned();
    match newest_life(remote, job).await? {
        Some((_, tip)) => Err(BeginError::NoHead { tip, url }),
        None => Ok(()),
    }
}

/// Whether somebody writes the job's log now: it is looked at for so long at most, and so often.
///
/// # Errors
/// When the log cannot be read.
pub async fn moves(
    (remote, job): (&Remote, &str),
    (within, every): (Duration, Duration),
) -> Result<bool, LogError> {
    let first = newest_life(remote, job).await?;
    let until = Instant::now() + within;
    while Instant::now() < until {
        sleep(every).await;
        if newest_life(remote, job).await? != first {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn newest_life(remote: &Remote, job: &str) -> Result<Option<(String, Position)>, LogError> {
    let Some(life) = GroupLog::current(remote, job).await? else {
        return Ok(None);
    };
    let tip = tip(&GroupLog::new(remote, job, &life)).await?;
    Ok(tip.map(|tip| (life, tip.at)))
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

/// Where a log stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tip {
    pub at: Position,
    /// Whether that is a base, with no group after it.
    pub is_base: bool,
}

/// Where the log stands: at its last group, or at a base that was made since.
pub(super) async fn tip(log: &GroupLog) -> Result<Option<Tip>, LogError> {
    let of = |at: Position, is_base: bool| Tip { at, is_base };
    let bases = log.bases().await?;
    let bases = bases.into_iter().map(|base| of(base.at, true));
    let group = log.tip().await?.map(|entry| of(entry.at, false));
    // The base of a group that is there is no later than the group.
    Ok(bases
        .chain(group)
        .max_by_key(|tip| (tip.at.epoch, tip.at.number, !tip.is_base)))
}

/// A base of a store with which a log begins, or begins again, in this term; where it stands then. The files of the state
/// directory are in it.
///
/// # Errors
/// When the store cannot be read or written, or the log not be written.
pub async fn put_base(
    (log, epoch): (&GroupLog, u64),
    store: &Store,
    carried: &mut Carried,
) -> Result<(u64, Position), BeginError> {
    store.put_files(carried.changed()).await?;
    let (_, number) = store.place_in_log()?;
    let at = Position::of_base(log.run(), epoch, number);
    let base = bases::put(log, &store.dumper(), at, None).await?;
    store.stand_at(&at)?;
    let kib = base.bytes >> 10;
    tracing::info!("the job's log begins with a base of {kib} KiB");
    Ok((epoch, at))
}
