//! Evidence of real processes, with tools real and played.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::evidence::{evidence, evidence_with};
use super::proc_stat::{ProcStat, SHIM, hosted_by};
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_millis(400);

/// A process that sleeps, killed with this value.
pub(super) struct Sleeper(Child);

impl Sleeper {
    pub fn start(program: &Path) -> Self {
        let child = Command::new(program).arg("100").spawn().unwrap();
        let sleeper = Self(child);
        sleeper.wait_for('S');
        sleeper
    }

    pub fn wait_for(&self, state: char) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while ProcStat::read(self.pid()).unwrap().state != state {
            assert!(Instant::now() < deadline, "not in state {state}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A tool of this name that runs a script; the folder is the search path.
pub(super) fn tool(name: &str, script: &str) -> (tempfile::TempDir, OsString) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(name);
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = dir.path().as_os_str().to_owned();
    (dir, path)
}

pub(super) fn sleep_program() -> &'static Path {
    Path::new("/bin/sleep")
}

#[test]
fn a_python_process_is_shown_by_py_spy_and_any_other_by_gdb() {
    let (dir, path) = tool("py-spy", "echo py-spy says \"$@\"");
    let python = dir.path().join("python3.99");
    std::fs::copy(sleep_program(), &python).unwrap();
    let sleeper = Sleeper::start(&python);
    let text = evidence_with(sleeper.pid(), LIMIT, &path, false).text;
    let pid = sleeper.pid();
    let said = format!("py-spy says dump --nonblocking --native --pid {pid}");
    assert!(text.contains(&said), "{text}");
    // One that goes on is stopped by no tool.
    let text = evidence_with(pid, LIMIT, &path, true).text;
    let said = format!("py-spy says dump --nonblocking --pid {pid}");
    assert!(text.contains(&said), "{text}");

    let (_dir, path) = tool("gdb", "echo gdb says \"$@\"");
    let other = Sleeper::start(sleep_program());
    let text = evidence_with(other.pid(), LIMIT, &path, false).text;
    assert!(
        text.contains("gdb says") && text.contains("bt 30"),
        "{text}"
    );
    let gently = evidence_with(other.pid(), LIMIT, &path, true).text;
    assert!(!gently.contains("gdb says"), "{gently}");
    assert!(gently.contains("is in state S"), "{gently}");
}

#[test]
fn a_tool_that_hangs_is_cut_off_with_all_it_started_and_what_it_said_is_kept() {
    let (_dir, path) = tool("gdb", "echo frame one; sleep 100; echo too late");
    let sleeper = Sleeper::start(sleep_program());
    let began = Instant::now();
    let text = evidence_with(sleeper.pid(), LIMIT, &path, false).text;
    assert!(began.elapsed() < LIMIT * 10, "{:?}", began.elapsed());
    assert!(text.contains("(cut off after 400 ms)"), "{text}");
    assert!(
        text.contains("frame one") && !text.contains("too late"),
        "{text}"
    );
}

#[test]
fn a_tool_that_fails_says_why() {
    let (_dir, path) = tool("gdb", "echo ptrace: not permitted >&2; exit 3");
    let sleeper = Sleeper::start(sleep_program());
    let text = evidence_with(sleeper.pid(), Duration::from_secs(20), &path, false).text;
    assert!(text.contains("exit status: 3"), "{text}");
    assert!(text.contains("ptrace: not permitted"), "{text}");
}

#[test]
fn without_tools_states_and_wait_channels_of_all_threads_are_there() {
    let sleeper = Sleeper::start(sleep_program());
    let text = evidence_with(sleeper.pid(), LIMIT, "/nonexistent".as_ref(), false).text;
    for part in [
        "is in state S",
        "thread ",
        "wchan",
        "neither py-spy nor gdb",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    // The kernel's stack, or why it cannot be read.
    assert!(text.contains("\n  "), "{text}");
}

#[test]
fn the_real_gdb_shows_where_a_stopped_process_is() {
    let Some(gdb) = robust_needs::program("gdb") else {
        return;
    };
    let sleeper = Sleeper::start(sleep_program());
    let pid = sleeper.pid().to_string();
    let stopped = Command::new("kill").args(["-STOP", &pid]).status().unwrap();
    assert!(stopped.success());
    sleeper.wait_for('T');
    let folder = gdb.parent().unwrap().as_os_str();
    let text = evidence_with(sleeper.pid(), Duration::from_secs(60), folder, false).text;
    assert!(text.contains("is in state T"), "{text}");
    if text.contains("not permitted") {
        return robust_needs::skip(
            "gdb may not trace",
            "run the tests where ptrace is permitted",
        );
    }
    assert!(text.contains("nanosleep"), "{text}");
}

#[test]
fn of_a_shim_it_is_what_it_hosts_that_is_looked_at_and_the_end_of_its_log() {
    let dir = tempfile::tempdir().unwrap();
    let (shim, log) = (dir.path().join(SHIM), dir.path().join("log"));
    let script = "#!/bin/sh\nseq 30 >&2; echo 'loss is 3' >&2\nsleep 100 &\ntrap 'kill $!; exit' TERM\nwait\n";
    std::fs::write(&shim, script).unwrap();
    std::fs::set_permissions(&shim, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut child = Command::new(&shim)
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let sleeps =
        |pid| ProcStat::read(pid).is_ok_and(|stat| stat.name == "sleep" && stat.state == 'S');
    let deadline = Instant::now() + Duration::from_secs(20);
    while !hosted_by(child.id()).into_iter().any(sleeps) {
        assert!(Instant::now() < deadline, "it hosts nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
    let text = evidence(child.id(), LIMIT, false).text;
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    child.wait().unwrap();
    assert!(text.contains("(sleep) is in state S"), "{text}");
    assert!(!text.contains("(robust-shim)"), "{text}");
    let log: Vec<&str> = text.lines().filter(|l| l.starts_with("log: ")).collect();
    assert_eq!(
        (log.len(), log[0], log[19]),
        (20, "log: 12", "log: loss is 3")
    );
}
