//! What the core and the store say, in gRPC's words, and what callers name in the core's.
use crate::driver;
use robust_proto::v1;
use robust_shared::core::{Event, Refusal, Reply, RestartTarget};
use robust_shared::ids::{InstanceId, Role};
use tonic::{Response, Status};

/// The driver takes nothing any more.
pub(super) fn ending() -> Status {
    Status::unavailable("the daemon is ending")
}

/// The store gave nothing, or nothing that makes sense.
pub(super) fn unreadable(error: impl std::fmt::Display) -> Status {
    Status::internal(format!("the store cannot be read: {error}"))
}

/// A request that the core does not carry out: one that makes no sense, or not now.
pub(super) fn refused(refusal: &Refusal) -> Status {
    match refusal {
        Refusal::UnknownIndex { .. }
        | Refusal::WrongRole { .. }
        | Refusal::NotForRole { .. }
        | Refusal::WrongTarget { .. }
        | Refusal::NotItsMoment { .. }
        | Refusal::NotAPeer { .. }
        | Refusal::UnknownNode { .. }
        | Refusal::UnknownSlot { .. }
        | Refusal::BadValue { .. } => Status::invalid_argument(refusal.to_string()),
        Refusal::NotRunning { .. }
        | Refusal::NoLaterLife { .. }
        | Refusal::OtherLife { .. }
        | Refusal::JobOver { .. }
        | Refusal::BelowMinimum { .. }
        | Refusal::AboveMaximum { .. }
        | Refusal::NotDivisible { .. }
        | Refusal::NoSlot { .. }
        | Refusal::NotArmed { .. }
        | Refusal::LastRollout { .. }
        | Refusal::WrongMode { .. }
        | Refusal::AlreadyThere { .. }
        | Refusal::Busy { .. } => Status::failed_precondition(refusal.to_string()),
    }
}

/// The core answered with another kind of reply.
pub(super) fn misanswered(reply: &Reply) -> Status {
    Status::internal(format!("an answer to something else: {reply:?}"))
}

/// The answer to a pause or its end.
pub(super) fn paused(reply: Reply) -> Result<Response<v1::PauseReply>, Status> {
    match reply {
        Reply::Paused { pause, when } => Ok(Response::new(v1::PauseReply {
            when,
            pause: pause.as_ref().map(driver::pause),
        })),
        other => Err(misanswered(&other)),
    }
}

/// Whose processes are to be replaced.
pub(super) fn target(request: &v1::RestartRequest) -> Result<RestartTarget, Status> {
    match (request.role.as_str(), request.index) {
        ("task", None) => Ok(RestartTarget::Task),
        ("task", Some(_)) => Err(Status::invalid_argument(
            "a task has no index; name a role to restart one instance",
        )),
        (name, None) => role(name).map(RestartTarget::Role),
        (name, Some(index)) => {
            let role = role(name)?;
            Ok(RestartTarget::One(InstanceId { role, index }))
        }
    }
}

/// The role of that name.
pub(super) fn role(name: &str) -> Result<Role, Status> {
    let unknown = |e: robust_shared::ids::UnknownRole| Status::invalid_argument(e.to_string());
    name.parse().map_err(unknown)
}

/// An event with its number.
pub(super) fn event(seq: u64, event: &Event) -> v1::Event {
    v1::Event {
        seq,
        at_ms: event.at.millis(),
        severity: event.severity.word().to_owned(),
        kind: event.kind.clone(),
        role: event
            .id
            .map_or_else(String::new, |id| id.role.name().to_owned()),
        index: event.id.map_or(0, |id| id.index),
        text: event.text.clone(),
    }
}
