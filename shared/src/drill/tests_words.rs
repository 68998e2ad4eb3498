//! Simple drills: one run, one series, every fault, expectations in words.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::fault::Fault;
use crate::ids::Role;
use crate::job::Moments;
use std::collections::BTreeMap;
use std::time::Duration;

const JOB: &str = "[job]\nsteps = 9\n[data]\nprompts = \"p.jsonl\"\ntokenizer = \"t.json\"\n\
                   [[node]]\nname = \"a\"\npools = { train = 2, rollout = 1, agent = 1 }\n\
                   [[node]]\nname = \"b\"\npools = { train = 0, rollout = 3, agent = 1 }\n";

fn drill(fault: &str) -> String {
    format!(
        "# Somebody dies. The rest is for the console.\nversion = 1\nname = \"d\"\njob = \"j\"\n\
         seed = 1\nfaults = [{{ {fault} }}]\nexpect = {{ restart = \"role\" }}\n"
    )
}

fn plan(text: &str) -> Result<Plan, String> {
    let drill = Drill::parse(text, Path::new("d.toml")).map_err(|e| e.to_string())?;
    Plan::make(&drill, JOB, Path::new("/jobs/j.toml")).map_err(|e| e.to_string())
}

fn strikes(fault: &str) -> Vec<Strike> {
    plan(&drill(fault)).unwrap().series[0].runs[0]
        .strikes
        .clone()
}

fn refused(fault: &str, says: &str) {
    let text = plan(&drill(fault)).unwrap_err();
    assert!(text.contains(says), "{says:?} is not in: {text}");
    assert!(text.contains("d.toml:6:"), "no place in: {text}");
}

#[test]
fn a_drill_without_runs_and_series_is_one_struck_run() {
    let plan = plan(&drill(
        "kind = \"kill\", role = \"trainer\", index = 1, at_step = 1.5",
    ))
    .unwrap();
    let [series] = &plan.series[..] else {
        unreachable!("one series")
    };
    let [run] = &series.runs[..] else {
        unreachable!("one run")
    };
    assert_eq!(
        (run.name.as_str(), run.policy, run.nodes.as_slice()),
        ("role", Policy::Role, ["b".to_owned()].as_slice())
    );
    assert_eq!(run.strikes[0].to_string(), "kill trainer-1 1.50 steps in");
    assert_eq!(series.expect[0].text, "restart = \"role\"");
}

#[test]
fn every_fault_says_what_whom_and_when() {
    for (fault, says) in [
        (
            "kind = \"exit\", code = 3, role = \"agent\", index = 1, at_time = \"1500 ms\"",
            "exit agent-1 3 after 1.5 s",
        ),
        (
            "kind = \"kill\", role = \"rollout\", index = 2, at = \"pull:50%\"",
            "kill rollout-2 1.00 steps in, at pull:50%",
        ),
        (
            "kind = \"slow\", percent = 20, seconds = 3, role = \"trainer\", index = 0, at_step = 2",
            "slow trainer-0 20% 3s 2.00 steps in",
        ),
        (
            "kind = \"stall-network\", peer = \"rollout-1\", role = \"trainer\", index = 0, at_step = 2",
            "stall-network trainer-0 rollout-1 10s 2.00 steps in",
        ),
        (
            "kind = \"lose-node\", node = \"b\", at_step = 2.5",
            "lose-node b 2.50 steps in",
        ),
        (
            "kind = \"leader-crash\", at_step = 2",
            "leader-crash 2.00 steps in",
        ),
    ] {
        assert_eq!(strikes(fault)[0].to_string(), says);
    }
}

#[test]
fn what_is_left_open_is_drawn_by_the_seed_among_those_it_can_befall() {
    let drawn = strikes("kind = \"corrupt-weights\", random = 3");
    assert_eq!(drawn, strikes("kind = \"corrupt-weights\", random = 3"));
    assert_eq!(drawn.len(), 3);
    for strike in &drawn {
        assert_eq!(strike.fault, Fault::CorruptWeights);
        let Whom::Instance(id) = strike.whom else {
            unreachable!("an instance")
        };
        assert!(
            matches!(id.role, Role::Rollout | Role::Trainer),
            "the job has no hybrids"
        );
        let Moment::Steps(at) = strike.at else {
            unreachable!("by steps")
        };
        assert!((1.0..=7.5).contains(&at), "{at}");
    }
}

#[test]
fn a_fault_that_cannot_be_is_refused_where_it_stands() {
    refused("kind = \"kil\", at_step = 1", "did you mean `kill`?");
    refused("kind = \"kill\", code = 2, at_step = 1", "takes no `code`");
    refused(
        "kind = \"nan\", role = \"agent\", at_step = 1",
        "cannot befall a agent; it can befall trainer",
    );
    refused(
        "kind = \"kill\", role = \"agent\", at = \"update\"",
        "no agent comes into phase",
    );
    refused("kind = \"kill\", at = \"updat\"", "did you mean `update`?");
    refused(
        "kind = \"kill\", at_time = \"5 apples\"",
        "write it as in `500ms`",
    );
    refused("kind = \"kill\", random = 4", "at most 3 fit");
    refused("kind = \"kill\", role = \"agent\"", "exactly one");
    refused(
        "kind = \"lose-node\", node = \"c\", at_step = 1",
        "the job has a, b",
    );
    refused(
        "kind = \"lose-node\", node = \"a\", at_step = 1",
        "use `leader-crash`",
    );
    refused(
        "kind = \"leader-crash\", role = \"agent\", at_step = 1",
        "strikes no instance",
    );
    refused(
        "kind = \"cut-network\", role = \"trainer\", peer = \"rollout-9\", at_step = 1",
        "there is no rollout 9",
    );
}

