//! A `robustd` of a drill's own, in a folder of its own, and the end of everything it started.
use crate::endpoint::{Client, Endpoint};
use crate::error::CliError;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
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

/// The programs of a drill: those installed beside this one.
pub struct Programs {
    robustd: PathBuf,
    worker: PathBuf,
}

impl Programs {
    /// Finds them.
    pub fn beside_this() -> Result<Self, CliError> {
        let own = std::env::current_exe().map_err(io("cannot tell where robustctl is"))?;
        let beside = |name: &str| {
            let path = own.with_file_name(name);
            match path.is_file() {
                true => Ok(path),
                false => Err(CliError::Usage(format!(
                    "{} is missing: a drill runs the {name} beside robustctl; build all three \
                     programs with `make build`",
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
}

impl Daemon {
    /// Starts one with this job file's text.
    pub fn start(programs: &Programs, job: &str, keep: bool) -> Result<Self, CliError> {
        let mut folder = tempfile::Builder::new()
            .prefix("robust-drill.")
            .tempdir()
            .map_err(io("cannot make a folder for the run"))?;
        folder.disable_cleanup(keep);
        let (state, log) = (
            folder.path().join("state"),
            folder.path().join("robustd.log"),
        );
        let file = folder.path().join("job.toml");
        std::fs::write(&file, job).map_err(io("cannot write the job file"))?;
        let stderr = File::create(&log).map_err(io("cannot write the log"))?;
        let child = Command::new(&programs.robustd)
            .arg("--job")
            .arg(&file)
            .arg("--state-dir")
            .arg(&state)
            .arg("--worker")
            .arg(&programs.worker)
            .args(["--linger", LINGER_S])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            // A Ctrl-C at the terminal is for the drill, which ends the daemon in order.
            .process_group(0)
            .spawn()
            .map_err(io("cannot start robustd"))?;
        Ok(Self {
            child: Some(child),
            folder: Some(folder),
            state,
            log,
        })
    }

    /// Its state directory.
    pub fn state_dir(&self) -> &Path {
        &self.state
    }

    /// Connects as soon as it answers.
    pub async fn connect(&mut self) -> Result<Client, CliError> {
        let endpoint = Endpoint::Unix {
            state_dir: self.state.clone(),
        };
        let begin = Instant::now();
        loop {
            let error = match endpoint.connect().await {
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

    fn ended(&mut self) -> Result<Option<i32>, CliError> {
        let Some(child) = &mut self.child else {
            return Ok(Some(0));
        };
        let ended = child.try_wait().map_err(io("cannot wait for robustd"))?;
        Ok(ended.map(|status| status.code().unwrap_or(-1)))
    }

    /// Ends it in order; an error when its exit code says that the job did not complete.
    pub async fn finish(&mut self) -> Result<(), CliError> {
        self.signal(Signal::TERM);
        let Some(child) = &mut self.child else {
            return Ok(());
        };
        match tokio::time::timeout(ENDS_WITHIN, child.wait()).await {
            Ok(Ok(status)) if status.success() => {
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

    fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().and_then(Child::id);
        let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            // It may have ended this moment.
            let _ = kill_process(pid, signal);
        }
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
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

fn failed(text: String) -> CliError {
    CliError::Failed(text)
}

fn io(what: &'static str) -> impl Fn(std::io::Error) -> CliError {
    move |e| CliError::Failed(format!("{what}: {e}"))
}
