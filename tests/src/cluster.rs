//! Several daemons of one job on this machine, each with its own state directory.
use crate::{Daemon, JobFile, Net, bin, end_processes_naming, processes_naming};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The leader and the nodes that joined it; all of it dies with this value.
pub struct Cluster {
    /// The leader.
    pub leader: Daemon,
    addr: String,
    token: PathBuf,
    nodes: Vec<(String, Child)>,
}

impl Cluster {
    /// Starts a leader that listens for nodes on loopback.
    pub fn start(job: &JobFile) -> Self {
        Self::start_with(job, &[])
    }

    /// The same, with more arguments.
    pub fn start_with(job: &JobFile, more: &[&str]) -> Self {
        Self::start_at(job, free_address(), Vec::new(), more)
    }

    /// The same, by a command that runs what it is given after its own words.
    pub fn start_within(job: &JobFile, command: &[&str]) -> Self {
        let command = command.iter().map(|word| (*word).to_owned());
        Self::start_at(job, free_address(), command.collect(), &[])
    }

    /// Starts a leader on the first side of a net.
    pub fn start_on(job: &JobFile, net: &Net) -> Self {
        Self::start_on_with(job, net, &[])
    }

    /// The same, with more arguments.
    pub fn start_on_with(job: &JobFile, net: &Net, more: &[&str]) -> Self {
        let addr = format!("{}:7071", net.leader());
        Self::start_at(job, addr, net.on(0), more)
    }

    fn start_at(job: &JobFile, addr: String, prefix: Vec<String>, more: &[&str]) -> Self {
        let mut command = prefix;
        command.push(bin("robustd").to_string_lossy().into_owned());
        command.extend(["--listen-nodes", &addr].map(str::to_owned));
        command.extend(more.iter().map(|word| (*word).to_owned()));
        let leader = Daemon::start_by(job, &[], command);
        let token = leader.state_dir().join("nodes.token");
        Self {
            leader,
            addr,
            token,
            nodes: Vec::new(),
        }
    }

    /// Where nodes join.
    pub fn addr(&self) -> &str {
        &self.addr
    }

    /// A node's state directory.
    pub fn state_dir(&self, node: &str) -> PathBuf {
        self.leader.dir.path().join(format!("node-{node}"))
    }

    /// What a node's daemon wrote.
    pub fn log(&self, node: &str) -> PathBuf {
        self.leader.dir.path().join(format!("node-{node}.log"))
    }

    /// Starts a daemon that joins, with more arguments than its name.
    pub fn join(&mut self, node: &str, more: &[&str]) {
        self.join_by(node, Vec::new(), more);
    }

    /// Starts a daemon that joins, on a side of a net.
    pub fn join_on(&mut self, node: &str, net: &Net, side: usize) {
        self.join_by(node, net.on(side), &[]);
    }

    /// Starts a daemon that joins, by a command that runs what it is given after its own words.
    pub fn join_within(&mut self, node: &str, command: &[&str]) {
        let command = command.iter().map(|word| (*word).to_owned());
        self.join_by(node, command.collect(), &[]);
    }

    fn join_by(&mut self, node: &str, prefix: Vec<String>, more: &[&str]) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log(node))
            .expect("its log");
        let mut command = prefix;
        command.push(bin("robustd").to_string_lossy().into_owned());
        let child = Command::new(&command[0])
            .args(&command[1..])
            .args(["--join", &self.addr, "--name", node, "--state-dir"])
            .arg(self.state_dir(node))
            .arg("--token-file")
            .arg(&self.token)
            .args(more)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("its log"))
            .stderr(log)
            .spawn()
            .expect("robustd starts");
        self.nodes.push((node.to_owned(), child));
    }

    /// Processes of a node, its daemon among them: (pid, command line).
    pub fn processes(&self, node: &str) -> Vec<(i32, String)> {
        processes_naming(&self.state_dir(node))
    }

    /// A signal to a node's daemon and all its roles, as if the machine had it.
    pub fn strike(&mut self, node: &str, signal: Signal) {
        for (pid, _) in self.processes(node) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
        if signal == Signal::SIGKILL {
            let at = self.nodes.iter().position(|(name, _)| name == node);
            let (_, mut child) = self.nodes.swap_remove(at.expect("it runs"));
            child.wait().expect("it ends");
        }
    }

    /// Every machine loses what is in its memory, and all that runs there.
    pub fn lose_all_memory(&mut self) {
        let nodes: Vec<String> = self.nodes.iter().map(|(name, _)| name.clone()).collect();
        for node in &nodes {
            self.strike(node, Signal::SIGKILL);
        }
        self.leader.end_machine();
        for node in &nodes {
            end_processes_naming(&self.state_dir(node));
            crate::forget_snapshots(&self.state_dir(node));
        }
    }

    /// Waits for the end of a node's daemon; its exit code.
    pub fn end_of(&mut self, node: &str) -> i32 {
        let at = self.nodes.iter().position(|(name, _)| name == node);
        let (_, mut child) = self.nodes.swap_remove(at.expect("it runs"));
        child.wait().expect("it ends").code().unwrap_or(-1)
    }

    /// Waits until a node's daemon says this.
    pub fn until_log(&mut self, node: &str, words: &str) {
        let log = self.log(node);
        let said = || std::fs::read_to_string(&log).is_ok_and(|text| text.contains(words));
        let what = format!("{node} to say `{words}`");
        self.leader.until(&what, |_| said());
    }

    /// The ends of every log, for a failing test.
    pub fn logs(&self) -> String {
        let mut text = self.leader.logs();
        for entry in std::fs::read_dir(self.leader.dir.path())
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("node-") && name.ends_with(".log") {
                let all = std::fs::read_to_string(entry.path()).unwrap_or_default();
                let lines: Vec<&str> = all.lines().collect();
                let tail = lines[lines.len().saturating_sub(25)..].join("\n");
                text += &format!("--- {name}\n{tail}\n");
            }
        }
        text
    }
}

/// Where nobody listens yet.
fn free_address() -> String {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    free.local_addr().expect("its address").to_string()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (_, child) in &mut self.nodes {
            let _ = child.kill();
            let _ = child.wait();
        }
        let root = self.leader.dir.path().to_owned();
        for entry in std::fs::read_dir(&root).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                end_processes_naming(&entry.path());
                crate::forget_snapshots(&entry.path());
            }
        }
    }
}
