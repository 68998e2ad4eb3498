//! What happens to the tree when a process of it is stopped or killed.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Fake, lives, signal, tree, until};
use nix::sys::signal::Signal::{SIGCONT, SIGKILL, SIGSTOP, SIGTERM};
use nix::unistd::Pid;
use serde_json::json;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

/// How long nothing must happen.
const QUIET: Duration = Duration::from_millis(500);

async fn ask(fake: &Fake) -> reqwest::Result<reqwest::Response> {
    let sampling = json!({ "temperature": 0, "max_tokens": 4 });
    let vllm = json!({ "token_ids": [1, 5], "sampling_params": sampling });
    let sglang = json!({ "input_ids": [1, 5], "sampling_params": { "temperature": 0,
    "max_new_tokens": 4 } });
    let reply = fake.try_post("/generate", &sglang).await?;
    if reply.status() == 404 {
        fake.try_post("/inference/v1/generate", &vllm).await
    } else {
        Ok(reply)
    }
}

fn pids(fake: &Fake) -> Vec<Pid> {
    tree(fake.child.id())
        .keys()
        .map(|pid| Pid::from_raw(pid.cast_signed()))
        .collect()
}

async fn all_gone(pids: &[Pid]) {
    until("the tree's end", async || {
        pids.iter().all(|pid| !lives(*pid))
    })
    .await;
}

#[test]
fn the_trees_are_the_real_ones() {
    let fake = Fake::start("vllm", &[]);
    let leader = fake.child.id();
    let all = tree(leader);
    let core = fake.process("VLLM::EngineCore").as_raw().cast_unsigned();
    let worker = fake.process("VLLM::Worker").as_raw().cast_unsigned();
    assert_eq!((all[&core].1, all[&worker].1), (leader, core));
    assert_eq!(all[&worker].0, "VLLM::Worker");
    assert_eq!(
        std::fs::read_to_string(format!("/proc/{core}/comm")).unwrap(),
        "VLLM::EngineCor\n"
    );
    let maps = std::fs::read_to_string(format!("/proc/{worker}/maps")).unwrap();
    assert!(maps.contains(fake.shared[0].to_str().unwrap()) && fake.shared[0].exists());
    let fake = Fake::start("sglang", &[]);
    let scheduler = fake.process("sglang::scheduler");
    let parents = tree(fake.child.id())
        .into_values()
        .map(|(_, parent)| parent);
    assert!(parents.into_iter().all(|parent| parent == fake.child.id()));
    let maps = std::fs::read_to_string(format!("/proc/{scheduler}/maps")).unwrap();
    assert!(maps.contains("/dev/shm/sglang_loads_"));
}

#[tokio::test]
async fn a_stopped_worker_of_vllm_is_seen_by_requests_and_not_by_health() {
    let fake = Fake::start("vllm", &[]);
    let worker = fake.process("VLLM::Worker");
    signal(worker, SIGSTOP);
    assert!(tokio::time::timeout(QUIET, ask(&fake)).await.is_err());
    assert_eq!(fake.get("/health").await.status(), 200);
    signal(worker, SIGCONT);
    assert_eq!(ask(&fake).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_stopped_scheduler_of_sglang_is_seen_by_health_and_not_by_ready() {
    let fake = Fake::start("sglang", &["--time-scale", "0.2"]);
    signal(fake.process("sglang::scheduler"), SIGSTOP);
    assert!(tokio::time::timeout(QUIET, ask(&fake)).await.is_err());
    assert!(
        tokio::time::timeout(QUIET, fake.get("/health"))
            .await
            .is_err()
    );
    assert_eq!(fake.get("/ready").await.status(), 200);
    assert_eq!(fake.get("/model_info").await.status(), 200);
    assert_eq!(
        fake.get("/health").await.status(),
        503,
        "after 20 s, scaled"
    );
}

#[tokio::test]
async fn vllm_without_a_process_of_its_tree_ends_with_zero_and_leaves_nothing() {
    for name in ["VLLM::Worker", "VLLM::EngineCore"] {
        let mut fake = Fake::start("vllm", &[]);
        let all = pids(&fake);
        signal(fake.process(name), SIGKILL);
        assert_eq!(fake.wait().code(), Some(0), "{name}");
        all_gone(&all).await;
        assert!(fake.shared.iter().all(|path| !path.exists()));
    }
}

#[tokio::test]
async fn sglang_without_a_process_of_its_tree_is_killed_by_itself_and_leaves_its_file() {
    for name in ["sglang::scheduler", "sglang::detokenizer"] {
        let mut fake = Fake::start("sglang", &[]);
        let all = pids(&fake);
        signal(fake.process(name), SIGKILL);
        assert_eq!(fake.wait().signal(), Some(SIGKILL as i32), "{name}");
        all_gone(&all).await;
        assert!(fake.shared[0].exists());
    }
}

#[tokio::test]
async fn the_children_of_vllm_outlive_a_killed_leader_and_those_of_sglang_do_not() {
    let mut fake = Fake::start("vllm", &[]);
    let (core, worker) = (
        fake.process("VLLM::EngineCore"),
        fake.process("VLLM::Worker"),
    );
    signal(fake.pid(), SIGKILL);
    fake.wait();
    tokio::time::sleep(QUIET).await;
    assert!(lives(core) && lives(worker) && fake.shared[0].exists());
    let mut fake = Fake::start("sglang", &[]);
    let all = pids(&fake);
    signal(fake.pid(), SIGKILL);
    fake.wait();
    all_gone(&all).await;
}

#[tokio::test]
async fn a_leader_that_is_told_to_end_takes_its_tree_along_unless_a_quirk_keeps_it() {
    for (dialect, by) in [("vllm", None), ("sglang", Some(SIGTERM as i32))] {
        let mut fake = Fake::start(dialect, &[]);
        let all = pids(&fake);
        signal(fake.pid(), SIGTERM);
        assert_eq!(fake.wait().signal(), by, "{dialect}");
        all_gone(&all).await;
    }
    let mut fake = Fake::start("sglang", &["--quirk", "orphan-children"]);
    let all = pids(&fake);
    signal(fake.pid(), SIGTERM);
    fake.wait();
    tokio::time::sleep(QUIET).await;
    assert!(all.iter().all(|pid| lives(*pid)));
}
