//! A harness for end-to-end tests: starts a real `robustd` with real roles in its own folder, strikes
//! them, and checks the invariants from outside, through `robustctl --json` and /proc only.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod capture;
mod cluster;
mod controllers;
mod edit;
mod engines;
mod history;
mod hook;
mod invariants;
pub mod load;
mod machines;
mod net;
mod observer;
mod passable;
mod programs;
mod sites;
mod slow;
mod terminal;
mod torch;
mod trial;
mod weights;

pub use capture::Capture;
pub use cluster::Cluster;
pub use controllers::Controllers;
pub use edit::JobFile;
pub use engines::engine_process;
pub use history::{Answered, Disagreement, History, Shown, now_us};
pub use hook::Hook;
pub use invariants::{Watcher, assert_consumed_once, consumed_once};
pub use machines::Partition;
pub use net::{Net, Wires};
pub use observer::{Asked, Observer};
pub use programs::{bin, cache, fixture};
pub use sites::{lay_files, of_files};
pub use slow::SlowLoopback;
pub use terminal::{Terminal, has_tmux};
pub use torch::{example, start_torch, torch_job, torch_python};
pub use trial::{Left, Trial};

use crate::passable::passable;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use robust_tree::{Groups, Mounts};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything in a test may take before the test fails and says what it waited for.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A running daemon with its own state directory; everything it started dies with this value.
pub struct Daemon {
    dir: TempDir,
    job: PathBuf,
    child: Option<Child>,
    env: Vec<(String, String)>,
    /// What starts it, and more arguments.
    command: Vec<String>,
    watcher: Watcher,
}

impl Daemon {
    /// Starts `robustd` with the job file and waits until it answers.
    pub fn start(job: &JobFile) -> Self {
        Self::start_with(job, &[])
    }

    /// The same, with these set in the environment of the daemon and its roles.
    pub fn start_with(job: &JobFile, env: &[(&str, &str)]) -> Self {
        let robustd = bin("robustd").to_string_lossy().into_owned();
        Self::start_by(job, env, vec![robustd])
    }

    /// The same, as a user without rights: root plays one in a user namespace, where its files are still its own.
    pub fn start_unprivileged(job: &JobFile, env: &[(&str, &str)]) -> Self {
        let robustd = bin("robustd").to_string_lossy().into_owned();
        let played = ["unshare", "--user", "--map-user=1000", "--map-group=1000"];
        let mut command: Vec<String> = Vec::new();
        if nix::unistd::geteuid().is_root() {
            command.extend(played.map(str::to_owned));
        }
        command.push(robustd);
        Self::start_by(job, env, command)
    }

    /// The same, where every user may pass the folders on the way to these, which root's own home keeps closed. What
    /// is changed for that is changed for this daemon alone.
    pub fn start_passable(job: &JobFile, env: &[(&str, &str)], ways: &[&Path]) -> Self {
        let command = [passable(ways), vec![bin("robustd").display().to_string()]].concat();
        Self::start_by(job, env, command)
    }

    /// The same, in a network namespace whose loopback is slow, and over which weights go.
    pub fn start_on(job: &JobFile, net: &SlowLoopback) -> Self {
        let job = &job.clone().set("weights", "transport", "tls");
        let robustd = bin("robustd").to_string_lossy().into_owned();
        let command = [net.command(), vec![robustd]].concat();
        Self::start_by(job, &[], command)
    }

