//! A job on three daemons, with fake role processes: joining, leaving, each daemon killed, and what
//! operators ask of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod cluster;
mod durable;
mod enrolled;
mod fake;
mod issuer;
mod membership;
mod operated;

use cluster::{Cluster, pids};
use nix::sys::signal::Signal;
use robust_proto::v1;
use std::collections::BTreeSet;

/// Not a test: what the script that stands for `robust-worker` runs.
#[test]
#[ignore = "runs as a role process only"]
fn fake_role() {
    if let Ok(args) = std::env::var("FAKE_ROLE") {
        fake::run(&args);
    }
}

fn three(steps: u64) -> Cluster {
    let mut cluster = Cluster::new(steps);
    cluster.lead();
    cluster.join("b");
    cluster.join("c");
    cluster
}

#[tokio::test]
async fn a_job_spans_three_daemons_and_all_of_them_end_with_it() {
    let mut cluster = three(6);
    cluster.wait_for("second step", |s| s.step >= 2).await;
    let there = ["a", "b", "c"].map(|node| cluster.roles(node).len());
    assert_eq!(there, [3, 3, 1], "{}", cluster.logs());
    for node in ["a", "b", "c"] {
        assert_eq!(cluster.end_of(node), 0, "{}", cluster.logs());
        cluster.assert_clean(node);
    }
    let out = cluster.log("a");
    assert!(out.contains("job fake completed after 6 steps"), "{out}");
    assert!(out.contains("no incidents"), "{out}");
    // The rank on `b` wrote its shard into the memory of `b`.
    let manifest = cluster.file("state-a/ckpt/step-6/manifest.json");
    assert!(manifest.exists(), "{}", cluster.logs());
    assert!(cluster.log("b").contains("fetched model.safetensors"));
}

#[tokio::test]
async fn a_rank_that_dies_on_another_node_is_started_there_from_another_ones_copy() {
    let cluster = three(1000);
    let before = cluster.wait_for("third step", |s| s.step >= 3).await;
    // What the ranks there wrote is gone too: only the copy of another node is left.
    let shm = std::fs::canonicalize(cluster.file("state-b")).unwrap();
    let shm = robustd::state::snapshot_dir(&shm);
    cluster.signal_roles("b", Signal::SIGSTOP);
    for entry in std::fs::read_dir(&shm).unwrap().flatten() {
        std::fs::remove_file(entry.path()).unwrap();
    }
    cluster.signal_roles("b", Signal::SIGKILL);
    let after = |s: &v1::Status| s.step > before.step + 3 && !s.incidents.is_empty();
    let status = cluster.wait_for("steps after the deaths", after).await;
    let failed = |i: &v1::Incident| i.rule != "exit" || i.outcome == "failed";
    assert!(!status.incidents.iter().any(failed), "{status:#?}");
    let log = cluster.log("a");
    assert!(log.contains(" memory"), "{log}");
    assert!(!log.contains("passed over"), "{log}");
}

#[tokio::test]
async fn the_leaders_restart_is_survived_by_every_role_on_every_node() {
    let mut cluster = three(1000);
    let before = cluster.wait_for("second step", |s| s.step >= 2).await;
    cluster.kill("a");
    cluster.lead();
    let step = before.step;
    let after = cluster.wait_for("more steps", |s| s.step > step + 2).await;
    assert_eq!(pids(&before), pids(&after), "{}", cluster.logs());
    assert!(after.incidents.is_empty(), "{after:#?}");
}

#[tokio::test]
async fn a_nodes_daemon_restarts_and_finds_its_roles_where_it_left_them() {
    let mut cluster = three(1000);
    let before = cluster.wait_for("second step", |s| s.step >= 2).await;
    cluster.kill("b");
    cluster.join("b");
    let step = before.step;
    let after = cluster.wait_for("more steps", |s| s.step > step + 2).await;
    assert_eq!(pids(&before), pids(&after), "{}", cluster.logs());
    assert!(after.incidents.is_empty(), "{after:#?}");
    assert!(cluster.log("b").contains("adopted"), "{}", cluster.log("b"));
}

#[tokio::test]
async fn roles_that_end_while_their_nodes_daemon_is_away_are_reported_when_it_is_back() {
    let mut cluster = three(1000);
    let before = cluster.wait_for("second step", |s| s.step >= 2).await;
    cluster.kill("b");
    cluster.signal_roles("b", Signal::SIGKILL);
    cluster.join("b");
    let step = before.step;
    let done = |s: &v1::Status| s.step > step + 2 && s.incidents.len() == 3;
    let after = cluster
        .wait_for("three incidents and more steps", done)
        .await;
    for incident in &after.incidents {
        assert_eq!(incident.rule, "exit", "{incident:#?}");
    }
}

