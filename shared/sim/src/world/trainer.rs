//! The gang: calls that all ranks take part in, answered from memory when repeated.
use super::{Happening, World, ms};
use robust_shared::core::{CallFault, GangEvent, Input, RoleEvent, StepMetrics};
use robust_shared::ids::{Generation, Incarnation, Role, Step, TrajectoryId, WeightVersion};
use robust_shared::phase::Phase;
use std::collections::BTreeMap;
use std::time::Duration;

/// A call to the whole gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Call {
    Restore(Step),
    Train(Step),
    /// Old logprobs of a part of the step's batch, told by the sum of its names.
    Prepare(Step, u64),
    Publish(WeightVersion),
}

/// How far a call has come, whether or not anybody waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Runs,
    Done,
}

/// Gangs and their calls.
#[derive(Clone, Debug, Default)]
pub(super) struct GangWork {
    /// The newest generation started.
    pub newest: Generation,
    /// Ranks of each generation, in the order they were started.
    pub ranks: BTreeMap<Generation, Vec<Incarnation>>,
    calls: BTreeMap<(Generation, Call), Progress>,
    /// What the daemon waits for.
    pub task: Option<(Generation, Call)>,
    /// Which version each of the two buffers of a generation holds, by parity.
    buffers: BTreeMap<Generation, [Option<WeightVersion>; 2]>,
}

impl GangWork {
    /// A rank was started.
    pub fn joined(&mut self, generation: Generation, rank: Incarnation) {
        self.newest = self.newest.max(generation);
        self.ranks.entry(generation).or_default().push(rank);
        let newest = self.newest;
        self.ranks.retain(|g, _| g.0 + 4 > newest.0);
        self.calls.retain(|(g, _), _| g.0 + 4 > newest.0);
        self.buffers.retain(|g, _| g.0 + 4 > newest.0);
    }

    /// Which gang computes a step, or a part of one, that is waited for.
    pub fn computes(&self) -> Option<Generation> {
        match self.task {
            Some((generation, Call::Train(_) | Call::Prepare(..))) => Some(generation),
            _ => None,
        }
    }

    /// Whether a generation's buffers hold a version.
    pub fn holds(&self, generation: Generation, version: WeightVersion) -> bool {
        let buffers = self.buffers.get(&generation).copied().unwrap_or_default();
        buffers.contains(&Some(version))
    }
}

impl World {
    /// Whether all ranks of a generation do their work.
    pub(super) fn gang_serves(&self, generation: Generation) -> bool {
        let ranks = self.gang.ranks.get(&generation);
        ranks.is_some_and(|ranks| {
            ranks.len() == self.checker.ranks as usize
                && self.all_together(ranks)
                && ranks
                    .iter()
                    .all(|r| self.procs.get(r).is_some_and(|p| p.serves()))
        })
    }

    /// The daemon calls the gang; what was done already is answered from memory.
    pub(super) fn call(&mut self, generation: Generation, call: Call) {
        self.gang.task = Some((generation, call));
        match self.gang.calls.get(&(generation, call)) {
            Some(Progress::Done) => self.after(ms(5), Happening::Gang(generation, call, u32::MAX)),
            Some(Progress::Runs) => {}
            None => {
                self.gang.calls.insert((generation, call), Progress::Runs);
                self.after(ms(10), Happening::Gang(generation, call, 0));
            }
        }
    }

    /// The batch that a training call is for.
    pub(super) fn note_batch(&mut self, g: Generation, step: Step, batch: Vec<TrajectoryId>) {
        self.trained.push((g, step, batch));
    }

    pub(super) fn gang_goes_on(&mut self, generation: Generation, call: Call, part: u32) {
        let ranks = self
            .gang
            .ranks
            .get(&generation)
            .cloned()
            .unwrap_or_default();
        let alive = |r: &Incarnation| self.procs.get(r).is_some_and(|p| p.alive);
        if !ranks.iter().all(alive) {
            return;
        }
        let linked = ranks.iter().all(|r| {
            self.procs
                .get(r)
                .is_some_and(|p| p.linked && self.machines.linked(p.machine))
        });
        let ends = part >= parts(call);
        if !self.gang_serves(generation) || (part == 0 && !linked) {
            return self.after(ms(50), Happening::Gang(generation, call, part));
        }
        if ends {
            return self.gang_done(generation, call, part, linked);
        }
        if let Some(raised) = ranks.iter().find(|r| self.procs[r].raised) {
            return self.gang_raises(generation, call, *raised);
        }
        if part == 0 {
            if self.is_last(call) && self.lags() {
                // The job's end would hide whoever waits for its weights for ever.
                return self.after(ms(50), Happening::Gang(generation, call, part));
            }
            self.check_call(call, &ranks);
        }
        let (phase, span) = match (call, part) {
            (Call::Restore(_), _) => (Phase::LoadCheckpoint, self.timing.restore),
            (Call::Publish(_), _) => (Phase::Publish, self.timing.publish),
            (Call::Train(_), 0) | (Call::Prepare(..), _) => {
                (Phase::OldLogprob, self.timing.old_logprob)
            }
            (Call::Train(_), 1) => (Phase::Advantage, self.timing.advantage),
            (Call::Train(_), 2) => (Phase::Update, self.timing.update),
            (Call::Train(_), _) => (Phase::Snapshot, self.timing.snapshot),
        };
        let slow = ranks.iter().map(|r| self.procs[r].slow).max().unwrap_or(1);
        let takes = span.draw(&mut self.dice) * slow;
        self.after(takes, Happening::Gang(generation, call, part + 1));
        self.gang_phase(&ranks, phase, step_of(call));
    }

