//! A trainer that is a PyTorch program: two ranks of `examples/grpo_torch`, really killed in each of their
//! phases, and what is said of programs that do something else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use robust_tests::{
    Daemon, JobFile, assert_consumed_once, bin, engine_process, example, roles, start_torch,
    torch_job, torch_python,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Incarnations of a role's instances.
fn lives(status: &Value, role: &str) -> Vec<u64> {
    let of = roles(status, role);
    of.iter()
        .map(|r| r["incarnation"].as_u64().unwrap())
        .collect()
}

/// The incident of a fault that was waited for; the gang alone was restarted.
fn restarted(daemon: &mut Daemon, fault: &[&str]) -> Value {
    let engines = lives(&daemon.status(), "rollout");
    let reply = daemon.json(&[&["inject"], fault, &["--wait"]].concat());
    let incident = reply["incident"].clone();
    let told = || format!("{fault:?}: {incident}\n{}", daemon.logs());
    assert_eq!(incident["outcome"], "recovered", "{}", told());
    let plan = incident["plan"].as_str().unwrap();
    assert!(plan.starts_with("restart the trainer gang"), "{}", told());
    assert_eq!(
        lives(&daemon.status(), "rollout"),
        engines,
        "no engine was restarted"
    );
    incident
}

fn next_step(daemon: &mut Daemon, incident: &Value) {
    // A fault before the restarted gang's first step would rightly restart the task.
    daemon.until_step(incident["step"].as_u64().unwrap() + 2);
}

#[test]
fn a_gang_of_pytorch_killed_in_each_of_its_phases_comes_back_alone_and_consumes_everything_once() {
    const STEPS: u64 = 40;
    let mut daemon = start_torch(&torch_job().set("job", "steps", STEPS as i64));
    daemon.until_step(2);
    for phase in [
        "old_logprob",
        "update",
        "snapshot",
        "publish",
        "await_batch",
    ] {
        let index = if phase == "update" { "1" } else { "0" };
        let fault = ["--exit", "trainer", "--index", index, "--at", phase];
        let incident = restarted(&mut daemon, &fault);
        next_step(&mut daemon, &incident);
    }
    // The program itself, and not its shim.
    let python = engine_process(&daemon, "trainer", 1, "train.py").expect("it runs");
    kill(Pid::from_raw(python), Signal::SIGKILL).unwrap();
    let status = daemon.until("the program's death is over", |s| {
        let incidents = s["incidents"].as_array().unwrap();
        incidents.len() == 6 && incidents[5]["outcome"] == "recovered"
    });
    let reason = status["incidents"][5]["reason"].as_str().unwrap();
    assert!(
        reason.contains(&format!("(pid {python}) ended: SIGKILL")),
        "{reason}"
    );
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    assert_consumed_once(&daemon.state_dir(), STEPS, 16);
}

#[test]
fn a_loss_that_is_no_number_and_an_exception_are_told_for_what_they_are() {
    let mut daemon = start_torch(&torch_job().set("job", "steps", 400));
    daemon.until_step(2);
    let incident = restarted(&mut daemon, &["--nan", "trainer"]);
    assert_eq!(incident["rule"], "numeric", "{incident}");
    next_step(&mut daemon, &incident);
    let incident = restarted(&mut daemon, &["--exception", "trainer", "--at", "update"]);
    let reason = incident["reason"].as_str().unwrap();
    assert!(
        reason.contains("exception on request in update"),
        "{reason}"
    );
}

#[test]
fn a_gang_whose_weights_lie_in_shards_goes_on_after_a_kill_from_its_shards() {
    let folder = example("grpo_fsdp").to_string_lossy().into_owned();
    let job = torch_job()
        .set("trainer.command", "cwd", folder)
        // The program rounds what it publishes.
        .set("rollout", "dtype", "bfloat16")
        .set("job", "steps", 12);
    let mut daemon = start_torch(&job);
    daemon.until_step(3);
    restarted(&mut daemon, &["--kill", "trainer", "--index", "1"]);
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    assert_consumed_once(&daemon.state_dir(), 12, 16);
}

