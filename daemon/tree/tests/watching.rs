//! Deaths in a tree are seen, named and judged.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod common;

use common::{Bench, LONG, group, hosted, parent, strike, until};
use robust_tree::{Child, How, Policy, Signal, Tree, TreeError, apart};
use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

/// T-2.
#[test]
fn the_death_of_any_process_is_told_with_its_title() {
    hosted("the_death_of_any_process_is_told_with_its_title", || {
        // `sleep` waits for nobody: its zombies stand.
        let bench = Bench::new("(named VLLM::Worker; exec sleep 1000) & exec sleep 1001");
        let worker = bench.until_named("VLLM::Worker");
        bench.tree.ready();
        strike(worker, Signal::KILL);
        let died = bench.died();
        assert_eq!((died.pid, died.leader), (worker, false));
        assert_eq!(died.how, How::Signal(9));
        let told = format!("VLLM::Worker (pid {worker}) ended: SIGKILL");
        assert_eq!(died.to_string(), told);
        assert_eq!(bench.rest(), [], "told once, and none by the end");
    });
}

#[test]
fn a_death_is_seen_within_100_ms_in_the_median() {
    hosted("a_death_is_seen_within_100_ms_in_the_median", || {
        let bench = Bench::new("for n in 1 2 3 4 5 6 7; do named e$n; done; exec sleep 1000");
        let names: Vec<String> = (1..=7).map(|n| format!("e{n}")).collect();
        let pids: Vec<u32> = names.iter().map(|n| bench.until_named(n)).collect();
        bench.tree.ready();
        let mut delays = Vec::new();
        for (pid, name) in pids.into_iter().zip(names) {
            let struck = Instant::now();
            strike(pid, Signal::KILL);
            let died = bench.died();
            delays.push(struck.elapsed());
            assert_eq!((died.pid, died.name), (pid, name));
        }
        delays.sort();
        assert!(delays[3] < Duration::from_millis(100), "{delays:?}");
    });
}

#[test]
fn the_leaders_end_is_told_before_the_engine_is_ready() {
    hosted("the_leaders_end_is_told_before_the_engine_is_ready", || {
        let bench = Bench::new("exit 3");
        let died = bench.died();
        assert_eq!((died.how, died.leader), (How::Exit(3), true));
        assert_eq!(died.pid, bench.tree.leader());
        until("nobody is left", || bench.tree.members().is_empty());
    });
}

#[test]
fn helpers_of_the_start_do_not_count() {
    hosted("helpers_of_the_start_do_not_count", || {
        let script = "
            sh -c 'sleep 0.1; exit 1'
            (exec -a gcc sleep 0.1); uname > u; bash -c 'sleep 0.1; exit 2'
            sh -c 'sleep 0.1; kill -ILL $$'
            sleep 0.1; (sleep 0.1; sh -c 'kill -PIPE $$')
            sleep 0.3 & wait; exit 5";
        let bench = Bench::new(script);
        let died = bench.died();
        assert_eq!((died.how, died.leader), (How::Exit(5), true));
        assert_eq!(bench.rest(), []);
    });
}

#[test]
fn a_helper_that_ends_after_ready_does_not_count() {
    hosted("a_helper_that_ends_after_ready_does_not_count", || {
        let script = "bash -c 'read <go; exit 0' & bash -c 'read <go; exit 6' & exec sleep 1000";
        let bench = Bench::new(&format!("mkfifo go; {script}"));
        until("the leader sleeps beside two shells", || {
            let mut names = bench.names();
            names.sort_unstable();
            names == ["bash", "bash", "sleep"]
        });
        let seen = Instant::now();
        bench.tree.ready();
        until("neither is a command of a moment", || {
            seen.elapsed() > Duration::from_secs(1)
        });
        let go = bench.dir.path().join("go");
        // Each shell reads one of two lines; who may read it too need not wait for a reader.
        let mut both = File::options();
        let mut pipe = both.read(true).write(true).open(&go).unwrap();
        pipe.write_all(b"\n\n").unwrap();
        until("both are gone", || bench.tree.members().len() == 1);
        let died = bench.died();
        assert_eq!((died.how, died.name.as_str()), (How::Exit(6), "bash"));
        assert_eq!(bench.rest(), []);
    });
}

