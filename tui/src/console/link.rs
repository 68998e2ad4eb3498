//! The connection as the state sees it: what comes over it, when it counts as lost, when it is tried
//! again.
use super::event::{Action, Quit};
use super::state::{Link, State};
use robust_proto::v1;

/// Between two attempts to reach a lost daemon.
const RETRY_MS: u64 = 500;
/// A connection that delivers nothing for so long is taken for dead.
const SILENT_MS: u64 = 10_000;
/// The same where another controller may lead by now: it is looked for sooner.
const SILENT_OF_SEVERAL_MS: u64 = 2_000;
/// With `--exit-when-done`: how long a lost daemon is waited for.
const PATIENCE_MS: u64 = 15_000;

impl State {
    /// Number of the present connection.
    pub fn link_no(&self) -> u64 {
        self.link_no
    }

    /// A recording that was wound back begins anew; what the operator looks at stays.
    pub fn forget(&mut self) {
        self.job.forget();
        self.link = Link::Waiting;
    }

    /// A new connection that begins after the last event known; the old one is fenced off.
    pub(super) fn reconnect(&mut self) -> Action {
        self.link_no += 1;
        self.retry_at = None;
        Action::Connect {
            link: self.link_no,
            since_seq: self.job.last_seq(),
        }
    }

    pub(super) fn on_tick(&mut self) -> Vec<Action> {
        if self.notice.as_ref().is_some_and(|n| n.until <= self.now) {
            self.notice = None;
        }
        let status = self.job.status();
        let silent = match status.is_some_and(|status| status.controllers.is_some()) {
            true => SILENT_OF_SEVERAL_MS,
            false => SILENT_MS,
        };
        if self.link == Link::Live && self.data_age_ms() > silent && !self.job.is_over() {
            return self.on_lost(format!("no data for {} s", silent / 1000));
        }
        let away = match &self.link {
            Link::Live => 0,
            Link::Waiting => self.now.saturating_sub(self.unreached_since),
            Link::Lost { since, .. } => self.now.saturating_sub(*since),
        };
        if self.exit_when_done && away > PATIENCE_MS {
            let reason = match &self.link {
                Link::Lost { reason, .. } => reason.clone(),
                _ => self.trouble.clone(),
            };
            return vec![Action::Quit(Quit::DaemonGone(reason))];
        }
        if self.retry_at.is_some_and(|at| at <= self.now) {
            return vec![self.reconnect()];
        }
        self.wanted()
    }

    pub(super) fn on_status(&mut self, status: v1::Status) -> Vec<Action> {
        let other_job = self.job.observe(self.now, status);
        self.link = Link::Live;
        self.drop_outdated_dialog();
        if self.job.is_over() && self.exit_when_done {
            return vec![Action::Quit(Quit::JobOver)];
        }
        if other_job {
            return vec![self.reconnect()];
        }
        Vec::new()
    }

    pub(super) fn on_lost(&mut self, reason: String) -> Vec<Action> {
        // Fences what the connection may still deliver.
        self.link_no += 1;
        self.retry_at = Some(self.now + RETRY_MS);
        match self.link {
            Link::Waiting => self.trouble = reason,
            Link::Live => {
                self.link = Link::Lost {
                    since: self.now,
                    reason,
                }
            }
            // The first reason says more than the failed attempts after it.
            Link::Lost { .. } => {}
        }
        Vec::new()
    }
}
