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
            strike: Strike::Machine,
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

#[test]
fn killed_in_place_a_trainer_is_back_after_its_start_and_everything_after_engines_too() {
    for workload in &WORKLOADS[..2] {
        let row = |policy, anew| {
            let scenario = Scenario {
                steps: 10,
                knobs: Knobs {
                    anew: Duration::from_secs(anew),
                    ..Knobs::default()
                },
                ..Scenario::new(*workload, Mode::Async, Some(policy))
            };
            scenario.run(5)
        };
        let (role, task) = (row(Policy::Role, 0), row(Policy::Task, 0));
        assert_eq!(
            (role.faults, role.task_restarts, task.task_restarts),
            (1, 0, 1)
        );
        // 0.1 s until it is seen, 190 s start, 5 s load.
        assert!((195.0..200.0).contains(&role.recovery_s), "{role:?}");
        // Engines 49 s after the trainer and weights, but nothing is loaded before they work.
        let more = task.recovery_s - role.recovery_s;
        assert!((44.0..60.0).contains(&more), "{more}: {task:?}");
        let later = row(Policy::Task, 60).recovery_s - task.recovery_s;
        assert!(
            (59.0..61.0).contains(&later),
            "machines and containers anew: {later}"
        );
        let parts = role.parts;
        let sum = parts.detect_s + parts.restart_s + parts.reconnect_s;
        assert!((sum - role.recovery_s).abs() < 0.01, "{role:?}");
        assert!(
            parts.half_s <= parts.most_s && parts.generating > 0.0,
            "{role:?}"
        );
        assert!(task.parts.generating < parts.generating && task.lowest <= role.lowest);
    }
}

/// What is known of the paper is what the table says, no more; and every assumption has its range.
#[test]
fn the_table_says_of_each_figure_whose_it_is() {
    let known = CLAIMS.iter().filter_map(|c| Some((c.what, c.paper?)));
    let papers = [
        ("ETTR, role", "over 80%"),
        ("ETTR, task", "60%"),
        ("end to end, role faster than task", "8.4-17.4%"),
        ("trainer restart, task over role", "1.5-1.7"),
        ("overhead, role", "under 5%"),
        ("overhead, task", "20%"),
    ];
    assert_eq!(known.collect::<Vec<_>>(), papers);
    for figure in ["Fig. 12", "Fig. 14", "Fig. 15", "Fig. 16", "hours saved"] {
        let has = CLAIMS
            .iter()
            .any(|c| c.what.starts_with(figure) && c.paper.is_none());
        assert!(has, "{figure}");
    }
    for claim in CLAIMS.iter().filter(|c| c.paper.is_some()) {
        assert!(
            !claim.remark.is_empty(),
            "{} says nothing of the difference",
            claim.what
        );
    }
    for constant in CONSTANTS {
        let says = match constant.source {
            Source::Stated(section) => {
                section.contains("abstract") || section.contains("section") || section == "5.1.1"
            }
            Source::Derived(formula) => !formula.is_empty(),
            Source::Assumed(range) => [" to ", "or ", "not varied", "varied by"]
                .iter()
                .any(|w| range.contains(w)),
        };
        assert!(says, "{}", constant.name);
    }
}

#[test]
fn each_variant_changes_one_assumption() {
    let base = Scenario::new(WORKLOADS[1], Mode::Async, Some(Policy::Task));
    let base = Scenario { steps: 10, ..base };
    let digest = base.run(5).digest;
    for variant in VARIANTS {
        let other = variant.of(&base);
        assert_ne!(
            other.run(5).digest,
            digest,
            "{} changes nothing",
            variant.what
        );
        let without = |s: &Scenario| {
            Scenario {
                policy: None,
                ..s.clone()
            }
            .run(5)
            .digest
        };
        let same = without(&other) == without(&base);
        assert_eq!(same, !variant.without_faults, "{}", variant.what);
    }
}