#[test]
fn where_neither_the_trainer_nor_the_engines_are_built_in_both_are_killed_and_nothing_is_lost() {
    const STEPS: u64 = 60;
    let torch = torch_python().to_string_lossy().into_owned();
    let engine = bin("fake-engine").to_string_lossy().into_owned();
    let folder = example("grpo_torch").to_string_lossy().into_owned();
    let argv: Vec<toml::Value> = vec![torch.into(), "train.py".into()];
    let job = JobFile::of_fixture("jobs/engines-fake.toml")
        .set("job", "steps", STEPS as i64)
        .set("trainer.command", "argv", argv)
        .set("trainer.command", "cwd", folder)
        .set("trainer.command.env", "PYTHONPATH", "../../python/src");
    let mut daemon = Daemon::start_with(&job, &[("FAKE_ENGINE", &engine)]);
    daemon.until_step(2);
    let incident = restarted(&mut daemon, &["--kill", "trainer"]);
    next_step(&mut daemon, &incident);
    let reply = daemon.json(&["inject", "--kill-engine-leader", "rollout", "--wait"]);
    assert_eq!(reply["incident"]["outcome"], "recovered", "{reply}");
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    assert_consumed_once(&daemon.state_dir(), STEPS, 16);
}

/// The bytes of a checkpoint's shards, weights and optimiser, in rank order.
fn checkpoint(daemon: &Daemon, step: u64) -> Vec<Vec<u8>> {
    let folder = daemon.state_dir().join(format!("ckpt/step-{step}"));
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|e| e.path())
        .collect();
    files.retain(|file| file.extension().is_some_and(|e| e == "safetensors"));
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect()
}

#[test]
fn in_mode_sync_the_weights_after_a_kill_are_those_without_one() {
    let job = torch_job()
        .set("job", "mode", "sync")
        .set("job", "steps", 6);
    let mut quiet = start_torch(&job);
    assert_eq!(quiet.finish(), 0, "{}", quiet.logs());
    let mut struck = start_torch(&job);
    struck.until_step(2);
    restarted(&mut struck, &["--kill", "trainer"]);
    assert_eq!(struck.finish(), 0, "{}", struck.logs());
    let (quiet, struck) = (checkpoint(&quiet, 6), checkpoint(&struck, 6));
    assert_eq!(quiet.len(), 2, "a shard of each rank");
    assert!(
        quiet == struck,
        "the same weights and the same optimiser, to the bit"
    );
}

/// A job whose trainer is this python text.
fn scripted(dir: &Path, text: &str) -> JobFile {
    let script = dir.join("script.py");
    std::fs::write(&script, text).unwrap();
    let source = example("../python/src").to_string_lossy().into_owned();
    let argv: Vec<toml::Value> = vec![
        "{env:TORCH_PYTHON}".into(),
        script.to_string_lossy().into_owned().into(),
    ];
    torch_job().set("trainer.command", "argv", argv).set(
        "trainer.command.env",
        "PYTHONPATH",
        source,
    )
}

/// Computes for four seconds of its own processor time in each update.
const SLOW: &str = r#"
import time, robustrl, torch
from transformers import AutoModelForCausalLM
job = robustrl.attach()
model = AutoModelForCausalLM.from_pretrained(job.model, dtype=torch.float32)
job.restore({"model": model})
job.publish(model)
for batch in job.batches():
    with job.phase("update"):
        end = time.process_time() + 4
        while time.process_time() < end:
            pass
    job.commit(loss=0.5)
    job.publish(model)
"#;

#[test]
fn a_program_that_computes_longer_than_the_idle_window_is_not_idle() {
    let dir = tempfile::tempdir().unwrap();
    let job =
        scripted(dir.path(), SLOW)
            .set("job", "steps", 2)
            .set("detect.trainer_idle", "window_s", 2);
    let mut daemon = start_torch(&job);
    daemon.until_step(1);
    assert_eq!(
        daemon.status()["incidents"],
        serde_json::json!([]),
        "{}",
        daemon.logs()
    );
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
}

