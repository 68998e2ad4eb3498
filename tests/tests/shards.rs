//! Shards of snapshots on several machines: given from node to node, put into the object store by nodes, and to the leader
//! only for what is its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::Signal;
use robust_tests::{Cluster, JobFile, assert_consumed_once, roles};
use robustd::state::StateDir;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

const PER_STEP: usize = 16;
const TRAINS: &[(&str, i64)] = &[("train", 1)];
const SERVES: &[(&str, i64)] = &[("rollout", 3), ("agent", 2)];

/// All ranks on nodes: one on `b`, one on `c`, and a free slot on `d`.
fn job(steps: i64) -> JobFile {
    JobFile::small()
        .set("job", "steps", steps)
        .set("detect.node_lost", "window_s", 3.0)
        .nodes(&[("a", SERVES), ("b", TRAINS), ("c", TRAINS), ("d", TRAINS)])
}

fn start(job: &JobFile) -> Cluster {
    let mut cluster = Cluster::start(job);
    for (node, rank) in [("b", 0), ("c", 1)] {
        cluster.join(node, &[]);
        cluster
            .leader
            .until("the rank's place", |s| place(s, rank) == node);
    }
    cluster.join("d", &[]);
    cluster
}

fn place(status: &Value, rank: usize) -> String {
    let node = &roles(status, "trainer")[rank]["node"];
    node.as_str().unwrap_or_default().to_owned()
}

/// The files of shards that came to a machine.
fn came(state: &Path, prefix: &str) -> Vec<String> {
    let folder = StateDir::make(state).unwrap().snapshots();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(prefix)).collect()
}

fn is_safe(status: &Value) -> bool {
    status["replicas"]["state"] == "safe"
}

#[test]
fn a_lost_machines_shard_comes_back_from_another_node_and_none_passes_the_leader() {
    let steps = 12;
    // A checkpoint is written where the leader is.
    let mut cluster = start(&job(steps).set("checkpoint", "every", 0));
    let before = cluster.leader.until("copies of the second step", |s| {
        s["step"].as_u64() >= Some(2) && is_safe(s)
    });
    assert!(!came(&cluster.state_dir("d"), "held-").is_empty());
    cluster.strike("b", Signal::SIGKILL);
    let after = cluster.leader.until("the rank of b to train on d", |s| {
        place(s, 0) == "d" && s["step"].as_u64() > before["step"].as_u64().map(|step| step + 1)
    });
    assert_eq!(place(&after, 1), "c");
    let restored = cluster.leader.events("restored");
    let last = restored.last().unwrap();
    assert!(last.contains("from peer memory"), "{restored:?}");
    assert!(!last.contains("trained again"), "{restored:?}");
    let kept = came(&cluster.leader.state_dir(), "kept-");
    assert!(kept.is_empty(), "{kept:?} came to the leader");
    assert_eq!(cluster.leader.finish(), 0, "{}", cluster.logs());
    for node in ["c", "d"] {
        assert_eq!(cluster.end_of(node), 0, "{}", cluster.logs());
    }
    assert_consumed_once(&cluster.leader.state_dir(), steps as u64, PER_STEP);
}

#[test]
fn a_checkpoint_of_ranks_on_other_machines_is_written_and_the_last_step_too() {
    let job = job(6)
        .set("checkpoint", "every", 2)
        .set("checkpoint", "keep", 9);
    let mut cluster = start(&job);
    assert_eq!(cluster.leader.finish(), 0, "{}", cluster.logs());
    let listed = cluster.leader.json(&["ckpt", "ls"]);
    let all = listed["checkpoints"].as_array().unwrap();
    let steps: Vec<u64> = all.iter().map(|c| c["step"].as_u64().unwrap()).collect();
    assert!(steps.contains(&2) && steps.contains(&6), "{listed}");
    let verified = cluster.leader.ctl(&["ckpt", "verify"]);
    let said = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(verified.status.success(), "{said}");
}