#[test]
fn what_started_after_ready_counts_when_it_has_settled() {
    hosted(
        "what_started_after_ready_counts_when_it_has_settled",
        || {
            let settle = Duration::from_millis(200);
            let policy = Policy {
                settle,
                ..Policy::default()
            };
            let bench = Bench::with("read <p; named late; exec sleep 1000", policy);
            until("it reads", || {
                bench.dir.path().join("p").exists() && bench.names() == ["bash"]
            });
            bench.tree.ready();
            std::fs::write(bench.dir.path().join("p"), "\n").unwrap();
            let late = bench.until_named("late");
            std::thread::sleep(2 * settle);
            strike(late, Signal::KILL);
            assert_eq!(bench.died().name, "late");
        },
    );
}

#[test]
fn who_leaves_the_session_is_still_of_the_tree() {
    hosted("who_leaves_the_session_is_still_of_the_tree", || {
        let script = "named sglang::scheduler; echo pid=$!";
        std::env::set_current_dir("/").unwrap();
        let start = format!("setsid bash -c 'named() {{ (exec -a $1 cat <>p) & }}; {script}'");
        let bench = Bench::new(&format!("{start}; exec sleep 1000"));
        let pid = bench.pid("pid");
        assert_eq!(bench.until_named("sglang::scheduler"), pid);
        until("it is an orphan", || parent(pid) == std::process::id());
        assert_ne!(group(pid), group(std::process::id()));
        bench.tree.ready();
        strike(pid, Signal::SEGV);
        let died = bench.died();
        assert_eq!((died.pid, died.how), (pid, How::Signal(11)));
        until("it is reaped", || {
            !std::path::Path::new(&format!("/proc/{pid}")).exists()
        });
    });
}

/// T-4.
#[test]
fn processor_time_never_goes_back() {
    hosted("processor_time_never_goes_back", || {
        let busy = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
        let script = format!("for n in 1 2 3; do ({busy}) & ({busy}); done; wait; exit 0");
        let bench = Bench::new(&script);
        let mut most = Duration::ZERO;
        let deadline = Instant::now() + LONG;
        while bench.deaths.try_recv().is_err() {
            let used = bench.tree.cpu_time();
            assert!(used >= most, "{used:?} after {most:?}");
            most = used;
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(3));
        }
        let last = bench.tree.cpu_time();
        assert!(
            last >= most && last >= Duration::from_millis(50),
            "{last:?}"
        );
    });
}

#[test]
fn memory_is_that_of_all_members() {
    hosted("memory_is_that_of_all_members", || {
        let bench = Bench::new("named a; named b; exec sleep 1000");
        bench.until_named("a");
        let two = bench.until_named("b");
        // A program that was only just begun still takes more.
        let mut all = 0;
        until("as much is used as before", || {
            std::thread::sleep(Duration::from_millis(200));
            std::mem::replace(&mut all, bench.tree.rss_bytes()) == bench.tree.rss_bytes()
        });
        assert!(all > 100_000, "{all}");
        strike(two, Signal::KILL);
        until("less is used", || bench.tree.rss_bytes() < all);
    });
}

/// T-1.
#[test]
fn the_callers_own_children_are_left_alone() {
    hosted("the_callers_own_children_are_left_alone", || {
        let start = || Command::new("sleep").arg("1000").spawn();
        let before = std::thread::spawn(start).join().unwrap();
        let mut before = before.unwrap();
        let bench = Bench::new("named a; exec sleep 1001");
        bench.until_named("a");
        // The thread that started it ends: the kernel hands it to where orphans come.
        let own = std::thread::spawn(move || apart(start)).join().unwrap();
        let mut own = own.unwrap();
        until("the thread is gone", || {
            let tasks = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", own_pid()));
            tasks.unwrap().contains(&own.id().to_string())
        });
        let members = bench.tree.members();
        assert_eq!(members.len(), 2, "{members:?}");
        assert!(bench.tree.end(&Default::default()).gentle);
        for child in [&mut own, &mut before] {
            assert!(child.try_wait().unwrap().is_none(), "it lives");
            child.kill().unwrap();
            child.wait().unwrap();
        }
    });
}

fn own_pid() -> u32 {
    std::process::id()
}

#[test]
fn one_tree_is_watched_at_a_time() {
    hosted("one_tree_is_watched_at_a_time", || {
        let first = Bench::new("exec sleep 1000");
        let dir = tempfile::tempdir().unwrap();
        let second = || Child::start(common::spec(dir.path(), &["sleep", "1001"], None)).unwrap();
        let child = second();
        let pid = child.pid();
        let refused = Tree::watch(child, Policy::default(), |_| {});
        assert!(matches!(refused, Err(TreeError::Second)));
        assert!(common::gone(pid), "what is not watched does not live on");
        drop(first);
        assert!(Tree::watch(second(), Policy::default(), |_| {}).is_ok());
    });
}
