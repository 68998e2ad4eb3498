//! Tool calls, how many of them take long, and the drill in which none answers.
//!
//! A call is as a rule over before anybody could hear of it. One that takes long is a wait, and a
//! worker of which every conversation waits so is in phase `awaiting_tool`: then silence says nothing
//! of its health, and the phase's own bound applies.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use robust_role::Deed;
use robust_shared::fault::At;
use robust_shared::phase::Phase;

use super::Worker;
use crate::tool::ToolError;

/// A call that takes longer than this is a wait.
const LONG: Duration = Duration::from_millis(100);

/// How the tool does.
pub(super) struct Tools {
    /// Calls that take long.
    waiting: AtomicUsize,
    hang: Hang,
}

impl Tools {
    pub fn new(hang: Hang) -> Self {
        let waiting = AtomicUsize::default();
        Self { waiting, hang }
    }
}

/// Until when the tool does not answer. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Hang(Arc<Mutex<Option<Instant>>>);

impl Hang {
    /// What a fault on request asks of an agent worker.
    pub fn strike(&self, deed: Deed, _: Option<At>) -> Result<(), String> {
        match deed {
            Deed::HangTool { lasts } => {
                self.last(lasts);
                Ok(())
            }
            other => Err(format!("{other:?} is nothing that an agent worker can do")),
        }
    }

    fn last(&self, lasts: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now().checked_add(lasts);
    }

    /// How long an answer that is asked for now takes.
    fn left(&self) -> Duration {
        let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        })
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
    /// The tool's answer to a call.
    pub(super) async fn ask_tool(&self, call: &str) -> Result<String, ToolError> {
        let hangs = |deed| matches!(deed, Deed::HangTool { .. });
        if let Some(Deed::HangTool { lasts }) = self.link.take_fault(Phase::AwaitingTool, hangs) {
            self.tools.hang.last(lasts);
        }
        let mut answer = std::pin::pin!(self.tool.run_after(call, self.tools.hang.left()));
        if let Ok(answer) = tokio::time::timeout(LONG, &mut answer).await {
            return answer;
        }
        self.tools.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(self);
        self.report();
        answer.await
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
