//! Several controllers of one job on this machine, with a real etcd, and the nodes that join whichever leads.
use crate::{JobFile, bin, end_processes_naming, forget_snapshots, processes_naming, programs};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use robust_etcd::{Cluster as Etcd, Wire};
use serde_json::Value;
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Controllers and nodes; all of it dies with this value.
pub struct Controllers {
    /// What decides who leads.
    pub etcd: Etcd,
    dir: TempDir,
    jobs: Vec<PathBuf>,
    addresses: Vec<String>,
    /// Where each one serves `robustctl --connect`.
    control: Vec<String>,
    daemons: Vec<Option<Child>>,
    nodes: Vec<(String, Child)>,
}

impl Controllers {
    /// Starts so many controllers of this job, whose nodes have yet to join; none, which is said, where there is no etcd.
    pub fn start(job: &JobFile, count: usize) -> Option<Self> {
        let etcd = Etcd::start(3, Wire::Plain)?;
        let dir = tempfile::Builder::new()
            .prefix("robust-ha.")
            .tempdir()
            .unwrap();
        let secret = dir.path().join("secret");
        private(&secret, "a secret of all controllers of this job\n");
        private(
            &dir.path().join("token"),
            "join-token-of-all-the-nodes-of-this-job\n",
        );
        let endpoints: Vec<toml::Value> = etcd
            .endpoints()
            .iter()
            .map(|e| e.trim_end_matches('/').into())
            .collect();
        let job = job.clone().set("ha", "etcd", endpoints).set(
            "store",
            "secret_file",
            secret.display().to_string(),
        );
        let free = || {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            listener.local_addr().expect("its address").to_string()
        };
        let log = dir.path().join("log");
        std::fs::create_dir(&log).expect("the log's folder");
        // Each one by a way of its own, which can be cut.
        let of = |which| {
            let way = way_to_log(dir.path(), which);
            symlink(&log, &way).expect("a link");
            let folder = dir.path().join(format!("job-{which}"));
            std::fs::create_dir(&folder).expect("a folder");
            let url = format!("file://{}", way.display());
            job.clone().set("store", "remote_log", url).write(&folder)
        };
        let mut all = Self {
            etcd,
            jobs: (0..count).map(of).collect(),
            dir,
            addresses: (0..count).map(|_| free()).collect(),
            control: (0..count).map(|_| free()).collect(),
            daemons: (0..count).map(|_| None).collect(),
            nodes: Vec::new(),
        };
        for which in 0..count {
            all.launch(which);
        }
        Some(all)
    }

    /// A controller's state directory.
    pub fn state_dir(&self, which: usize) -> PathBuf {
        self.dir.path().join(format!("control-{which}"))
    }

    /// Starts a controller, or starts it again.
    pub fn launch(&mut self, which: usize) {
        let child = self
            .robustd(&format!("control-{which}"))
            .args(["--candidate", &format!("c{which}")])
            .arg("--job")
            .arg(&self.jobs[which])
            .args(["--listen-nodes", &self.addresses[which]])
            .args(["--listen", &self.control[which]])
            .arg("--state-dir")
            .arg(self.state_dir(which))
            .spawn()
            .expect("robustd starts");
        self.daemons[which] = Some(child);
    }

