//! What holds in the paper's scenarios, at a few steps.
use super::*;

fn few_steps(mode: Mode, policy: Policy) -> Row {
    let scenario = Scenario {
        steps: 20,
        ..Scenario::new(WORKLOADS[0], mode, Some(policy))
    };
    scenario.run(5)
}

#[test]
fn two_runs_of_a_seed_give_identical_journals() {
    let lines = prove_deterministic(5);
    assert!(lines.as_ref().is_ok_and(|n| *n > 10_000), "{lines:?}");
}

#[test]
fn another_seed_decides_otherwise() {
    let scenario = Scenario {
        steps: 10,
        ..Scenario::new(WORKLOADS[0], Mode::Async, Some(Policy::Role))
    };
    assert_eq!(scenario.run(5), scenario.run(5));
    assert_ne!(scenario.run(5).digest, scenario.run(6).digest);
}

#[test]
fn policy_role_is_faster_and_more_effective_than_policy_task_in_every_mode() {
    for mode in [Mode::Sync, Mode::SemiSync, Mode::Async] {
        let (task, role) = (few_steps(mode, Policy::Task), few_steps(mode, Policy::Role));
        assert!(task.completed && role.completed);
        assert_eq!((task.faults, role.faults), (2, 2));
        assert_eq!((task.task_restarts, role.task_restarts), (2, 0));
        assert!(role.ettr > task.ettr, "{role:?} {task:?}");
        assert!(role.hours < task.hours, "{role:?} {task:?}");
        assert!(role.goodput > task.goodput, "{role:?} {task:?}");
    }
}

#[test]
fn with_warm_standby_a_trainer_is_back_a_minute_sooner() {
    let recovery = |standby| {
        let scenario = Scenario {
            steps: 10,
            knobs: Knobs {
                standby,
                ..Knobs::default()
            },
            ..Scenario::new(WORKLOADS[0], Mode::Async, Some(Policy::Role))
        };
        scenario.run(5).recovery_s
    };
    let sooner = recovery(false) - recovery(true);
    // 60 s for another machine, less the 5 s in which the loss is found.
    assert!((54.0..56.0).contains(&sooner), "{sooner}");
}