#[test]
fn no_step_is_committed_before_a_second_machine_has_what_a_rank_on_another_one_made() {
    // Copies go to `d`, and to the leader's machine where there is no other.
    let pools: &[(&str, i64)] = &[("train", 2)];
    let job = JobFile::small()
        .set("job", "steps", 40)
        .set("detect.node_lost", "window_s", 6.0)
        .set("checkpoint", "every", 0)
        .nodes(&[("a", SERVES), ("b", pools), ("d", &[("rollout", 1)])]);
    let mut cluster = Cluster::start(&job);
    cluster.join("b", &[]);
    cluster.join("d", &[]);
    cluster.leader.until("copies of the second step", |s| {
        s["step"].as_u64() >= Some(2) && is_safe(s)
    });
    cluster.strike("d", Signal::SIGSTOP);
    let struck = Instant::now();
    let at = cluster.leader.status()["step"].as_u64().unwrap();
    while struck.elapsed() < Duration::from_secs(4) {
        let now = cluster.leader.status()["step"].as_u64().unwrap();
        assert!(now <= at + 1, "step {now} after {:?}", struck.elapsed());
    }
    // It is lost by then, and the leader's machine holds copies.
    cluster.leader.until("the job to go on", |s| {
        s["step"].as_u64() >= Some(at + 4) && is_safe(s)
    });
    let kept = came(&cluster.leader.state_dir(), "kept-");
    assert!(kept.len() >= 2, "{kept:?}");
    cluster.strike("d", Signal::SIGCONT);
}

/// The same, whose checkpoints are put by the nodes.
fn put_by_nodes(steps: i64, remote: &str) -> JobFile {
    job(steps)
        .set("checkpoint", "every", 2)
        .set("checkpoint", "keep", 9)
        .set("checkpoint", "remote", remote)
        .set("checkpoint", "written_by", "nodes")
}

/// What is said of checkpoints that are in the store.
fn put(cluster: &Cluster) -> Vec<String> {
    let said = cluster.leader.events("checkpoint").into_iter();
    said.filter(|text| text.contains(", put by ")).collect()
}

