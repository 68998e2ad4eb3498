//! A `robustd` of a drill's own, in a folder of its own, the daemons of its other nodes, and the end of
//! everything they started.
use super::follow::Host;
use crate::endpoint::{Client, Endpoint};
use crate::error::CliError;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// How long a daemon may take to serve its socket.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// How long a daemon may take to end its roles and write the last checkpoint.
const ENDS_WITHIN: Duration = Duration::from_secs(90);
/// How long one that is not waited for may take: its results are not wanted any more.
const ENDS_UNWANTED_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Seconds a daemon serves its report after the job's end; a signal ends that.
const LINGER_S: &str = "60";

/// The programs of a drill.
pub struct Programs {
    robustd: PathBuf,
    worker: PathBuf,
}

impl Programs {
    /// Finds those that are installed beside this one.
    pub fn beside_this() -> Result<Self, CliError> {
        let own = std::env::current_exe().map_err(io("cannot tell where robustctl is"))?;
        Self::of(own.parent().unwrap_or(Path::new("")))
    }

    /// Finds them in this folder.
    pub fn of(folder: &Path) -> Result<Self, CliError> {
        let beside = |name: &str| {
            let path = folder.join(name);
            match path.is_file() {
                true => Ok(path),
                false => Err(CliError::Usage(format!(
                    "{} is missing: a job is run by the {name} of that folder; build all programs with `make build`",
                    path.display()
                ))),
            }
        };
        Ok(Self {
            robustd: beside("robustd")?,
            worker: beside("robust-worker")?,
        })
    }
}

/// A running daemon. Dropping it ends it and its roles.
pub struct Daemon {
    child: Option<Child>,
    folder: Option<TempDir>,
    state: PathBuf,
    log: PathBuf,
    robustd: PathBuf,
    /// What the leader's is started with, also again.
    args: Vec<OsString>,
    /// The other nodes'.
    joined: Vec<Child>,
}

impl Daemon {
    /// Starts one with this job file's text, and one for each of these nodes.
    pub fn start(
        programs: &Programs,
        job: &str,
        nodes: &[String],
        keep: bool,
    ) -> Result<Self, CliError> {
        let mut folder = tempfile::Builder::new()
            .prefix("robust-drill.")
            .tempdir()
            .map_err(io("cannot make a folder for the run"))?;
        folder.disable_cleanup(keep);
        let in_folder = |name: &str| folder.path().join(name);
        let (state, log, file) = (
            in_folder("state"),
            in_folder("robustd.log"),
            in_folder("job.toml"),
        );
        std::fs::write(&file, job).map_err(io("cannot write the job file"))?;
        let worker = programs.worker.as_os_str();
        let own = [
            ("--job", file.as_os_str()),
            ("--state-dir", state.as_os_str()),
            ("--worker", worker),
            ("--linger", OsStr::new(LINGER_S)),
        ];
        let mut args: Vec<OsString> = own.map(|(k, v)| [k.into(), v.into()]).concat();
        let leader = match nodes {
            [] => None,
            _ => Some(free_address()?),
        };
        args.extend(
            leader
                .iter()
                .flat_map(|at| ["--listen-nodes".into(), at.into()]),
        );
        let mut daemon = Self {
            child: None,
            folder: Some(folder),
            state,
            log,
            robustd: programs.robustd.clone(),
            args,
            joined: Vec::new(),
        };
        daemon.launch()?;
        for node in nodes {
            daemon.join(node, leader.as_deref().unwrap_or_default(), worker)?;
        }
        Ok(daemon)
    }

    /// Starts the leader's on its folder, which may hold what an earlier one left.
    fn launch(&mut self) -> Result<(), CliError> {
        self.child = Some(self.spawn(&self.args, &self.log)?);
        Ok(())
    }

    fn join(&mut self, node: &str, leader: &str, worker: &OsStr) -> Result<(), CliError> {
        let beside = |name: String| self.state.with_file_name(name);
        let (state, token) = (
            beside(format!("node-{node}")),
            self.state.join("nodes.token"),
        );
        let args = [
            ("--join", OsStr::new(leader)),
            ("--name", OsStr::new(node)),
            ("--state-dir", state.as_os_str()),
            ("--token-file", token.as_os_str()),
            ("--worker", worker),
        ];
        let args: Vec<OsString> = args.map(|(k, v)| [k.into(), v.into()]).concat();
        // The leader writes the token that both must know before it answers anybody.
        let begin = Instant::now();
        while !token.is_file() && begin.elapsed() < ANSWERS_WITHIN {
            std::thread::sleep(LOOK_EVERY);
        }
        let child = self.spawn(&args, &beside(format!("node-{node}.log")))?;
        self.joined.push(child);
        Ok(())
    }

