//! The gang's calls, which all ranks take part in; a new one replaces the one under way.
use super::{Cluster, Event};
use robust_shared::core::{GangEvent, Input, Output, StepMetrics};
use robust_shared::ids::{Generation, Incarnation, Step, WeightVersion};
use robust_shared::phase::Phase;
use robust_shared::time::Time;
use std::time::Duration;

/// Bytes of a version, for the reports.
const BYTES: u64 = 1 << 30;
/// A step of which nobody tells the end is looked at again so often.
const UNTOLD: Duration = Duration::from_secs(3600);

/// What a gang is called to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Restore(Step),
    /// Old logprobs of so many trajectories of the step's batch.
    Prepare(Step, usize),
    Train(Step),
    Publish(WeightVersion),
}

/// A call under way.
#[derive(Clone, Debug)]
pub(super) struct Running {
    number: u64,
    generation: Generation,
    ranks: Vec<Incarnation>,
    call: Call,
}

impl Cluster {
    pub(super) fn call(&mut self, generation: Generation, ranks: Vec<Incarnation>, call: Call) {
        self.serial += 1;
        let number = self.serial;
        self.call = Some(Running {
            number,
            generation,
            ranks,
            call,
        });
        self.after(Duration::ZERO, Event::Call(number, 0));
    }

    /// Goes on with a call that was issued then: it is as far as it is old.
    pub(super) fn resume_call(&mut self, call: Output, called_at: Time) {
        self.act_on_gang(call);
        let Some(mut running) = self.call.take() else {
            return;
        };
        // With another number its begin, which is planned for now, is nobody's.
        self.serial += 1;
        running.number = self.serial;
        let (mut age, mut part, mut left) = (self.now.since(called_at), 0, Duration::ZERO);
        while let Some((_, takes)) = self.part(&running, part) {
            part += 1;
            if takes > age {
                left = takes.saturating_sub(age);
                break;
            }
            age = age.saturating_sub(takes);
        }
        self.call = Some(running);
        self.after(left, Event::Call(self.serial, part));
    }

    pub(super) fn call_goes_on(&mut self, number: u64, part: u32) {
        let Some(running) = self.call.take_if(|c| c.number == number) else {
            return;
        };
        if !running.ranks.iter().all(|r| self.works(*r)) {
            return;
        }
        let next = self.part(&running, part);
        let (phase, takes) = next.unwrap_or((Phase::AwaitBatch, Duration::ZERO));
        let step = match running.call {
            Call::Restore(step) | Call::Prepare(step, _) | Call::Train(step) => step,
            Call::Publish(version) => Step(version.0),
        };
        for rank in &running.ranks {
            self.enter(*rank, phase, step);
        }
        if next.is_none() {
            return self.call_done(&running);
        }
        self.call = Some(running);
        self.after(takes, Event::Call(number, part + 1));
    }

    /// What the ranks do in a part of a call, and how long; none at its end.
    fn part(&self, running: &Running, part: u32) -> Option<(Phase, Duration)> {
        let timing = &self.plan.timing;
        match (running.call, part) {
            (Call::Train(_), part) if self.plan.config.own_loop.is_some() => {
                self.loop_part(part).map(|takes| (Phase::Loop, takes))
            }
            (Call::Restore(_), 0) => Some((Phase::LoadCheckpoint, timing.restore)),
            (Call::Publish(_), 0) => Some((Phase::Publish, timing.publish)),
            (Call::Prepare(_, count), 0) => Some((Phase::OldLogprob, self.logprobs_of(count))),
            (Call::Train(step), 0) => {
                let missing = self.batch() - self.prepared_of(running.generation, step);
                Some((Phase::OldLogprob, self.logprobs_of(missing)))
            }
            (Call::Train(_), 1) => Some((Phase::Update, timing.update)),
            (Call::Train(_), 2) => Some((Phase::Snapshot, timing.snapshot)),
            _ => None,
        }
    }

    /// A trainer with a loop of its own is in it all the time; one that tells no steps never comes to an end.
    fn loop_part(&self, part: u32) -> Option<Duration> {
        let timing = &self.plan.timing;
        let commits = self.plan.config.own_loop.is_some_and(|own| own.commits);
        match (part, commits) {
            (0, true) => Some(timing.old_logprob + timing.update + timing.snapshot),
            (_, true) => None,
            (_, false) => Some(UNTOLD),
        }
    }

    fn batch(&self) -> usize {
        self.plan.config.prompts as usize * self.plan.config.responses as usize
    }

    fn logprobs_of(&self, trajectories: usize) -> Duration {
        let share = trajectories as f64 / self.batch().max(1) as f64;
        self.plan.timing.old_logprob.mul_f64(share.min(1.0))
    }

    /// Trajectories of the step's batch whose old logprobs this gang has.
    fn prepared_of(&self, generation: Generation, step: Step) -> usize {
        match self.prepared {
            (g, s, count) if (g, s) == (generation, step) => count.min(self.batch()),
            _ => 0,
        }
    }

    fn call_done(&mut self, running: &Running) {
        let generation = running.generation;
        let input = match running.call {
            Call::Restore(step) => Input::Gang(generation, GangEvent::Restored { step }),
            Call::Prepare(step, count) => {
                let so_far = self.prepared_of(generation, step);
                self.prepared = (generation, step, so_far + count);
                Input::Gang(generation, GangEvent::Prepared { step })
            }
            Call::Train(step) => Input::Gang(
                generation,
                GangEvent::StepDone {
                    step,
                    metrics: StepMetrics {
                        reward: 0.5,
                        ..StepMetrics::default()
                    },
                },
            ),
            Call::Publish(version) => {
                self.wires_published();
                Input::Gang(
                    generation,
                    GangEvent::Published {
                        version,
                        bytes: BYTES,
                        digest: String::new(),
                    },
                )
            }
        };
        self.feed(input);
    }
}