#[test]
fn a_program_that_stands_still_is_found_though_its_shim_does_not() {
    let job = torch_job()
        .set("job", "steps", 400)
        .set("detect.trainer_idle", "window_s", 3);
    let mut daemon = start_torch(&job);
    daemon.until_step(2);
    let python = engine_process(&daemon, "trainer", 0, "train.py").expect("it runs");
    kill(Pid::from_raw(python), Signal::SIGSTOP).unwrap();
    let status = daemon.until("the gang is back", |s| {
        s["incidents"][0]["outcome"] == "recovered"
    });
    assert_eq!(status["incidents"][0]["rule"], "trainer idle", "{status}");
}

/// What such a job fails with.
fn failure(job: &JobFile) -> String {
    let mut daemon = start_torch(job);
    assert_ne!(daemon.finish(), 0, "it cannot work");
    daemon.stdout()
}

#[test]
fn a_program_that_never_attaches_is_given_up_and_the_key_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let job = scripted(dir.path(), "import time\ntime.sleep(600)\n");
    let said = failure(&job.set("trainer.command.ready", "timeout_s", 0.5));
    assert!(
        said.contains("did not call robustrl.attach() within 0.5 s"),
        "{said}"
    );
}

#[test]
fn a_program_that_does_not_even_start_says_its_own_last_line() {
    let dir = tempfile::tempdir().unwrap();
    let said = failure(&scripted(dir.path(), "import no_such_module\n"));
    assert!(
        said.contains("ModuleNotFoundError: No module named 'no_such_module'"),
        "{said}"
    );
}

#[test]
fn a_program_that_forgets_to_restore_is_told_what_to_call() {
    let dir = tempfile::tempdir().unwrap();
    let text = "import robustrl\njob = robustrl.attach()\nnext(job.batches())\n";
    let mut daemon = start_torch(&scripted(dir.path(), text));
    let said = daemon.until("the gang's end", |s| !s["incidents"][0].is_null());
    let said = said["incidents"][0]["reason"].as_str().unwrap();
    assert!(
        said.contains("the next batch comes after restore()"),
        "{said}"
    );
}

/// Where those of the package's tests run that want a framework which the python with torch has not.
const FRAMEWORKS: [(&str, &str); 3] = [
    ("test_trl", "make test-trl"),
    ("test_verl", "docs/verl.md says how they are run"),
    ("test_miles", "docs/miles.md says how they are run"),
];

/// What Python's runner says of its tests: why some did not run, by their module, and how many.
fn skipped(said: &str) -> BTreeMap<(String, String), usize> {
    let mut skipped = BTreeMap::new();
    for line in said.lines() {
        // `test_name (module.Class.test_name) ... skipped 'reason'`, or a whole module.
        let parts = line.split_once(") ... skipped ");
        let Some((test, why)) = parts.and_then(|(of, why)| Some((of.split_once(" (")?.1, why)))
        else {
            continue;
        };
        let whole = test.strip_prefix("unittest.loader.ModuleSkipped.");
        let module = whole.unwrap_or(test).split('.').next().unwrap();
        // In quotes of either kind.
        let why = &why[1..why.len() - 1];
        let key = (module.to_owned(), why.to_owned());
        *skipped.entry(key).or_default() += 1;
    }
    skipped
}

#[test]
fn the_packages_own_tests_pass() {
    let python = example("../python");
    let run = std::process::Command::new(torch_python())
        .args(["-m", "unittest", "discover", "-v", "-s", "tests"])
        .current_dir(&python)
        .env("PYTHONPATH", "src")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let (mut told, total) = (0, number_behind(&said, "skipped="));
    for ((module, why), count) in skipped(&said) {
        let what = format!("{count} of python/tests/{module}.py: {why}");
        match FRAMEWORKS.iter().find(|(of, _)| *of == module) {
            Some((_, place)) => robust_needs::elsewhere(what, place),
            None => robust_needs::skip(what, robust_needs::SETUP),
        }
        told += count;
    }
    assert_eq!(told, total, "who does not run is told: {said}");
}

/// The number behind a word of the last line; 0 where it does not have the word.
fn number_behind(said: &str, word: &str) -> usize {
    let last = said.lines().last().unwrap_or_default();
    let behind = last.split(word).nth(1).unwrap_or_default();
    let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}
