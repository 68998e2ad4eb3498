//! Every role really killed and really stopped; the invariants checked on every status between.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::{Daemon, JobFile, roles, tokens};
use serde_json::Value;

fn long_job() -> JobFile {
    JobFile::small().set("job", "steps", 400)
}

fn pids(status: &Value, role: &str) -> Vec<u64> {
    roles(status, role)
        .iter()
        .map(|r| r["pid"].as_u64().unwrap())
        .collect()
}

/// Injects, waits for the recovery, and returns the incident.
fn strike(daemon: &Daemon, args: &[&str]) -> Value {
    let reply = daemon.json(&[&["inject", "--wait", "--timeout", "120"], args].concat());
    let incident = reply["incident"].clone();
    assert_eq!(
        incident["outcome"],
        "recovered",
        "{reply}\n{}",
        daemon.logs()
    );
    for part in ["detect_ms", "restart_ms", "reconnect_ms", "total_ms"] {
        assert!(
            incident[part].as_f64().is_some_and(|ms| ms >= 0.0),
            "{part} of {incident}"
        );
    }
    incident
}

#[test]
fn the_trainers_death_restarts_only_the_gang_while_rollouts_keep_generating() {
    let mut daemon = Daemon::start(&long_job());
    let before = daemon.until_step(2);
    let incident = strike(&daemon, &["--kill", "trainer", "--index", "1"]);
    assert_eq!(incident["rule"], "exit", "{incident}");
    assert!(
        incident["plan"].as_str().unwrap().contains("trainer"),
        "{incident}"
    );

    let step = before["step"].as_u64().unwrap();
    let after = daemon.until_step(step + 3);
    assert_eq!(
        pids(&before, "rollout"),
        pids(&after, "rollout"),
        "rollouts were restarted"
    );
    assert_eq!(
        pids(&before, "agent"),
        pids(&after, "agent"),
        "agents were restarted"
    );
    for (old, new) in pids(&before, "trainer").iter().zip(pids(&after, "trainer")) {
        assert_ne!(*old, new, "a rank of the old gang is still there");
    }
    assert!(tokens(&after) > tokens(&before));
    consumed_once(&mut daemon);
}

#[test]
fn rollouts_generate_while_the_trainer_recovers() {
    let mut daemon = Daemon::start(&long_job());
    // A strike may fall when the next batch is already generated, and there is nothing to do.
    for strike in 1..=8 {
        let step = daemon.until_step(strike * 2)["step"].as_u64().unwrap();
        daemon.json(&["inject", "--kill", "trainer", "--index", "0"]);
        let incident = |s: &Value| s["incidents"].as_array().unwrap().len() as u64 == strike;
        let open = daemon.until("the incident to open", incident);
        let mut grew = false;
        let closed = daemon.until("the recovery", |s| {
            let over = s["incidents"][strike as usize - 1]["outcome"] != "recovering";
            grew |= !over && tokens(s) > tokens(&open);
            over
        });
        if grew {
            return;
        }
        daemon.until_step(closed["step"].as_u64().unwrap().max(step) + 1);
    }
    panic!(
        "no token was generated during eight recoveries\n{}",
        daemon.logs()
    );
}

#[test]
fn a_rollouts_death_moves_its_requests_and_the_new_one_serves_a_verified_version() {
    let mut daemon = Daemon::start(&long_job());
    let before = daemon.until_step(1);
    strike(&daemon, &["--kill", "rollout", "--index", "0"]);
    let step = before["step"].as_u64().unwrap();
    let after = daemon.until_step(step + 3);
    assert_eq!(
        pids(&before, "trainer"),
        pids(&after, "trainer"),
        "the trainer was restarted"
    );
    let admitted = daemon.until("the new rollout to be admitted", |s| {
        roles(s, "rollout").iter().all(|r| r["admitted"] == true)
    });
    for rollout in roles(&admitted, "rollout") {
        assert!(
            rollout["weight_version"].as_u64().unwrap() >= 1,
            "{rollout}"
        );
    }
    consumed_once(&mut daemon);
}

