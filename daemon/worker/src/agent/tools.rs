//! Tool calls, how many of them take long, and the drills in which none answers.
//!
//! ```text
//!  call ──► tool ──┬─ value, or the model's own mistake ──────────────────────────► into the turn
//!           ▲      └─ infrastructure ── retries left? ── no ──► the trajectory is given back
//!           └───────────── a wait that doubles ◄── yes
//! ```
//! Whose doing it is says [`crate::tool::outcome`]. Every failure of infrastructure is counted, also one
//! that the next try makes good.
//!
//! A call is as a rule over before anybody could hear of it. One that takes long is a wait, and a
//! worker of which every conversation waits so is in phase `awaiting_tool`: then silence says nothing
//! of its health, and the phase's own bound applies.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use robust_role::Deed;
use robust_shared::fault::At;
use robust_shared::job;
use robust_shared::phase::Phase;

use super::Worker;
use crate::tool::{CallError, Drilled, Infrastructure, ToolError};

/// A call that takes longer than this is a wait.
const LONG: Duration = Duration::from_millis(100);
/// The wait before a further try doubles so often at most.
const DOUBLINGS: u32 = 6;

/// How the tool does.
pub(super) struct Tools {
    /// Calls that take long.
    waiting: AtomicUsize,
    trouble: Trouble,
    /// Tries after the first that a call may cost.
    retries: u32,
    /// The wait before the first of them.
    backoff: Duration,
}

impl Tools {
    pub fn new(trouble: Trouble, job: &job::Tool) -> Self {
        Self {
            waiting: AtomicUsize::default(),
            trouble,
            retries: job.retries,
            backoff: job.retry_wait(),
        }
    }

    fn wait_after(&self, failures: u32) -> Duration {
        self.backoff * (1 << failures.saturating_sub(1).min(DOUBLINGS))
    }
}

/// A call failed as often as it may, and never by what the model asked for.
#[derive(Debug, thiserror::Error)]
#[error("its tool failed {tries} times in a row: {last}")]
pub(super) struct Unable {
    tries: u32,
    last: Infrastructure,
}

/// What befalls the tool on request, and until when. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Trouble(Arc<Mutex<Until>>);

#[derive(Default)]
struct Until {
    hangs: Option<Instant>,
    dies: Option<Instant>,
}

impl Trouble {
    /// What a fault on request asks of an agent worker.
    pub fn strike(&self, deed: Deed, _: Option<At>) -> Result<(), String> {
        let mut until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match deed {
            Deed::HangTool { lasts } => until.hangs = Instant::now().checked_add(lasts),
            Deed::KillTool { lasts } => until.dies = Instant::now().checked_add(lasts),
            other => return Err(format!("{other:?} is nothing that an agent worker can do")),
        }
        Ok(())
    }

    /// What befalls a call that is made now.
    fn now(&self) -> Drilled {
        let until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = |until: Option<Instant>| {
            until.map_or(Duration::ZERO, |until| {
                until.saturating_duration_since(Instant::now())
            })
        };
        Drilled {
            sleep: left(until.hangs),
            killed: !left(until.dies).is_zero(),
        }
    }
}

/// A call that takes long, until it ends or is given up.
struct Waiting<'a>(&'a Worker);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.tools.waiting.fetch_sub(1, Ordering::Relaxed);
        self.0.report();
    }
}

impl Worker {
    /// The tool's answer to a call, or what is wrong with the call.
    pub(super) async fn ask_tool(&self, call: &str) -> Result<Result<String, CallError>, Unable> {
        let mut answer = std::pin::pin!(self.ask_patiently(call));
        if let Ok(answer) = tokio::time::timeout(LONG, &mut answer).await {
            return answer;
        }
        self.tools.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(self);
        self.report();
        answer.await
    }

    async fn ask_patiently(&self, call: &str) -> Result<Result<String, CallError>, Unable> {
        let mut tries = 0;
        loop {
            tries += 1;
            let last = match self.ask_once(call).await {
                Ok(value) => return Ok(Ok(value)),
                Err(ToolError::Call(error)) => return Ok(Err(error)),
                Err(ToolError::Infrastructure(failure)) => failure,
            };
            self.link.add_tool_failure();
            tracing::warn!(call, tries, failure = %last, "the tool failed");
            if tries > self.tools.retries {
                return Err(Unable { tries, last });
            }
            tokio::time::sleep(self.tools.wait_after(tries)).await;
        }
    }

    async fn ask_once(&self, call: &str) -> Result<String, ToolError> {
        let of_the_tool = |deed| matches!(deed, Deed::HangTool { .. } | Deed::KillTool { .. });
        if let Some(deed) = self.link.take_fault(Phase::AwaitingTool, of_the_tool) {
            // It is one of those that befall a tool.
            let _ = self.tools.trouble.strike(deed, None);
        }
        self.tool.run_drilled(call, self.tools.trouble.now()).await
    }

    /// What a worker with so many conversations does.
    pub(super) fn phase(&self, running: usize) -> Phase {
        match self.tools.waiting.load(Ordering::Relaxed) {
            _ if running == 0 => Phase::Idle,
            waiting if waiting >= running => Phase::AwaitingTool,
            _ => Phase::Generating,
        }
    }
}
