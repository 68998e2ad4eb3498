//! Real processes to watch.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
#![allow(dead_code, reason = "each test program uses some of it")]
use robust_tree::{Child, ChildSpec, Died, Policy, Tree, Way};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const LONG: Duration = Duration::from_secs(30);

/// Waits for a condition.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {LONG:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Fields of `/proc/PID/stat` from the state on; empty when there is no such process.
fn stat(pid: u32) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_whitespace().map(str::to_owned).collect()
}

pub fn state(pid: u32) -> String {
    stat(pid).swap_remove(0)
}

pub fn gone(pid: u32) -> bool {
    stat(pid).first().is_none_or(|state| state == "Z")
}

pub fn parent(pid: u32) -> u32 {
    stat(pid)[1].parse().unwrap()
}

pub fn group(pid: u32) -> u32 {
    stat(pid)[2].parse().unwrap()
}

pub fn strike(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// This program, to run one of its own tests as another process.
pub struct Other {
    pub process: std::process::Child,
    log: tempfile::NamedTempFile,
}

const AS: &str = "ROBUST_TREE_TEST_AS";

/// Whether this process was started to play that part.
pub fn plays(part: &str) -> bool {
    std::env::var(AS).is_ok_and(|playing| playing == part)
}

impl Other {
    /// Starts `test` anew to play a part, as the leader of a process group; it dies with this one.
    pub fn start(test: &str, part: &str, arguments: &[&Path]) -> Self {
        Self::start_by(
            Command::new(std::env::current_exe().unwrap()),
            test,
            part,
            arguments,
        )
    }

    /// The same by a command that runs this program.
    #[allow(unsafe_code)]
    pub fn start_by(mut command: Command, test: &str, part: &str, arguments: &[&Path]) -> Self {
        let log = tempfile::NamedTempFile::new().unwrap();
        command.args([test, "--exact", "--nocapture"]).env(AS, part);
        for (n, argument) in arguments.iter().enumerate() {
            command.env(format!("T_ARGUMENT_{n}"), argument);
        }
        let output = || log.as_file().try_clone().unwrap();
        command.process_group(0).stdout(output()).stderr(output());
        let die_with_this = || {
            Ok(rustix::process::set_parent_process_death_signal(Some(
                Signal::KILL,
            ))?)
        };
        // SAFETY: one system call, nothing is allocated.
        unsafe { command.pre_exec(die_with_this) };
        let process = command.spawn().unwrap();
        Self { process, log }
    }

    pub fn output(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap()
    }

    /// What it printed behind `key=`, once it did.
    pub fn said(&self, key: &str) -> String {
        let mut said = None;
        until(key, || {
            said = value(&self.output(), key);
            said.is_some()
        });
        said.unwrap()
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.process);
        // Not reaped yet, or the group is empty: its id is its own.
        if !matches!(self.process.try_wait(), Ok(Some(_))) {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
            let _ = self.process.wait();
        }
    }
}

pub fn argument(n: usize) -> std::path::PathBuf {
    std::env::var_os(format!("T_ARGUMENT_{n}")).unwrap().into()
}

fn value(text: &str, key: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("{key}="))?;
    let (value, _) = rest.split_once('\n')?;
    Some(value.to_owned())
}

/// Runs the body as a process of its own, which may become a subreaper.
pub fn hosted(test: &str, body: impl FnOnce()) {
    if plays("host") {
        return body();
    }
    host(Other::start(test, "host", &[]));
}

/// The same, as a user who is not root and has no rights: root plays one in a user namespace, where its own files
/// are still its own. False where that is not possible.
pub fn hosted_without_rights(test: &str, body: impl FnOnce()) {
    if plays("host") {
        return body();
    }
    let this = std::env::current_exe().unwrap();
    let command = match rustix::process::geteuid().is_root() {
        false => Command::new(this),
        true => {
            if robust_needs::program("unshare").is_none() {
                return;
            }
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-user=1000", "--map-group=1000"]);
            command.arg(this);
            command
        }
    };
    host(Other::start_by(command, test, "host", &[]));
}

fn host(mut host: Other) {
    let deadline = Instant::now() + Duration::from_secs(120);
    let status = loop {
        if let Some(status) = host.process.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "hangs:\n{}", host.output());
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success(), "{status}:\n{}", host.output());
    print!("{}", host.output());
}

/// A watched tree.
pub struct Bench {
    pub tree: Tree,
    pub deaths: Receiver<Died>,
    pub dir: TempDir,
}

/// `named TITLE` starts a process that shows this title, as `setproctitle` makes it.
const PRELUDE: &str = r#"mkfifo p; named() { (exec -a "$1" cat <>p) & }
"#;

pub fn spec(dir: &Path, argv: &[&str], network: Option<Way>) -> ChildSpec {
    let path = std::env::var_os("PATH").unwrap();
    let output = || File::create(dir.join("out")).unwrap();
    let stdout = output();
    ChildSpec {
        argv: argv.iter().map(|&word| word.to_owned()).collect(),
        env: vec![
            (OsString::from("PATH"), path),
            (OsString::from("COLOUR"), OsString::from("green")),
        ],
        cwd: dir.to_owned(),
        stderr: stdout.try_clone().unwrap().into(),
        stdout: stdout.into(),
        network,
        hidden: None,
        beside: None,
    }
}

impl Bench {
    pub fn new(script: &str) -> Self {
        Self::with(script, Policy::default())
    }

    pub fn with(script: &str, policy: Policy) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let script = format!("{PRELUDE}{script}");
        let child = Child::start(spec(dir.path(), &["bash", "-c", &script], None)).unwrap();
        Self::watch(child, dir, policy)
    }

    pub fn watch(child: Child, dir: TempDir, policy: Policy) -> Self {
        let (sender, deaths) = channel();
        let tree = Tree::watch(child, policy, move |died| sender.send(died).unwrap()).unwrap();
        Self { tree, deaths, dir }
    }

    pub fn output(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("out")).unwrap()
    }

    /// What the script printed behind `key=`, once it did.
    pub fn said(&self, key: &str) -> String {
        let mut said = None;
        until(key, || {
            said = value(&self.output(), key);
            said.is_some()
        });
        said.unwrap()
    }

    pub fn pid(&self, key: &str) -> u32 {
        self.said(key).parse().unwrap()
    }

    pub fn died(&self) -> Died {
        self.deaths.recv_timeout(LONG).expect("a death")
    }

    pub fn names(&self) -> Vec<String> {
        self.tree.members().into_iter().map(|m| m.name).collect()
    }

    /// Waits for a member to be there, under its name.
    pub fn until_named(&self, name: &str) -> u32 {
        let mut pid = None;
        until(name, || {
            let members = self.tree.members();
            pid = members.iter().find(|m| m.name == name).map(|m| m.pid);
            pid.is_some()
        });
        pid.unwrap()
    }

    /// Ends watching; the deaths that nobody has asked for.
    pub fn rest(self) -> Vec<Died> {
        drop(self.tree);
        self.deaths.iter().collect()
    }
}
