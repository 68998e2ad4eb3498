//! The decision table, a row a test; the whole sentence is asserted.
use super::*;

fn case(role: Role) -> Case {
    Case {
        policy: Policy::Role,
        who: id(role, 1),
        kind: FaultKind::Exit,
        seen: "killed by SIGKILL".to_owned(),
        cause: None,
        same_cause: 3,
        committed: Step(5),
        startup_error: None,
        role_proven: true,
        failed_restarts: 0,
        faults_in_step: u32::from(role == Role::Trainer),
        first_iteration: None,
        failures: 1,
        budget: Budget::default(),
        is_silent: false,
        task_restarts: 0,
        max_task_restarts: 3,
        moves: Vec::new(),
    }
}

fn sentence(case: &Case) -> String {
    decide(case).to_string()
}

#[test]
fn a_trainer_fault_costs_the_gang() {
    assert_eq!(
        sentence(&case(Role::Trainer)),
        "restart the trainer gang from step 5 and train step 6 again; rollouts and \
         agents go on"
    );
}

#[test]
fn a_rollout_fault_costs_the_rollout() {
    assert_eq!(
        sentence(&case(Role::Rollout)),
        "restart rollout-1 only; its requests go on elsewhere, and it is admitted when it verified \
         the published weights"
    );
}

#[test]
fn an_agent_fault_costs_the_agent() {
    assert_eq!(
        sentence(&case(Role::Agent)),
        "restart agent-1 only; its trajectories go on elsewhere from their last stored turn"
    );
}

#[test]
fn a_second_fault_in_the_same_step_restarts_the_task() {
    let case = Case {
        faults_in_step: 2,
        ..case(Role::Trainer)
    };
    assert_eq!(
        sentence(&case),
        "restart the whole task from step 5: fault 2 of the trainer in step 6"
    );
}

#[test]
fn a_failed_first_iteration_after_a_restart_restarts_the_task() {
    let case = Case {
        first_iteration: Some(FirstIteration::AfterRestart),
        ..case(Role::Trainer)
    };
    assert_eq!(
        sentence(&case),
        "restart the whole task from step 5: the first iteration after a restart failed"
    );
}

#[test]
fn a_trainer_fault_in_the_first_step_of_a_job_restarts_the_task_and_of_a_rollout_the_rollout() {
    let first = |role| Case {
        committed: Step(0),
        first_iteration: (role == Role::Trainer).then_some(FirstIteration::OfJob),
        ..case(role)
    };
    assert_eq!(
        sentence(&first(Role::Trainer)),
        "restart the whole task from step 0: the first step since the job began or went on failed"
    );
    assert_eq!(
        sentence(&first(Role::Rollout)),
        sentence(&case(Role::Rollout))
    );
}

#[test]
fn a_program_that_tells_no_steps_has_no_first_one_and_its_budget_decides() {
    let within = Case {
        is_silent: true,
        first_iteration: Some(FirstIteration::OfJob),
        faults_in_step: 3,
        failures: 3,
        ..case(Role::Trainer)
    };
    assert_eq!(
        sentence(&within),
        "restart the trainer gang; its program goes on where it can"
    );
    let over = Case {
        failures: 4,
        task_restarts: 3,
        ..within
    };
    assert_eq!(
        sentence(&over),
        "fail the job: trainer-1 failed 4 times in a row (exit) without useful work (limit 3), and 3 \
         task restarts in a row did not help; the last fault, of trainer-1: killed by SIGKILL"
    );
}

#[test]
fn a_restart_that_failed_once_is_tried_again_and_one_that_failed_twice_restarts_the_task() {
    let once = Case {
        failed_restarts: 1,
        faults_in_step: 1,
        ..case(Role::Trainer)
    };
    assert_eq!(decide(&once).action, Action::RestartGang);
    let twice = Case {
        failed_restarts: 2,
        ..once
    };
    assert_eq!(
        sentence(&twice),
        "restart the whole task from step 5: the restart of the trainer failed 2 times"
    );
}

#[test]
fn an_error_in_start_up_restarts_the_task_and_fails_the_job_where_nothing_ever_ran() {
    let error = Some("exit code 1: bad".to_owned());
    let proven = Case {
        startup_error: error,
        ..case(Role::Trainer)
    };
    assert_eq!(
        sentence(&proven),
        "restart the whole task from step 5: trainer-1 ended its start-up with an error: exit code \
         1: bad"
    );
    let unproven = Case {
        role_proven: false,
        ..proven
    };
    assert_eq!(
        sentence(&unproven),
        "fail the job: trainer-1 failed in start-up and no trainer ever ran, so a restart cannot \
         help: exit code 1: bad"
    );
}

