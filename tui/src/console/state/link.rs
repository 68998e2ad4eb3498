//! The connection as the state sees it: what comes over it, when it counts as lost, when it is tried
//! again.
use super::{Link, State};
use crate::console::advice;
use crate::console::event::{Action, Quit};
use crate::console::names::ScreenId;
use crate::console::screen::Input;
use robust_proto::v1;

/// A connection that delivers nothing for so long is taken for dead.
const SILENT_MS: u64 = 10_000;
/// The same where another controller may lead by now: it is looked for sooner.
const SILENT_OF_SEVERAL_MS: u64 = 2_000;

impl State {
    /// Number of the present connection.
    pub fn link_no(&self) -> u64 {
        self.connection.number()
    }

    /// A recording that was wound back begins anew; what the operator looks at stays.
    pub fn forget(&mut self) {
        self.common.sight.job.forget();
        self.common.sight.advice = None;
        self.common.sight.link = Link::Waiting;
    }

    /// A new connection that begins after the last event known; the old one is fenced off.
    pub(super) fn reconnect(&mut self) -> Action {
        Action::Connect {
            link: self.connection.made(),
            since_seq: self.common.job.last_seq(),
        }
    }

    pub(super) fn on_tick(&mut self) -> Vec<Action> {
        let sight = &self.common.sight;
        let (now, job) = (sight.now, &sight.job);
        if self.notice.as_ref().is_some_and(|n| n.until <= now) {
            self.notice = None;
        }
        let several = job.status().is_some_and(|s| s.controllers.is_some());
        let silent = if several {
            SILENT_OF_SEVERAL_MS
        } else {
            SILENT_MS
        };
        if sight.link == Link::Live && sight.data_age_ms() > silent && !job.is_over() {
            return self.on_lost(format!("no data for {} s", silent / 1000));
        }
        if self.connection.is_given_up(now, &sight.link) {
            let reason = match &sight.link {
                Link::Lost { reason, .. } => reason.clone(),
                _ => sight.trouble.clone(),
            };
            return vec![Action::Quit(Quit::DaemonGone(reason))];
        }
        if self.connection.is_tried_again(now) {
            return vec![self.reconnect()];
        }
        self.wanted()
    }

    pub(super) fn on_status(&mut self, status: v1::Status) -> Vec<Action> {
        let now = self.common.now;
        let sight = &mut self.common.sight;
        let shown = sight.advice.as_ref().map(|advice| advice.kind);
        sight.advice = advice::advise(&status, shown);
        let other_job = sight.job.observe(now, status);
        sight.link = Link::Live;
        self.common.heard();
        let mut actions = Vec::new();
        if other_job {
            self.bell.forget();
            self.common.unmark();
            let nodes = self.screens.get_mut(ScreenId::Nodes);
            let effects = nodes.on(Input::OtherJob, &mut self.common);
            actions.extend(self.apply(effects));
        }
        let status = self.common.sight.job.status();
        let rung = status.and_then(|status| self.bell.heard(status));
        actions.extend(self.tell_dialog(Input::Heard));
        actions.extend(rung.map(Action::Ring));
        if self.common.job.is_over() && self.connection.ends_with_job() {
            actions.push(Action::Quit(Quit::JobOver));
            return actions;
        }
        if other_job {
            actions.push(self.reconnect());
        }
        actions
    }

    pub(super) fn on_lost(&mut self, reason: String) -> Vec<Action> {
        let sight = &mut self.common.sight;
        self.connection.lost(sight.now);
        match sight.link {
            Link::Waiting => sight.trouble = reason,
            Link::Live => {
                let since = sight.now;
                sight.link = Link::Lost { since, reason };
            }
            // The first reason says more than the failed attempts after it.
            Link::Lost { .. } => {}
        }
        Vec::new()
    }
}
