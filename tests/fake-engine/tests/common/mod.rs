//! Starts the fake engine as a process of its own and asks it over HTTP.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code)]

pub mod model;
pub mod recording;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use reqwest::Response;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Beyond anything that a sound machine needs.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// A running fake engine; all of its tree and its files are gone when this is dropped.
pub struct Fake {
    pub child: Child,
    pub url: String,
    pub shared: Vec<PathBuf>,
    pub folder: tempfile::TempDir,
}

impl Fake {
    /// Starts one on a free port, with a model in a folder of its own.
    pub fn start(dialect: &str, args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        model::write(&folder.path().join("small-1"), 1, None);
        model::write(&folder.path().join("small-2"), 2, None);
        Self::start_with(dialect, args, folder)
    }

    pub fn start_with(dialect: &str, args: &[&str], folder: tempfile::TempDir) -> Self {
        let mut child = command(dialect, &folder.path().join("small-1"), args);
        let mut lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map(Result::unwrap);
        let mut said = |what: &str| {
            let line = lines.next().unwrap_or_default();
            line.split_once(what)
                .unwrap_or_else(|| panic!("{line:?} without {what:?}"))
                .1
                .to_owned()
        };
        let shared = said("shares ").split(' ').map(PathBuf::from).collect();
        let url = said("listening on ");
        Self {
            child,
            url,
            shared,
            folder,
        }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// The process of that name in this one's tree.
    pub fn process(&self, name: &str) -> Pid {
        let all = tree(self.child.id());
        let found = all.iter().find(|(_, (line, _))| line.contains(name));
        Pid::from_raw(
            found
                .unwrap_or_else(|| panic!("no {name} in {all:?}"))
                .0
                .cast_signed(),
        )
    }

    pub fn model(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    pub async fn get(&self, path: &str) -> Response {
        reqwest::Client::new()
            .get(format!("{}{path}", self.url))
            .send()
            .await
            .unwrap()
    }

    pub async fn post(&self, path: &str, body: &Value) -> Response {
        self.try_post(path, body).await.unwrap()
    }

    pub async fn try_post(&self, path: &str, body: &Value) -> reqwest::Result<Response> {
        reqwest::Client::new()
            .post(format!("{}{path}", self.url))
            .json(body)
            .send()
            .await
    }

    /// The JSON of a reply that must be there with status 200.
    pub async fn ask(&self, path: &str, body: &Value) -> Value {
        let reply = self.post(path, body).await;
        let status = reply.status();
        let text = reply.text().await.unwrap();
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Waits until the leader is gone.
    pub fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "the leader does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let group = self.pid();
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.child.wait();
        for path in &self.shared {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Starts the program in a group of its own, with a port that it chooses.
pub fn command(dialect: &str, model: &Path, args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_fake-engine"))
        .args([
            "--dialect",
            dialect,
            "--port",
            "0",
            "--enable-scale-out",
            "--enable-metrics",
        ])
        .args([
            "--time-scale",
            "0.1",
            "--tokens-per-s",
            "400",
            "--model-path",
        ])
        .arg(model)
        .args(args)
        .process_group(0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The processes below one, with their command lines and their parents.
pub fn tree(leader: u32) -> BTreeMap<u32, (String, u32)> {
    let mut found = BTreeMap::new();
    let mut queue = vec![leader];
    while let Some(parent) = queue.pop() {
        let tasks = std::fs::read_dir(format!("/proc/{parent}/task"))
            .into_iter()
            .flatten();
        for task in tasks.map_while(Result::ok) {
            let children =
                std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for pid in children
                .split_whitespace()
                .map(|pid| pid.parse::<u32>().unwrap())
            {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line)
                    .replace('\0', " ")
                    .trim()
                    .to_owned();
                found.insert(pid, (line, parent));
                queue.push(pid);
            }
        }
    }
    found
}

/// Whether a process is there and no zombie.
pub fn lives(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ")
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

/// Waits until something holds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds().await {
        assert!(Instant::now() < deadline, "{what} does not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub fn signal(pid: Pid, signal: Signal) {
    kill(pid, signal).unwrap();
}