#[test]
fn one_run_has_nothing_to_compare_its_weights_with() {
    let text = drill("kind = \"kill\", role = \"agent\", at_step = 1")
        .replace("restart = \"role\"", "weights = \"identical\"")
        + "set.job.mode = \"sync\"\n";
    let text = plan(&text).unwrap_err();
    assert!(text.contains("add a run without `policy`"), "{text}");
}

#[test]
fn expectations_beside_series_are_refused() {
    let text = drill("kind = \"kill\", role = \"agent\", at_step = 1")
        + "[[series]]\nname = \"s\"\nexpect = {}\n";
    let text = plan(&text).unwrap_err();
    assert!(text.contains("write it into each of them"), "{text}");
}

#[test]
fn what_is_left_of_a_job_that_runs_can_be_struck_too() {
    let text = drill("kind = \"kill\", role = \"rollout\", index = 1, at_step = 1.5");
    let drill = Drill::parse(&text, Path::new("d.toml")).unwrap();
    assert_eq!(drill.about(), "Somebody dies. The rest is for the console.");
    let ground = |steps, rollouts| Ground {
        steps,
        counts: vec![(Role::Rollout, rollouts)],
        nodes: vec!["a".to_owned()],
        moments: Moments::default(),
    };
    let (run, strikes, expect) = drill.attach(&ground(20, 2)).unwrap();
    assert_eq!((run.as_str(), strikes.len(), expect.len()), ("role", 1, 1));
    let few = drill.attach(&ground(20, 1)).unwrap_err().to_string();
    assert!(few.contains("there is no rollout 1"), "{few}");
    let late = drill.attach(&ground(2, 2)).unwrap_err().to_string();
    assert!(late.contains("at most 0.5"), "{late}");
}

#[test]
fn a_moment_that_does_not_come_in_the_drills_job_is_refused_before_anything_starts() {
    let at = |phase: &str| {
        let fault = format!("kind = \"kill\", role = \"trainer\", index = 0, at = \"{phase}\"");
        plan(&drill(&fault))
    };
    at("update").unwrap();
    let why = at("ref_logprob").unwrap_err();
    assert!(why.contains("`train.kl_coef` is 0"), "{why}");
    let why = at("reshard").unwrap_err();
    assert!(why.contains("no trainer of this job comes into"), "{why}");
}

#[test]
fn a_drill_without_a_rule_is_the_same_with_that_rule_switched_off() {
    let text = drill("kind = \"kill\", role = \"rollout\", index = 1, at_step = 1.5");
    let text = text + "set.detect = { off = [\"numeric\"], phase_overrun = { bound_s = 3 } }\n";
    let rule = crate::core::RULES
        .iter()
        .find(|r| r.name == "phase overrun");
    let plan = plan(&text).unwrap().without(rule.unwrap());
    let run = &plan.series[0].runs[0];
    assert!(run.may_fail);
    let job = crate::job::Job::parse(&run.job_text, Path::new("/jobs/j.toml")).unwrap();
    assert_eq!(job.detect.off, ["numeric", "phase_overrun"]);
    assert!(job.detect.rules.contains_key("phase_overrun"));
}

#[test]
fn a_rule_that_only_says_what_it_finds_is_looked_for_among_the_events() {
    let mut facts = good();
    let straggler = "rule = 'straggler'";
    assert!(!verdict(straggler, facts.clone()).held);
    facts
        .events
        .push(("straggler".to_owned(), "trainer-1 is one".to_owned()));
    assert!(verdict(straggler, facts).held);
}

fn recovery(plan: &str, detect_ms: u64, total_ms: u64) -> Recovery {
    Recovery {
        rule: "exit".to_owned(),
        plan: plan.to_owned(),
        detect: Duration::from_millis(detect_ms),
        total: Duration::from_millis(total_ms),
        recovered: true,
    }
}

/// A struck run with a role restart.
fn good() -> Facts {
    Facts {
        struck: true,
        incidents: vec![recovery("restart rollout-0 only; its requests", 20, 900)],
        events: vec![("slot".to_owned(), "slot 1 drains".to_owned())],
        ettr: 0.8,
        goodput: 0.7,
        end: End::Completed,
        steps_after: 3,
        lost: Vec::new(),
    }
}

/// Reads the keys of one `[expect]`; the first error.
fn read(text: &str) -> Result<Vec<Expectation>, String> {
    let expected: Expected = toml::from_str(text).map_err(|e| e.to_string())?;
    let lines = expected.lines(&["none", "role"]);
    lines.into_iter().map(expected::Line::read).collect()
}

