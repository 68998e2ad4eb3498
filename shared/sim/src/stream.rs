//! A steady stream of inputs, to measure what one costs the controller: one engine or rank on each
//! machine, samples and heartbeats, phases, requests, finished trajectories and pulls. Every output
//! is answered at once; nothing waits.
//!
//! Nobody here may read a clock, so whoever measures calls [`Stream::handle`] between two looks at
//! theirs, with [`Stream::prepare`] before and [`Stream::settle`] after it.
use super::scale::machines;
use robust_shared::core::{
    Core, CoreConfig, Exit, GangEvent, Hello, Input, NodeEvent, Output, RoleEvent, Sample,
    StepMetrics,
};
use robust_shared::ids::{Generation, Incarnation, InstanceId, NodeId, Role, Step};
use robust_shared::phase::Phase;
use robust_shared::time::Time;
use std::time::Duration;

/// Plays the driver and all processes: every output is answered at once.
pub struct Stream {
    core: Core,
    now: Time,
    lives: Vec<(InstanceId, Incarnation)>,
    inputs: Vec<Input>,
    ticket: u64,
    tokens: u64,
    nodes: u64,
    outputs: Vec<Output>,
}

impl Stream {
    /// The stream of a job on so many machines.
    pub fn new(nodes: u32) -> Self {
        let ranks = (nodes / 5).max(1);
        let engines = nodes - ranks;
        let agents = (nodes / 25).max(2);
        let config = CoreConfig {
            ranks,
            rollouts: engines,
            agents,
            agent_concurrency: 256,
            prompts: engines,
            responses: 8,
            steps: u64::from(u32::MAX),
            pullers_per_source: 2,
            nodes: machines(ranks, engines, agents),
            ..CoreConfig::default()
        };
        let joins = config.nodes.iter().skip(1).cloned();
        let joins = joins.map(|node| Input::NodeJoined {
            node,
            running: Vec::new(),
        });
        let inputs = joins.chain([Input::Start]).collect();
        Self {
            core: Core::new(config),
            now: Time(1_000_000_000),
            lives: Vec::new(),
            inputs,
            ticket: 0,
            tokens: 0,
            nodes: nodes.into(),
            outputs: Vec::new(),
        }
    }

    /// Makes sure that there are inputs to handle; returns how many.
    pub fn prepare(&mut self) -> u64 {
        if self.inputs.is_empty() {
            self.second();
        }
        self.outputs.reserve(self.inputs.len());
        self.inputs.len() as u64
    }

    /// Lets the controller handle them; after each that left records, `record` is called with the
    /// controller, as it is to be persisted with them.
    pub fn handle_and_record(&mut self, mut record: impl FnMut(&mut Core)) {
        for input in self.inputs.drain(..) {
            self.now = self.now + Duration::from_micros(1);
            self.core.handle(self.now, input);
            let mut records = false;
            while let Some(output) = self.core.poll_output() {
                records |= matches!(output, Output::Record(_));
                self.outputs.push(output);
            }
            if records {
                record(&mut self.core);
            }
        }
    }

    /// An engine's process ends, and nothing else happens; `record` is called twice with the controller,
    /// before and after it.
    pub fn lose_engine(&mut self, which: u64, mut record: impl FnMut(&mut Core)) {
        record(&mut self.core);
        let engines = self.lives.iter().filter(|(id, _)| id.role.is_engine());
        let engines: Vec<_> = engines.map(|(_, incarnation)| *incarnation).collect();
        let place = which % (engines.len() as u64).max(1);
        let Some(engine) = usize::try_from(place).ok().and_then(|at| engines.get(at)) else {
            return;
        };
        let exit = Exit::Signal(9);
        let ended = RoleEvent::Exited {
            at: Some(self.now),
            exit,
            detail: String::new(),
        };
        self.core.handle(self.now, Input::Role(*engine, ended));
        while let Some(output) = self.core.poll_output() {
            self.outputs.push(output);
        }
        self.lives.retain(|(_, incarnation)| incarnation != engine);
        record(&mut self.core);
    }

    /// Lets the controller handle them.
    pub fn handle(&mut self) {
        for input in self.inputs.drain(..) {
            self.now = self.now + Duration::from_micros(1);
            self.core.handle(self.now, input);
            while let Some(output) = self.core.poll_output() {
                self.outputs.push(output);
            }
        }
    }

