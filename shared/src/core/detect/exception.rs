//! Exception: a call to the gang ended with an error that a rank reported, its processes alive. The
//! error's text is the reason, so an operator reads what the trainer said. One that says that it is
//! no number is the numeric rule's.
use super::{Rule, RuleId, Verdict};
use crate::core::state::Stage;
use crate::core::{CallFault, Core, FaultKind};
use crate::ids::{Generation, Incarnation, Role};
use crate::phase::Phase;

/// A call to the gang that ended with an exception.
pub const RULE: Rule = Rule {
    id: RuleId::Exception,
    name: "exception",
    roles: &[Role::Trainer],
    phases: &[
        Phase::LoadCheckpoint,
        Phase::RefLogprob,
        Phase::OldLogprob,
        Phase::Advantage,
        Phase::Update,
        Phase::Snapshot,
        Phase::Publish,
    ],
    signal: "a rank reports that its call failed, with the error's text",
    action: "restart the gang",
    kind: Some(FaultKind::Exception),
    settings: &[],
};

impl Core {
    /// A call to the gang failed, its processes alive.
    pub(in crate::core) fn on_step_failed(
        &mut self,
        from: Generation,
        rank: Option<Incarnation>,
        fault: CallFault,
        reason: String,
    ) {
        let gang = &self.s.gang;
        let calling = !matches!(gang.stage, Stage::Forming | Stage::Ready);
        if from != gang.generation || !calling {
            return;
        }
        let rank = rank.and_then(|rank| self.s.instances.life(rank));
        let who = rank.map_or(Self::any_rank(), |i| i.id);
        match fault {
            CallFault::Exception => self.fault(Verdict::new(who, RuleId::Exception, reason)),
            CallFault::Numeric => self.numeric(who, reason),
        }
    }
}
