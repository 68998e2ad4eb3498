//! Looks into real processes, with tools that are played.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::Running;
use super::evidence_tests::{Sleeper, sleep_program, tool};
use super::inside::{Depth, Look, inside_with};
use super::proc_stat::ProcStat;
use robust_proto::v1::InspectedProcess;
use std::ffi::OsStr;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// What a debugger may take here; a script that stops a process has it stopped long before.
const STOP: Duration = Duration::from_secs(1);
/// Finds the process among gdb's arguments.
const WHOM: &str = "while [ \"$1\" != -p ]; do shift; done";

fn running(pid: u32) -> Running {
    let start_time = ProcStat::read(pid).unwrap().start_time;
    Running { pid, start_time }
}

fn look(pid: u32, depth: Depth, path: &OsStr) -> Vec<InspectedProcess> {
    let look = Look {
        depth,
        limit: depth.limit(),
        stop: STOP,
    };
    inside_with(running(pid), look, path)
}

fn notes(of: &InspectedProcess) -> String {
    of.notes.join("; ")
}

#[test]
fn a_process_that_sleeps_is_shown_with_its_threads_and_goes_on() {
    let sleeper = Sleeper::start(sleep_program());
    let found = look(sleeper.pid(), Depth::Threads, "/nonexistent".as_ref());
    let [process] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(
        (process.state.as_str(), process.name.as_str()),
        ("S", "sleep")
    );
    assert_eq!((process.thread_count, process.threads.len()), (1, 1));
    assert_eq!(process.threads[0].tid, sleeper.pid());
    assert!(process.over_us >= 1_000_000, "{}", process.over_us);
    assert!(process.cpu_us < process.over_us / 2, "{}", process.cpu_us);
    assert_eq!(process.stopped_us, 0);
    assert!(process.rss_bytes > 0);
}

#[test]
fn what_only_a_debugger_has_is_said_where_none_is_asked_or_installed() {
    let sleeper = Sleeper::start(sleep_program());
    let (_dir, path) = tool("gdb", "echo gdb was asked >&2; exit 1");
    let found = look(sleeper.pid(), Depth::Stacks, &path);
    let said = notes(&found[0]);
    assert!(said.contains("--stacks native"), "{said}");
    assert!(!said.contains("gdb was asked"), "{said}");
    let found = look(sleeper.pid(), Depth::Native, "/nonexistent".as_ref());
    let said = notes(&found[0]);
    assert!(said.contains("neither gdb nor"), "{said}");
    let found = look(sleeper.pid(), Depth::Native, &path);
    let said = notes(&found[0]);
    assert!(said.contains("gdb was asked"), "{said}");
}

#[test]
fn python_is_asked_by_py_spy_without_being_stopped() {
    let (dir, path) = tool(
        "py-spy",
        "echo \"Thread $4 (idle): \\\"MainThread\\\"\"; echo '    step (train.py:12)'",
    );
    let python = dir.path().join("python3.99");
    std::fs::copy(sleep_program(), &python).unwrap();
    let sleeper = Sleeper::start(&python);
    let found = look(sleeper.pid(), Depth::Stacks, &path);
    // `dump --nonblocking --pid PID`: nothing among its arguments stops it.
    assert_eq!(
        found[0].threads[0].frames,
        ["step (train.py:12)"],
        "{found:?}"
    );
    assert_eq!(found[0].stopped_us, 0);
    let found = look(sleeper.pid(), Depth::Stacks, "/nonexistent".as_ref());
    let said = notes(&found[0]);
    assert!(said.contains("py-spy is not installed"), "{said}");
}

#[test]
fn a_debuggers_stacks_are_the_threads_and_how_long_it_stopped_them_is_said() {
    let script = format!(
        "{WHOM}; echo \"Thread 1 (LWP $2):\"; echo '#0  0x01 in poll ()'; echo '#1  main ()'"
    );
    let (_dir, path) = tool("gdb", &script);
    let sleeper = Sleeper::start(sleep_program());
    let found = look(sleeper.pid(), Depth::Native, &path);
    assert_eq!(found[0].threads[0].frames, ["poll ()", "main ()"]);
    assert!(found[0].stopped_us > 0, "{found:?}");
}

