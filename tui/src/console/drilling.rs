//! A drill that runs: `robustctl drill FILE` as a process of its own, so that a drill behaves here as it
//! does on the command line.
use super::drills::DrillEnd;
use super::event::Event;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::Sender;

/// A drill that is ended ends its jobs in order.
const ENDS_WITHIN: Duration = Duration::from_secs(15);

/// Starts a drill; what it says and how it ends come as events.
pub fn start(file: &Path, to: Sender<Event>) -> std::io::Result<Running> {
    let own = std::env::current_exe()?;
    let result = tempfile::NamedTempFile::new()?;
    let mut child = Command::new(own)
        .arg("drill")
        .arg(file)
        .arg("--out")
        .arg(result.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // The terminal's signals are the console's.
        .process_group(0)
        .spawn()?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    let task = tokio::spawn(async move {
        let end = follow(&mut child, result.path(), &to).await;
        let _ = to.send(Event::DrillEnded(end)).await;
    });
    Ok(Running {
        pid: pid.and_then(Pid::from_raw),
        task,
    })
}

/// A drill that runs. It ends its jobs in order when told to.
pub struct Running {
    pid: Option<Pid>,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    /// Tells it to end; the event comes when it has.
    pub fn end(&self) {
        if let Some(pid) = self.pid.filter(|_| !self.task.is_finished()) {
            // It may have ended this moment.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    /// Ends it and waits a while for its jobs to be gone.
    pub async fn end_and_wait(self) {
        self.end();
        let _ = tokio::time::timeout(ENDS_WITHIN, self.task).await;
    }
}

async fn follow(child: &mut Child, result: &Path, to: &Sender<Event>) -> DrillEnd {
    if let Some(stderr) = child.stderr.take() {
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let _ = to.send(Event::DrillSaid(line)).await;
        }
    }
    let code = child.wait().await.ok().and_then(|status| status.code());
    let text = std::fs::read_to_string(result).unwrap_or_default();
    DrillEnd {
        code,
        result: serde_json::from_str(&text).ok(),
    }
}
