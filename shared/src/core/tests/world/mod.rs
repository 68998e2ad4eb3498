//! A small world in virtual time: it plays the driver and every process, and checks the invariants
//! after each input. The same seed gives the same run.
mod driver;
mod processes;

use super::super::*;
use crate::core::instance::Life;
use crate::ids::*;
use crate::phase::Phase;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub fn id(role: Role, index: u32) -> InstanceId {
    InstanceId { role, index }
}

pub struct Proc {
    pub id: InstanceId,
    pub generation: Generation,
    pub alive: bool,
    pub stopped: bool,
    pub linked: bool,
    pub version: Option<WeightVersion>,
    pub step: Option<Step>,
    pub phase: Phase,
    pub held: BTreeSet<TrajectoryId>,
    pub waiting: BTreeSet<TrajectoryId>,
    pub requests: u32,
    pub tokens: u64,
    pub busy: Duration,
    /// Never links, as one that hangs in its start.
    pub mute: bool,
}

enum Happening {
    Feed(Input),
    Link(Incarnation),
    Restored(Generation, Step),
    Train(Generation, Step, u32),
    Published(Generation, WeightVersion),
    PullEnds(Incarnation, u64),
    Probed(Incarnation),
    Turn(Incarnation, TrajectoryId, u32),
    TurnEnds {
        agent: Incarnation,
        trajectory: TrajectoryId,
        turn: u32,
        rollout: Incarnation,
        ticket: u64,
    },
    Samples,
    DaemonBack,
}

struct ActivePull {
    serial: u64,
    version: WeightVersion,
    sources: Vec<Incarnation>,
    daemon_life: u32,
}

pub struct World {
    pub config: CoreConfig,
    pub core: Core,
    pub now: Time,
    queue: BTreeMap<(Time, u64), Happening>,
    serial: u64,
    pub procs: BTreeMap<Incarnation, Proc>,
    pulls: BTreeMap<Incarnation, ActivePull>,
    asked: BTreeMap<u64, (Incarnation, TrajectoryId, u32)>,
    persisted: Option<String>,
    pub committed: Vec<Step>,
    consumed: BTreeSet<TrajectoryId>,
    pub stored: BTreeSet<TrajectoryId>,
    done_steps: BTreeSet<(Generation, Step)>,
    training: BTreeSet<(Generation, Step)>,
    daemon_up: bool,
    daemon_life: u32,
    /// Outputs after which the daemon dies, the rest of them lost.
    pub crash_after: Option<u64>,
    pub outputs: u64,
    pub journal: Vec<String>,
    pub outcome: Option<Outcome>,
    /// Chance in 100 that a message comes twice, the second time late.
    pub duplicate: u64,
    pub turn_takes: Duration,
    pub tool_takes: Duration,
    pub advantage_takes: Duration,
    rng: u64,
    pub trained: Vec<(Generation, Step, Vec<TrajectoryId>)>,
    pub routed_at: Vec<(Time, InstanceId)>,
}

impl World {
    pub fn new(config: CoreConfig, seed: u64) -> Self {
        let mut world = Self {
            core: Core::new(config.clone()),
            config,
            now: Time(1_000_000_000),
            queue: BTreeMap::new(),
            serial: 0,
            procs: BTreeMap::new(),
            pulls: BTreeMap::new(),
            asked: BTreeMap::new(),
            persisted: None,
            committed: Vec::new(),
            consumed: BTreeSet::new(),
            stored: BTreeSet::new(),
            done_steps: BTreeSet::new(),
            training: BTreeSet::new(),
            daemon_up: true,
            daemon_life: 0,
            crash_after: None,
            outputs: 0,
            journal: Vec::new(),
            outcome: None,
            duplicate: 0,
            turn_takes: ms(60),
            tool_takes: ms(30),
            advantage_takes: ms(10),
            rng: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            trained: Vec::new(),
            routed_at: Vec::new(),
        };
        world.after(ms(250), Happening::Samples);
        world.feed(Input::Start);
        world
    }

