//! What one input costs the controller, in microseconds, by the size of the job: one engine or rank
//! on each node, a steady stream of samples, phases, requests, finished trajectories and pulls.
//!
//! `cargo run --release -p robust-shared --example core_cost [NODES ..]`
use robust_shared::core::{Core, CoreConfig, Hello, Input, Output, Sample, StepMetrics};
use robust_shared::ids::{Generation, Incarnation, InstanceId, Role, Step};
use robust_shared::phase::Phase;
use robust_shared::time::Time;
use std::time::{Duration, Instant};

/// Inputs that are measured at each size, at least.
const MEASURED: u64 = 1_000_000;
/// Inputs before, so that memory is warm and the stream steady.
const WARM_UP: u64 = 300_000;

/// Plays the driver and all processes: every output is answered at once.
struct Stream {
    core: Core,
    now: Time,
    lives: Vec<(InstanceId, Incarnation)>,
    inputs: Vec<Input>,
    ticket: u64,
    tokens: u64,
    handled: u64,
    spent: Duration,
}

impl Stream {
    fn new(nodes: u32) -> Self {
        let ranks = (nodes / 5).max(1);
        let engines = nodes - ranks;
        let config = CoreConfig {
            ranks,
            rollouts: engines,
            agents: (nodes / 25).max(2),
            agent_concurrency: 256,
            prompts: engines,
            responses: 8,
            steps: u64::from(u32::MAX),
            pullers_per_source: 2,
            ..CoreConfig::default()
        };
        Self {
            core: Core::new(config),
            now: Time(1_000_000_000),
            lives: Vec::new(),
            inputs: vec![Input::Start],
            ticket: 0,
            tokens: 0,
            handled: 0,
            spent: Duration::ZERO,
        }
    }

    /// Goes on until so many inputs more were handled.
    fn run(&mut self, inputs: u64) {
        let end = self.handled + inputs;
        while self.handled < end {
            if self.inputs.is_empty() {
                self.second();
            }
            let inputs = std::mem::take(&mut self.inputs);
            self.handled += inputs.len() as u64;
            let mut outputs = Vec::with_capacity(inputs.len());
            let began = Instant::now();
            for input in inputs {
                self.now = self.now + Duration::from_micros(1);
                self.core.handle(self.now, input);
                while let Some(output) = self.core.poll_output() {
                    outputs.push(output);
                }
            }
            self.spent += began.elapsed();
            for output in outputs {
                self.answer(output);
            }
            self.samples();
        }
    }

    /// Nothing happens until the next second.
    fn second(&mut self) {
        self.now = self.now + Duration::from_secs(1);
        self.inputs.push(Input::Timeout);
        self.samples();
    }

    /// A part of all instances is sampled after everything that happens.
    fn samples(&mut self) {
        let count = self.lives.len() as u64;
        for _ in 0..self.inputs.len() as u64 / 4 + 1 {
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
            self.inputs.push(Input::Sampled {
                incarnation: *incarnation,
                sample,
            });
        }
    }

    fn phase(&mut self, phase: Phase, step: Step) {
        let ranks = self.lives.iter().filter(|(id, _)| id.role == Role::Trainer);
        let changes = ranks.map(|(_, incarnation)| Input::PhaseChanged {
            incarnation: *incarnation,
            phase,
            step,
        });
        self.inputs.extend(changes);
    }

    fn train(&mut self, generation: Generation, step: Step) {
        for phase in [Phase::OldLogprob, Phase::Update, Phase::AwaitBatch] {
            self.phase(phase, step);
        }
        let metrics = StepMetrics::default();
        self.inputs.push(Input::StepDone {
            generation,
            step,
            metrics,
        });
    }

    fn answer(&mut self, output: Output) {
        let inputs = &mut self.inputs;
        match output {
            Output::Spawn {
                id, incarnation, ..
            } => {
                self.lives.push((id, incarnation));
                let hello = Hello::default();
                inputs.push(Input::Spawned {
                    incarnation,
                    pid: 1,
                });
                inputs.push(Input::Attached { incarnation, hello });
            }
            Output::Restore {
                generation, step, ..
            } => inputs.push(Input::Restored { generation, step }),
            Output::Publish {
                generation,
                version,
                ..
            } => inputs.push(Input::Published {
                generation,
                version,
                bytes: 1 << 20,
                digest: String::new(),
            }),
            Output::TrainStep {
                generation, step, ..
            } => self.train(generation, step),
            Output::AssignPull {
                puller, version, ..
            } => {
                inputs.push(Input::PullProgress {
                    incarnation: puller,
                    version,
                    bytes: 1 << 19,
                    total: 1 << 20,
                });
                inputs.push(Input::Pulled {
                    incarnation: puller,
                    version,
                    result: Ok(()),
                });
            }
            Output::Dispatch { agent, trajectory } => {
                self.ticket += 1;
                inputs.push(Input::RouteRequested {
                    ticket: self.ticket,
                    incarnation: agent,
                    trajectory,
                });
                inputs.push(Input::RouteReleased {
                    ticket: self.ticket,
                });
                inputs.push(Input::TrajectoryFinished {
                    incarnation: agent,
                    trajectory,
                    reward: 0.5,
                    oldest_version: Default::default(),
                });
            }
            _ => {}
        }
    }
}

fn main() {
    let given: Vec<u32> = std::env::args()
        .skip(1)
        .filter_map(|a| a.parse().ok())
        .collect();
    let sizes = match given.is_empty() {
        true => vec![100, 1_000, 10_000],
        false => given,
    };
    println!("{:>8}  {:>9}  {:>6}  us/input", "nodes", "inputs", "steps");
    let mut first = None;
    for nodes in sizes {
        let mut stream = Stream::new(nodes);
        stream.run(WARM_UP.max(u64::from(nodes) * 40));
        (stream.handled, stream.spent) = (0, Duration::ZERO);
        stream.run(MEASURED);
        let cost = stream.spent.as_secs_f64() * 1e6 / stream.handled as f64;
        let ratio = cost / *first.get_or_insert(cost);
        let steps = stream.core.state().committed();
        println!(
            "{nodes:>8}  {:>9}  {steps:>6}  {cost:.3} ({ratio:.2} times the first)",
            stream.handled
        );
    }
}
