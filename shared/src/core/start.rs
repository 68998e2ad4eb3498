//! How a job begins, and how it goes on after its daemon was away.
use super::output::{Output, Record};
use super::state::JobState;
use crate::core::{Core, Mutation};
use crate::ettr::{Cause, Slice};
use crate::time::Time;

impl Core {
    pub(super) fn on_start(&mut self) {
        if self.started {
            return;
        }
        self.started = true;
        if self.s.job == JobState::New {
            self.s.job = JobState::Running;
            if self.s.started_at == Time(0) {
                self.s.started_at = self.now;
            }
            self.spawn_everything();
        }
    }

    /// The daemon was away: links are gone, and so is every call it was making. Roles went on
    /// working meanwhile, but nobody saw what, so the ledger counts the gap as nothing.
    pub(super) fn rejoin(&mut self) {
        let (now, away) = (self.now, self.s.last_now);
        if self.config.mutant(Mutation::PauseLost) {
            self.s.orders.lose_pause();
        }
        if self.s.job == JobState::Running {
            if let Some(closed) = self.s.ledger.turn(away, 0.0, Cause::Recovery) {
                self.out.push(Output::Record(Record::Interval(closed)));
            }
            self.s.ledger.spend(away, Slice::Restart);
            self.open_batches();
        }
        let there = self
            .s
            .roster
            .instances()
            .engines()
            .filter(|i| i.has_process());
        let there = there.map(|i| i.incarnation());
        self.s.work.rollouts.adopt(there);
        self.s.roster.rejoin(now, &self.config);
        self.s.weights.rejoin(&self.config, now);
        self.stood_still();
        self.s.gang.rejoin();
        if self.s.job == JobState::Running {
            self.s.roster.forget_turns();
        }
        self.s.recover.evidence_is_lost();
    }
}
