//! Several controllers of one job on this machine, with a real etcd, and the nodes that join whichever leads: on the
//! loopback address, or each in a network namespace that stands for a machine ([`crate::machines`]).
use crate::{Asked, JobFile, Net, Observer, Wires};
use crate::{bin, end_processes_naming, forget_snapshots, processes_naming, programs};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use robust_etcd::{Cluster as Etcd, Machine, Wire};
use robust_s3::{BUCKET, Server};
use serde_json::Value;
use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
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
    /// What keeps the log; none: a folder.
    pub store: Option<Server>,
    /// Between the machines, where they are more than this one.
    pub(crate) net: Option<Net>,
    pub(crate) dir: TempDir,
    /// The job file of each one.
    pub(crate) jobs: Vec<PathBuf>,
    pub(crate) addresses: Vec<String>,
    /// Where each one serves `robustctl --connect`, if they do.
    pub control: Vec<String>,
    /// Where each one is scraped, if they are.
    pub metrics: Vec<String>,
    /// The folder of the programs that are started from now on; none: those of this build.
    programs: Option<PathBuf>,
    pub(crate) daemons: Vec<Option<Child>>,
    pub(crate) nodes: Vec<Node>,
}

pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) child: Child,
}

impl Controllers {
    /// Starts so many controllers of this job, whose nodes have yet to join; none, which is said, where there is no etcd.
    pub fn start(job: &JobFile, count: usize) -> Option<Self> {
        let etcd = Etcd::start(3, Wire::Plain)?;
        let addresses = (0..count).map(|_| free()).collect();
        Some(Self::start_at(job, (etcd, None), None, addresses))
    }

    /// The same, with the log in an object store; none, which is said, where etcd or that cannot be had.
    pub fn on_s3(job: &JobFile, count: usize) -> Option<Self> {
        let (store, etcd) = (Server::start()?, Etcd::start(3, Wire::Plain)?);
        let addresses = (0..count).map(|_| free()).collect();
        Some(Self::start_at(job, (etcd, Some(store)), None, addresses))
    }

    /// The same, where `robustctl` finds the leader from everywhere, and each controller has a way of its own to the log that
    /// can be cut; none, which is said, where there is no etcd or no mount namespace.
    pub fn seen(job: &JobFile, count: usize) -> Option<Self> {
        let can_mount = Command::new("unshare").args(["--mount", "true"]).status();
        let can_mount = can_mount.is_ok_and(|status| status.success());
        if !can_mount {
            robust_needs::skip(
                "no mount namespace can be made (`unshare --mount`)",
                robust_needs::ROOT,
            );
            return None;
        }
        let etcd = Etcd::start(3, Wire::Plain)?;
        let addresses = (0..count).map(|_| free()).collect();
        let mut all = Self::prepared(job, (etcd, None), None, addresses);
        all.control = (0..count).map(|_| free()).collect();
        all.metrics = (0..count).map(|_| free()).collect();
        for which in 0..count {
            all.launch(which);
        }
        Some(all)
    }

    /// The same, each on a machine of its own with a member of etcd; none, which is said, where that cannot be had.
    pub fn on_machines(job: &JobFile, count: usize) -> Option<Self> {
        let net = Net::of(count)?;
        let machine = |side| Machine {
            address: Wires::Etcd.address(side),
            command: net.on(side),
        };
        let machines: Vec<Machine> = (0..count).map(machine).collect();
        let etcd = Etcd::start_on(&machines)?;
        let at = |side| format!("{}:7071", Wires::Job.address(side));
        let addresses = (0..count).map(at).collect();
        Some(Self::start_at(job, (etcd, None), Some(net), addresses))
    }

    fn start_at(
        job: &JobFile,
        outside: (Etcd, Option<Server>),
        net: Option<Net>,
        addresses: Vec<String>,
    ) -> Self {
        let mut all = Self::prepared(job, outside, net, addresses);
        for which in 0..all.count() {
            all.launch(which);
        }
        all
    }

    pub(crate) fn prepared(
        job: &JobFile,
        (etcd, store): (Etcd, Option<Server>),
        net: Option<Net>,
        addresses: Vec<String>,
    ) -> Self {
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
        let log = match store {
            Some(_) => format!("s3://{BUCKET}/log"),
            None => format!("file://{}/log", dir.path().display()),
        };
        let endpoints: Vec<toml::Value> = etcd
            .endpoints()
            .iter()
            .map(|e| e.trim_end_matches('/').into())
            .collect();
        let job = job
            .clone()
            .set("ha", "etcd", endpoints)
            .set("store", "remote_log", log)
            .set("store", "secret_file", secret.display().to_string());
        let count = addresses.len();
        Self {
            etcd,
            store,
            net,
            jobs: vec![job.write(dir.path()); count],
            dir,
            addresses,
            control: Vec::new(),
            metrics: Vec::new(),
            programs: None,
            daemons: (0..count).map(|_| None).collect(),
            nodes: Vec::new(),
        }
    }

