#![allow(clippy::unwrap_used)]
use super::*;
use crate::job::{Job, Mode};
use std::collections::BTreeMap;

const JOB: &str = "[job]\nsteps = 30\n[data]\nprompts = \"p.jsonl\"\ntokenizer = \"../t.json\"\n";

const DRILL: &str = r#"version = 1
name = "small"
job = "job.toml"
seed = 5
set = { batch.prompts = 4 }
runs = [{ name = "none" }, { name = "task", policy = "task" }, { name = "role", policy = "role" }]
faults = [{ kind = "kill", role = "trainer", every_steps = 10 }]

[[series]]
name = "async"
expect = { compare = ["ettr_role - ettr_task >= 0.15", "time_role <= 0.916 * time_task"] }

[[series]]
name = "sync"
set = { job.mode = "sync", job.steps = 20 }
expect = { weights = "identical" }
"#;

fn plan(drill: &str) -> Result<Plan, String> {
    let drill = Drill::parse(drill, Path::new("d.toml")).map_err(|e| e.to_string())?;
    Plan::make(&drill, JOB, Path::new("/jobs/job.toml")).map_err(|e| e.to_string())
}

fn refused(from: &str, to: &str, says: &[&str]) {
    assert!(DRILL.contains(from), "{from} is not in the drill");
    let text = plan(&DRILL.replace(from, to)).unwrap_err();
    for word in says {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

#[test]
fn every_series_runs_every_run_with_its_values_and_absolute_paths() {
    let plan = plan(DRILL).unwrap();
    let modes: Vec<_> = plan
        .series
        .iter()
        .map(|s| (s.mode, s.runs[0].steps))
        .collect();
    assert_eq!(modes, [(Mode::Async, 30), (Mode::Sync, 20)]);
    let names: Vec<_> = plan.series[0]
        .runs
        .iter()
        .map(|r| r.name.as_str())
        .collect();
    assert_eq!(names, ["none", "task", "role"]);
    let job = Job::parse(&plan.series[1].runs[1].job_text, Path::new("j")).unwrap();
    assert_eq!((job.job.policy, job.batch.prompts), (Policy::Task, 4));
    assert_eq!(job.data.prompts, Path::new("/jobs/p.jsonl"));
    assert_eq!(job.data.tokenizer, Path::new("/t.json"));
}

#[test]
fn runs_with_a_policy_are_struck_at_the_same_places_and_the_first_run_never() {
    let plan = plan(DRILL).unwrap();
    let [none, task, role] = &plan.series[0].runs[..] else {
        unreachable!("three runs");
    };
    assert_eq!(none.strikes, []);
    assert_eq!(task.strikes, role.strikes);
    let places: Vec<f64> = task.strikes.iter().map(|s| steps(s.at)).collect();
    let windows: Vec<u64> = places.iter().map(|p| (p / 10.0) as u64).collect();
    assert_eq!(windows, [0, 1, 2], "one in every 10 steps: {places:?}");
    assert!(
        places[2] <= 28.5,
        "the last leaves room to recover: {places:?}"
    );
    // Random, but not by chance: the seed decides.
    assert_eq!(self::plan(DRILL).unwrap(), plan);
    let other = self::plan(&DRILL.replace("seed = 5", "seed = 6")).unwrap();
    assert_ne!(other.series[0].runs[1].strikes, task.strikes);
}

fn steps(at: Moment) -> f64 {
    match at {
        Moment::Steps(at) => at,
        Moment::Seconds(at) => unreachable!("{at} s"),
    }
}

#[test]
fn a_drill_against_a_role_or_an_index_that_is_not_there_is_refused() {
    refused(
        "role = \"trainer\"",
        "role = \"critic\"",
        &["d.toml:7:", "critic", "`trainer`"],
    );
    refused(
        "role = \"trainer\"",
        "role = \"rollout\", index = 3",
        &["d.toml:7:", "no rollout 3", "has 3", "write 0 to 2"],
    );
}

#[test]
fn an_unknown_key_is_refused_with_its_place_and_the_nearest() {
    refused(
        "seed = 5",
        "seeds = 5",
        &["d.toml:4:1", "`seeds`", "did you mean `seed`"],
    );
    refused(
        "every_steps",
        "every_step",
        &["d.toml:7:", "did you mean `every_steps`"],
    );
    refused(
        "set = { batch.prompts = 4 }",
        "set = { batch.prompt = 4 }",
        &["d.toml:5:", "batch.prompt", "did you mean `prompts`"],
    );
}

#[test]
fn a_value_that_the_job_refuses_is_named_where_the_drill_sets_it() {
    refused(
        "job.steps = 20",
        "job.steps = 0",
        &["d.toml:15:", "series `sync`", "job.steps"],
    );
    refused(
        "batch.prompts = 4",
        "batch.prompts = 0",
        &["d.toml:5:", "batch.prompts"],
    );
}

#[test]
fn faults_need_one_moment_with_room_to_recover() {
    refused(", every_steps = 10", "", &["d.toml:7:", "exactly one"]);
    refused(
        "every_steps = 10",
        "every_steps = 10, at_s = 1",
        &["exactly one"],
    );
    refused(
        "every_steps = 10",
        "at_step = 29",
        &["step 29 of 30", "at most 28.5"],
    );
    refused("every_steps = 10", "at_s = -1", &["count from 0"]);
    refused("every_steps = 10", "every_steps = 1", &["write 2 to 30"]);
}

#[test]
fn a_file_of_another_version_is_called_that_before_anything_else() {
    refused(
        "version = 1",
        "version = 2\nnew = true",
        &["d.toml:1:1", "version` is 2"],
    );
}

#[test]
fn the_first_run_has_no_faults_and_names_occur_once() {
    refused(
        "{ name = \"none\" }, ",
        "",
        &["`task`, has a policy", "first"],
    );
    refused(
        "name = \"task\", policy",
        "name = \"none\", policy",
        &["\"none\"", "each name once"],
    );
    refused(
        "name = \"sync\"",
        "name = \"async\"",
        &["d.toml:14:", "\"async\""],
    );
}

#[test]
fn weights_are_compared_in_mode_sync_only() {
    refused(
        "job.mode = \"sync\", ",
        "",
        &["d.toml:16:", "mode async", "I-9"],
    );
}

#[test]
fn an_expectation_names_known_metrics_and_compares() {
    let wrong = |text: &str| Expectation::comparison(text, &["none", "role"]).unwrap_err();
    assert!(wrong("ettr_rolle >= 1").contains("did you mean `ettr_role`"));
    assert!(wrong("ettr_role").contains("compare two sides"));
    assert!(wrong("ettr_role >=").contains("missing"));
    assert!(wrong("(ettr_role >= 1").contains("not closed"));
    assert!(wrong("ettr_role >= 1 2").contains("follows"));
    assert!(wrong("ettr_role ~ 1").contains("`~`"));
}

#[test]
fn a_verdict_tells_both_sides_and_what_was_not_measured_fails() {
    let figures = BTreeMap::from([
        ("time_none".to_owned(), 100.0),
        ("time_role".to_owned(), 106.0),
        ("overhead_task".to_owned(), 30.0),
        ("overhead_role".to_owned(), 6.0),
    ]);
    let measured = Measured {
        figures,
        runs: Vec::new(),
    };
    let runs = ["none", "task", "role"];
    let verdict = |text: &str| {
        Expectation::comparison(text, &runs)
            .unwrap()
            .verdict(&measured)
    };
    let good = verdict("overhead_role <= overhead_task / 3");
    assert_eq!(
        (good.held, good.left, good.right),
        (true, Some(6.0), Some(10.0))
    );
    assert!(verdict("time_role - time_none < 2 * (1 + 2.5)").held);
    assert!(!verdict("2 + 3 * 4 > 14").held);
    assert!(!verdict("ettr_role >= 0").held);
    assert!(!verdict("time_none / (time_none - time_none) > 0").held);
    assert!(!verdict("weights_identical").held);
}
