//! Processes that wait for a restart, in real jobs (`[restart] spares`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::{Cluster, Daemon, JobFile, roles};
use serde_json::Value;
use std::collections::BTreeSet;

/// Enough of them that spares are there long before the end, however busy the machine is.
const STEPS: i64 = 40;

fn job() -> JobFile {
    JobFile::small()
        .set("job", "steps", STEPS)
        .set("job", "mode", "sync")
        .set("checkpoint", "every", 4)
}

fn pids(of: &[&Value]) -> BTreeSet<u64> {
    of.iter().filter_map(|one| one["pid"].as_u64()).collect()
}

fn of_role(status: &Value, role: &str) -> BTreeSet<u64> {
    pids(&roles(status, role))
}

/// The spares for a role that have done all that they can.
fn ready(status: &Value, role: &str) -> BTreeSet<u64> {
    let all = status["spares"].as_array().expect("a status has spares");
    let fit = all
        .iter()
        .filter(|s| s["role"] == role && s["ready"] == true);
    pids(&fit.collect::<Vec<_>>())
}

/// Waits until the job is whole and so many are ready, for two ranks and an engine.
fn until_ready(daemon: &mut Daemon) -> Value {
    daemon.until("spares to be ready", |status| {
        ready(status, "trainer").len() == 2 && ready(status, "rollout").len() == 1
    })
}

fn kill(daemon: &Daemon, role: &str) {
    let out = daemon.ctl(&["inject", "--kill", role, "--index", "0", "--wait"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}\n{}", daemon.logs());
}

fn lives(pid: u64) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}

#[test]
fn a_killed_rank_and_a_killed_engine_are_spares_that_were_there_and_no_bit_differs() {
    let mut undisturbed = Daemon::start(&job());
    assert_eq!(undisturbed.finish(), 0, "{}", undisturbed.logs());

    let mut daemon = Daemon::start(&job().set("restart", "spares", 1));
    let before = until_ready(&mut daemon);
    let memory = before["spares"][0]["memory_bytes"].as_u64().unwrap();
    assert!(memory > 10 << 20, "{before}");
    kill(&daemon, "trainer");
    let after = daemon.status();
    assert_eq!(of_role(&after, "trainer"), ready(&before, "trainer"));
    assert_eq!(of_role(&after, "rollout"), of_role(&before, "rollout"));
    assert_eq!(after["incidents"][0]["outcome"], "recovered");

    // Others wait when the job is whole again.
    let again = until_ready(&mut daemon);
    let (used, waits) = (of_role(&again, "trainer"), ready(&again, "trainer"));
    assert!(used.is_disjoint(&waits));
    kill(&daemon, "rollout");
    let after = daemon.status();
    let waited = *ready(&again, "rollout").first().unwrap();
    assert!(of_role(&after, "rollout").contains(&waited), "{after}");

    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    assert_eq!(daemon.processes(), [], "no spare outlives its job");
    assert!(
        undisturbed.checkpoint(STEPS) == daemon.checkpoint(STEPS),
        "I-9: the run whose roles were spares differs"
    );
}

#[test]
fn spares_end_with_their_daemon_and_lives_that_were_spares_go_on_as_any_others() {
    let mut daemon = Daemon::start(&job().set("restart", "spares", 1).set("job", "steps", 400));
    until_ready(&mut daemon);
    kill(&daemon, "trainer");
    let before = until_ready(&mut daemon);
    let trainers = of_role(&before, "trainer");
    let waiting = &ready(&before, "trainer") | &ready(&before, "rollout");
    daemon.kill_daemon();
    daemon.wait_for("spares to end with their daemon", |_| {
        !waiting.iter().any(|pid| lives(*pid))
    });
    assert!(trainers.iter().all(|pid| lives(*pid)), "{}", daemon.logs());
    daemon.launch();
    let adopted = until_ready(&mut daemon);
    assert_eq!(of_role(&adopted, "trainer"), trainers, "{}", daemon.logs());
    // The next daemon sees the end of a life that it did not start, and has spares of its own.
    kill(&daemon, "trainer");
    let after = daemon.status();
    assert_eq!(of_role(&after, "trainer"), ready(&adopted, "trainer"));
    let stopped = daemon.ctl(&["stop", "--wait"]);
    assert!(stopped.status.success(), "{}", daemon.logs());
    assert_eq!(daemon.processes(), [], "{}", daemon.logs());
}

/// The pids on a node of what is `running`, or of what is ready to be.
fn on_node(status: &Value, key: &str, role: &str, node: &str) -> BTreeSet<u64> {
    let all = status[key].as_array().unwrap().iter();
    let there = all.filter(|one| one["role"] == role && one["node"] == node);
    let ready = there.filter(|one| one["ready"] != false);
    pids(&ready.collect::<Vec<_>>())
}

fn spares(status: &Value, role: &str, node: &str) -> BTreeSet<u64> {
    on_node(status, "spares", role, node)
}

/// With certificates, which a spare has none of either until it is a life.
#[test]
fn ranks_on_every_node_are_taken_over_by_the_spares_of_their_node() {
    let each: &[(&str, i64)] = &[("train", 1), ("rollout", 1), ("agent", 1)];
    let job = job()
        .set("job", "steps", 400)
        .set("rollout", "replicas", 2)
        .set("restart", "spares", 1)
        .nodes(&[("a", each), ("b", each)]);
    let mut cluster = Cluster::start(&job);
    cluster.join("b", &[]);
    let before = cluster.leader.until("spares on both nodes", |status| {
        let both = |node: &str| {
            let all = ["trainer", "rollout"].map(|role| spares(status, role, node).len());
            all == [1, 1]
        };
        both("a") && both("b")
    });
    kill(&cluster.leader, "trainer");
    let after = cluster.leader.status();
    for node in ["a", "b"] {
        let now = on_node(&after, "roles", "trainer", node);
        assert_eq!(now, spares(&before, "trainer", node), "{}", cluster.logs());
    }
    let again = cluster.leader.until("spares on both again", |status| {
        let one = |node: &str| spares(status, "trainer", node).len() == 1;
        one("a") && one("b")
    });
    let waits = spares(&again, "trainer", "b");
    assert!(waits.is_disjoint(&spares(&before, "trainer", "b")));
    let stopped = cluster.leader.ctl(&["stop", "--wait"]);
    assert!(stopped.status.success(), "{}", cluster.logs());
}

#[test]
fn a_job_without_spares_has_none() {
    let mut daemon = Daemon::start(&job());
    let status = daemon.until_step(2);
    assert_eq!(status["spares"], serde_json::json!([]));
    let spare = |line: &str| line.contains("robust-worker spare");
    let found: Vec<_> = daemon
        .processes()
        .into_iter()
        .filter(|(_, line)| spare(line))
        .collect();
    assert_eq!(found, []);
}
