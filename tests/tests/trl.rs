//! TRL's asynchronous GRPO trainer, unmodified, as a loop of its own: really killed, and it goes on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::{Daemon, JobFile, bin, example, roles};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The python that `scripts/trl.sh --run` names.
fn python() -> String {
    std::env::var("TRL_PYTHON").expect("run it by scripts/trl.sh --run, which sets TRL_PYTHON")
}

/// The words that begin with this in the trainer's log.
fn told(daemon: &Daemon, begin: &str) -> Vec<String> {
    let log = daemon.state_dir().join("logs/trainer-0.log");
    let text = std::fs::read_to_string(log).unwrap();
    let lines = text.lines().filter(|line| line.starts_with(begin));
    lines.map(str::to_owned).collect()
}

fn lives(status: &Value, role: &str) -> Vec<u64> {
    let of = roles(status, role);
    of.iter()
        .map(|r| r["incarnation"].as_u64().unwrap())
        .collect()
}

#[test]
#[ignore = "needs TRL, which scripts/trl.sh sets up"]
fn trls_own_trainer_goes_on_from_its_checkpoint_and_engines_from_the_newest_version() {
    let (model, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (python, folder) = (python(), example("trl_async"));
    let mut make = Command::new(&python);
    make.arg(folder.join("make_model.py")).arg(model.path());
    assert!(make.status().unwrap().success());
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let job = JobFile::of_fixture("jobs/test-trl.toml")
        .set("model", "path", text(model.path()))
        .set("trainer.command", "cwd", text(&folder));
    let (engine, output) = (text(&bin("fake-engine")), text(kept.path()));
    let variables = [
        ("TRL_PYTHON", &*python),
        ("FAKE_ENGINE", &*engine),
        ("TRL_OUTPUT", &*output),
    ];
    let mut daemon = Daemon::start_with(&job, &variables);

    let before = daemon.until_step(7);
    let reply = daemon.json(&["inject", "--kill", "trainer", "--wait"]);
    assert_eq!(reply["incident"]["outcome"], "recovered", "{reply}");
    let step = reply["incident"]["step"].as_u64().unwrap();
    let after = daemon.until_step(step + 2);
    let (engines, gang) = (lives(&before, "rollout"), lives(&before, "trainer"));
    assert_eq!(lives(&after, "rollout"), engines, "no engine was restarted");
    assert_ne!(lives(&after, "trainer"), gang);

    let gang = lives(&after, "trainer");
    let reply = daemon.json(&["inject", "--kill-engine-leader", "rollout", "--wait"]);
    assert_eq!(reply["incident"]["outcome"], "recovered", "{reply}");
    let last = daemon.until_step(step + 6);
    assert_eq!(lives(&last, "trainer"), gang, "the trainer did not notice");

    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    let begins = told(&daemon, "life ");
    assert_eq!(begins.len(), 2, "{begins:?}");
    assert!(begins[0].ends_with("the initial weights"), "{begins:?}");
    let at: u64 = begins[1].rsplit('-').next().unwrap().parse().unwrap();
    assert!(
        at >= 3 && at <= step && at.is_multiple_of(3),
        "{begins:?}, step {step}"
    );
    assert_eq!(told(&daemon, "trained "), ["trained 30 steps"]);
    // The weights of the checkpoint are a version, and each of TRL's steps after it is one; that of the checkpoint
    // is no step more where the trainer died between a step and its version.
    let steps = daemon.stdout();
    let last = steps.lines().rfind(|l| l.starts_with("step")).unwrap();
    let number: u64 = last.split_whitespace().nth(1).unwrap().parse().unwrap();
    let least = step + 30 - at;
    assert!((least..=least + 1).contains(&number), "{steps}");
}
