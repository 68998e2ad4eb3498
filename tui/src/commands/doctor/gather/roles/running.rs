//! A shim that tries one program.
use super::super::super::facts::{Found, Tried};
use robust_proto::SERVICES_VARIABLE;
use robust_shared::job::DEVICES_VARIABLE;
use robust_shared::printable;
use robust_shared::trial::{Failure, Said, Up};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Lines of a log that are shown.
const LAST_WORDS: usize = 12;
/// Longest that the shim of a program may take to end it when nobody waits to hear of it: a grace of the
/// job's own is at most an hour, and an operator who wants to leave does not wait for that.
const ENDS_UNWANTED_WITHIN: Duration = Duration::from_secs(40);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a shim is told.
pub(super) struct Start<'a> {
    pub shim: &'a Path,
    pub job: &'a Path,
    pub service: Option<&'a str>,
    pub snapshots: &'a Path,
    /// The program's own.
    pub folder: &'a Path,
    pub ports: &'a [u16],
    pub addresses: &'a str,
    pub devices: Option<&'a str>,
}

/// A program that was started, with its shim.
pub(super) struct Running {
    child: Child,
    /// Closed, it asks for the end.
    stdin: Option<ChildStdin>,
    said: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
}

impl Running {
    /// Starts the shim, in a process group of its own: a Ctrl-C at the terminal is for robustctl, which
    /// has everything ended in order.
    pub fn start(start: &Start<'_>) -> Found<Self> {
        let failed = |e: std::io::Error| format!("{}: {e}", start.shim.display());
        let log = start.folder.with_extension("log");
        let errors = File::create(&log).map_err(failed)?;
        let mut command = Command::new(start.shim);
        command.arg("check").arg("--job").arg(start.job);
        if let Some(name) = start.service {
            command.arg("--service").arg(name);
        }
        command
            .arg("--snapshot-dir")
            .arg(start.snapshots)
            .arg("--folder")
            .arg(start.folder);
        for port in start.ports {
            command.arg("--port").arg(port.to_string());
        }
        if let Some(devices) = start.devices {
            command.env(DEVICES_VARIABLE, devices);
        }
        let mut child = command
            .env(SERVICES_VARIABLE, start.addresses)
            // The log is to be the program's.
            .env("RUST_LOG", "off")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let gone = || "its pipes are gone".to_owned();
        let stdin = child.stdin.take().ok_or_else(gone)?;
        let stdout = child.stdout.take().ok_or_else(gone)?;
        Ok(Self {
            child,
            stdin: Some(stdin),
            said: BufReader::new(stdout).lines(),
            log,
        })
    }

    /// Waits until it is up, or is known not to come up.
    pub async fn comes_up(&mut self) -> Result<Up, Failure> {
        match self.next().await {
            Ok(Said::Up(up)) => Ok(up),
            Ok(Said::Failed(failure)) => Err(failure),
            Ok(Said::Ended(_)) => Err(broken("its shim ended before it was up".to_owned())),
            Err(reason) => Err(broken(reason)),
        }
    }

    /// Has it ended, and notes what that took; whether it had ended by itself meanwhile, too.
    pub async fn end(mut self, tried: &mut Tried) {
        self.stdin = None;
        loop {
            match self.next().await {
                Ok(Said::Ended(ended)) => {
                    tried.ended = Some(Ok(ended));
                    break;
                }
                Ok(Said::Failed(failure)) => {
                    tried.log = self.last_words();
                    tried.came_up = Err(failure);
                }
                Ok(Said::Up(_)) => {}
                Err(reason) => {
                    tried.ended = Some(Err(reason));
                    break;
                }
            }
        }
        // It has nothing left to do.
        let _ = self.child.wait().await;
    }

    /// The end of the program's log.
    pub fn last_words(&self) -> Vec<String> {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let last = &lines[lines.len().saturating_sub(LAST_WORDS)..];
        last.iter().map(|line| printable::lines(line)).collect()
    }

    async fn next(&mut self) -> Found<Said> {
        let line = self.said.next_line().await.map_err(|e| e.to_string())?;
        let Some(line) = line else {
            let words = self.last_words();
            let last = words.last().map_or("it said nothing", String::as_str);
            return Err(format!("its shim ended: {last}"));
        };
        serde_json::from_str(&line).map_err(|e| format!("its shim says {line:?}: {e}"))
    }
}

impl Drop for Running {
    /// Nobody waits to hear of its end, but nothing of it is left behind.
    fn drop(&mut self) {
        self.stdin = None;
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if began.elapsed() > ENDS_UNWANTED_WITHIN {
                // Its program gets SIGKILL with it.
                let _ = self.child.start_kill();
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

fn broken(reason: String) -> Failure {
    let cure = "see that robust-shim is of the same build as robustctl".to_owned();
    Failure { reason, cure }
}
