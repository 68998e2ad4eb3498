//! With real processes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::proc_stat::ProcStat;
use super::*;
use robust_shared::core::ProcessState;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub(super) struct Bench {
    pub launcher: Launcher,
    events: UnboundedReceiver<LaunchEvent>,
    dir: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(Launcher::new)
    }

    pub fn with(
        launcher: impl FnOnce(UnboundedSender<LaunchEvent>) -> std::io::Result<Launcher>,
    ) -> Self {
        let (sender, events) = unbounded_channel();
        let launcher = launcher(sender).unwrap();
        Self {
            launcher,
            events,
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn spec(&self, n: u64, script: &str) -> SpawnSpec {
        SpawnSpec {
            parked: None,
            incarnation: Incarnation(n),
            argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
            passed: Passed::default(),
            env: vec![("COLOUR".to_owned(), "green".to_owned())],
            log_path: self.dir.path().join(format!("logs/{n}.log")),
            header: format!("== incarnation {n}"),
            group: None,
        }
    }

    pub async fn exit(&mut self) -> (u64, Exit, String) {
        let wait = tokio::time::timeout(Duration::from_secs(20), self.events.recv());
        let event = wait.await.expect("an event within 20 s").unwrap();
        let LaunchEvent::Exited {
            incarnation,
            exit,
            tail_of_log,
            ..
        } = event;
        (incarnation.0, exit, tail_of_log)
    }

    /// Waits for the n-th process's script to have written a line, and returns it.
    pub fn line(&self, n: u64) -> String {
        let path = self.dir.path().join(format!("logs/{n}.log"));
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            if let Some(line) = text.lines().nth(1)
                && text.ends_with('\n')
            {
                return line.to_owned();
            }
            assert!(Instant::now() < deadline, "no line in {text:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

pub(super) fn gone_within(pid: u32, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while ProcStat::read(pid).is_ok_and(|stat| !stat.is_dead()) {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

#[tokio::test]
async fn an_exit_is_told_once_with_code_and_last_lines() {
    let mut bench = Bench::new();
    let spec = bench.spec(1, "echo colour $COLOUR; echo no luck >&2; exit 7");
    bench.launcher.spawn(spec).unwrap();
    let told = bench.exit().await;
    assert_eq!(told, (1, Exit::Code(7), "colour green\nno luck".to_owned()));
    let log = std::fs::read_to_string(bench.dir.path().join("logs/1.log")).unwrap();
    assert!(log.starts_with("== incarnation 1\n"), "{log}");
    assert!(bench.launcher.running().is_empty());
    let more = tokio::time::timeout(Duration::from_millis(200), bench.events.recv()).await;
    assert!(more.is_err(), "a second event: {more:?}");
}

#[tokio::test]
async fn a_link_in_the_place_of_a_log_is_not_written_through() {
    let mut bench = Bench::new();
    let spec = bench.spec(1, "echo up");
    let elsewhere = bench.dir.path().join("elsewhere");
    std::fs::write(&elsewhere, "as it was").unwrap();
    std::fs::create_dir(bench.dir.path().join("logs")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &spec.log_path).unwrap();
    let refused = bench.launcher.spawn(spec).unwrap_err();
    assert!(
        matches!(&refused, SpawnError::Log { source, .. } if source.raw_os_error() == Some(libc::ELOOP)),
        "{refused}"
    );
    assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "as it was");
    // Nor is one made that is not there.
    let mut spec = bench.spec(2, "echo up");
    let missing = bench.dir.path().join("missing");
    std::os::unix::fs::symlink(&missing, &spec.log_path).unwrap();
    bench.launcher.spawn(spec.clone()).unwrap_err();
    assert!(!missing.exists());
    std::fs::remove_file(&spec.log_path).unwrap();
    spec.header = "== a file of its own".to_owned();
    bench.launcher.spawn(spec).unwrap();
    assert_eq!(bench.exit().await.1, Exit::Code(0));
}

#[tokio::test]
async fn a_kill_is_seen_within_100_ms_in_the_median() {
    let mut bench = Bench::new();
    let mut delays = Vec::new();
    for n in 0..15 {
        bench
            .launcher
            .spawn(bench.spec(n, "echo up; exec sleep 100"))
            .unwrap();
        bench.line(n);
        let struck = Instant::now();
        assert!(bench.launcher.kill(Incarnation(n)));
        let (who, exit, _) = bench.exit().await;
        delays.push(struck.elapsed());
        assert_eq!((who, exit), (n, Exit::Signal(9)));
    }
    delays.sort();
    assert!(delays[7] < Duration::from_millis(100), "{delays:?}");
}

#[tokio::test]
async fn a_killed_group_takes_its_grandchildren_along() {
    let mut bench = Bench::new();
    bench
        .launcher
        .spawn(bench.spec(1, "sleep 100 & echo $!; wait"))
        .unwrap();
    let grandchild: u32 = bench.line(1).parse().unwrap();
    assert!(bench.launcher.kill(Incarnation(1)));
    assert_eq!(bench.exit().await.1, Exit::Signal(9));
    assert!(gone_within(grandchild, Duration::from_secs(5)));
}

#[tokio::test]
async fn leftovers_are_killed_when_the_leader_ends_by_itself() {
    let mut bench = Bench::new();
    bench
        .launcher
        .spawn(bench.spec(1, "sleep 100 & echo $!; exit 0"))
        .unwrap();
    let leftover: u32 = bench.line(1).parse().unwrap();
    assert_eq!(bench.exit().await.1, Exit::Code(0));
    assert!(gone_within(leftover, Duration::from_secs(5)));
}

#[tokio::test]
async fn a_stopped_process_is_killed_all_the_same() {
    let mut bench = Bench::new();
    let running = bench
        .launcher
        .spawn(bench.spec(1, "echo up; exec sleep 100"))
        .unwrap();
    bench.line(1);
    assert!(bench.launcher.signal(Incarnation(1), Signal::STOP));
    let deadline = Instant::now() + Duration::from_secs(5);
    while ProcStat::read(running.pid).unwrap().state != 'T' {
        assert!(Instant::now() < deadline);
    }
    let found = evidence(running.pid, Duration::from_secs(2), false);
    assert_eq!(found.seen.state, ProcessState::Stopped);
    let text = found.text;
    assert!(
        text.contains("is in state T") && text.contains("wchan"),
        "{text}"
    );
    assert!(bench.launcher.kill(Incarnation(1)));
    assert_eq!(bench.exit().await.1, Exit::Signal(9));
}

/// The shell starts the process in the background and ends: like a role whose daemon died.
#[tokio::test]
async fn the_end_of_an_adopted_process_is_seen() {
    let mut bench = Bench::new();
    let script = "setsid sleep 100 >/dev/null 2>&1 & echo $!";
    let output = std::process::Command::new("sh")
        .args(["-c", script])
        .output()
        .unwrap();
    let pid: u32 = String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while ProcStat::read(pid).unwrap().name != "sleep" {
        assert!(Instant::now() < deadline);
    }
    let start_time = ProcStat::read(pid).unwrap().start_time;
    let other = Running {
        pid,
        start_time: start_time + 1,
    };
    assert!(
        !bench.launcher.adopt(Incarnation(1), other, None, None),
        "not that process"
    );
    assert!(
        bench
            .launcher
            .adopt(Incarnation(1), Running { pid, start_time }, None, None)
    );
    assert!(bench.launcher.kill(Incarnation(1)));
    assert_eq!(bench.exit().await, (1, Exit::Gone, String::new()));
    assert!(gone_within(pid, Duration::from_secs(5)));
    assert!(
        !bench
            .launcher
            .adopt(Incarnation(2), Running { pid, start_time }, None, None)
    );
}

#[tokio::test]
async fn a_role_inherits_no_descriptor_and_leads_its_own_session() {
    let bench = Bench::new();
    let leaky = std::fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&leaky, rustix::io::FdFlags::empty()).unwrap();
    let pid = bench
        .launcher
        .spawn(bench.spec(1, "echo up; exec sleep 100"))
        .unwrap()
        .pid;
    bench.line(1);
    let open = || {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let names = open.map(|e| e.unwrap().file_name().into_string().unwrap());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    // The loader of `sleep` has its libraries open for a moment.
    let deadline = Instant::now() + Duration::from_secs(20);
    while open().len() > 3 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(open().iter().eq(["0", "1", "2"]), "{:?}", open());
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let session = stat.split_ascii_whitespace().nth(5).unwrap();
    assert_eq!(
        (ProcStat::read(pid).unwrap().group, session),
        (pid, pid.to_string().as_str())
    );
    bench.launcher.kill(Incarnation(1));
}

#[tokio::test]
async fn while_starts_are_refused_the_system_finds_no_program() {
    let bench = Bench::new();
    bench.launcher.refuse_starts(Duration::from_secs(3600));
    let spec = bench.spec(1, "sleep 60");
    let error = bench.launcher.spawn(spec.clone()).unwrap_err().to_string();
    assert!(error.contains("(gone on request): No such file"), "{error}");
    bench.launcher.refuse_starts(Duration::ZERO);
    bench.launcher.spawn(spec).unwrap();
    assert!(bench.launcher.kill(Incarnation(1)));
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let bench = Bench::new();
    let mut spec = bench.spec(1, "");
    spec.argv = vec!["/no/such/program".to_owned()];
    let error = bench.launcher.spawn(spec.clone()).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot start /no/such/program: No such file"),
        "{error}"
    );
    spec.argv.clear();
    let error = bench.launcher.spawn(spec).unwrap_err().to_string();
    assert_eq!(error, "nothing to start for #1: its command line is empty");
    assert!(!bench.launcher.kill(Incarnation(1)));
}

/// A control group with little memory, in which this process is until it is dropped.
struct Tight {
    group: std::path::PathBuf,
    before: std::path::PathBuf,
}

impl Tight {
    /// Below the group of this process, in whichever version has the controller; why there is none else.
    fn enter() -> Result<Self, String> {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let of = |prefix: &str| {
            let mut lines = own.lines();
            lines.find_map(|l| Some(l.split_once(prefix)?.1.trim_matches('/').to_owned()))
        };
        let (before, limit) = match (of(":memory:"), of("0::")) {
            (Some(path), _) => (
                format!("/sys/fs/cgroup/memory/{path}"),
                "memory.limit_in_bytes",
            ),
            (None, Some(path)) => (format!("/sys/fs/cgroup/{path}"), "memory.max"),
            (None, None) => return Err("there are no control groups".to_owned()),
        };
        let before = std::path::PathBuf::from(before);
        let group = before.join(format!("robust-test-{}", std::process::id()));
        let said = |e: std::io::Error| format!("no group in {}: {e}", before.display());
        std::fs::create_dir(&group).map_err(said)?;
        let tight = Self {
            group: group.clone(),
            before: before.clone(),
        };
        std::fs::write(group.join(limit), "67108864").map_err(said)?;
        std::fs::write(group.join("cgroup.procs"), std::process::id().to_string()).map_err(said)?;
        Ok(tight)
    }
}

impl Drop for Tight {
    fn drop(&mut self) {
        let _ = std::fs::write(
            self.before.join("cgroup.procs"),
            std::process::id().to_string(),
        );
        let _ = std::fs::remove_dir(&self.group);
    }
}

#[tokio::test]
async fn a_process_that_the_kernel_kills_for_want_of_memory_is_told_as_such() {
    let tight = match Tight::enter() {
        Ok(tight) => tight,
        Err(why) => return robust_needs::skip(why, robust_needs::ROOT),
    };
    let mut bench = Bench::new();
    // It keeps its input until the end of it, which does not come.
    let hog = bench.spec(1, "exec tail /dev/zero");
    bench.launcher.spawn(hog).unwrap();
    let (_, exit, tail) = bench.exit().await;
    assert_eq!(exit, Exit::Signal(9));
    assert!(
        tail.contains("for want of memory: the machine, or the control group"),
        "{tail:?}"
    );
    // One that fails after that, and one that is killed from here, end for reasons of their own.
    bench.launcher.spawn(bench.spec(2, "exit 3")).unwrap();
    let (_, exit, tail) = bench.exit().await;
    assert_eq!((exit, tail.as_str()), (Exit::Code(3), ""));
    bench
        .launcher
        .spawn(bench.spec(3, "exec sleep 1000"))
        .unwrap();
    assert!(bench.launcher.kill(Incarnation(3)));
    let (_, exit, tail) = bench.exit().await;
    assert_eq!(exit, Exit::Signal(9));
    assert!(!tail.contains("memory"), "{tail:?}");
    drop(tight);
}