#[tokio::test]
async fn a_new_job_ends_what_a_node_still_runs_of_the_one_before() {
    let mut cluster = three(1000);
    cluster.wait_for("second step", |s| s.step >= 2).await;
    let old = cluster.roles("b");
    cluster.kill("a");
    cluster.signal_roles("a", Signal::SIGKILL);
    std::fs::remove_dir_all(cluster.file("state-a")).unwrap();
    cluster.lead();
    let new = cluster.wait_for("first step", |s| s.step >= 1).await;
    assert!(new.incidents.is_empty(), "{new:#?}");
    let left = cluster.roles("b");
    assert!(
        left.iter().all(|pid| !old.contains(pid)),
        "{}",
        cluster.logs()
    );
}

/// What a role's environment says of a name.
fn variable(pid: i32, name: &str) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environment = String::from_utf8(environment).unwrap();
    let mut all = environment.split('\0').filter_map(|v| v.split_once('='));
    all.find(|(key, _)| *key == name)
        .map(|(_, value)| value.to_owned())
}

#[tokio::test]
async fn roles_of_all_nodes_share_a_token_that_only_their_environment_shows() {
    let cluster = three(1000);
    cluster.wait_for("first step", |s| s.step >= 1).await;
    let roles: Vec<i32> = ["a", "b", "c"]
        .into_iter()
        .flat_map(|node| cluster.roles(node))
        .collect();
    let token = |pid: &i32| variable(*pid, robust_proto::JOB_TOKEN_VARIABLE).unwrap();
    let tokens: BTreeSet<String> = roles.iter().map(token).collect();
    assert_eq!(tokens.len(), 1, "{tokens:?}");
    let token = tokens.first().unwrap();
    assert_eq!(token.len(), 64, "{token}");
    assert_ne!(
        token, "0123456789abcdef0123456789abcdef",
        "derived, not shown"
    );
    for pid in &roles {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(!String::from_utf8_lossy(&line).contains(token));
    }
    for node in ["a", "b", "c"] {
        assert!(!cluster.log(node).contains(token));
        for log in std::fs::read_dir(cluster.file(&format!("state-{node}/logs"))).unwrap() {
            let text = std::fs::read_to_string(log.unwrap().path()).unwrap();
            assert!(!text.contains(token), "{text}");
        }
    }
}

#[tokio::test]
async fn a_node_is_refused_without_the_token_and_under_a_name_that_is_taken() {
    let mut cluster = three(1000);
    cluster.wait_for("first step", |s| s.step >= 1).await;
    cluster.join_with("d", "wrong-token", &["--name", "d", "--pools", "rollout=1"]);
    assert_eq!(cluster.end_of("d"), 7, "{}", cluster.log("d"));
    assert!(
        cluster.log("d").contains("--token-file"),
        "{}",
        cluster.log("d")
    );
    assert!(
        cluster
            .log("a")
            .contains("it is certified by another leader, or has no join token")
    );
    for (name, what) in [("b", "is joined"), ("a", "the leader's own name")] {
        cluster.join_with("d", "token", &["--name", name]);
        assert_eq!(cluster.end_of("d"), 7, "{}", cluster.log("d"));
        assert!(cluster.log("d").contains(what), "{}", cluster.log("d"));
    }
    cluster.join_with("d", "token", &["--name", "d"]);
    assert_eq!(cluster.end_of("d"), 7, "{}", cluster.log("d"));
    assert!(cluster.log("d").contains("--pools"), "{}", cluster.log("d"));
    cluster.join_with("d", "token", &["--name", "d", "--pools", "rollouts=1"]);
    assert_eq!(cluster.end_of("d"), 7, "{}", cluster.log("d"));
    let words = "the job's pools are agent, rollout, train";
    assert!(cluster.log("d").contains(words), "{}", cluster.log("d"));
}

#[tokio::test]
async fn a_stopped_job_leaves_nodes_waiting_and_goes_on_with_them() {
    let mut cluster = three(1000);
    cluster.wait_for("second step", |s| s.step >= 2).await;
    cluster.terminate("a");
    assert_eq!(cluster.end_of("a"), 143, "{}", cluster.logs());
    for node in ["a", "b", "c"] {
        assert_eq!(cluster.roles(node), [] as [i32; 0], "{}", cluster.logs());
    }
    cluster.lead();
    let going = |s: &v1::Status| s.state == "running" && s.step >= 4;
    cluster.wait_for("the job to go on", going).await;
    cluster.terminate("b");
    assert_eq!(cluster.end_of("b"), 143, "{}", cluster.log("b"));
    cluster.assert_clean("b");
}
