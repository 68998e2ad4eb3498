//! Restart: what a fault costs, decided by one pure function. How it is carried out is the router's
//! (`router/restart`).
//!
//! ```text
//!  fault ──► Case ──► decide ──► Plan ──┬─ RestartInstance  new life of the one place
//!                                       ├─ RestartGang      kill all ranks, new generation
//!                                       ├─ RestartTask      kill all, from the committed step
//!                                       └─ FailJob          no restart can help
//! ```
use crate::core::config::Policy;
use crate::core::recover::budget::{Budget, FaultKind};
use crate::core::recover::cause::Recurring;
use crate::core::roster::nodes::Move;
use crate::ids::{InstanceId, Role, Step};
use std::fmt;
use std::time::Duration;

/// What is known when a fault is decided on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// What a fault may cost.
    pub policy: Policy,
    /// Who failed.
    pub who: InstanceId,
    /// By what kind of fault.
    pub kind: FaultKind,
    /// What was seen of it.
    pub seen: String,
    /// What it came of, this time included; none where it came from outside.
    pub cause: Option<Recurring>,
    /// Times in a row that one cause is borne: the last of them restarts the task, and one more ends the
    /// job; 0: any number.
    pub same_cause: u32,
    /// The last committed step.
    pub committed: Step,
    /// Its words, where it ended with a code other than 0 before it linked.
    pub startup_error: Option<String>,
    /// Whether any instance of this role ever linked.
    pub role_proven: bool,
    /// Trainer: gangs in a row, this one included, that ended before they were restored.
    pub failed_restarts: u32,
    /// Trainer: faults of restored gangs since the last commit, this one included.
    pub faults_in_step: u32,
    /// Trainer: this gang was restored, has not finished a step, and its first one is a first iteration.
    pub first_iteration: Option<FirstIteration>,
    /// Failures of this kind in a row without useful work (a committed step, for the trainer), this
    /// one included.
    pub failures: u32,
    /// What this kind of fault may cost.
    pub budget: Budget,
    /// The trainer's program tells no steps: what is said of a step is said of none of its.
    pub is_silent: bool,
    /// Task restarts since the last commit.
    pub task_restarts: u32,
    /// How many of those are borne.
    pub max_task_restarts: u32,
    /// The changes of slots that a restart brings.
    pub moves: Vec<Move>,
}

/// What a step is the first one of (paper 5.1.2): a fault there says that the code or its configuration
/// does not work, which no restart of one role mends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstIteration {
    /// The job, since it began or went on after its end.
    OfJob,
    /// A gang that replaced one that failed.
    AfterRestart,
}

impl fmt::Display for FirstIteration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FirstIteration::OfJob => "the first step since the job began or went on failed",
            FirstIteration::AfterRestart => "the first iteration after a restart failed",
        })
    }
}

/// What a fault costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A new life for the one that failed.
    RestartInstance,
    /// A new generation of the trainer.
    RestartGang,
    /// New lives for all, from the committed step.
    RestartTask,
    /// The end.
    FailJob,
}

/// A sentence names so many changes of slots.
const MOVES_SHOWN: usize = 4;

/// A decision with its reason; `Display` is the sentence shown to operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What is done.
    pub action: Action,
    /// Who failed.
    pub who: InstanceId,
    /// The last committed step.
    pub committed: Step,
    /// The trainer's program tells no steps.
    pub is_silent: bool,
    /// Between the kill and the new life: restarts that follow each other wait.
    pub wait: Duration,
    /// Why it costs more than a role restart; empty for one.
    pub why: String,
    /// The changes of slots it brings.
    pub moves: Vec<Move>,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (who, committed, why) = (self.who, self.committed, &self.why);
        let wait = match self.wait.as_millis() {
            0 => String::new(),
            ms => format!(" after a wait of {ms} ms"),
        };
        match (self.action, who.role) {
            (Action::RestartGang, _) if self.is_silent => {
                write!(
                    f,
                    "restart the trainer gang{wait}; its program goes on where it can"
                )?;
            }
            (Action::RestartGang, _) => write!(
                f,
                "restart the trainer gang{wait} from step {committed} and train step {} again; rollouts and agents go on",
                committed.next()
            )?,
            (Action::RestartInstance, Role::Agent) => write!(
                f,
                "restart {who} only{wait}; its trajectories go on elsewhere from their last stored turn"
            )?,
            (Action::RestartInstance, _) => write!(
                f,
                "restart {who} only{wait}; its requests go on elsewhere, and it is admitted when it \
                 verified the published weights"
            )?,
            (Action::RestartTask, _) => {
                write!(
                    f,
                    "restart the whole task{wait} from step {committed}: {why}"
                )?;
            }
            (Action::FailJob, _) => write!(f, "fail the job: {why}")?,
        }
        for change in self.moves.iter().take(MOVES_SHOWN) {
            write!(f, "; {change}")?;
        }
        match self.moves.len().saturating_sub(MOVES_SHOWN) {
            0 => Ok(()),
            more => write!(f, "; and {more} more moves"),
        }
    }
}