    /// The same, by this command line, to which job and state directory are added.
    fn start_by(job: &JobFile, env: &[(&str, &str)], command: Vec<String>) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("robust-e2e.")
            .tempdir()
            .unwrap();
        let path = job.write(dir.path());
        let mut daemon = Self {
            dir,
            job: path,
            child: None,
            env: env
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            command,
            watcher: Watcher::default(),
        };
        daemon.launch();
        daemon
    }

    /// Its machine burns with its disk, and another one goes on with the job from this log.
    pub fn goes_on_from(&mut self, log: &str) {
        self.end_machine();
        std::fs::remove_dir_all(self.state_dir()).unwrap();
        forget_snapshots(&self.state_dir());
        self.command
            .extend(["--restore-from", log].map(str::to_owned));
        self.launch();
    }

    /// The state directory.
    pub fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Starts `robustd` on this state directory (again, after [`Self::kill_daemon`]).
    pub fn launch(&mut self) {
        let log = |name: &str| {
            File::options()
                .create(true)
                .append(true)
                .open(self.dir.path().join(name))
                .unwrap()
        };
        let child = Command::new(&self.command[0])
            .args(&self.command[1..])
            .arg("--job")
            .arg(&self.job)
            .arg("--state-dir")
            .arg(self.state_dir())
            .env("ROBUST_CACHE", programs::cache())
            .envs(self.env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log("out.log"))
            .stderr(log("err.log"))
            .spawn()
            .expect("robustd starts");
        self.child = Some(child);
        // What is asked of all roles would hold of none.
        let start = Instant::now();
        while !self.has_ended() && !self.try_status().is_some_and(|s| knows_roles(&s)) {
            self.patience(start, "the daemon to answer, and to know its roles");
        }
    }

    /// What was seen of the job so far says nothing of what follows: its database is gone, and with it which numbers its
    /// lives had.
    pub fn watch_anew(&mut self) {
        self.watcher = Watcher::default();
    }

    fn has_ended(&mut self) -> bool {
        let child = self.child.as_mut().expect("a daemon runs");
        child.try_wait().expect("it can be waited for").is_some()
    }

    /// The bytes of every tensor of a step's checkpoint, weights and optimiser, by shard.
    pub fn checkpoint(&self, step: i64) -> BTreeMap<String, Vec<u8>> {
        let folder = self.state_dir().join(format!("ckpt/step-{step}"));
        let files = std::fs::read_dir(&folder);
        let files = files
            .unwrap_or_else(|e| panic!("{folder:?}: {e}"))
            .flatten();
        let shards = files.filter(|f| f.path().extension().is_some_and(|e| e == "safetensors"));
        let mut tensors = BTreeMap::new();
        for shard in shards {
            let bytes = std::fs::read(shard.path()).unwrap();
            let data = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            let name = shard.file_name().into_string().unwrap();
            tensors.insert(name, bytes[data..].to_vec());
        }
        assert_eq!(tensors.len(), 2, "a shard for each rank");
        tensors
    }

    /// SIGKILL to the daemon alone; its roles live on.
    pub fn kill_daemon(&mut self) {
        let mut child = self.child.take().expect("a daemon runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The daemon alone is stopped for that time, and goes on.
    pub fn stand_still(&self, for_: Duration) {
        let child = self.child.as_ref().expect("a daemon runs");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
        kill(pid, Signal::SIGSTOP).expect("it is stopped");
        std::thread::sleep(for_);
        kill(pid, Signal::SIGCONT).expect("it goes on");
    }

    /// The machine's end: the daemon, its roles and what was in shared memory alone are gone.
    pub fn end_machine(&mut self) {
        self.kill_daemon();
        // One that was being started is seen in the next round.
        while !processes_naming(&self.state_dir()).is_empty() {
            end_processes_naming(&self.state_dir());
            std::thread::sleep(Duration::from_millis(10));
        }
        forget_snapshots(&self.state_dir());
    }

    /// Runs `robustctl` against this daemon.
    pub fn ctl(&self, args: &[&str]) -> Output {
        Command::new(bin("robustctl"))
            .arg("--state-dir")
            .arg(self.state_dir())
            .args(args)
            .stdin(Stdio::null())
            .output()
            .expect("robustctl runs")
    }

    /// Runs `robustctl ... --json` and parses what it prints.
    pub fn json(&self, args: &[&str]) -> Value {
        let args = [args, &["--json"]].concat();
        let out = self.ctl(&args);
        assert!(
            out.status.success(),
            "robustctl {args:?}: {}\n{}",
            String::from_utf8_lossy(&out.stderr),
            self.logs()
        );
        serde_json::from_slice(&out.stdout).expect("robustctl prints JSON")
    }

    fn try_status(&self) -> Option<Value> {
        let out = self.ctl(&["status", "--json"]);
        serde_json::from_slice(&out.stdout)
            .ok()
            .filter(|_| out.status.success())
    }

    /// The status now, after the invariants were checked on it.
    pub fn status(&mut self) -> Value {
        let status = self.json(&["status"]);
        self.watcher.check(&status);
        status
    }

    /// Polls the status until `done` says so.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let status = self.status();
            if done(&status) {
                return status;
            }
            self.patience(start, what);
        }
    }

    /// Waits until the committed step is at least `step`.
    pub fn until_step(&mut self, step: u64) -> Value {
        self.until(&format!("step {step}"), |s| {
            s["step"].as_u64() >= Some(step)
        })
    }

    /// Waits until what can be seen from outside is so.
    pub fn wait_for(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            self.patience(start, what);
        }
    }

    fn patience(&self, start: Instant, what: &str) {
        assert!(
            start.elapsed() < PATIENCE,
            "waited {PATIENCE:?} for {what}\n{}",
            self.logs()
        );
        std::thread::sleep(Duration::from_millis(50));
    }

    /// Waits for the daemon's own end; its exit code.
    pub fn finish(&mut self) -> i32 {
        let start = Instant::now();
        loop {
            if let Some(status) = self
                .child
                .as_mut()
                .expect("a daemon runs")
                .try_wait()
                .unwrap()
            {
                self.child = None;
                return status.code().unwrap_or(-1);
            }
            if let Some(status) = self.try_status() {
                self.watcher.check(&status);
            }
            self.patience(start, "the daemon to end");
        }
    }

    /// The texts of the events of a kind, oldest first.
    pub fn events(&self, kind: &str) -> Vec<String> {
        let out = self.ctl(&["events", "--json"]);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let lines = text
            .lines()
            .filter_map(|l| serde_json::from_str::<Value>(l).ok());
        let of_kind = lines.filter(|e| e["kind"] == kind);
        of_kind
            .map(|e| e["text"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Where the daemon logs.
    pub fn stderr(&self) -> PathBuf {
        self.dir.path().join("err.log")
    }

    /// What the daemon printed.
    pub fn stdout(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("out.log")).unwrap_or_default()
    }

    /// The ends of every log, for a failing test.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        let roles = self.state_dir().join("logs");
        let roles = std::fs::read_dir(roles)
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.path());
        let own = ["out.log", "err.log"].map(|n| self.dir.path().join(n));
        for path in own.into_iter().chain(roles) {
            let all = std::fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<&str> = all.lines().collect();
            let tail = lines[lines.len().saturating_sub(25)..].join("\n");
            text += &format!("--- {}\n{tail}\n", path.display());
        }
        text
    }

    /// Processes of this job that are alive: (pid, command line).
    pub fn processes(&self) -> Vec<(i32, String)> {
        processes_naming(&self.state_dir())
    }
}

