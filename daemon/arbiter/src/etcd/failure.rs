//! What a member's failure means for what it was asked.

use std::error::Error;
use std::time::Duration;

use thiserror::Error;
use tonic::{Code, Status};

use crate::{ArbiterError, LeaseId, Revision};

/// Why one member did not do what it was asked.
#[derive(Debug, Error)]
pub(super) enum Failure {
    /// It certainly did not, another one might.
    #[error("{0}")]
    NotDone(String),
    /// There is no connection to it, so nothing was sent.
    #[error("{0}")]
    NotReached(String),
    /// It did not answer in a time, and nothing was asked of it that it could do later.
    #[error("there was no answer within {} ms", .0.as_millis())]
    Silent(Duration),
    /// It did, or did not, or will.
    #[error("{0}")]
    Lost(String),
    /// Nobody will.
    #[error("{0}")]
    Refused(String),
    /// The lease is over.
    #[error("lease {0} is over")]
    LeaseOver(LeaseId),
    /// The lease that was named is over; etcd does not say which one.
    #[error("a lease is over")]
    SomeLeaseOver,
    /// What is asked for is not kept any more.
    #[error("compacted before {0}")]
    Compacted(Revision),
}

/// No connection came about, so nothing was sent.
#[derive(Debug, Error)]
#[error("{0}")]
pub(super) struct NotReached(pub String);

impl Failure {
    /// Names the lease that a request was about.
    pub fn of_lease(self, lease: Option<LeaseId>) -> Self {
        match (self, lease) {
            (Self::SomeLeaseOver, Some(lease)) => Self::LeaseOver(lease),
            (failure, _) => failure,
        }
    }

    /// Whether the connection is no good any more.
    pub fn is_of_connection(&self) -> bool {
        matches!(self, Self::NotReached(_) | Self::Silent(_) | Self::Lost(_))
    }

    /// What is final, whoever else would be asked; the others are given back.
    pub fn verdict(self, at: &str) -> Result<ArbiterError, Self> {
        let at = at.to_owned();
        match self {
            Self::NotDone(_) | Self::NotReached(_) | Self::Silent(_) | Self::Lost(_) => Err(self),
            Self::Refused(why) => Ok(ArbiterError::Refused { at, why }),
            Self::LeaseOver(lease) => Ok(ArbiterError::LeaseOver { lease }),
            Self::SomeLeaseOver => Ok(ArbiterError::Refused {
                at,
                why: "a lease is over that was not named".to_owned(),
            }),
            Self::Compacted(kept) => Ok(ArbiterError::Compacted { kept }),
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        if let Some(why) = not_reached(&status) {
            return Self::NotReached(why);
        }
        let why = said(&status);
        match (status.code(), status.message()) {
            // It looks for a leader before anything else, as each request asks it to, and for its own backlog.
            (_, "etcdserver: no leader" | "etcdserver: too many requests")
            | (_, "etcdserver: not capable" | "etcdserver: rpc not supported for learner") => {
                Self::NotDone(why)
            }
            (_, "etcdserver: requested lease not found") => Self::SomeLeaseOver,
            // The transaction that finds the quota used up is made, and answered so nevertheless.
            (_, "etcdserver: mvcc: database space exceeded") => Self::Lost(format!(
                "{why}; compact and defragment it, then clear the alarm (etcdctl alarm disarm)"
            )),
            (
                Code::InvalidArgument
                | Code::PermissionDenied
                | Code::Unauthenticated
                | Code::FailedPrecondition
                | Code::OutOfRange
                | Code::Unimplemented
                | Code::ResourceExhausted
                | Code::NotFound,
                _,
            ) => Self::Refused(why),
            _ => Self::Lost(why),
        }
    }
}

fn not_reached(status: &Status) -> Option<String> {
    let mut causes = std::iter::successors(status.source(), |cause| (*cause).source());
    let found = causes.find_map(|cause| cause.downcast_ref::<NotReached>());
    found.map(ToString::to_string)
}

/// What the status says, and what it was caused by: the innermost cause says most.
pub(super) fn said(status: &Status) -> String {
    let cause = std::iter::successors(status.source(), |cause| (*cause).source()).last();
    match cause.map(ToString::to_string) {
        Some(cause) if !status.message().contains(&cause) && status.message().is_empty() => cause,
        Some(cause) if !status.message().contains(&cause) => {
            format!("{}: {cause}", status.message())
        }
        _ if status.message().is_empty() => status.code().to_string(),
        _ => status.message().to_owned(),
    }
}
