//! Why an arbiter did not do what it was asked.

use thiserror::Error;

use crate::{LeaseId, Revision};

/// What an arbiter did not do. All but [`Unknown`](Self::Unknown) were certainly not done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ArbiterError {
    /// No member took the request. It may be asked again at any time.
    #[error(
        "no member of etcd does what it is asked ({tried}); see that most of its members run, and can be reached from here"
    )]
    Unavailable {
        /// What each member said.
        tried: String,
    },
    /// The answer was lost: it was done, or it was not, or it will be. Read before anything goes on from it.
    #[error("nobody knows whether etcd did what it was asked: {at}: {why}; read what it holds now")]
    Unknown {
        /// Who was asked.
        at: String,
        /// Why there is no answer.
        why: String,
    },
    /// The lease is over, or there never was one: with it all keys that were bound to it.
    #[error("lease {lease} is over; have a new one granted")]
    LeaseOver {
        /// Which one.
        lease: LeaseId,
    },
    /// What a watch is to begin with is not kept any more.
    #[error(
        "changes before revision {kept} are not kept any more; read anew, and watch from there"
    )]
    Compacted {
        /// The first one that may still be asked for.
        kept: Revision,
    },
    /// A watch came to its end. It goes on after the last change that was seen.
    #[error(
        "the watch at {at} is broken: {why}; begin it again after the last change that was seen"
    )]
    WatchBroken {
        /// Whose watch it was.
        at: String,
        /// Why it ended.
        why: String,
    },
    /// It was understood and is not permitted, or makes no sense; it will be no different another time.
    #[error("etcd refuses what it is asked: {at}: {why}")]
    Refused {
        /// Who was asked.
        at: String,
        /// What it said.
        why: String,
    },
}
