//! The part of the processes: trainer, rollouts, agent workers.
use super::*;

impl World {
    pub(super) fn works(&self, incarnation: Incarnation) -> bool {
        self.procs
            .get(&incarnation)
            .is_some_and(|p| p.alive && !p.stopped)
    }

    pub(super) fn gang_works(&self, generation: Generation) -> bool {
        let ranks = || self.procs.values().filter(|p| p.id.role == Role::Trainer);
        let alive = ranks().filter(|p| p.generation == generation && p.alive && !p.stopped);
        alive.count() == self.config.ranks as usize
    }

    pub(super) fn gang_phase(&mut self, generation: Generation, phase: Phase, step: Step) {
        let gang = self.procs.iter_mut().filter(|(_, p)| {
            p.id.role == Role::Trainer && p.generation == generation && p.alive && !p.stopped
        });
        let mut lives = Vec::new();
        for (life, p) in gang {
            p.phase = phase;
            lives.push(*life);
        }
        for incarnation in lives {
            self.feed(Input::PhaseChanged {
                incarnation,
                phase,
                step,
            });
        }
    }

    pub(super) fn train(&mut self, generation: Generation, step: Step, batch: Vec<TrajectoryId>) {
        self.trained.push((generation, step, batch));
        if self.done_steps.contains(&(generation, step)) {
            self.after(ms(5), Happening::Train(generation, step, 4));
        } else if self.training.insert((generation, step)) {
            self.after(ms(10), Happening::Train(generation, step, 0));
        }
    }

    pub(super) fn train_goes_on(&mut self, generation: Generation, step: Step, part: u32) {
        if !self.gang_works(generation) {
            if self
                .procs
                .values()
                .any(|p| p.generation == generation && p.alive)
            {
                self.after(ms(50), Happening::Train(generation, step, part));
            }
            return;
        }
        let (phase, takes) = match part {
            0 => (Phase::OldLogprob, ms(60)),
            1 => (Phase::Advantage, self.advantage_takes),
            2 => (Phase::Update, ms(150)),
            3 => (Phase::Snapshot, ms(10)),
            _ => {
                self.done_steps.insert((generation, step));
                self.gang_phase(generation, Phase::AwaitBatch, step);
                let metrics = StepMetrics {
                    reward: 0.5,
                    ..StepMetrics::default()
                };
                return self.feed(Input::StepDone {
                    generation,
                    step,
                    metrics,
                });
            }
        };
        self.after(takes, Happening::Train(generation, step, part + 1));
        self.gang_phase(generation, phase, step);
    }

    pub(super) fn pull(
        &mut self,
        puller: Incarnation,
        version: WeightVersion,
        sources: Vec<Incarnation>,
    ) {
        assert!(
            self.procs[&puller].version < Some(version),
            "I-4: {puller} goes back"
        );
        for source in &sources {
            let others = self.pulls.iter().filter(|(p, pull)| {
                **p != puller
                    && self.works(**p)
                    && pull.daemon_life == self.daemon_life
                    && pull.sources.contains(source)
            });
            let limit = self.config.pullers_per_source as usize;
            assert!(others.count() < limit, "I-6: {source} serves too many");
        }
        if self
            .pulls
            .get(&puller)
            .is_some_and(|p| p.version == version && p.sources == sources)
        {
            return;
        }
        self.serial += 1;
        let (serial, daemon_life) = (self.serial, self.daemon_life);
        self.pulls.insert(
            puller,
            ActivePull {
                serial,
                version,
                sources,
                daemon_life,
            },
        );
        let takes = ms(80 + self.random(80));
        self.after(takes, Happening::PullEnds(puller, serial));
    }

    pub(super) fn pull_ends(&mut self, puller: Incarnation, serial: u64) {
        let Some(pull) = self.pulls.get(&puller).filter(|p| p.serial == serial) else {
            return;
        };
        let version = pull.version;
        let broken = pull.sources.iter().copied().find(|s| !self.works(*s));
        if !self.works(puller) {
            if self.procs[&puller].alive {
                self.after(ms(100), Happening::PullEnds(puller, serial));
            }
            return;
        }
        self.pulls.remove(&puller);
        let result = match broken {
            Some(source) => Err(PullFailure::Source {
                source,
                reason: "stopped".to_owned(),
            }),
            None => {
                self.procs.get_mut(&puller).unwrap().version = Some(version);
                Ok(())
            }
        };
        self.feed(Input::Pulled {
            incarnation: puller,
            version,
            result,
        });
    }

    pub(super) fn link(&mut self, incarnation: Incarnation) {
        let current = self.core.is_current(incarnation).is_some();
        let (up, works) = (self.daemon_up, self.works(incarnation));
        let Some(p) = self.procs.get_mut(&incarnation) else {
            return;
        };
        if !works || p.mute {
            return;
        }
        if !up {
            return self.after(ms(100), Happening::Link(incarnation));
        }
        if !current {
            p.alive = false;
            return;
        }
        p.linked = true;
        let leases = p.held.iter().copied().collect();
        let (version, step, role) = (p.version, p.step, p.id.role);
        let phase = p.phase;
        let hello = Hello {
            version,
            step,
            leases,
            ..Hello::default()
        };
        self.feed(Input::Attached { incarnation, hello });
        if phase != Phase::Init {
            let step = step.unwrap_or_default();
            self.feed(Input::PhaseChanged {
                incarnation,
                phase,
                step,
            });
        }
        if role == Role::Agent {
            for t in self.procs[&incarnation].waiting.clone() {
                self.after(ms(1), Happening::Turn(incarnation, t, 0));
            }
        }
    }

