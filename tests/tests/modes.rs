//! The three modes with hybrid trainers, and the baseline policy, as real jobs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::{Daemon, JobFile, roles};
use robustd::store::Store;
use serde_json::Value;

fn semi_sync(steps: u64) -> JobFile {
    JobFile::small()
        .set("job", "mode", "semi-sync")
        .set("job", "steps", steps as i64)
        // One engine of its own, one request at a time: it alone does not generate half of a batch
        // while the ranks train (a batch that far ahead needs no switch).
        .set("rollout", "replicas", 1)
        .set("rollout", "max_running", 1)
}

fn pids(status: &Value, role: &str) -> Vec<u64> {
    let of = roles(status, role);
    of.iter().map(|r| r["pid"].as_u64().unwrap()).collect()
}

/// Injects, waits for the recovery, and returns the incident.
fn strike(daemon: &Daemon, args: &[&str]) -> Value {
    let reply = daemon.json(&[&["inject", "--wait", "--timeout", "120"], args].concat());
    let incident = reply["incident"].clone();
    assert_ne!(
        incident["outcome"],
        "recovering",
        "{reply}\n{}",
        daemon.logs()
    );
    incident
}

#[test]
fn semi_sync_trains_with_its_slots_going_back_and_forth_whoever_dies() {
    let mut daemon = Daemon::start(&semi_sync(400));
    let before = daemon.until("an engine to generate on a trainer's slot", |s| {
        let engines = roles(s, "hybrid");
        let generated = |r: &&Value| r["tokens_total"].as_u64() > Some(0);
        engines.len() == 2 && s["step"].as_u64() >= Some(1) && engines.iter().any(generated)
    });
    let incident = strike(&daemon, &["--kill", "trainer", "--index", "1"]);
    assert_eq!(incident["outcome"], "recovered", "{incident}");
    let between = daemon.until_step(incident["step"].as_u64().unwrap() + 3);
    for kept in ["hybrid", "rollout", "agent"] {
        assert_eq!(pids(&before, kept), pids(&between, kept), "{kept}");
    }
    let incident = strike(&daemon, &["--kill", "hybrid", "--index", "0"]);
    assert_eq!(incident["outcome"], "recovered", "{incident}");
    let after = daemon.until_step(incident["step"].as_u64().unwrap() + 3);
    for kept in ["trainer", "rollout", "agent"] {
        assert_eq!(pids(&between, kept), pids(&after, kept), "{kept}");
    }
    let switches = daemon.events("context");
    let count = |to: &str| switches.iter().filter(|t| t.contains(to)).count();
    assert!(count("over to training") >= 2, "{switches:#?}");
    assert!(count("over to rolling") >= 2, "{switches:#?}");
    let report = daemon.json(&["report"]);
    let lines = report["step_lines"].as_array().unwrap();
    let steps: Vec<u64> = lines.iter().map(|l| l["step"].as_u64().unwrap()).collect();
    let expected: Vec<u64> = (1..=steps.len() as u64).collect();
    assert_eq!(steps, expected, "I-3");
}

#[test]
fn a_semi_sync_job_ends_and_its_recorded_intervals_give_the_figures_it_showed() {
    let mut daemon = Daemon::start(&semi_sync(5));
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    recomputed(&daemon, 0.0);
}

#[test]
fn policy_task_restarts_everybody_and_generates_lost_work_again() {
    let job = JobFile::small()
        .set("job", "steps", 8)
        .set("job", "policy", "task");
    let mut daemon = Daemon::start(&job);
    let before = daemon.until("finished work", |s| {
        s["step"].as_u64() >= Some(2) && s["trajectories_finished"].as_u64() > Some(0)
    });
    let incident = strike(&daemon, &["--kill", "rollout", "--index", "0"]);
    let plan = incident["plan"].as_str().unwrap();
    assert!(plan.starts_with("restart the whole task"), "{incident}");
    let after = daemon.until("new lives", |s| {
        let up = |role| roles(s, role).iter().all(|r| r["state"] == "running");
        up("trainer") && up("agent")
    });
    for role in ["trainer", "rollout", "agent"] {
        let kept = pids(&after, role)
            .into_iter()
            .find(|p| pids(&before, role).contains(p));
        assert_eq!(kept, None, "a {role} was not restarted");
    }
    let lost = after["trajectories_discarded"].as_u64().unwrap();
    assert!(lost > 0, "{after}");
    assert_eq!(daemon.events("discarded").len(), 1);
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    recomputed(&daemon, 1e-3);
}

/// ETTR and goodput from the intervals in the store, by their definition alone, are what the daemon
/// printed at its end; goodput lies below ETTR by at least so much.
fn recomputed(daemon: &Daemon, wasted: f64) {
    let (store, _) = Store::open(&daemon.state_dir()).unwrap();
    let intervals = store.intervals().unwrap();
    let plain: Vec<_> = intervals.iter().filter(|i| !i.waste).collect();
    for pair in plain.windows(2) {
        assert_eq!(pair[0].to, pair[1].from, "the plain intervals leave no gap");
    }
    let counted = |waste: bool| -> f64 {
        let of = intervals.iter().filter(|i| i.waste == waste);
        of.map(|i| i.value * (i.to.0 - i.from.0) as f64).sum()
    };
    let span = (plain.last().unwrap().to.0 - plain[0].from.0) as f64;
    let (ettr, goodput) = (
        counted(false) / span,
        (counted(false) - counted(true)) / span,
    );
    let printed = daemon.stdout();
    let figure = |name: &str| -> f64 {
        let tail = printed.rsplit(&format!("{name} ")).next().unwrap();
        let number: String = tail
            .chars()
            .take_while(|c| c.is_ascii_digit() || *c == '.')
            .collect();
        number
            .trim_end_matches('.')
            .parse()
            .unwrap_or_else(|_| panic!("{name} in {printed}"))
    };
    assert!((figure("ETTR") - ettr).abs() < 0.002, "{ettr} in {printed}");
    assert!(
        (figure("goodput") - goodput).abs() < 0.002,
        "{goodput} in {printed}"
    );
    assert!(ettr - goodput >= wasted, "{ettr} {goodput}");
}