    /// Answers what it wants done.
    pub fn settle(&mut self) {
        for output in std::mem::take(&mut self.outputs) {
            self.answer(output);
        }
        self.samples();
    }

    /// Steps committed so far.
    pub fn steps(&self) -> u64 {
        self.core.state().committed().0
    }

    /// Nothing happens until the next second.
    fn second(&mut self) {
        self.now = self.now + Duration::from_secs(1);
        self.inputs.push(Input::Timeout);
        self.samples();
    }

    /// A part of all instances is sampled after everything that happens, and as many machines beat.
    fn samples(&mut self) {
        let count = self.lives.len() as u64;
        for _ in 0..self.inputs.len() as u64 / 8 + 1 {
            self.tokens += 1;
            let Some((_, incarnation)) = self.lives.get((self.tokens % count.max(1)) as usize)
            else {
                return;
            };
            let sample = Sample {
                busy: Duration::from_millis(self.tokens),
                tokens_total: self.tokens,
                running: 4,
                ..Sample::default()
            };
            self.inputs
                .push(Input::Role(*incarnation, RoleEvent::Sampled { sample }));
            let node = NodeId(1 + (self.tokens % self.nodes) as u32);
            self.inputs.push(Input::Node(node, NodeEvent::Beat));
        }
    }

    fn phase(&mut self, phase: Phase, step: Step) {
        let ranks = self.lives.iter().filter(|(id, _)| id.role == Role::Trainer);
        let changes = ranks.map(|(_, incarnation)| {
            Input::Role(*incarnation, RoleEvent::PhaseChanged { phase, step })
        });
        self.inputs.extend(changes);
    }

    fn train(&mut self, generation: Generation, step: Step) {
        for phase in [Phase::OldLogprob, Phase::Update, Phase::AwaitBatch] {
            self.phase(phase, step);
        }
        let metrics = StepMetrics::default();
        self.inputs.push(Input::Gang(
            generation,
            GangEvent::StepDone { step, metrics },
        ));
    }

    fn answer(&mut self, output: Output) {
        let inputs = &mut self.inputs;
        match output {
            Output::Spawn {
                id, incarnation, ..
            } => {
                self.lives.push((id, incarnation));
                let hello = Hello::default();
                inputs.push(Input::Role(incarnation, RoleEvent::Spawned { pid: 1 }));
                inputs.push(Input::Role(incarnation, RoleEvent::Attached { hello }));
            }
            Output::Restore {
                generation, step, ..
            } => inputs.push(Input::Gang(generation, GangEvent::Restored { step })),
            Output::Publish {
                generation,
                version,
                ..
            } => inputs.push(Input::Gang(
                generation,
                GangEvent::Published {
                    version,
                    bytes: 1 << 20,
                    digest: String::new(),
                },
            )),
            Output::TrainStep {
                generation, step, ..
            } => self.train(generation, step),
            Output::AssignPull {
                puller,
                version,
                order,
                ..
            } => {
                inputs.push(Input::Role(
                    puller,
                    RoleEvent::PullProgress {
                        version,
                        bytes: 1 << 19,
                        total: 1 << 20,
                    },
                ));
                inputs.push(Input::Role(
                    puller,
                    RoleEvent::Pulled {
                        version,
                        order,
                        result: Ok(()),
                    },
                ));
            }
            Output::Dispatch {
                agent,
                trajectory,
                lease,
            } => {
                self.ticket += 1;
                inputs.push(Input::Role(
                    agent,
                    RoleEvent::RouteRequested {
                        ticket: self.ticket,
                        trajectory,
                    },
                ));
                inputs.push(Input::RouteReleased {
                    ticket: self.ticket,
                    broken: false,
                });
                inputs.push(Input::Role(
                    agent,
                    RoleEvent::TrajectoryFinished {
                        trajectory,
                        reward: 0.5,
                        oldest_version: Default::default(),
                        lease,
                    },
                ));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_goes_on_for_ever_and_commits_steps() {
        let mut stream = Stream::new(20);
        let mut handled = 0;
        while handled < 50_000 {
            handled += stream.prepare();
            stream.handle();
            stream.settle();
        }
        assert!(stream.steps() > 20, "{} steps", stream.steps());
    }
}
