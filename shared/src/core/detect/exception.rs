//! Exception: a call to the gang ended with an error that a rank reported, its processes alive. The
//! error's text is the reason, so an operator reads what the trainer said. One that says that it is
//! no number is the numeric rule's.
//!
//! An engine reports as well that a pull failed for a reason of its own (its memory, its device). That
//! may pass, and nobody else is to blame; one that fails so again and again, with nothing between, would
//! be told to pull for ever.
use super::{Rule, Verdict, numeric};
use crate::core::gang::{Around, Gang, any_rank};
use crate::core::recover::cause::Cause;
use crate::core::roster::instance::Instance;
use crate::core::{CallFault, FaultKind};
use crate::ids::{Incarnation, Role};
use crate::phase::Phase;

/// A call to the gang that ended with an exception.
pub const RULE: Rule = Rule {
    name: "exception",
    roles: &[Role::Trainer, Role::Hybrid, Role::Rollout],
    phases: &[
        Phase::LoadCheckpoint,
        Phase::RefLogprob,
        Phase::OldLogprob,
        Phase::Advantage,
        Phase::Update,
        Phase::Snapshot,
        Phase::Publish,
        Phase::PullWeights,
    ],
    signal: "a rank reports that its call failed, with the error's text; an engine, three times in a \
             row, that its pull failed by itself",
    action: "restart the gang, or the engine",
    kind: Some(FaultKind::Exception),
    event: None,
    watch: None,
};

/// Pulls that fail by themselves, one after the other, before their engine counts as broken.
const OWN_FAILURES: u32 = 3;

/// An engine's pull failed, and no source did: so many in a row.
pub(in crate::core) fn pulls_failed(i: &Instance, failures: u32, reason: &str) -> Option<Verdict> {
    if failures < OWN_FAILURES || i.condemned().is_some() {
        return None;
    }
    let cause = Cause::of_error(reason);
    let reason = format!("{failures} pulls in a row failed by themselves: {reason}");
    Some(Verdict::new(i.id(), &RULE, reason).came_of(cause))
}

/// A call to the gang failed, its processes alive; none: no call is under way.
pub(in crate::core) fn call_failed(
    around: &Around<'_>,
    gang: &Gang,
    rank: Option<Incarnation>,
    fault: CallFault,
    reason: String,
) -> Option<Verdict> {
    if !gang.is_called() {
        return None;
    }
    let rank = rank.and_then(|rank| around.instances.life(rank));
    let who = rank.map_or(any_rank(), Instance::id);
    Some(match fault {
        CallFault::Exception => {
            let cause = Cause::of_error(&reason);
            Verdict::new(who, &RULE, reason).came_of(cause)
        }
        CallFault::Numeric => numeric::verdict(who, reason),
    })
}