#[test]
fn failures_in_a_row_beyond_the_budget_restart_the_task() {
    let case = Case {
        failures: 4,
        ..case(Role::Rollout)
    };
    assert_eq!(
        sentence(&case),
        "restart the whole task from step 5: rollout-1 failed 4 times in a row (exit) without useful \
         work (limit 3)"
    );
}

#[test]
fn the_task_policy_restarts_the_task_at_any_fault() {
    let case = Case {
        policy: Policy::Task,
        ..case(Role::Agent)
    };
    assert_eq!(
        sentence(&case),
        "restart the whole task from step 5: the policy is `task`"
    );
}

#[test]
fn task_restarts_without_progress_fail_the_job() {
    let case = Case {
        faults_in_step: 2,
        task_restarts: 3,
        ..case(Role::Trainer)
    };
    assert_eq!(
        sentence(&case),
        "fail the job: fault 2 of the trainer in step 6, and 3 task restarts in a row brought no \
         committed step; the last fault, of trainer-1: killed by SIGKILL"
    );
}

#[test]
fn each_kind_of_fault_has_its_own_budget_for_the_trainer_too() {
    let numeric = Case {
        kind: FaultKind::Numeric,
        budget: Budget {
            max: 0,
            ..Budget::default()
        },
        ..case(Role::Trainer)
    };
    assert_eq!(
        sentence(&numeric),
        "restart the whole task from step 5: trainer-1 failed 1 time in a row (numeric) without \
         useful work (limit 0)"
    );
}

#[test]
fn restarts_in_a_row_wait_and_the_plan_says_how_long() {
    let third = |role| Case {
        failures: 3,
        failed_restarts: 1,
        faults_in_step: 0,
        ..case(role)
    };
    assert_eq!(
        sentence(&third(Role::Agent)),
        "restart agent-1 only after a wait of 200 ms; its trajectories go on elsewhere from their \
         last stored turn"
    );
    assert_eq!(
        sentence(&third(Role::Trainer)),
        "restart the trainer gang after a wait of 100 ms from step 5 and train step 6 again; rollouts and agents go on"
    );
    let task = Case {
        faults_in_step: 2,
        task_restarts: 1,
        ..case(Role::Trainer)
    };
    assert_eq!(
        sentence(&task),
        "restart the whole task after a wait of 100 ms from step 5: fault 2 of the trainer in step 6"
    );
}

/// A case that came of the same cause for the so manieth time in a row.
fn again(case: Case, count: u32) -> Case {
    let cause = Cause::of_exit(&Exit::Code(1), "error: no tensor `lm_head`");
    let recurring = |cause| Recurring { cause, count };
    Case {
        cause: cause.map(recurring),
        ..case
    }
}

#[test]
fn the_same_cause_for_the_third_time_restarts_the_task() {
    assert_eq!(
        decide(&again(case(Role::Rollout), 2)).action,
        Action::RestartInstance
    );
    assert_eq!(
        sentence(&again(case(Role::Rollout), 3)),
        "restart the whole task from step 5: rollout-1 failed 3 times in a row of the same cause \
         without useful work (limit 3): exit code 1: no tensor `lm_head`"
    );
}

#[test]
fn the_same_cause_once_more_after_that_fails_the_job() {
    let once_more = again(case(Role::Rollout), 4);
    let says = "fail the job: this will not heal: exit code 1: no tensor `lm_head`; rollout-1 failed of \
                it 4 times in a row without useful work (`restart.same_cause` is 3), so mend what it \
                says; the next job may have a higher limit if it passes with time";
    assert_eq!(sentence(&once_more), says);
    let of_ranks = Case {
        faults_in_step: 4,
        ..again(case(Role::Trainer), 4)
    };
    let whom = says.replace("rollout-1", "the trainer, last trainer-1,");
    assert_eq!(sentence(&of_ranks), whom);
    let under_policy = Case {
        policy: Policy::Task,
        ..once_more
    };
    assert_eq!(sentence(&under_policy), says);
}

#[test]
fn a_limit_of_none_bears_the_same_cause_as_often_as_the_other_budgets_do() {
    let case = Case {
        same_cause: 0,
        ..again(case(Role::Agent), 100)
    };
    assert_eq!(decide(&case).action, Action::RestartInstance);
}
