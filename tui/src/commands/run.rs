//! `robustctl run`: starts robustd with a job, and sees it through or leaves it running.
//!
//! ```text
//!  nobody there ──► robustd ──► answers ──► runs ──┬─ --detach: left running
//!       │              │ ended: its exit code      └─ its end: its exit code
//!       ▼              ▼
//!    refused       its last words
//! ```
//! robustd has a process group of its own, so that a signal for robustctl reaches it once, passed on;
//! a second one hurries it. Its log is `robustd.log` in the state directory.
mod child;
mod progress;

use crate::cli::{Global, RunArgs};
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::output::{put, put_json};
use child::{News, Robustd};
use progress::Progress;
use robust_proto::v1;
use robust_shared::wire::JobState;
use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Between two looks at a job that is seen through.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Runs the job of a file.
pub async fn run(endpoint: &Endpoint, args: &RunArgs, global: &Global) -> Result<(), CliError> {
    let Some(state) = endpoint.state_dir() else {
        return Err(CliError::Usage(
            "a job is run on this machine; name its --state-dir instead of --connect".into(),
        ));
    };
    if endpoint.connect().await.is_ok() {
        return Err(CliError::Refused(format!(
            "a daemon runs with the state directory {} already; look with `robustctl status`, or \
             name another --state-dir",
            state.display()
        )));
    }
    let job = Job {
        endpoint,
        state,
        json: global.json,
    };
    // Before it is started: a signal must not end robustctl alone.
    let signals = Signals::listen()?;
    let robustd = Robustd::start(args, state)?;
    match args.detach {
        true => job.leave(robustd, signals).await,
        false => job.see_through(robustd, signals).await,
    }
}

/// The signals that end a job in order.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> Result<Self, CliError> {
        let on = |kind| {
            signal(kind).map_err(|e| CliError::Failed(format!("cannot listen for signals: {e}")))
        };
        Ok(Self {
            interrupt: on(SignalKind::interrupt())?,
            terminate: on(SignalKind::terminate())?,
            hang_up: on(SignalKind::hangup())?,
        })
    }

    /// What robustd is to be told.
    async fn next(&mut self) -> rustix::process::Signal {
        tokio::select! {
            _ = self.interrupt.recv() => rustix::process::Signal::INT,
            _ = self.terminate.recv() => rustix::process::Signal::TERM,
            // Whoever looked on is gone; the job would go on without anybody knowing.
            _ = self.hang_up.recv() => rustix::process::Signal::TERM,
        }
    }
}

/// The job that is run.
struct Job<'a> {
    endpoint: &'a Endpoint,
    state: &'a Path,
    json: bool,
}

impl Job<'_> {
    async fn status(&self) -> Option<v1::Status> {
        let mut client = self.endpoint.connect().await.ok()?;
        let asked = client.get_status(v1::GetStatusRequest {});
        self.endpoint.ask(asked).await.ok()
    }

    /// Until it is over; the exit code is robustd's.
    async fn see_through(
        &self,
        mut robustd: Robustd,
        mut signals: Signals,
    ) -> Result<(), CliError> {
        let mut progress = Progress::new(self.json);
        let mut looks = tokio::time::interval(LOOK_EVERY);
        let code = loop {
            tokio::select! {
                news = robustd.next() => match news? {
                    News::Line(line) => progress.line(&line)?,
                    News::Ended(code) => break code,
                },
                signal = signals.next() => robustd.signal(signal),
                _ = looks.tick() => {
                    if let Some(status) = self.status().await {
                        progress.update(&status)?;
                    }
                }
            }
        };
        for line in robustd.rest().await {
            progress.line(&line)?;
        }
        progress.end();
        robustd.result(code)
    }

    /// Until it runs.
    async fn leave(&self, mut robustd: Robustd, mut signals: Signals) -> Result<(), CliError> {
        let mut progress = Progress::quiet(self.json);
        let mut looks = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                news = robustd.next() => if let News::Ended(code) = news? {
                    progress.end();
                    return robustd.result(code);
                },
                signal = signals.next() => robustd.signal(signal),
                _ = looks.tick() => {
                    let Some(status) = self.status().await else { continue };
                    progress.update(&status)?;
                    if status.state() != Some(JobState::Starting) {
                        progress.end();
                        return self.left(&robustd, &status);
                    }
                }
            }
        }
    }

    fn left(&self, robustd: &Robustd, status: &v1::Status) -> Result<(), CliError> {
        let (pid, state, log) = (robustd.pid(), self.state.display(), robustd.log().display());
        if self.json {
            return put_json(&serde_json::json!({
                "job": status.job, "pid": pid, "state": status.state,
                "state_dir": state.to_string(), "log": log.to_string(),
            }));
        }
        put(&format!(
            "job {} is {} (robustd {pid}, log {log})\n\
             robustctl tui --state-dir {state}     look at it\n\
             robustctl stop --state-dir {state}    end it in order\n",
            status.job, status.state
        ))
    }
}
