//! Several daemons of one job on this machine, each with its own state directory, and the fake roles
//! they start.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use hyper_util::rt::TokioIo;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use robust_proto::v1;
use robust_proto::v1::control_client::ControlClient;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint, Uri};

const PATIENCE: Duration = Duration::from_secs(60);
/// The leader's node and two that join it: a rank, a rollout and an agent on the first two.
const NODES: &str = "\
[[node]]\nname = \"a\"\npools = { train = 1, rollout = 1, agent = 1 }\n\
[[node]]\nname = \"b\"\npools = { train = 1, rollout = 1, agent = 1 }\n\
[[node]]\nname = \"c\"\npools = { rollout = 1 }\n";

/// A folder with everything, and the daemons that run in it.
pub struct Cluster {
    temp: tempfile::TempDir,
    port: u16,
    daemons: Vec<(String, Child)>,
}

impl Cluster {
    /// A job of so many steps; nothing runs yet.
    pub fn new(steps: u64) -> Self {
        Self::with(steps, NODES)
    }

    /// The same, with these nodes and other sections.
    pub fn with(steps: u64, sections: &str) -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let cluster = Self {
            temp: tempfile::tempdir().unwrap(),
            port: free.local_addr().unwrap().port(),
            daemons: Vec::new(),
        };
        let write = |name: &str, text: &str| fs::write(cluster.file(name), text).unwrap();
        write("data.jsonl", "{\"prompt\":\"1+1=\",\"answer\":\"2\"}\n");
        write("tokenizer.json", "{}");
        write("token", "0123456789abcdef0123456789abcdef\n");
        write("wrong-token", "fedcba9876543210fedcba9876543210\n");
        fs::create_dir(cluster.file("model")).unwrap();
        write("model/config.json", "{}");
        write("model/model.safetensors", &"weights".repeat(300_000));
        write(
            "job.toml",
            &format!(
                "[job]\nname = \"fake\"\nsteps = {steps}\ndaemon_grace_s = 20\n\
                 [model]\npath = \"model\"\n\
                 [data]\nprompts = \"data.jsonl\"\ntokenizer = \"tokenizer.json\"\n\
                 [batch]\nprompts = 2\nresponses = 2\n[checkpoint]\nevery = 2\n\
                 [detect]\nsample_interval_ms = 50\n{sections}"
            ),
        );
        let exe = std::env::current_exe().unwrap();
        let script = format!(
            "#!/bin/sh\nFAKE_ROLE=\"$*\" exec {} --exact fake_role --ignored --nocapture\n",
            exe.display()
        );
        write("worker", &script);
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(cluster.file("worker"), mode).unwrap();
        cluster
    }

    /// Where the leader listens for nodes.
    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    fn state(&self, node: &str) -> PathBuf {
        self.file(&format!("state-{node}"))
    }

    fn command(&self, node: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_robustd"));
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.file(&format!("log-{node}")))
            .unwrap();
        command
            .arg("--state-dir")
            .arg(self.state(node))
            .env("ROBUST_WORKER", self.file("worker"))
            .env("RUST_LOG", "info")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        command
    }

    fn start(&mut self, node: &str, command: &mut Command) {
        let child = command.spawn().unwrap();
        self.daemons.push((node.to_owned(), child));
    }

    /// Starts the leader, `a`.
    pub fn lead(&mut self) {
        let token = self.file("token").display().to_string();
        self.lead_with(&["--token-file", &token]);
    }

    /// Starts the leader with these arguments, which say which tokens it takes.
    pub fn lead_with(&mut self, args: &[&str]) {
        let mut command = self.command("a");
        command
            .arg("--job")
            .arg(self.file("job.toml"))
            .args(["--listen-nodes", &format!("127.0.0.1:{}", self.port)])
            .args(args);
        self.start("a", &mut command);
    }

    /// Starts a node that has a certificate, and no token.
    pub fn join_again(&mut self, node: &str) {
        self.join_bare(node, &["--name", node]);
    }

    /// Starts a node with these arguments, which say what it proves.
    pub fn join_bare(&mut self, node: &str, args: &[&str]) {
        let mut command = self.command(node);
        command
            .args(["--join", &format!("127.0.0.1:{}", self.port)])
            .args(args);
        self.start(node, &mut command);
    }

    /// Starts a node with these arguments.
    pub fn join_with(&mut self, node: &str, token: &str, args: &[&str]) {
        self.join_at(node, self.port, token, args);
    }

    /// The same by another port, behind which the leader's is.
    pub fn join_at(&mut self, node: &str, port: u16, token: &str, args: &[&str]) {
        let mut command = self.command(node);
        command
            .args(["--join", &format!("127.0.0.1:{port}")])
            .arg("--token-file")
            .arg(self.file(token))
            .args(args);
        self.start(node, &mut command);
    }

    /// Starts a node.
    pub fn join(&mut self, node: &str) {
        self.join_with(node, "token", &["--name", node]);
    }

    fn take(&mut self, node: &str) -> Child {
        let at = self.daemons.iter().position(|(name, _)| name == node);
        self.daemons.swap_remove(at.expect("it runs")).1
    }

    /// SIGKILL to a daemon alone; its roles live on.
    pub fn kill(&mut self, node: &str) {
        let mut child = self.take(node);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Asks a daemon to end.
    pub fn terminate(&self, node: &str) {
        let (_, child) = self.daemons.iter().find(|(name, _)| name == node).unwrap();
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    }

    /// Waits for a daemon's own end; its exit code.
    pub fn end_of(&mut self, node: &str) -> i32 {
        let mut child = self.take(node);
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                panic!("{node} does not end\n{}", self.logs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Role processes of a node that live, found by the socket they were given.
    pub fn roles(&self, node: &str) -> Vec<i32> {
        let socket = self.state(node).join("roles.sock").display().to_string();
        let of = |entry: fs::DirEntry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let environ = fs::read(entry.path().join("environ")).ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let alive = !stat.rsplit(')').next()?.trim_start().starts_with('Z');
            let environ = String::from_utf8_lossy(&environ);
            (alive && environ.contains("FAKE_ROLE=") && environ.contains(&socket)).then_some(pid)
        };
        let all = fs::read_dir("/proc").unwrap();
        all.flatten().filter_map(of).collect()
    }

    /// A signal to a node's daemon and all its roles, as if the machine had it.
    pub fn strike(&self, node: &str, signal: Signal) {
        let (_, child) = self.daemons.iter().find(|(name, _)| name == node).unwrap();
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        self.signal_roles(node, signal);
    }

    /// A signal to all roles of a node.
    pub fn signal_roles(&self, node: &str, signal: Signal) {
        for pid in self.roles(node) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// The leader, as operators reach it.
    pub async fn control(&self) -> Option<ControlClient<Channel>> {
        let socket = self.state("a").join("control.sock");
        let dial = move |_: Uri| {
            let socket = socket.clone();
            async move {
                let stream = tokio::net::UnixStream::connect(socket).await;
                stream.map(TokioIo::new)
            }
        };
        let endpoint = Endpoint::from_static("http://control");
        let channel = endpoint
            .connect_with_connector(tower::service_fn(dial))
            .await;
        channel.ok().map(ControlClient::new)
    }

    /// Polls the leader's status until it shows something.
    pub async fn wait_for(&self, what: &str, when: impl Fn(&v1::Status) -> bool) -> v1::Status {
        let deadline = Instant::now() + PATIENCE;
        let mut last = None;
        loop {
            if let Some(mut control) = self.control().await
                && let Ok(status) = control.get_status(v1::GetStatusRequest {}).await
            {
                let status = status.into_inner();
                if when(&status) {
                    return status;
                }
                last = Some(status);
            }
            assert!(
                Instant::now() < deadline,
                "no {what}: {last:#?}\n{}",
                self.logs()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn log(&self, node: &str) -> String {
        fs::read_to_string(self.file(&format!("log-{node}"))).unwrap_or_default()
    }

    pub fn logs(&self) -> String {
        let part = |node: &str| format!("--- {node}\n{}", self.log(node));
        ["a", "b", "c", "d"].map(part).join("\n")
    }

    /// Whether nothing of a node is left.
    pub fn assert_clean(&self, node: &str) {
        assert_eq!(self.roles(node), [] as [i32; 0], "{}", self.log(node));
        let state = fs::canonicalize(self.state(node)).unwrap();
        assert!(!robustd::state::snapshot_dir(&state).exists(), "{node}");
        assert!(!state.join("roles.sock").exists(), "{node}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (_, child) in &mut self.daemons {
            let _ = child.kill();
            let _ = child.wait();
        }
        for node in ["a", "b", "c", "d"] {
            self.signal_roles(node, Signal::SIGKILL);
            if let Ok(state) = fs::canonicalize(self.state(node)) {
                let _ = fs::remove_dir_all(robustd::state::snapshot_dir(&state));
            }
        }
    }
}

/// Who has a slot on a node.
pub fn on(status: &v1::Status, node: &str) -> Vec<String> {
    let there = status.roles.iter().filter(|r| r.node == node);
    there.map(|r| format!("{}-{}", r.role, r.index)).collect()
}

/// The process ids, by place.
pub fn pids(status: &v1::Status) -> Vec<(String, u32)> {
    let roles = status.roles.iter();
    roles
        .map(|r| (format!("{}-{}", r.role, r.index), r.pid))
        .collect()
}