#[test]
fn a_debugger_that_hangs_is_cut_off_and_what_it_stopped_goes_on() {
    let (_dir, path) = tool("gdb", &format!("{WHOM}; kill -STOP $2; sleep 100"));
    let sleeper = Sleeper::start(sleep_program());
    let began = Instant::now();
    let found = look(sleeper.pid(), Depth::Native, &path);
    assert!(began.elapsed() < STOP * 10, "{:?}", began.elapsed());
    let said = notes(&found[0]);
    assert!(said.contains("was cut off after 1000 ms"), "{said}");
    sleeper.wait_for('S');
    // One that somebody else stopped stays so.
    let pid = sleeper.pid().to_string();
    let stopped = Command::new("kill").args(["-STOP", &pid]).status().unwrap();
    assert!(stopped.success());
    sleeper.wait_for('T');
    let found = look(sleeper.pid(), Depth::Native, &path);
    let said = notes(&found[0]);
    assert!(said.contains("stopped by a signal (T)"), "{said}");
    assert_eq!(ProcStat::read(sleeper.pid()).unwrap().state, 'T');
}

#[test]
fn a_process_that_is_gone_or_another_one_by_now_is_a_sentence() {
    let sleeper = Sleeper::start(sleep_program());
    let mut other = running(sleeper.pid());
    other.start_time += 1;
    let look = Look {
        depth: Depth::Stacks,
        limit: Depth::Stacks.limit(),
        stop: STOP,
    };
    let found = inside_with(other, look, "/nonexistent".as_ref());
    assert_eq!(
        notes(&found[0]),
        format!("process {} ended before it was looked at", other.pid)
    );
    let before = running(sleeper.pid());
    drop(sleeper);
    let found = inside_with(before, look, "/nonexistent".as_ref());
    assert!(notes(&found[0]).contains("ended before"), "{found:?}");
    assert!(found[0].state.is_empty() && found[0].threads.is_empty());
}

#[test]
fn of_many_threads_the_busiest_are_shown_and_all_are_counted() {
    let (go_on, wait) = channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    std::thread::scope(|scope| {
        for _ in 0..500 {
            let thread = std::thread::Builder::new().stack_size(64 << 10);
            let waits = || {
                // Until the sender is dropped.
                let _ = wait.lock().unwrap().recv();
            };
            thread.spawn_scoped(scope, waits).unwrap();
        }
        let busy = std::sync::atomic::AtomicBool::new(true);
        let computes = std::thread::Builder::new().name("computes".to_owned());
        std::thread::scope(|inner| {
            let spin = || {
                while busy.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            computes.spawn_scoped(inner, spin).unwrap();
            let found = look(std::process::id(), Depth::Threads, "/nonexistent".as_ref());
            busy.store(false, std::sync::atomic::Ordering::Relaxed);
            let process = &found[0];
            assert!(process.thread_count > 500, "{}", process.thread_count);
            assert_eq!(process.threads.len(), 64);
            let of: Vec<&str> = process.threads.iter().map(|t| t.name.as_str()).collect();
            assert!(of.contains(&"computes"), "{of:?}");
            let sorted = process.threads.is_sorted_by_key(|t| u64::MAX - t.cpu_us);
            assert!(sorted && process.threads[0].cpu_us > 0, "{process:?}");
        });
        drop(go_on);
    });
}

#[test]
fn the_words_of_requests_are_depths() {
    for depth in [Depth::Threads, Depth::Stacks, Depth::Native] {
        assert_eq!(Depth::of_word(depth.word()), Some(depth));
        assert!(depth.within() > depth.limit());
    }
    assert_eq!(Depth::of_word("probe"), None);
}