/// The decision table (docs/concepts/policies.md).
pub fn decide(case: &Case) -> Plan {
    let plan = |action, why| Plan {
        action,
        who: case.who,
        committed: case.committed,
        is_silent: case.is_silent,
        wait: wait_before(case, action),
        why,
        moves: match action {
            Action::FailJob => Vec::new(),
            _ => case.moves.clone(),
        },
    };
    if let Some(error) = &case.startup_error
        && !case.role_proven
    {
        let (who, role) = (case.who, case.who.role);
        let why = format!(
            "{who} failed in start-up and no {role} ever ran, so a restart cannot help: {error}"
        );
        return plan(Action::FailJob, why);
    }
    if let Some(why) = will_not_heal(case) {
        return plan(Action::FailJob, why);
    }
    let Some(why) = task_restart_reason(case) else {
        let action = match case.who.role {
            Role::Trainer => Action::RestartGang,
            Role::Hybrid | Role::Rollout | Role::Agent => Action::RestartInstance,
        };
        return plan(action, String::new());
    };
    if case.task_restarts >= case.max_task_restarts {
        let count = case.task_restarts;
        let brought = match case.is_silent {
            true => "did not help",
            false => "brought no committed step",
        };
        let (who, seen) = (case.who, &case.seen);
        let why = format!(
            "{why}, and {count} task restarts in a row {brought}; the last fault, of {who}: {seen}"
        );
        return plan(Action::FailJob, why);
    }
    plan(Action::RestartTask, why)
}

/// The first restart is at once; those that follow without success between wait.
fn wait_before(case: &Case, action: Action) -> Duration {
    let in_a_row = match action {
        Action::RestartInstance => case.failures,
        Action::RestartGang => case.failed_restarts + 1,
        Action::RestartTask => case.task_restarts + 1,
        Action::FailJob => 0,
    };
    case.budget.wait_after(in_a_row)
}

fn task_restart_reason(case: &Case) -> Option<String> {
    let who = case.who;
    if case.policy == Policy::Task {
        return Some("the policy is `task`".to_owned());
    }
    if let Some(again) = case.recurring(case.same_cause) {
        let Recurring { cause, count } = again;
        let (words, most) = (&cause.words, case.same_cause);
        return Some(format!(
            "{who} failed {count} times in a row of the same cause without useful work (limit {most}): \
             {words}"
        ));
    }
    if who.role != Role::Trainer {
        return over_budget(case);
    }
    if let Some(error) = &case.startup_error {
        return Some(format!("{who} ended its start-up with an error: {error}"));
    }
    if case.failed_restarts >= 2 {
        return Some(format!(
            "the restart of the trainer failed {} times",
            case.failed_restarts
        ));
    }
    if case.is_silent {
        return over_budget(case);
    }
    if case.faults_in_step >= 2 {
        let step = case.committed.next();
        return Some(format!(
            "fault {} of the trainer in step {step}",
            case.faults_in_step
        ));
    }
    if let Some(first) = case.first_iteration.filter(|_| case.failed_restarts == 0) {
        return Some(first.to_string());
    }
    over_budget(case)
}

impl Case {
    /// Its cause, where that was met so often in a row.
    fn recurring(&self, times: u32) -> Option<&Recurring> {
        let is_limited = self.same_cause > 0;
        self.cause
            .as_ref()
            .filter(|cause| is_limited && cause.count >= times)
    }
}

/// One that is met once more after it restarted the task is met for ever, and every further try costs hours.
fn will_not_heal(case: &Case) -> Option<String> {
    let Recurring { cause, count } = case.recurring(case.same_cause.saturating_add(1))?;
    let (words, most) = (&cause.words, case.same_cause);
    let whom = match case.who.role {
        Role::Trainer => format!("the trainer, last {},", case.who),
        Role::Hybrid | Role::Rollout | Role::Agent => case.who.to_string(),
    };
    Some(format!(
        "this will not heal: {words}; {whom} failed of it {count} times in a row without useful work \
         (`restart.same_cause` is {most}), so mend what it says; the next job may have a higher limit \
         if it passes with time"
    ))
}

fn over_budget(case: &Case) -> Option<String> {
    let (who, kind, failures, max) = (case.who, case.kind, case.failures, case.budget.max);
    let times = if failures == 1 { "time" } else { "times" };
    (failures > max).then(|| {
        format!(
            "{who} failed {failures} {times} in a row ({kind}) without useful work (limit {max})"
        )
    })
}