#[test]
fn an_agents_death_costs_no_trajectory() {
    let mut daemon = Daemon::start(&long_job());
    let before = daemon.until_step(1);
    strike(&daemon, &["--kill", "agent", "--index", "1"]);
    let step = before["step"].as_u64().unwrap();
    let after = daemon.until_step(step + 3);
    assert_eq!(pids(&before, "trainer"), pids(&after, "trainer"));
    assert_eq!(pids(&before, "rollout"), pids(&after, "rollout"));
    consumed_once(&mut daemon);
}

#[test]
fn a_stopped_trainer_is_found_by_the_activity_rule_and_replaced() {
    // Well below the 3 s after which the other rank, if it was about to fetch, gives its peer up: its
    // error would be the verdict.
    let job = long_job().set("detect.trainer_idle", "window_s", 2.0);
    let mut daemon = Daemon::start(&job);
    let before = daemon.until_step(1);
    let incident = strike(&daemon, &["--hang", "trainer", "--index", "0"]);
    assert!(
        incident["rule"].as_str().unwrap().contains("idle"),
        "{incident}"
    );
    let step = before["step"].as_u64().unwrap();
    daemon.until_step(step + 2);
    consumed_once(&mut daemon);
}

#[test]
fn a_stopped_rollout_is_found_by_the_throughput_rule_and_replaced() {
    let job = long_job()
        .set("detect.rollout_silent", "window_s", 2.0)
        .set("detect.rollout_silent", "probe_timeout_s", 1.0);
    let mut daemon = Daemon::start(&job);
    let before = daemon.until_step(1);
    let incident = strike(&daemon, &["--hang", "rollout", "--index", "2"]);
    assert!(
        incident["rule"].as_str().unwrap().contains("silent"),
        "{incident}"
    );
    let step = before["step"].as_u64().unwrap();
    daemon.until_step(step + 2);
    consumed_once(&mut daemon);
}

#[test]
fn a_loss_that_is_no_number_is_not_committed_and_the_step_is_trained_again() {
    let mut daemon = Daemon::start(&long_job());
    let before = daemon.until_step(1);
    let incident = strike(&daemon, &["--nan", "trainer"]);
    assert_eq!(incident["rule"], "numeric", "{incident}");
    let reason = incident["reason"].as_str().unwrap();
    assert!(
        reason.contains("failed") && reason.contains("NaN"),
        "{reason}"
    );
    let step = before["step"].as_u64().unwrap();
    daemon.until_step(step + 2);
    consumed_once(&mut daemon);
}

#[test]
fn ref_logprob_takes_its_time_where_it_is_done_and_what_nobody_enters_is_refused() {
    let job = long_job().set("train", "kl_coef", 0.1);
    let mut daemon = Daemon::start(&job);
    daemon.until_step(3);
    let rank = daemon.json(&["roles", "trainer-0"]);
    let spans = rank[0]["phases"].as_array().unwrap();
    let longest = |phase: &str| {
        let of = spans.iter().filter(|s| s["phase"] == phase);
        of.filter_map(|s| s["ms"].as_u64())
            .max()
            .unwrap_or_else(|| panic!("never in {phase}: {spans:#?}"))
    };
    // Both are a pass forward over the same batch; one that only passed through took no time at all.
    let (reference, old) = (longest("ref_logprob"), longest("old_logprob"));
    assert!(reference * 5 >= old, "{reference} ms beside {old} ms");
    let incident = strike(&daemon, &["--kill", "trainer", "--at", "ref_logprob"]);
    assert_eq!(incident["rule"], "exit", "{incident}");
    let out = daemon.ctl(&["inject", "--kill", "trainer", "--at", "advantage"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(
        !out.status.success()
            && said.contains("it comes into init,")
            && said.contains("ref_logprob"),
        "{said}"
    );
}

/// I-3 from outside: committed steps are contiguous, each with a whole batch.
fn consumed_once(daemon: &mut Daemon) {
    let report = daemon.json(&["report"]);
    let lines = report["step_lines"]
        .as_array()
        .expect("the report lists the steps");
    let steps: Vec<u64> = lines.iter().map(|l| l["step"].as_u64().unwrap()).collect();
    let expected: Vec<u64> = (1..=steps.len() as u64).collect();
    assert_eq!(
        steps, expected,
        "I-3: every step is committed once, in order"
    );
}
