//! I-9: in sync mode the weights depend on the seed alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::{Daemon, JobFile};
use std::collections::BTreeMap;

/// Enough of them that the job is under way when it is struck, however busy the machine is.
const STEPS: i64 = 12;

fn sync_job() -> JobFile {
    JobFile::small()
        .set("job", "steps", STEPS)
        .set("job", "mode", "sync")
        .set("checkpoint", "every", 4)
}

/// The bytes of every tensor of the last checkpoint, by shard.
fn final_weights(daemon: &Daemon) -> BTreeMap<String, Vec<u8>> {
    daemon.checkpoint(STEPS)
}

#[test]
fn two_runs_and_a_run_with_a_killed_trainer_end_with_identical_weights() {
    let run = |strike: bool| {
        let mut daemon = Daemon::start(&sync_job());
        if strike {
            daemon.until_step(1);
            let out = daemon.ctl(&["inject", "--kill", "trainer", "--wait"]);
            assert!(
                out.status.success(),
                "{}",
                String::from_utf8_lossy(&out.stderr)
            );
        }
        assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
        final_weights(&daemon)
    };
    let first = run(false);
    assert!(first == run(false), "two runs of one seed differ");
    assert!(first == run(true), "I-9: the run with a fault differs");
}

#[test]
fn a_machine_that_is_started_anew_trains_lost_steps_again_and_ends_with_identical_weights() {
    let job = sync_job();
    let mut undisturbed = Daemon::start(&job);
    assert_eq!(undisturbed.finish(), 0, "{}", undisturbed.logs());
    let mut daemon = Daemon::start(&job);
    // Steps 5 to 7 are in memory alone: the newest checkpoint is of step 4.
    daemon.until_step(5);
    daemon.end_machine();
    daemon.launch();
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    let said = std::fs::read_to_string(daemon.stderr()).unwrap();
    let restored = said
        .lines()
        .find(|line| line.contains("passed over: own memory"));
    let restored = restored.unwrap_or_else(|| panic!("{said}"));
    for part in [
        "from own disk at step 4, then step",
        "trained again from their trajectories, with the same figures to the bit",
    ] {
        assert!(restored.contains(part), "{part}: {restored}");
    }
    assert!(
        final_weights(&undisturbed) == final_weights(&daemon),
        "I-9: the run whose machine ended differs"
    );
}

#[test]
fn hybrid_engines_change_no_bit_even_when_one_of_them_and_the_trainer_are_killed() {
    let run = |job: &JobFile, strikes: &[&str]| {
        let mut daemon = Daemon::start(job);
        for (at, role) in (1..).zip(strikes) {
            daemon.until_step(at);
            let out = daemon.ctl(&["inject", "--kill", role, "--wait"]);
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success(), "{said}");
        }
        assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
        final_weights(&daemon)
    };
    let hybrid = sync_job().set("trainer", "hybrid", true);
    let without = run(&sync_job(), &[]);
    assert!(
        without == run(&hybrid, &[]),
        "engines on the trainer's slots sample other tokens"
    );
    let struck = run(&hybrid, &["hybrid", "trainer"]);
    assert!(without == struck, "I-9: the run with faults differs");
}