    fn spawn(&self, args: &[OsString], log: &Path) -> Result<Child, CliError> {
        let log = File::options().create(true).append(true).open(log);
        Command::new(&self.robustd)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.map_err(io("cannot write the log"))?)
            // A Ctrl-C at the terminal is for the drill, which ends the daemon in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(io("cannot start robustd"))
    }

    /// Its state directory.
    pub fn state_dir(&self) -> &Path {
        &self.state
    }

    fn ended(&mut self) -> Result<Option<i32>, CliError> {
        let Some(child) = &mut self.child else {
            return Ok(Some(0));
        };
        let ended = child.try_wait().map_err(io("cannot wait for robustd"))?;
        Ok(ended.map(|status| status.code().unwrap_or(-1)))
    }

    /// Ends it in order; an error when its exit code says that the job did not complete, unless that
    /// may be.
    pub async fn finish(&mut self, may_fail: bool) -> Result<(), CliError> {
        self.signal(Signal::TERM);
        let Some(child) = &mut self.child else {
            return Ok(());
        };
        match tokio::time::timeout(ENDS_WITHIN, child.wait()).await {
            Ok(Ok(status)) if status.success() || may_fail => {
                self.child = None;
                Ok(())
            }
            Ok(Ok(status)) => Err(failed(format!(
                "robustd ended with {status}:\n{}",
                self.last_words()
            ))),
            Ok(Err(e)) => Err(io("cannot wait for robustd")(e)),
            Err(_) => Err(failed(format!(
                "robustd did not end within {} s",
                ENDS_WITHIN.as_secs()
            ))),
        }
    }

    /// Ends it at once: what it would still write is nobody's.
    pub async fn give_up(&mut self) {
        self.signal(Signal::TERM);
        // Two of them at the same time are one.
        tokio::time::sleep(LOOK_EVERY * 4).await;
        self.signal(Signal::TERM);
        if let Some(child) = &mut self.child
            && tokio::time::timeout(ENDS_UNWANTED_WITHIN, child.wait())
                .await
                .is_ok()
        {
            self.child = None;
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().and_then(Child::id);
        let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            // It may have ended this moment.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Host for Daemon {
    fn endpoint(&self) -> Endpoint {
        let state_dir = self.state.clone();
        Endpoint::Unix { state_dir }
    }

    async fn connect(&mut self) -> Result<Client, CliError> {
        let endpoint = self.endpoint();
        let begin = Instant::now();
        loop {
            let error = match endpoint.reach().await {
                Ok(client) => return Ok(client),
                Err(e) => e,
            };
            if let Some(code) = self.ended()? {
                return Err(failed(format!(
                    "robustd ended at once with exit code {code}:\n{}",
                    self.last_words()
                )));
            }
            if begin.elapsed() > ANSWERS_WITHIN {
                return Err(error);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits for its end and starts it again.
    async fn revive(&mut self) -> Result<(), CliError> {
        if let Some(child) = &mut self.child {
            let ended = tokio::time::timeout(ANSWERS_WITHIN, child.wait()).await;
            let ended = ended.map_err(|_| failed("robustd was to die and did not".to_owned()))?;
            ended.map_err(io("cannot wait for robustd"))?;
        }
        self.launch()
    }

    fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        if let Some(mut child) = self.child.take() {
            let begin = Instant::now();
            while matches!(child.try_wait(), Ok(None)) && begin.elapsed() < ENDS_UNWANTED_WITHIN {
                std::thread::sleep(LOOK_EVERY);
            }
            let _ = child.start_kill();
        }
        // Roles outlive a daemon that was killed; only its own name this folder.
        if let Some(folder) = self.folder.take() {
            kill_naming(folder.path());
        }
    }
}

/// Kills the processes whose command line names a folder that is nobody else's, and removes the
/// snapshots in memory that they kept for a daemon that does not come back.
fn kill_naming(folder: &Path) {
    let needle = folder.as_os_str().as_encoded_bytes();
    let own = i32::try_from(std::process::id()).ok();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_string_lossy().parse::<i32>().ok();
        let Some(pid) = pid.filter(|pid| Some(*pid) != own) else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if line.windows(needle.len()).any(|part| part == needle)
            && let Some(pid) = Pid::from_raw(pid)
        {
            let _ = kill_process(pid, Signal::KILL);
            let text = String::from_utf8_lossy(&line);
            let mut arguments = text.split('\0').skip_while(|a| *a != "--snapshot-dir");
            if let Some(snapshots) = arguments.nth(1) {
                // It is memory; what cannot be removed is gone with the next start of the machine.
                let _ = std::fs::remove_dir_all(snapshots);
            }
        }
    }
}

/// Free at this moment; whoever takes it before the daemon does makes the drill fail, plainly.
fn free_address() -> Result<String, CliError> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let free = free.map_err(io("cannot find a free port for the nodes"))?;
    Ok(free.to_string())
}

fn failed(text: String) -> CliError {
    CliError::Failed(text)
}

fn io(what: &'static str) -> impl Fn(std::io::Error) -> CliError {
    move |e| CliError::Failed(format!("{what}: {e}"))
}