fn verdict(text: &str, facts: Facts) -> Verdict {
    let free = Facts {
        end: End::Completed,
        ..Facts::default()
    };
    let measured = Measured {
        figures: BTreeMap::new(),
        runs: vec![("none".to_owned(), free), ("role".to_owned(), facts)],
    };
    let [expectation] = &read(text).unwrap()[..] else {
        unreachable!("one expectation: {text}")
    };
    expectation.verdict(&measured)
}

#[test]
fn every_expectation_holds_for_what_it_says_and_not_for_the_opposite() {
    let bad = || Facts {
        incidents: vec![recovery(
            "restart the whole task from step 3: so",
            700,
            9000,
        )],
        events: Vec::new(),
        ettr: 0.1,
        goodput: 0.1,
        end: End::Failed("no luck".to_owned()),
        steps_after: 0,
        lost: vec!["I-3: 0.0.1 is consumed by 1 and 2".to_owned()],
        ..good()
    };
    let unstruck = || Facts {
        incidents: Vec::new(),
        ..bad()
    };
    for text in [
        "restart = 'role'",
        "restarts = 1",
        "recovered_within = '1 s'",
        "detected_within = '20ms'",
        "ettr_at_least = 0.8",
        "goodput_at_least = 0.5",
        "lost = 0",
        "job = 'goes_on'",
        "rule = 'exit'",
        "event = { kind = 'slot' }",
        "event = { kind = 'slot', words = 'drains' }",
        "runs.none = { restart = 'none' }",
    ] {
        let found = verdict(text, good());
        assert!(found.held, "{text}: {}", found.found);
    }
    for text in [
        "restart = 'role'",
        "recovered_within = '1 s'",
        "detected_within = '20ms'",
        "ettr_at_least = 0.8",
        "goodput_at_least = 0.5",
        "lost = 0",
        "job = 'goes_on'",
        "rule = 'numeric'",
        "event = { kind = 'slot' }",
        "restart = 'none'",
        "restarts = 2",
    ] {
        let found = verdict(text, bad());
        assert!(!found.held, "{text}: {}", found.found);
    }
    for text in ["restart = 'task'", "job = 'fails'"] {
        assert!(verdict(text, bad()).held, "{text}");
        assert!(!verdict(text, good()).held, "{text}");
    }
    for text in [
        "restart = 'role'",
        "recovered_within = '1s'",
        "detected_within = '1s'",
    ] {
        assert!(!verdict(text, unstruck()).held, "{text}: nothing happened");
    }
    assert!(!verdict("event = { kind = 'slot', words = 'is lost' }", good()).held);
    assert!(verdict("lost = 0", bad()).found.contains("I-3"));
}

#[test]
fn a_recovery_that_is_not_over_was_in_no_time() {
    let mut facts = good();
    facts.incidents[0].recovered = false;
    assert!(!verdict("recovered_within = '1s'", facts).held);
}

#[test]
fn an_expectation_that_is_wrong_is_refused_where_it_stands_with_what_to_write() {
    for (wrong, says) in [
        ("restar = 'role'", "did you mean `restart`"),
        ("restart = 'rolle'", "`role`, `task` or `none`"),
        ("rule = 'exits'", "did you mean `exit`"),
        ("rule = ['exit', 'exits']", "did you mean `exit`"),
        ("recovered_within = '5 apples'", "`500ms`"),
        ("ettr_at_least = 80.0", "from 0 to 1"),
        ("restarts = -1", "restarts"),
        ("lost = 2", "write `lost = 0`"),
        ("event = { kin = 'slot' }", "`kind`"),
        ("event = 'slot'", "slot"),
        ("job = 'ends'", "`goes_on`"),
        ("compare = ['ettr_rolle >= 1']", "did you mean `ettr_role`"),
        ("runs.roll = { restart = 'none' }", "did you mean `role`"),
        ("runs.role = { compare = ['1 > 0'] }", "beside `runs`"),
    ] {
        let good = drill("kind = \"kill\", role = \"agent\", at_step = 1");
        let text = plan(&good.replace("restart = \"role\"", wrong)).unwrap_err();
        assert!(text.contains(says), "{wrong}: {text}");
        assert!(text.contains("d.toml:7:"), "no place in: {text}");
    }
}

#[test]
fn sentences_are_refused_with_the_table_that_says_the_same() {
    let good = drill("kind = \"kill\", role = \"agent\", at_step = 1");
    let old = good.replace(
        "{ restart = \"role\" }",
        "[\"role restart\", \"nothing lost\"]",
    );
    let text = plan(&old).unwrap_err();
    let table = "write `expect = { lost = 0, restart = \"role\" }`";
    assert!(text.contains("d.toml:7:") && text.contains(table), "{text}");
}

#[test]
fn the_forms_that_are_shown_are_forms_that_are_read() {
    for (form, _) in EXPECTATIONS {
        let text = form
            .replace("= N", "= 2")
            .replace("\"T\"", "\"2 s\"")
            .replace("= X", "= 0.5")
            .replace("NAME", "exit");
        assert_eq!(read(&text).unwrap().len(), 1, "{text}");
    }
}
