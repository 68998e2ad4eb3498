//! The end of a tree leaves nobody.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod common;

use common::{Bench, gone, hosted, state, strike, until};
use robust_tree::{EndPlan, Ended, How, Signal};
use std::time::Duration;

fn short() -> EndPlan {
    EndPlan {
        grace: Duration::from_millis(300),
        ..EndPlan::default()
    }
}

fn pids(bench: &Bench) -> Vec<u32> {
    bench.tree.members().into_iter().map(|m| m.pid).collect()
}

fn assert_all_gone(pids: &[u32]) {
    for pid in pids {
        let path = format!("/proc/{pid}");
        assert!(!std::path::Path::new(&path).exists(), "{pid} is there");
    }
}

/// T-2.
#[test]
fn who_obeys_is_not_killed() {
    hosted("who_obeys_is_not_killed", || {
        let bench = Bench::new("named a; named b; exec sleep 1000");
        bench.until_named("a");
        bench.until_named("b");
        bench.tree.ready();
        let pids = pids(&bench);
        assert_eq!(pids.len(), 3);
        let gently = Ended {
            gentle: true,
            killed: Vec::new(),
            left: Vec::new(),
        };
        assert_eq!(bench.tree.end(&EndPlan::default()), gently);
        assert_all_gone(&pids);
        assert_eq!(bench.tree.end(&EndPlan::default()), gently, "once more");
        assert_eq!(bench.rest(), [], "no death of an end is told");
    });
}

#[test]
fn who_does_not_obey_is_killed_wherever_it_is() {
    hosted("who_does_not_obey_is_killed_wherever_it_is", || {
        let escape = "setsid bash -c 'exec -a away sleep 1000 & echo up='";
        let script = format!("trap '' TERM; named stubborn; {escape}; exec sleep 1001");
        let bench = Bench::new(&script);
        bench.said("up");
        bench.until_named("stubborn");
        until("all three", || {
            bench.names().iter().filter(|n| *n == "sleep").count() == 2
        });
        let pids = pids(&bench);
        let ended = bench.tree.end(&short());
        assert!(!ended.gentle && ended.left.is_empty(), "{ended:?}");
        let mut killed: Vec<_> = ended.killed.iter().map(|(_, n)| n.as_str()).collect();
        killed.sort_unstable();
        assert_eq!(killed, ["sleep", "sleep", "stubborn"]);
        assert_all_gone(&pids);
    });
}

#[test]
fn orphans_of_a_killed_leader_are_ended_too() {
    hosted("orphans_of_a_killed_leader_are_ended_too", || {
        let bench = Bench::new("named VLLM::EngineCore; (named VLLM::Worker; wait) & wait");
        let core = bench.until_named("VLLM::EngineCore");
        let worker = bench.until_named("VLLM::Worker");
        bench.tree.ready();
        strike(bench.tree.leader(), Signal::KILL);
        let died = bench.died();
        assert_eq!((died.leader, died.how), (true, How::Signal(9)));
        assert!(!gone(core) && !gone(worker), "they live on");
        assert!(bench.tree.end(&EndPlan::default()).gentle);
        assert_all_gone(&[core, worker]);
    });
}

#[test]
fn a_stopped_process_is_killed_all_the_same() {
    hosted("a_stopped_process_is_killed_all_the_same", || {
        let bench = Bench::new("named stopped; exec sleep 1000");
        let stopped = bench.until_named("stopped");
        strike(stopped, Signal::STOP);
        until("it is stopped", || state(stopped) == "T");
        let ended = bench.tree.end(&short());
        assert_eq!(ended.killed, [(stopped, "stopped".to_owned())]);
        assert_all_gone(&[stopped]);
    });
}

#[test]
fn one_that_starts_others_without_end_is_outrun() {
    hosted("one_that_starts_others_without_end_is_outrun", || {
        let script = "trap '' TERM; while :; do (exec -a more sleep 1000) & sleep 0.01; done";
        let bench = Bench::new(script);
        until("some are there", || bench.tree.members().len() > 3);
        let ended = bench.tree.end(&short());
        assert!(ended.left.is_empty() && ended.killed.len() > 3, "{ended:?}");
        assert_eq!(bench.tree.members(), []);
    });
}

#[test]
fn a_dropped_tree_leaves_nobody() {
    hosted("a_dropped_tree_leaves_nobody", || {
        let bench = Bench::new("trap '' TERM; named a; exec sleep 1000");
        bench.until_named("a");
        let pids = pids(&bench);
        assert_eq!(bench.rest(), []);
        assert_all_gone(&pids);
    });
}
