//! The part of the driver: outputs become deeds, and each deed is checked.
use super::*;

impl World {
    pub(super) fn act(&mut self, output: Output) {
        match output {
            Output::Spawn {
                id,
                incarnation,
                generation,
            } => self.spawn(id, incarnation, generation),
            Output::Kill {
                id, incarnation, ..
            } => {
                self.check_kill(id, incarnation);
                self.die(incarnation);
            }
            Output::Strike { incarnation, fault } => match fault {
                Fault::Kill => self.die(incarnation),
                Fault::Hang => self.procs.get_mut(&incarnation).unwrap().stopped = true,
            },
            Output::Record(record) => self.persist(record),
            Output::Restore {
                generation, step, ..
            } => {
                self.after(ms(50), Happening::Restored(generation, step));
            }
            Output::TrainStep {
                generation,
                step,
                trajectories,
                ..
            } => {
                self.train(generation, step, trajectories);
            }
            Output::Publish {
                generation,
                version,
                ..
            } => {
                assert!(
                    self.committed.len() as u64 >= version.0,
                    "I-5: {version} not committed"
                );
                self.after(ms(20), Happening::Published(generation, version));
            }
            Output::AssignPull {
                puller,
                version,
                sources,
                ..
            } => {
                self.pull(puller, version, sources);
            }
            Output::Dispatch { agent, trajectory } => self.dispatched(agent, trajectory),
            Output::Revoke { agent, trajectory } => {
                let p = self.procs.get_mut(&agent).unwrap();
                p.held.remove(&trajectory);
                p.waiting.remove(&trajectory);
            }
            Output::Route { ticket, rollout } => self.routed(ticket, rollout),
            Output::Probe { incarnation } => self.after(ms(100), Happening::Probed(incarnation)),
            Output::CollectEvidence { incarnation, .. } => {
                let text = "wchan do_signal_stop".to_owned();
                let input = Input::Evidence { incarnation, text };
                self.after(ms(40), Happening::Feed(input));
            }
            Output::Finish { outcome } => self.outcome = Some(outcome),
            Output::InjectReply { .. } | Output::Event(_) => {}
        }
    }

    pub(super) fn persist(&mut self, record: Record) {
        self.persisted = Some(serde_json::to_string(self.core.state()).unwrap());
        if let Record::Committed {
            step, trajectories, ..
        } = record
        {
            assert_eq!(
                step.0,
                self.committed.len() as u64 + 1,
                "I-3: steps in order"
            );
            self.committed.push(step);
            let all = self.config.prompts * self.config.responses;
            assert_eq!(trajectories.len(), all as usize);
            for t in trajectories {
                assert_eq!(t.batch, step.0);
                assert!(self.stored.contains(&t), "I-3: {t} was never finished");
                assert!(self.consumed.insert(t), "I-3: {t} consumed twice");
            }
        }
    }

    pub(super) fn check_kill(&self, id: InstanceId, incarnation: Incarnation) {
        let Some(p) = self.procs.get(&incarnation) else {
            return;
        };
        let sick = |p: &Proc| !p.alive || p.stopped || !p.linked || p.mute;
        let gang = self.procs.values().filter(|q| q.generation == p.generation);
        let mut gang = gang.filter(|q| q.id.role == Role::Trainer);
        let task = self
            .core
            .s
            .recoveries
            .iter()
            .any(|r| r.scope == Scope::Task);
        let justified = sick(p) || task || (id.role == Role::Trainer && gang.any(sick));
        assert!(justified, "I-8: {id} {incarnation} is killed in health");
    }

    pub(super) fn spawn(
        &mut self,
        id: InstanceId,
        incarnation: Incarnation,
        generation: Generation,
    ) {
        let fresh = Proc {
            id,
            generation,
            alive: true,
            stopped: false,
            linked: false,
            version: None,
            step: None,
            phase: Phase::Init,
            held: BTreeSet::new(),
            waiting: BTreeSet::new(),
            requests: 0,
            tokens: 0,
            busy: Duration::ZERO,
            mute: false,
        };
        assert!(
            self.procs.insert(incarnation, fresh).is_none(),
            "{incarnation} used twice"
        );
        let pid = u32::try_from(incarnation.0).unwrap();
        self.after(ms(10), Happening::Feed(Input::Spawned { incarnation, pid }));
        let slow = ms(300 + self.random(100));
        self.after(slow, Happening::Link(incarnation));
    }

    pub(super) fn die(&mut self, incarnation: Incarnation) {
        let Some(p) = self.procs.get_mut(&incarnation) else {
            return;
        };
        if std::mem::replace(&mut p.alive, false) {
            let exit = Exit::Signal(9);
            let input = Input::Exited {
                incarnation,
                exit,
                detail: String::new(),
            };
            self.after(ms(20), Happening::Feed(input));
        }
    }

    pub(super) fn restart_daemon(&mut self) {
        self.daemon_up = true;
        self.daemon_life += 1;
        self.core = match &self.persisted {
            Some(json) => Core::restore(self.config.clone(), serde_json::from_str(json).unwrap()),
            None => Core::new(self.config.clone()),
        };
        let lives: Vec<_> = self
            .core
            .s
            .instances
            .iter()
            .map(|i| (i.incarnation, i.life))
            .collect();
        let current: BTreeSet<_> = lives.iter().map(|(life, _)| *life).collect();
        for (incarnation, p) in &mut self.procs {
            // Fenced: refused by the daemon, it ends by itself.
            p.alive &= current.contains(incarnation);
        }
        for (incarnation, life) in lives {
            if matches!(life, Life::None | Life::Waiting { .. }) {
                continue;
            }
            if self.procs.get(&incarnation).is_some_and(|p| p.alive) {
                self.feed(Input::Spawned {
                    incarnation,
                    pid: 1,
                });
                self.after(ms(60), Happening::Link(incarnation));
            } else {
                let (exit, detail) = (Exit::Gone, String::new());
                self.feed(Input::Exited {
                    incarnation,
                    exit,
                    detail,
                });
            }
        }
        for trajectory in self.stored.clone() {
            let (incarnation, reward) = (Incarnation(0), 0.5);
            let oldest_version = WeightVersion(0);
            self.feed(Input::TrajectoryFinished {
                incarnation,
                trajectory,
                reward,
                oldest_version,
            });
        }
        self.feed(Input::Start);
    }
}
