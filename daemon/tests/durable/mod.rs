//! Where a committed step still is when memory, disk or a machine is gone.
use crate::cluster::{Cluster, on};
use nix::sys::signal::Signal;
use robust_proto::v1;
use std::fs;
use std::path::PathBuf;

/// The whole gang is on the leader's node: nobody else has its shards by itself.
const TWO: &str = "[trainer]\nranks = 2\n[rollout]\nreplicas = 2\n\
[[node]]\nname = \"a\"\npools = { train = 2, rollout = 1, agent = 2 }\n\
[[node]]\nname = \"b\"\npools = { rollout = 2 }\n";
const THREE: &str = "[[node]]\nname = \"c\"\npools = { rollout = 2 }\n";
/// Quick to give a node up: a beat is sent every second.
const QUICK: &str = "node_lost = { window_s = 3 }\n";

/// A job with this in `[checkpoint]`.
fn job(checkpoint: &str, nodes: &str) -> Cluster {
    let cluster = Cluster::with(1000, nodes);
    let path = cluster.file("job.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(path, text.replace("every = 2\n", checkpoint)).unwrap();
    cluster
}

fn memory(cluster: &Cluster, node: &str) -> PathBuf {
    let state = fs::canonicalize(cluster.file(&format!("state-{node}"))).unwrap();
    robustd::state::snapshot_dir(&state)
}

/// As if the leader's machine had been restarted: its processes and its memory are gone.
fn restart_machine(cluster: &mut Cluster) {
    cluster.kill("a");
    cluster.signal_roles("a", Signal::SIGKILL);
    fs::remove_dir_all(memory(cluster, "a")).unwrap();
}

fn state(status: &v1::Status) -> (String, String) {
    let replicas = status.replicas.clone().unwrap_or_default();
    (replicas.state, replicas.waiting)
}

/// The last thing said of where a gang's state came from.
fn restored(cluster: &Cluster) -> String {
    let log = cluster.log("a");
    let lines: Vec<&str> = log.lines().filter(|l| l.contains("is at step")).collect();
    lines.last().map(|l| (*l).to_owned()).unwrap_or_default()
}

fn held(cluster: &Cluster, node: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(memory(cluster, node)).into_iter().flatten();
    let paths = entries.flatten().map(|e| e.path());
    let is_held = |p: &PathBuf| {
        p.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("held-")
    };
    paths.filter(is_held).collect()
}

#[tokio::test]
async fn a_leader_whose_memory_is_gone_gets_its_shards_back_from_another_node() {
    let mut cluster = job("every = 1000\npublish_after = \"replica\"\n", TWO);
    cluster.lead();
    cluster.join("b");
    let safe = |s: &v1::Status| s.step >= 4 && state(s).0 == "safe" && on(s, "b").len() == 1;
    let before = cluster.wait_for("steps that b holds", safe).await;
    assert_eq!(before.publish_after, "replica");
    let copies = held(&cluster, "b").len();
    assert!(
        copies <= 2 * 3,
        "two ranks of two steps, and one on its way: {copies}"
    );
    restart_machine(&mut cluster);
    cluster.lead();
    let step = before.step;
    let after = cluster.wait_for("more steps", |s| s.step > step + 2).await;
    assert!(after.weight_version >= before.weight_version);
    let said = restored(&cluster);
    assert!(
        said.contains(": from peer memory"),
        "{said}\n{}",
        cluster.logs()
    );
    assert!(
        said.contains("own memory at step"),
        "what was passed over is said: {said}"
    );
    assert!(!said.contains("trained again"), "{said}");
}

#[tokio::test]
async fn a_copy_that_was_damaged_is_not_taken_for_the_shard() {
    let mut cluster = job("every = 1\npublish_after = \"replica\"\n", TWO);
    cluster.lead();
    cluster.join("b");
    let safe = |s: &v1::Status| s.step >= 4 && state(s).0 == "safe";
    let before = cluster.wait_for("steps that b holds", safe).await;
    restart_machine(&mut cluster);
    for path in held(&cluster, "b") {
        let mut bytes = fs::read(&path).unwrap();
        bytes[0] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    cluster.lead();
    let step = before.step;
    cluster.wait_for("more steps", |s| s.step > step + 2).await;
    let said = restored(&cluster);
    assert!(
        said.contains(": from own disk"),
        "{said}\n{}",
        cluster.logs()
    );
    assert!(said.contains("peer memory at step"), "{said}");
}

#[tokio::test]
async fn a_step_waits_for_a_holder_that_stands_still_until_another_one_is_found() {
    let nodes = format!("{QUICK}{TWO}{THREE}");
    let mut cluster = job("every = 1000\npublish_after = \"replica\"\n", &nodes);
    cluster.lead();
    cluster.join("b");
    let safe = |s: &v1::Status| s.step >= 2 && state(s).0 == "safe";
    cluster.wait_for("steps that b holds", safe).await;
    cluster.strike("b", Signal::SIGSTOP);
    let waits = |s: &v1::Status| state(s).1.contains("waits for its copies on other nodes");
    let waiting = cluster.wait_for("a step that waits", waits).await;
    assert_eq!(
        waiting.weight_version, waiting.step,
        "nothing is published meanwhile"
    );
    cluster.join("c");
    let on_c = |s: &v1::Status| s.step > waiting.step + 3 && state(s).0 == "safe";
    cluster.wait_for("steps that c holds", on_c).await;
    assert!(!held(&cluster, "c").is_empty(), "{}", cluster.logs());
    cluster.strike("b", Signal::SIGCONT);
    let here = |s: &v1::Status| s.nodes.iter().any(|n| n.name == "b" && n.state == "here");
    cluster.wait_for("b to be back", here).await;
}

#[tokio::test]
async fn with_one_node_there_is_no_copy_and_the_job_says_so() {
    let one = "[trainer]\nranks = 2\n[rollout]\nreplicas = 1\n\
               [[node]]\nname = \"a\"\npools = { train = 2, rollout = 1, agent = 2 }\n";
    let mut cluster = job("every = 2\npublish_after = \"replica\"\n", one);
    cluster.lead();
    let status = cluster.wait_for("steps", |s| s.step >= 3).await;
    assert_eq!(state(&status).0, "alone");
    let alarms: Vec<_> = status.alarms.iter().map(|a| a.kind.as_str()).collect();
    assert_eq!(alarms, ["no replica"]);
    let log = cluster.log("a");
    let said = log.matches("is committed on this node alone").count();
    assert_eq!(said, 1, "once, not at every step\n{log}");
}

#[tokio::test]
async fn a_step_that_must_be_on_disk_waits_for_a_disk_that_does_not_take_it() {
    let mut cluster = job("every = 1000\npublish_after = \"disk\"\n", TWO);
    cluster.lead();
    cluster.join("b");
    cluster.wait_for("steps", |s| s.step >= 3).await;
    let (ckpt, aside) = (cluster.file("state-a/ckpt"), cluster.file("aside"));
    fs::rename(&ckpt, &aside).unwrap();
    fs::write(&ckpt, b"no folder").unwrap();
    let waits = |s: &v1::Status| state(s).1.contains("waits for its checkpoint on disk");
    let waiting = cluster.wait_for("a step that waits", waits).await;
    let refused = || cluster.log("a").matches("no checkpoint of step").count();
    let before = refused();
    cluster
        .wait_for("another attempt", |_| refused() > before)
        .await;
    let still = cluster.wait_for("the status", |_| true).await;
    assert_eq!(still.step, waiting.step, "nothing is committed meanwhile");
    fs::remove_file(&ckpt).unwrap();
    fs::rename(&aside, &ckpt).unwrap();
    let step = waiting.step;
    let before = cluster.wait_for("more steps", |s| s.step > step + 2).await;
    // The machine is restarted, and what it held for others is nowhere: the disk has every step.
    restart_machine(&mut cluster);
    cluster.kill("b");
    cluster.signal_roles("b", Signal::SIGKILL);
    fs::remove_dir_all(memory(&cluster, "b")).unwrap();
    cluster.lead();
    cluster.join("b");
    let step = before.step;
    cluster.wait_for("more steps", |s| s.step > step + 1).await;
    let said = restored(&cluster);
    assert!(
        said.contains(": from own disk"),
        "{said}\n{}",
        cluster.logs()
    );
    assert!(!said.contains("trained again"), "{said}");
}

#[tokio::test]
async fn checkpoints_reach_the_object_store_and_come_back_when_the_disk_is_gone_too() {
    let far = tempfile::tempdir().unwrap();
    let store = far.path().join("store");
    let section = format!("every = 1\nremote = \"file://{}\"\n", store.display());
    let mut cluster = job(&section, TWO);
    cluster.lead();
    cluster.join("b");
    let put = |s: &v1::Status| s.remote.as_ref().is_some_and(|r| r.step >= Some(3));
    cluster.wait_for("checkpoints in the store", put).await;
    // It is gone for a while: the job goes on, and says so.
    let aside = far.path().join("aside");
    fs::rename(&store, &aside).unwrap();
    fs::write(&store, b"no folder").unwrap();
    let fails = |s: &v1::Status| s.remote.as_ref().is_some_and(|r| !r.failing.is_empty());
    let failing = cluster.wait_for("the upload to fail", fails).await;
    let alarm = |s: &v1::Status| s.alarms.iter().any(|a| a.kind == "object store away");
    cluster.wait_for("the alarm", alarm).await;
    let step = failing.step;
    cluster.wait_for("more steps", |s| s.step > step + 2).await;
    assert!(
        cluster.log("a").contains("; the job goes on"),
        "{}",
        cluster.logs()
    );
    fs::remove_file(&store).unwrap();
    fs::rename(&aside, &store).unwrap();
    let step = failing.remote.unwrap().step;
    let again = |s: &v1::Status| {
        let remote = s.remote.clone().unwrap();
        remote.failing.is_empty() && remote.step > step && s.alarms.is_empty()
    };
    let before = cluster.wait_for("uploads again", again).await;
    restart_machine(&mut cluster);
    cluster.kill("b");
    cluster.signal_roles("b", Signal::SIGKILL);
    fs::remove_dir_all(memory(&cluster, "b")).unwrap();
    fs::remove_dir_all(cluster.file("state-a/ckpt")).unwrap();
    fs::create_dir(cluster.file("state-a/ckpt")).unwrap();
    cluster.lead();
    cluster.join("b");
    let step = before.step;
    let after = cluster.wait_for("more steps", |s| s.step > step + 2).await;
    assert!(after.weight_version >= before.weight_version, "{after:#?}");
    let log = cluster.log("a");
    assert!(log.contains(": from object store"), "{log}");
}
