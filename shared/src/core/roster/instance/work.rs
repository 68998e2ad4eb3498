//! What an instance does, what is measured of it, and what is counted against it.
use super::Instance;
use crate::core::detect::agent_unable::GivenBack;
use crate::core::input::Sample;
use crate::core::ops::armed::Armed;
use crate::core::recover::budget::{FaultKind, Strikes};
use crate::core::recover::cause::Causes;
use crate::core::weights::Holder;
use crate::ids::Step;
use crate::phase::Phase;
use crate::time::Time;
use std::time::Duration;

/// What it does.
impl Instance {
    /// Enters a phase; a repeated report changes nothing.
    pub fn enter(&mut self, phase: Phase, step: Step, now: Time) {
        self.last_sign = now;
        if (self.phase, self.phase_step) == (phase, step) {
            return;
        }
        if phase == Phase::Generating {
            self.tokens_at = now;
        }
        if matches!(self.phase, Phase::RefLogprob | Phase::OldLogprob) {
            let alone = now.since(self.phase_since);
            if let Some(rank) = self.rank_mut() {
                rank.alone += alone;
            }
        }
        self.overrun = false;
        (self.phase, self.phase_step, self.phase_since) = (phase, step, now);
    }

    /// Takes a sample: activity, token rate and figures for status.
    pub fn measure(&mut self, sample: Sample, now: Time) {
        let first = self.sampled_at == Time(0);
        let elapsed = now.since(self.sampled_at).as_secs_f64();
        let used = sample.busy.saturating_sub(self.sample.busy);
        // The paper's rule is zero activity; a waiting process still wakes for its heartbeat,
        // hence a small share instead of none.
        let share_of = |used: Duration| match first || elapsed <= 0.0 {
            true => 1.0,
            false => used.as_secs_f64() / elapsed,
        };
        let share = share_of(used);
        // A rank that hangs in a collective spins: the accelerator knows better where there is one.
        let active = match (sample.accelerator, self.sample.accelerator) {
            // One that goes back was counted by a daemon that is gone: it says nothing yet.
            (Some(now), Some(before)) => now.checked_sub(before).map_or(1.0, share_of),
            _ => share,
        };
        if first || active >= IDLE_SHARE {
            self.active_at = now;
        }
        if first || used > Duration::ZERO {
            self.moved_at = now;
            self.last_sign = now;
        }
        let tokens = sample.tokens_total.saturating_sub(self.sample.tokens_total);
        let load_began = self.sample.running == 0 && sample.running > 0;
        if first || tokens > 0 || load_began {
            self.tokens_at = now;
        }
        if !first && elapsed > 0.0 {
            let blend = (elapsed / 2.0).min(1.0);
            self.tokens_per_s += blend * (tokens as f64 / elapsed - self.tokens_per_s);
            self.cpu += blend * (share - self.cpu);
        }
        // A process taken over by a restarted daemon may report less at first: counters never go
        // back within a life.
        let tokens_total = sample.tokens_total.max(self.sample.tokens_total);
        self.sample = Sample {
            tokens_total,
            tool_failures: sample.tool_failures.max(self.sample.tool_failures),
            callers_refused: sample.callers_refused.max(self.sample.callers_refused),
            busy: sample.busy.max(self.sample.busy),
            ..sample
        };
        self.sampled_at = now;
    }

    /// An engine has requests from now on: its tokens are waited for.
    pub fn load_begins(&mut self, now: Time) {
        self.tokens_at = now;
    }

    /// What an earlier build stored here of the weights that it has.
    pub fn take_former(&mut self) -> Option<Holder> {
        self.former.take().map(|former| *former)
    }

    /// It was said that its phase takes too long.
    pub fn note_overrun(&mut self) {
        self.overrun = true;
    }

    /// A rank's step is over, of which so much time of its own is too much. Returns how long it took, and in
    /// how many steps in a row that was too long.
    pub fn end_step(&mut self, limit: Duration) -> (Duration, u32) {
        let Some(rank) = self.rank_mut() else {
            return (Duration::ZERO, 0);
        };
        let took = std::mem::take(&mut rank.alone);
        rank.slow_steps = match took > limit {
            true => rank.slow_steps + 1,
            false => 0,
        };
        (took, rank.slow_steps)
    }

    /// An agent worker gave a trajectory back. Returns what it gave back since it last finished one.
    pub fn gives_back(&mut self, now: Time) -> GivenBack {
        let Some(agent) = self.agent_mut() else {
            return GivenBack::default();
        };
        let row = &mut agent.given_back;
        if row.times == 0 {
            row.since = now;
        }
        row.times += 1;
        *row
    }

    /// An agent worker finished a trajectory.
    pub fn finished(&mut self, now: Time) {
        self.succeeded();
        if let Some(agent) = self.agent_mut() {
            agent.given_back = GivenBack::default();
        }
        self.last_sign = now;
    }
}

/// What is counted against it, and what waits for it.
impl Instance {
    /// It did useful work: what fails from now on is not in a row with what failed before.
    pub fn succeeded(&mut self) {
        self.strikes.clear();
        self.causes.clear();
    }

    /// Whether anything is counted against it.
    pub fn has_failed(&self) -> bool {
        !self.strikes.is_empty() || !self.causes.is_empty()
    }

    /// What is counted against it, kind by kind.
    pub fn strikes_mut(&mut self) -> &mut Strikes {
        &mut self.strikes
    }

    /// The same, cause by cause.
    pub fn causes_mut(&mut self) -> &mut Causes {
        &mut self.causes
    }

    /// What was counted of a failure is not its doing.
    pub fn take_back(
        &mut self,
        kind: FaultKind,
        cause: Option<crate::core::Fingerprint>,
        at: Time,
    ) {
        self.strikes.take_back(kind, at);
        if let Some(cause) = cause {
            self.causes.take_back(cause, at);
        }
    }

    /// Injected faults that wait for it.
    pub fn armed_mut(&mut self) -> &mut Vec<Armed> {
        &mut self.armed
    }
}

/// Below this share of its accelerator or of a core between two samples a process counts as idle.
pub const IDLE_SHARE: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{InstanceId, Role};

    #[test]
    fn a_rank_that_spins_without_its_accelerator_is_idle_but_not_stopped() {
        let at = |s: u64| Time(s * 1_000_000);
        let id = InstanceId {
            role: Role::Trainer,
            index: 0,
        };
        let mut rank = Instance::new(id);
        for s in 1..=10 {
            let sample = Sample {
                busy: Duration::from_secs(s),
                accelerator: Some(Duration::from_secs(s.min(4))),
                ..Sample::default()
            };
            rank.measure(sample, at(s));
        }
        assert_eq!((rank.active_at, rank.moved_at), (at(4), at(10)));
        assert!(rank.cpu > 0.5, "{}", rank.cpu);
    }
}
