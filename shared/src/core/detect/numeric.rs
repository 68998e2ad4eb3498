//! Numeric: loss or gradient are no numbers. The rank says so before it changes
//! its weights; a trainer that does not and reports such figures is caught here, before its step is
//! committed. Either way the gang goes back to the committed step, so no broken weights are published.
use super::{Rule, Verdict};
use crate::core::recover::cause::Cause;
use crate::core::{FaultKind, StepMetrics};
use crate::ids::{InstanceId, Role};
use crate::phase::Phase;

/// A loss or gradient that is no number.
pub const RULE: Rule = Rule {
    name: "numeric",
    roles: &[Role::Trainer],
    phases: &[Phase::Update],
    signal: "the loss or the gradient's norm is NaN or infinite",
    action: "the step is not committed, restart the gang",
    kind: Some(FaultKind::Numeric),
    event: None,
    watch: None,
};

/// What among a step's figures is no number, in words.
pub(in crate::core) fn not_a_number(metrics: &StepMetrics) -> Option<String> {
    let figures = [
        ("the loss", metrics.loss),
        ("the gradient's norm", metrics.grad_norm),
    ];
    let broken = figures.into_iter().find(|(_, value)| !value.is_finite());
    broken.map(|(what, value)| format!("{value} as {what}"))
}

/// The verdict on it.
pub(in crate::core) fn verdict(who: InstanceId, reason: String) -> Verdict {
    let cause = Cause::of_error(&reason);
    Verdict::new(who, &RULE, reason).came_of(cause)
}
