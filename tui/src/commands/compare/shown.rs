//! A `robustd --inspect` for as long as a run is read that nobody runs.
use crate::endpoint::Endpoint;
use crate::error::CliError;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long it may take to serve its socket: a large database is opened first.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
/// How long it may take to end; it has nothing to write.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Lines of its log that are shown when it fails.
const LAST_WORDS: usize = 4;

/// Dropping it ends it.
pub struct Shown {
    child: Child,
    /// What it said; nobody else has the file.
    log: File,
}

impl Shown {
    /// Starts the robustd beside this program with a state directory that has a job.
    pub fn start(folder: &Path) -> Result<Self, CliError> {
        if !folder.join("job.json").is_file() {
            return Err(CliError::Usage(format!(
                "{} is no state directory of a run: nobody answers there, and it has no job.json",
                folder.display()
            )));
        }
        let own = std::env::current_exe().map_err(io("cannot tell where robustctl is"))?;
        let program = own.with_file_name("robustd");
        if !program.is_file() {
            return Err(CliError::Usage(format!(
                "{} is missing: a run that is over is shown by the robustd beside robustctl; build all three \
                 programs with `make build`",
                program.display()
            )));
        }
        let log = tempfile::tempfile().map_err(io("cannot make a file for robustd's log"))?;
        let said = log.try_clone().map_err(io("cannot keep robustd's log"))?;
        let child = Command::new(program)
            .arg("--inspect")
            .arg("--state-dir")
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .map_err(io("cannot start robustd"))?;
        Ok(Self { child, log })
    }

    /// Waits until it does.
    pub async fn answers(&mut self, endpoint: &Endpoint) -> Result<(), CliError> {
        let begin = Instant::now();
        loop {
            let error = match endpoint.reach().await {
                Ok(_) => return Ok(()),
                Err(e) => e,
            };
            let ended = self
                .child
                .try_wait()
                .map_err(io("cannot wait for robustd"))?;
            if let Some(status) = ended {
                return Err(CliError::Failed(format!(
                    "{} cannot be shown: robustd --inspect ended with {status}:\n{}",
                    endpoint.place(),
                    self.last_words()
                )));
            }
            if begin.elapsed() > ANSWERS_WITHIN {
                return Err(error);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn last_words(&mut self) -> String {
        let mut said = Vec::new();
        let read = self.log.rewind();
        if let Err(error) = read.and_then(|()| self.log.read_to_end(&mut said)) {
            return format!("its log cannot be read: {error}");
        }
        let text = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n")
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It is our child: nobody else has this number before we have waited for it.
            let _ = kill_process(pid, Signal::TERM);
        }
        let begin = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if begin.elapsed() > ENDS_WITHIN {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

fn io(what: &'static str) -> impl Fn(std::io::Error) -> CliError {
    move |e| CliError::Failed(format!("{what}: {e}"))
}