    pub fn random(&mut self, below: u64) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng % below.max(1)
    }

    fn after(&mut self, delay: Duration, what: Happening) {
        self.serial += 1;
        self.queue.insert((self.now + delay, self.serial), what);
    }

    // ---- what a test does ----

    /// Runs until the condition holds; fails after `limit` of virtual time.
    pub fn until(&mut self, what: &str, limit: Duration, cond: impl Fn(&World) -> bool) {
        let end = self.now + limit;
        while !cond(self) {
            assert!(
                self.now < end,
                "{what}: not within {limit:?}; {:#?}",
                self.core.view(self.now)
            );
            self.step();
        }
    }

    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end && self.outcome.is_none() {
            self.step();
        }
    }

    pub fn run_to_end(&mut self) {
        self.until("the job ends", Duration::from_secs(1200), |w| {
            w.outcome.is_some()
        });
    }

    pub fn life(&self, who: InstanceId) -> Incarnation {
        self.core.s.instances.get(who).unwrap().incarnation
    }

    pub fn proc(&mut self, who: InstanceId) -> Option<&mut Proc> {
        let life = self.life(who);
        self.procs.get_mut(&life)
    }

    pub fn kill(&mut self, who: InstanceId) {
        let life = self.life(who);
        self.die(life);
    }

    pub fn inject(&mut self, fault: Fault, role: Role, index: u32) {
        let index = Some(index);
        self.feed(Input::Operator(Request::Inject {
            ticket: 1,
            fault,
            role,
            index,
        }));
    }

    pub fn incidents(&self) -> Vec<Incident> {
        self.core.view(self.now).incidents
    }

    pub fn feed(&mut self, input: Input) {
        if !self.daemon_up {
            return;
        }
        let repeatable = matches!(
            input,
            Input::StepDone { .. }
                | Input::Published { .. }
                | Input::Restored { .. }
                | Input::Pulled { result: Ok(()), .. }
                | Input::TrajectoryFinished { .. }
                | Input::Exited { .. }
                | Input::Spawned { .. }
                | Input::PullProgress { .. }
                | Input::RouteReleased { .. }
        );
        if repeatable && self.random(100) < self.duplicate {
            let late = ms(self.random(3000));
            self.after(late, Happening::Feed(input.clone()));
        }
        self.core.handle(self.now, input);
        self.settle();
    }

    pub fn crash_daemon(&mut self) {
        if !self.daemon_up {
            return;
        }
        self.daemon_up = false;
        self.asked.clear();
        self.after(ms(300), Happening::DaemonBack);
    }

    // ---- the clock ----

    pub fn step(&mut self) {
        let next = self.queue.keys().next().copied();
        let timeout = if self.daemon_up {
            self.core.next_timeout()
        } else {
            None
        };
        match (next, timeout) {
            (Some((at, _)), Some(t)) if t < at => {
                // Something that the core did not hear of may have happened at this very time.
                self.now = self.now.max(t);
                self.feed(Input::Timeout);
                let next = self.core.next_timeout();
                let spins = self.daemon_up && next.is_some_and(|t| t <= self.now);
                assert!(!spins, "a timeout that is not served would spin");
            }
            (Some(key), _) => {
                self.now = key.0;
                let what = self.queue.remove(&key).unwrap();
                self.happen(what);
            }
            (None, _) => unreachable!("samples never end"),
        }
    }

    fn settle(&mut self) {
        while let Some(output) = self.core.poll_output() {
            self.outputs += 1;
            if self.crash_after.is_some_and(|n| self.outputs >= n) {
                self.crash_after = None;
                while self.core.poll_output().is_some() {}
                return self.crash_daemon();
            }
            self.journal.push(format!("{} {output:?}", self.now));
            self.act(output);
        }
        self.check();
    }

    fn check(&self) {
        let generations: BTreeSet<_> = self
            .procs
            .values()
            .filter(|p| p.alive && p.id.role == Role::Trainer)
            .map(|p| p.generation)
            .collect();
        assert!(
            generations.len() <= 1,
            "I-1: {generations:?} are alive together"
        );
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Feed(input) => self.feed(input),
            Happening::Link(life) => self.link(life),
            Happening::Samples => self.samples(),
            Happening::DaemonBack => self.restart_daemon(),
            Happening::Train(generation, step, part) => {
                self.train_goes_on(generation, step, part);
            }
            Happening::PullEnds(puller, serial) => self.pull_ends(puller, serial),
            Happening::Turn(agent, trajectory, turn) => self.turn(agent, trajectory, turn),
            Happening::TurnEnds {
                agent,
                trajectory,
                turn,
                rollout,
                ticket,
            } => {
                self.turn_ends(agent, trajectory, turn, rollout, ticket);
            }
            Happening::Probed(incarnation) => {
                if self.works(incarnation) {
                    self.feed(Input::Probed {
                        incarnation,
                        ok: true,
                    });
                }
            }
            Happening::Restored(generation, step) if self.gang_works(generation) => {
                for p in self
                    .procs
                    .values_mut()
                    .filter(|p| p.generation == generation)
                {
                    p.step = Some(step);
                }
                self.gang_phase(generation, Phase::AwaitBatch, step);
                self.feed(Input::Restored { generation, step });
            }
            Happening::Published(generation, version) if self.gang_works(generation) => {
                let (bytes, digest) = (1 << 20, String::new());
                self.feed(Input::Published {
                    generation,
                    version,
                    bytes,
                    digest,
                });
            }
            // Its gang is not whole: the call gets no answer.
            Happening::Restored(..) | Happening::Published(..) => {}
        }
    }
}

/// A failed run tells how it came to it.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let dull = |l: &&String| !l.contains("Interval(") && !l.contains(" Route ");
            let lines: Vec<_> = self.journal.iter().filter(dull).collect();
            for line in &lines[lines.len().saturating_sub(60)..] {
                let short: String = line.chars().take(300).collect();
                eprintln!("{short}");
            }
        }
    }
}
