//! Exception: a call to the gang ended with an error that a rank reported, its processes alive. The
//! error's text is the reason, so an operator reads what the trainer said. One that says that it is
//! no number is the numeric rule's.
//!
//! An engine reports as well that a pull failed for a reason of its own (its memory, its device). That
//! may pass, and nobody else is to blame; one that fails so again and again, with nothing between, would
//! be told to pull for ever.
use super::{Rule, Verdict};
use crate::core::gang::any_rank;
use crate::core::recover::cause::Cause;
use crate::core::roster::instances::Current;
use crate::core::{CallFault, Core, FaultKind};
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

impl Core {
    /// An engine's pull failed, and no source did: the `failures`-th in a row.
    pub(in crate::core) fn pulls_failed_by_themselves(
        &mut self,
        puller: Current,
        failures: u32,
        reason: &str,
    ) {
        let i = self.s.roster.instances().of(puller);
        let who = i.id();
        if failures >= OWN_FAILURES && i.condemned().is_none() {
            let cause = Cause::of_error(reason);
            let reason = format!("{failures} pulls in a row failed by themselves: {reason}");
            self.fault(Verdict::new(who, &RULE, reason).came_of(cause));
        }
    }

    /// A call to the gang failed, its processes alive.
    pub(in crate::core) fn on_step_failed(
        &mut self,
        rank: Option<Incarnation>,
        fault: CallFault,
        reason: String,
    ) {
        if !self.s.gang.is_called() {
            // No call is under way.
            return;
        }
        let rank = rank.and_then(|rank| self.s.roster.instances().life(rank));
        let who = rank.map_or(any_rank(), |i| i.id());
        match fault {
            CallFault::Exception => {
                let cause = Cause::of_error(&reason);
                self.fault(Verdict::new(who, &RULE, reason).came_of(cause));
            }
            CallFault::Numeric => self.numeric(who, reason),
        }
    }
}