    pub(super) fn dispatched(&mut self, agent: Incarnation, trajectory: TrajectoryId) {
        assert!(
            !self.stored.contains(&trajectory),
            "I-2: {trajectory} is generated again"
        );
        let Some(p) = self.procs.get_mut(&agent) else {
            return;
        };
        if p.alive && p.held.insert(trajectory) {
            let turns = 1 + u32::try_from(trajectory.key() % 3).unwrap();
            self.after(ms(5), Happening::Turn(agent, trajectory, turns));
        }
    }

    /// Asks for a route; `turn` turns are left.
    pub(super) fn turn(&mut self, agent: Incarnation, trajectory: TrajectoryId, turn: u32) {
        let holds = self.procs[&agent].held.contains(&trajectory);
        if !holds || !self.procs[&agent].alive {
            return;
        }
        if self.procs[&agent].stopped {
            return self.after(ms(100), Happening::Turn(agent, trajectory, turn));
        }
        let turn = turn.max(1);
        self.procs
            .get_mut(&agent)
            .unwrap()
            .waiting
            .insert(trajectory);
        if self.daemon_up {
            self.serial += 1;
            let ticket = self.serial;
            self.asked.insert(ticket, (agent, trajectory, turn));
            self.feed(Input::RouteRequested {
                ticket,
                incarnation: agent,
                trajectory,
            });
        }
    }

    pub(super) fn routed(&mut self, ticket: u64, rollout: Incarnation) {
        let r = self.procs.get_mut(&rollout).unwrap();
        let (version, id) = (r.version.expect("I-4: routed to unverified weights"), r.id);
        self.routed_at.push((self.now, id));
        let Some((agent, trajectory, turn)) = self.asked.remove(&ticket) else {
            return;
        };
        let newest = trajectory.batch - 1;
        match self.config.mode {
            Mode::Sync => assert_eq!(version.0, newest, "sync: only the step before's weights"),
            _ => assert!(version.0 + self.config.max_staleness >= newest, "too stale"),
        }
        r.requests += 1;
        if r.alive && !r.stopped && r.phase != Phase::Generating {
            r.phase = Phase::Generating;
            let input = Input::PhaseChanged {
                incarnation: rollout,
                phase: Phase::Generating,
                step: Step(0),
            };
            self.after(ms(1), Happening::Feed(input));
        }
        self.procs
            .get_mut(&agent)
            .unwrap()
            .waiting
            .remove(&trajectory);
        let takes = self.turn_takes;
        let ends = Happening::TurnEnds {
            agent,
            trajectory,
            turn,
            rollout,
            ticket,
        };
        self.after(takes, ends);
    }

    pub(super) fn turn_ends(
        &mut self,
        agent: Incarnation,
        trajectory: TrajectoryId,
        turn: u32,
        rollout: Incarnation,
        ticket: u64,
    ) {
        let again = || Happening::TurnEnds {
            agent,
            trajectory,
            turn,
            rollout,
            ticket,
        };
        let holds = self.procs[&agent].alive && self.procs[&agent].held.contains(&trajectory);
        let r = self.procs.get_mut(&rollout).unwrap();
        if holds && r.alive && r.stopped {
            return self.after(ms(100), again());
        }
        if holds && (self.procs[&agent].stopped || !self.daemon_up) {
            return self.after(ms(100), again());
        }
        let r = self.procs.get_mut(&rollout).unwrap();
        r.requests = r.requests.saturating_sub(1);
        let broken = !r.alive;
        if r.requests == 0 && !broken {
            r.phase = Phase::Idle;
            let (phase, step) = (Phase::Idle, Step(0));
            self.feed(Input::PhaseChanged {
                incarnation: rollout,
                phase,
                step,
            });
        }
        if !holds {
            return;
        }
        self.feed(Input::RouteReleased { ticket });
        if broken {
            self.after(ms(20), Happening::Turn(agent, trajectory, turn));
        } else if turn > 1 {
            self.after(
                self.tool_takes,
                Happening::Turn(agent, trajectory, turn - 1),
            );
        } else if self.daemon_up && self.core.holds_lease(agent, trajectory) {
            // The store's door: a void lease is refused.
            self.procs.get_mut(&agent).unwrap().held.remove(&trajectory);
            self.stored.insert(trajectory);
            let oldest_version = WeightVersion(0);
            let (incarnation, reward) = (agent, 0.5);
            self.feed(Input::TrajectoryFinished {
                incarnation,
                trajectory,
                reward,
                oldest_version,
            });
        } else if self.daemon_up {
            self.procs.get_mut(&agent).unwrap().held.remove(&trajectory);
        } else {
            self.after(ms(100), Happening::Turn(agent, trajectory, 1));
        }
    }

    /// Taken by the daemon from the system, so a stopped process is sampled too.
    pub(super) fn samples(&mut self) {
        let lives: Vec<_> = self
            .procs
            .iter()
            .filter(|(_, p)| p.alive)
            .map(|(l, _)| *l)
            .collect();
        for incarnation in lives {
            let whole = self.gang_works(self.procs[&incarnation].generation);
            let Some(p) = self.procs.get_mut(&incarnation) else {
                continue;
            };
            if !p.stopped {
                let computes = p.phase.is_trainer_compute() && whole;
                p.busy += if computes { ms(120) } else { ms(1) };
                p.tokens += u64::from(p.requests);
            }
            let (busy, tokens_total, running) = (p.busy, p.tokens, p.requests);
            if p.id.role == Role::Trainer || p.linked {
                let sample = Sample {
                    busy,
                    tokens_total,
                    running,
                    rss_bytes: 1 << 20,
                    ..Sample::default()
                };
                self.feed(Input::Sampled {
                    incarnation,
                    sample,
                });
            }
        }
        self.after(ms(250), Happening::Samples);
    }
}