    /// The same as [`Self::start`], with the programs of another build, until [`Self::exchange`].
    pub fn start_with(programs: &Path, job: &JobFile, count: usize) -> Option<Self> {
        let etcd = Etcd::start(3, Wire::Plain)?;
        let addresses = (0..count).map(|_| free()).collect();
        let mut all = Self::prepared(job, (etcd, None), None, addresses);
        all.programs = Some(programs.to_owned());
        for which in 0..count {
            all.launch(which);
        }
        Some(all)
    }

    /// A controller ends in order, and is started again with these programs; none: those of this build.
    pub fn exchange(&mut self, which: usize, programs: Option<&Path>) {
        self.signal(which, Signal::SIGTERM);
        let code = self.end_of(which);
        assert!(code == 0 || code == 143, "{code}\n{}", self.logs());
        self.programs = programs.map(Path::to_owned);
        self.launch(which);
    }

    /// How many controllers there are, those that do not run among them.
    pub fn count(&self) -> usize {
        self.daemons.len()
    }

    /// Whether a controller was started and not killed since.
    pub fn runs(&self, which: usize) -> bool {
        self.daemons[which].is_some()
    }

    /// The folder of the log that the controllers share.
    pub fn log_folder(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// A controller's state directory.
    pub fn state_dir(&self, which: usize) -> PathBuf {
        self.dir.path().join(format!("control-{which}"))
    }

    /// Starts a controller, or starts it again.
    pub fn launch(&mut self, which: usize) {
        let mut robustd = self.robustd(which, &format!("control-{which}"));
        if let Some(at) = self.control.get(which) {
            robustd.args(["--listen", at]);
        }
        if let Some(at) = self.metrics.get(which) {
            robustd.args(["--metrics", at]);
        }
        let child = robustd
            .args(["--candidate", &format!("c{which}")])
            .arg("--job")
            .arg(&self.jobs[which])
            .args(["--listen-nodes", &self.addresses[which]])
            .arg("--state-dir")
            .arg(self.state_dir(which))
            .spawn()
            .expect("robustd starts");
        self.daemons[which] = Some(child);
    }

    /// `robustd` on a machine, where there are some.
    pub(crate) fn robustd(&self, machine: usize, log: &str) -> Command {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join(format!("{log}.log")))
            .expect("its log");
        let program = match &self.programs {
            Some(folder) => folder.join("robustd"),
            None => bin("robustd"),
        };
        let program = program.to_string_lossy().into_owned();
        let mut words = self
            .net
            .as_ref()
            .map_or_else(Vec::new, |net| net.on(machine));
        if !self.control.is_empty() {
            let log = self.log_folder();
            std::fs::create_dir_all(&log).expect("the log's folder");
            let own = "mount --bind \"$0\" \"$0\" && exec \"$@\"";
            let unshare = [
                "unshare",
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                own,
            ];
            words.extend(unshare.map(str::to_owned));
            words.push(log.display().to_string());
        }
        words.push(program);
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg("--token-file")
            .arg(self.dir.path().join("token"))
            .env("ROBUST_CACHE", programs::cache())
            .envs(self.store.iter().flat_map(Server::environment))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("its log"))
            .stderr(log);
        command
    }

    /// Starts a node.
    pub fn join(&mut self, node: &str) {
        self.join_on(node, 0);
    }

    /// Starts a node on a machine.
    pub(crate) fn join_on(&mut self, node: &str, machine: usize) {
        let child = self
            .robustd(machine, &format!("node-{node}"))
            .args(["--join", &self.addresses.join(","), "--name", node])
            .arg("--state-dir")
            .arg(self.node_dir(node))
            .spawn()
            .expect("robustd starts");
        let name = node.to_owned();
        self.nodes.push(Node { name, child });
    }

    pub(crate) fn node_dir(&self, node: &str) -> PathBuf {
        self.dir.path().join(format!("node-{node}"))
    }

    /// Role processes of all nodes: (pid, command line).
    pub fn roles(&self) -> Vec<(i32, String)> {
        let of = |node: &Node| self.roles_of(&node.name);
        self.nodes.iter().flat_map(of).collect()
    }

    /// Role processes of a node: (pid, command line).
    pub fn roles_of(&self, node: &str) -> Vec<(i32, String)> {
        let all = processes_naming(&self.node_dir(node)).into_iter();
        all.filter(|(_, line)| !line.contains("--join")).collect()
    }

    /// The daemon of a node that was killed is waited for.
    pub(crate) fn bury_node(&mut self, node: &str) {
        let at = self.nodes.iter().position(|n| n.name == node);
        let mut gone = self.nodes.swap_remove(at.expect("it was started"));
        gone.child.wait().expect("it ends");
    }

    /// The process of a controller.
    pub(crate) fn pid(&self, which: usize) -> Pid {
        let child = self.daemons[which].as_ref().expect("it runs");
        Pid::from_raw(i32::try_from(child.id()).expect("a pid"))
    }

    /// A controller that was killed is waited for.
    pub(crate) fn bury(&mut self, which: usize) {
        let mut child = self.daemons[which].take().expect("it was started");
        child.wait().expect("it ends");
    }

    /// A signal to a controller, and to nothing else.
    pub fn signal(&mut self, which: usize, signal: Signal) {
        kill(self.pid(which), signal).expect("it is there");
        if signal == Signal::SIGKILL {
            self.bury(which);
        }
    }

    /// Waits for the end of a controller; its exit code.
    pub fn end_of(&mut self, which: usize) -> i32 {
        let mut child = self.daemons[which].take().expect("it runs");
        child.wait().expect("it ends").code().unwrap_or(-1)
    }

    /// How a controller is asked.
    pub fn asker(&self, which: usize) -> Asked {
        let log = self.dir.path().join(format!("control-{which}.log"));
        Asked::new(which, self.state_dir(which), log)
    }

    /// Begins to ask all controllers, and to note what they answer.
    pub fn observe(&self) -> Observer {
        Observer::start((0..self.count()).map(|which| self.asker(which)).collect())
    }

    /// What a controller answers, if it leads.
    pub fn asked(&self, which: usize, args: &[&str]) -> Option<Value> {
        serde_json::from_str(&self.asker(which).text(args)?).ok()
    }

    /// What `robustctl --connect` with the addresses of all of them is answered, with the token that lies at one of them.
    pub fn asked_all(&self, token_of: usize, args: &[&str]) -> Option<Value> {
        self.asked_at(&self.control.join(","), token_of, args)
    }

    /// The same with these addresses.
    pub fn asked_at(&self, addresses: &str, token_of: usize, args: &[&str]) -> Option<Value> {
        let out = Command::new(bin("robustctl"))
            .args(["--connect", addresses])
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

    /// A controller can write the log no more; the others can.
    pub fn cut_log(&self, which: usize) {
        self.mount_log(which, "remount,ro,bind");
    }

    /// It can again.
    pub fn mend_log(&self, which: usize) {
        self.mount_log(which, "remount,rw,bind");
    }

    fn mount_log(&self, which: usize, options: &str) {
        let child = self.daemons[which].as_ref().expect("it runs");
        let mounted = || {
            let mounted = Command::new("nsenter")
                .args(["--target", &child.id().to_string(), "--mount"])
                .args(["mount", "-o", options])
                .arg(self.log_folder())
                .status();
            mounted.expect("nsenter runs").success()
        };
        // Refused while a file is open there that is written.
        self.wait_for("its way to the log to change", |_| mounted());
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

    /// Waits until a controller that runs leads and its status is so; which one, and the status.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&Value) -> bool) -> (usize, Value) {
        let start = Instant::now();
        loop {
            for which in (0..self.count()).filter(|which| self.runs(*which)) {
                if let Some(status) = self.asked(which, &["status"])
                    && done(&status)
                {
                    return (leader_of(&status).unwrap_or(which), status);
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
                    && leader_of(&status) != Some(than)
                    && done(&status)
                {
                    return (leader_of(&status).unwrap_or(which), status);
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

    pub(crate) fn patience(&self, start: Instant, what: &str) {
        let passed = start.elapsed() < PATIENCE;
        assert!(passed, "waited {PATIENCE:?} for {what}\n{}", self.logs());
        std::thread::sleep(Duration::from_millis(20));
    }

    /// Stops the job at the controller that leads it, and ends everything.
    pub fn stop(&mut self, leader: usize) {
        let said = self.said(leader, &["stop", "--wait"]);
        assert!(said.contains("ended"), "{said}");
        // A node waits: the job may go on.
        for node in &self.nodes {
            let pid = i32::try_from(node.child.id()).expect("a pid");
            kill(Pid::from_raw(pid), Signal::SIGTERM).expect("it runs");
        }
        self.finish();
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
        while let Some(node) = self.nodes.first_mut() {
            match ended(&mut node.child) {
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

    /// Copies all logs to a folder, and those of the nodes' roles.
    pub fn keep_logs(&self, folder: &Path) {
        copy_logs(self.dir.path(), folder);
        for node in &self.nodes {
            let of_roles = self.node_dir(&node.name).join("logs");
            copy_logs(&of_roles, &folder.join(&node.name));
        }
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

pub(crate) fn free() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").to_string()
}

/// Which controller gave a status.
fn leader_of(status: &Value) -> Option<usize> {
    let name = status["controllers"]["leader"].as_str()?;
    name.strip_prefix('c')?.parse().ok()
}

fn copy_logs(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("the folder for logs");
    for entry in std::fs::read_dir(from).into_iter().flatten().flatten() {
        if entry.path().extension().is_some_and(|e| e == "log") {
            std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a log");
        }
    }
}

fn private(path: &Path, text: &str) {
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
        // Of a test that fails all of them, where they are wanted.
        if let Some(folder) = std::env::var_os("ROBUST_TEST_LOGS")
            && std::thread::panicking()
        {
            self.keep_logs(Path::new(&folder));
        }
        let daemons = self.daemons.iter_mut().flatten();
        for child in daemons.chain(self.nodes.iter_mut().map(|node| &mut node.child)) {
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