/// Living processes whose command line names `dir`.
pub fn processes_naming(dir: &Path) -> Vec<(i32, String)> {
    let needle = dir.to_string_lossy().into_owned();
    let (mut found, mut parents) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let raw = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&raw).replace('\0', " ");
        if line.contains(&needle) && !line.contains("robustctl") {
            found.push((pid, line));
            parents.push(parent(&entry.path()));
        }
    }
    // A child that has yet to become the program it runs still bears its parent's command line.
    let all = found.clone();
    let mut parents = parents.into_iter();
    found.retain(|(_, line)| {
        let parent = parents.next().flatten();
        !all.iter()
            .any(|(pid, of)| Some(*pid) == parent && of == line)
    });
    found
}

/// The parent of the process with this folder in /proc.
fn parent(process: &Path) -> Option<i32> {
    let stat = std::fs::read_to_string(process.join("stat")).ok()?;
    stat.rsplit(')')
        .next()?
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

/// Kills every process that names `dir`, and removes its snapshots.
pub fn end_processes_naming(dir: &Path) {
    for (pid, line) in processes_naming(dir) {
        // A role leads a group: what it started goes with it.
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        if let Some(snapshots) = argument(&line, "--snapshot-dir") {
            let _ = std::fs::remove_dir_all(snapshots);
        }
    }
}

fn argument<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(' ').skip_while(|word| *word != name).nth(1)
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        // A daemon killed a moment ago may have left roles; nothing else names this directory.
        end_processes_naming(&self.state_dir());
        forget_snapshots(&self.state_dir());
    }
}

/// Removes the shared memory of a daemon that was killed, and its control groups with what is in them.
fn forget_snapshots(state: &Path) {
    let state = state.canonicalize().unwrap_or_else(|_| state.to_owned());
    // Most daemons end in order and remove it themselves.
    let _ = std::fs::remove_dir_all(robustd::state::snapshot_dir(&state));
    let groups = groups(&state);
    groups.sweep(&BTreeSet::new());
    groups.forget();
}

/// The control groups of the daemon with this state directory.
pub fn groups(state: &Path) -> Groups {
    let state = state.canonicalize().unwrap_or_else(|_| state.to_owned());
    let mounts = Mounts::here().expect("/proc says what is mounted");
    Groups::of(&mounts, &robustd::state::own_name(&state))
}

/// The roles of a status with this role's name.
pub fn roles<'a>(status: &'a Value, role: &str) -> Vec<&'a Value> {
    let all = status["roles"].as_array().expect("status has roles");
    all.iter().filter(|r| r["role"] == role).collect()
}

fn knows_roles(status: &Value) -> bool {
    status["roles"]
        .as_array()
        .is_some_and(|all| !all.is_empty())
}

/// Tokens generated so far by all rollouts.
pub fn tokens(status: &Value) -> u64 {
    roles(status, "rollout")
        .iter()
        .filter_map(|r| r["tokens_total"].as_u64())
        .sum()
}