fn until_put(cluster: &mut Cluster, count: usize) {
    let start = Instant::now();
    while put(cluster).len() < count {
        let waited = start.elapsed();
        assert!(waited < robust_tests::PATIENCE, "{}", cluster.logs());
        cluster.leader.status();
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn join_again(cluster: &mut Cluster) {
    cluster.leader.launch();
    for node in ["b", "c", "d"] {
        cluster.join(node, &[]);
    }
}

#[test]
fn checkpoints_that_nodes_put_pass_no_leader_and_bring_the_job_back_when_all_memory_is_lost() {
    let far = tempfile::tempdir().unwrap();
    let steps = 16;
    let remote = format!("file://{}", far.path().display());
    let mut cluster = start(&put_by_nodes(steps, &remote));
    until_put(&mut cluster, 2);
    let said = put(&cluster);
    assert!(
        said.iter().all(|s| s.ends_with(", put by b, c")),
        "{said:?}"
    );
    let before = cluster.leader.status()["step"].as_u64().unwrap();
    cluster.lose_all_memory();
    let state = cluster.leader.state_dir();
    let here = std::fs::read_dir(state.join("ckpt")).unwrap().count();
    assert_eq!(here, 0, "no checkpoint is on the leader's disk");
    join_again(&mut cluster);
    cluster.leader.until("the job to go on", |s| {
        s["step"].as_u64() > Some(before + 1)
    });
    let restored = cluster.leader.events("restored");
    let last = restored.last().unwrap();
    assert!(last.contains("object store"), "{restored:?}");
    assert_eq!(cluster.leader.finish(), 0, "{}", cluster.logs());
    // What was published before came again with the same bits.
    let replayed = cluster.leader.events("replay");
    let other = replayed
        .iter()
        .find(|s| s.contains("is not what was published before"));
    assert_eq!(other, None, "{replayed:?}");
    let verified = cluster.leader.ctl(&["ckpt", "verify", "--remote"]);
    let said = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(verified.status.success(), "{said}");
    let last = steps.to_string();
    cluster.leader.json(&["ckpt", "pin", &last, "--remote"]);
    let listed = cluster.leader.json(&["ckpt", "ls", "--remote"]);
    let all = listed["checkpoints"].as_array().unwrap();
    let pinned = all.iter().filter(|c| c["pinned"] == true);
    let pinned: Vec<i64> = pinned.map(|c| c["step"].as_i64().unwrap()).collect();
    assert_eq!(pinned, [steps], "{listed}");
    assert_consumed_once(&state, steps as u64, PER_STEP);
}

#[test]
fn a_lost_database_makes_no_job_begin_anew_whose_checkpoints_nodes_put() {
    let far = tempfile::tempdir().unwrap();
    let steps = 12;
    let remote = format!("file://{}", far.path().display());
    let mut cluster = start(&put_by_nodes(steps, &remote));
    until_put(&mut cluster, 1);
    cluster.lose_all_memory();
    let state = cluster.leader.state_dir();
    std::fs::remove_dir_all(state.join("db")).unwrap();
    cluster.leader.launch();
    assert_eq!(cluster.leader.finish(), 4, "{}", cluster.logs());
    let said = std::fs::read_to_string(cluster.leader.stderr()).unwrap();
    let run = std::fs::read_to_string(state.join("run")).unwrap();
    let run = run.trim();
    let command = format!(
        "--remote={remote} --run {run} --state-dir {}",
        state.display()
    );
    assert!(said.contains(&command), "{said}");
    let there = format!("--remote={remote}");
    let fetched = cluster
        .leader
        .ctl(&["ckpt", "fetch", "latest", &there, "--run", run]);
    assert!(fetched.status.success(), "{fetched:?}");
    cluster.leader.watch_anew();
    join_again(&mut cluster);
    assert_eq!(cluster.leader.finish(), 0, "{}", cluster.logs());
    let said = std::fs::read_to_string(cluster.leader.stderr()).unwrap();
    assert!(said.contains("from own disk"), "{said}");
}

#[test]
fn a_node_that_does_not_reach_the_store_gives_way_to_one_that_holds_a_copy() {
    let Some(server) = robust_s3::Server::start() else {
        return;
    };
    let remote = format!("s3://{}/runs", robust_s3::BUCKET);
    let of = |endpoint: Option<&str>| {
        let set = server.environment().map(|(name, value)| {
            let value = endpoint.filter(|_| name == "AWS_ENDPOINT").unwrap_or(value);
            format!("{name}={value}")
        });
        [vec!["env".to_owned()], set.to_vec()].concat()
    };
    let words = of(None);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut cluster = Cluster::start_within(&put_by_nodes(8, &remote), &words);
    // Nobody listens there.
    let nowhere = of(Some("http://127.0.0.1:9"));
    let nowhere: Vec<&str> = nowhere.iter().map(String::as_str).collect();
    for (node, rank, words) in [("b", 0, &nowhere), ("c", 1, &words)] {
        cluster.join_within(node, words);
        cluster
            .leader
            .until("the rank's place", |s| place(s, rank) == node);
    }
    cluster.join_within("d", &words);
    until_put(&mut cluster, 1);
    for said in put(&cluster) {
        let by = said.rsplit_once(", put by ").unwrap().1;
        assert!(!by.split(", ").any(|node| node == "b"), "{said}");
    }
    let why = std::fs::read_to_string(cluster.log("b")).unwrap();
    assert!(why.contains("is not put"), "{why}");
    assert_eq!(cluster.leader.finish(), 0, "{}", cluster.logs());
    assert_consumed_once(&cluster.leader.state_dir(), 8, PER_STEP);
}