    /// Whether a trainer with a loop of its own has nothing left to do in this step.
    fn program_is_over(&self, step: Step) -> bool {
        let own = self.config.own_loop;
        own.is_some_and(|own| !own.commits || step.0 > self.program_ends)
    }

    /// Whether the job ends with this call. What nobody has any more nobody waits for: versions of a
    /// state that the program keeps itself are published once.
    fn is_last(&self, call: Call) -> bool {
        let own = self.config.own_loop;
        let Call::Train(step) = call else {
            return false;
        };
        match own {
            None => step.0 == self.config.steps,
            Some(own) => own.publishes && own.keeps_state && self.program_is_over(step),
        }
    }

    /// The work is done; the answer reaches the daemon when it still waits and all ranks are linked.
    fn gang_done(&mut self, generation: Generation, call: Call, part: u32, linked: bool) {
        if self.gang.calls.insert((generation, call), Progress::Done) != Some(Progress::Done) {
            self.gang_did(generation, call);
        }
        if self.gang.task != Some((generation, call)) {
            return;
        }
        if !linked {
            return self.after(ms(50), Happening::Gang(generation, call, part));
        }
        self.gang.task = None;
        self.feed(match call {
            Call::Restore(step) => Input::Gang(generation, GangEvent::Restored { step }),
            Call::Prepare(step, _) => Input::Gang(generation, GangEvent::Prepared { step }),
            Call::Train(step) if self.program_is_over(step) => {
                Input::Gang(generation, GangEvent::TrainerOver)
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
            Call::Publish(version) => Input::Gang(
                generation,
                GangEvent::Published {
                    version,
                    bytes: 1 << 20,
                    digest: String::new(),
                },
            ),
        });
    }

    fn gang_did(&mut self, generation: Generation, call: Call) {
        let ranks = self
            .gang
            .ranks
            .get(&generation)
            .cloned()
            .unwrap_or_default();
        match call {
            Call::Restore(step) | Call::Train(step) => {
                for rank in &ranks {
                    if let Some(p) = self.procs.get_mut(rank) {
                        p.step = Some(step);
                    }
                }
            }
            Call::Prepare(..) => {}
            Call::Publish(version) => {
                let buffers = self.gang.buffers.entry(generation).or_default();
                buffers[usize::from(version.0 % 2 == 1)] = Some(version);
            }
        }
        self.gang_phase(&ranks, Phase::AwaitBatch, step_of(call));
    }

    /// An exception in a rank: the call fails, the processes live.
    fn gang_raises(&mut self, generation: Generation, call: Call, rank: Incarnation) {
        self.gang.calls.remove(&(generation, call));
        if self.gang.task == Some((generation, call)) {
            self.gang.task = None;
            let reason = format!("{rank} raised an exception");
            let step = step_of(call);
            self.feed(Input::Gang(
                generation,
                GangEvent::StepFailed {
                    step,
                    rank: Some(rank),
                    fault: CallFault::Exception,
                    reason,
                },
            ));
        }
    }

    fn gang_phase(&mut self, ranks: &[Incarnation], phase: Phase, step: Step) {
        for &incarnation in ranks {
            if let Some(p) = self.procs.get_mut(&incarnation) {
                p.phase = phase;
            }
            self.say(
                incarnation,
                Input::Role(incarnation, RoleEvent::PhaseChanged { phase, step }),
            );
        }
    }

    /// What a gang is told to do must fit the state it has (I-5, I-9).
    fn check_call(&mut self, call: Call, ranks: &[Incarnation]) {
        let wanted = match call {
            Call::Restore(_) => return,
            Call::Train(step) | Call::Prepare(step, _) => Step(step.0.saturating_sub(1)),
            Call::Publish(version) => Step(version.0),
        };
        for rank in ranks {
            let Some(has) = self.procs.get(rank).map(|p| p.step) else {
                continue;
            };
            if has != Some(wanted) {
                let text = format!("{rank} is told {call:?} with the state of step {has:?}");
                self.checker.broken(self.now, "I-5", &text);
            }
        }
    }

    /// The ranks whose gang this trainer belongs to.
    pub(super) fn gang_of(&self, life: Incarnation) -> Vec<Incarnation> {
        let trainer = self.procs.get(&life).filter(|p| p.id.role == Role::Trainer);
        trainer
            .and_then(|p| self.gang.ranks.get(&p.generation).cloned())
            .unwrap_or_default()
    }
}

fn parts(call: Call) -> u32 {
    match call {
        Call::Restore(_) | Call::Publish(_) | Call::Prepare(..) => 1,
        Call::Train(_) => 4,
    }
}

fn step_of(call: Call) -> Step {
    match call {
        Call::Restore(step) | Call::Train(step) | Call::Prepare(step, _) => step,
        Call::Publish(version) => Step(version.0),
    }
}

/// Time a computing process uses of the time that passes.
pub(super) fn computed(elapsed: Duration) -> Duration {
    elapsed / 2
}