    fn robustd(&self, log: &str) -> Command {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join(format!("{log}.log")))
            .expect("its log");
        let mut command = Command::new(bin("robustd"));
        command
            .arg("--token-file")
            .arg(self.dir.path().join("token"))
            .env("ROBUST_CACHE", programs::cache())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("its log"))
            .stderr(log);
        command
    }

    /// Starts a node.
    pub fn join(&mut self, node: &str) {
        let child = self
            .robustd(&format!("node-{node}"))
            .args(["--join", &self.addresses.join(","), "--name", node])
            .arg("--state-dir")
            .arg(self.node_dir(node))
            .spawn()
            .expect("robustd starts");
        self.nodes.push((node.to_owned(), child));
    }

    fn node_dir(&self, node: &str) -> PathBuf {
        self.dir.path().join(format!("node-{node}"))
    }

    /// Role processes of all nodes: (pid, command line).
    pub fn roles(&self) -> Vec<(i32, String)> {
        let of = |(node, _): &(String, Child)| processes_naming(&self.node_dir(node));
        let all = self.nodes.iter().flat_map(of);
        all.filter(|(_, line)| !line.contains("--join")).collect()
    }

    /// A signal to a controller, and to nothing else.
    pub fn signal(&mut self, which: usize, signal: Signal) {
        let child = self.daemons[which].as_mut().expect("it runs");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
        kill(pid, signal).expect("it is there");
        if signal == Signal::SIGKILL {
            child.wait().expect("it ends");
            self.daemons[which] = None;
        }
    }

    /// Waits for the end of a controller; its exit code.
    pub fn end_of(&mut self, which: usize) -> i32 {
        let mut child = self.daemons[which].take().expect("it runs");
        child.wait().expect("it ends").code().unwrap_or(-1)
    }

    /// What is answered at a controller, by it or by the one that it follows.
    pub fn asked(&self, which: usize, args: &[&str]) -> Option<Value> {
        let out = Command::new(bin("robustctl"))
            .arg("--state-dir")
            .arg(self.state_dir(which))
            .args(args)
            .arg("--json")
            .stdin(Stdio::null())
            .output()
            .expect("robustctl runs");
        let answer = serde_json::from_slice(&out.stdout).ok();
        answer.filter(|_| out.status.success())
    }

    /// What `robustctl --connect` with the addresses of all of them is answered, with the token that lies at one of them.
    pub fn asked_all(&self, token_of: usize, args: &[&str]) -> Option<Value> {
        let out = Command::new(bin("robustctl"))
            .args(["--connect", &self.control.join(",")])
            .arg("--token-file")
            .arg(self.state_dir(token_of).join("token"))
            .args(args)
            .arg("--json")
            .stdin(Stdio::null())
            .output()
            .expect("robustctl runs");
        let answer = serde_json::from_slice(&out.stdout).ok();
        answer.filter(|_| out.status.success())
    }

    /// A controller reaches the log no more: what it names is no folder.
    pub fn cut_log(&self, which: usize) {
        let way = way_to_log(self.dir.path(), which);
        std::fs::remove_file(&way).expect("its way to the log");
        std::fs::write(&way, "no folder").expect("a file in its place");
    }

    /// It reaches the log again.
    pub fn mend_log(&self, which: usize) {
        let way = way_to_log(self.dir.path(), which);
        std::fs::remove_file(&way).expect("what is in its place");
        symlink(self.dir.path().join("log"), &way).expect("a link");
    }

    /// What `robustctl` says at a controller.
    pub fn said(&self, which: usize, args: &[&str]) -> String {
        let out = Command::new(bin("robustctl"))
            .arg("--state-dir")
            .arg(self.state_dir(which))
            .args(args)
            .stdin(Stdio::null())
            .output()
            .expect("robustctl runs");
        let text = [out.stdout, out.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Waits until a controller leads whose status is so; which one, and the status. A follower is asked as well as the
    /// leader.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&Value) -> bool) -> (usize, Value) {
        let start = Instant::now();
        loop {
            for which in 0..self.daemons.len() {
                if self.daemons[which].is_none() {
                    continue;
                }
                if let Some(status) = self.asked(which, &["status"])
                    && done(&status)
                {
                    return (leader_of(&status), status);
                }
            }
            self.patience(start, what);
        }
    }

    /// Waits until a controller other than this one leads, and its status is so.
    pub fn until_other(
        &mut self,
        than: usize,
        mut done: impl FnMut(&Value) -> bool,
    ) -> (usize, Value) {
        let start = Instant::now();
        loop {
            for which in (0..self.daemons.len()).filter(|which| *which != than) {
                if let Some(status) = self.asked(which, &["status"])
                    && leader_of(&status) != than
                    && done(&status)
                {
                    return (leader_of(&status), status);
                }
            }
            self.patience(start, "another controller to lead");
        }
    }

    /// Waits until what can be seen from outside is so.
    pub fn wait_for(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            self.patience(start, what);
        }
    }

    /// Waits until what is asked for is there.
    pub fn wait_until<T>(&self, what: impl Fn(&Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = what(self) {
                return found;
            }
            self.patience(start, "what is asked for");
        }
    }

    fn patience(&self, start: Instant, what: &str) {
        let passed = start.elapsed() < PATIENCE;
        assert!(passed, "waited {PATIENCE:?} for {what}\n{}", self.logs());
        std::thread::sleep(Duration::from_millis(20));
    }

    /// Waits for the end of all that runs; the exit codes of controllers and nodes.
    pub fn finish(&mut self) -> (Vec<i32>, Vec<i32>) {
        let start = Instant::now();
        let ended = |child: &mut Child| child.try_wait().expect("it is ours");
        let (mut codes, mut of_nodes) = (Vec::new(), Vec::new());
        for which in 0..self.daemons.len() {
            while let Some(child) = &mut self.daemons[which] {
                match ended(child) {
                    Some(status) => {
                        codes.push(status.code().unwrap_or(-1));
                        self.daemons[which] = None;
                    }
                    None => self.patience(start, "the controllers to end"),
                }
            }
        }
        while let Some((_, child)) = self.nodes.first_mut() {
            match ended(child) {
                Some(status) => {
                    of_nodes.push(status.code().unwrap_or(-1));
                    self.nodes.remove(0);
                }
                None => self.patience(start, "the nodes to end"),
            }
        }
        (codes, of_nodes)
    }

    /// The text of a log: `control-0`, `node-a`.
    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(format!("{name}.log"))).unwrap_or_default()
    }

    /// The ends of every log, for a failing test.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for entry in std::fs::read_dir(self.dir.path())
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(name) = name.strip_suffix(".log") {
                let all = self.log(name);
                let lines: Vec<&str> = all.lines().collect();
                let tail = lines[lines.len().saturating_sub(30)..].join("\n");
                text += &format!("--- {name}\n{tail}\n");
            }
        }
        text
    }
}

/// Which controller gave a status.
fn leader_of(status: &Value) -> usize {
    let name = status["controllers"]["leader"].as_str().unwrap_or_default();
    let number = name.strip_prefix('c').and_then(|n| n.parse().ok());
    number.expect("the name of a controller that leads")
}

fn way_to_log(dir: &Path, which: usize) -> PathBuf {
    dir.join(format!("log-of-{which}"))
}

fn private(path: &Path, text: &str) {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = File::options()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .expect("a private file");
    file.write_all(text.as_bytes()).expect("it is written");
}

impl Drop for Controllers {
    fn drop(&mut self) {
        let daemons = self.daemons.iter_mut().flatten();
        for child in daemons.chain(self.nodes.iter_mut().map(|(_, child)| child)) {
            let _ = child.kill();
            let _ = child.wait();
        }
        for entry in std::fs::read_dir(self.dir.path())
            .into_iter()
            .flatten()
            .flatten()
        {
            if entry.path().is_dir() {
                end_processes_naming(&entry.path());
                forget_snapshots(&entry.path());
            }
        }
    }
}
