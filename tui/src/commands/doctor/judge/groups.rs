//! The control groups of a job's lives.
use super::super::check::Check;
use super::super::facts::{GroupFacts, JobFacts};
use robust_shared::job::ControlGroups;
use robust_tree::HOW_TO_HAVE_GROUPS;

const NAME: &str = "control groups";

pub(super) fn check(job: &JobFacts) -> Option<Check> {
    job.groups.as_ref().map(judge)
}

fn judge(of: &GroupFacts) -> Check {
    let limits = of.limits.join(", ");
    match (&of.found, of.asked) {
        (_, ControlGroups::Off) => Check::ok(NAME, "[job] control_groups is \"off\""),
        (Ok(version), _) if of.limits.is_empty() => {
            Check::ok(NAME, format!("each life would have one of {version}"))
        }
        (Ok(version), _) => Check::ok(
            NAME,
            format!("each life would have one of {version}, held to {limits}"),
        ),
        (Err(reason), ControlGroups::Require) => Check::fail(
            NAME,
            format!("[job] control_groups is \"require\": {reason}"),
            HOW_TO_HAVE_GROUPS,
        ),
        (Err(reason), _) if !of.limits.is_empty() => Check::fail(
            NAME,
            format!("{limits} cannot be held to: {reason}"),
            format!("{HOW_TO_HAVE_GROUPS}, or leave the limits out"),
        ),
        (Err(reason), _) => Check::ok(NAME, format!("{reason}: lives end by their process groups")),
    }
}
