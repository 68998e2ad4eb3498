//! Exception: a call to the gang ended with an error that a rank reported, its processes alive. The
//! error's text is the reason, so an operator reads what the trainer said.
use super::{Rule, RuleId, Verdict};
use crate::core::{Core, FaultKind};
use crate::ids::{InstanceId, Role};
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
    /// A call to the gang failed by an exception, its processes alive.
    pub(in crate::core) fn exception(&mut self, who: InstanceId, reason: String) {
        self.fault(Verdict::new(who, RuleId::Exception, reason));
    }
}
