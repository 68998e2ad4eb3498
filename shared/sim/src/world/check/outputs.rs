//! What the controller wants done, held against what really is.
use super::super::World;
use super::super::process::PARTS;
use robust_shared::core::{Mode, Output};
use robust_shared::ids::{
    Generation, Incarnation, InstanceId, Role, Step, TrajectoryId, WeightVersion,
};

impl World {
    /// Looks at an output that is about to be acted on.
    pub(in super::super) fn check_output(&mut self, output: &Output) {
        self.check_slots(output);
        match output {
            Output::Spawn {
                id,
                incarnation,
                generation,
                slot,
                ..
            } => {
                self.check_spawn(*id, *incarnation, *generation);
                self.check_slot(*id, slot);
            }
            // Its answer to this is what it is judged by.
            Output::Pause { engine } => drop(self.checker.suspects.remove(engine)),
            Output::Retire { incarnation } => self.check_retire(*incarnation),
            Output::Fence { node, incarnation } => self.check_fence(*node, *incarnation),
            Output::Kill {
                id, incarnation, ..
            } => self.check_kill(*id, *incarnation),
            Output::Restore {
                generation,
                ranks,
                step,
            } => {
                self.check_gang(*generation, ranks);
                let committed = self.checker.committed;
                self.must(*step == committed, "I-5", || {
                    format!("step {step} is restored, committed is {committed}")
                });
            }
            Output::TrainStep {
                generation,
                ranks,
                step,
                trajectories,
            } => {
                self.check_gang(*generation, ranks);
                self.check_begun(*step);
                self.check_training(*step, trajectories);
                self.checker.verdicts.trains(*generation);
            }
            Output::Prepare {
                generation,
                ranks,
                step,
                trajectories,
            } => {
                self.check_gang(*generation, ranks);
                self.check_begun(*step);
                let committed = self.checker.committed;
                let finished = trajectories
                    .iter()
                    .all(|t| t.batch == step.0 && self.stored.contains(t));
                self.must(*step == committed.next() && finished, "I-3", || {
                    format!("step {step} is prepared with {trajectories:?}")
                });
            }
            Output::Publish {
                generation,
                ranks,
                version,
            } => {
                self.check_gang(*generation, ranks);
                let committed = self.checker.committed;
                self.must(version.0 <= committed.0, "I-5", || {
                    format!("{version} is to be published, committed is {committed}")
                });
                self.check_buffer(*generation, *version);
            }
            Output::AssignPull {
                puller,
                version,
                order,
                sources,
                from_trainer,
            } => {
                self.check_pull(*puller, (*version, *order), sources);
                if *from_trainer {
                    self.check_copies(*version);
                }
            }
            Output::Dispatch {
                agent, trajectory, ..
            } => {
                self.checker.dispatched(*trajectory, self.config.responses);
                // One that lost its command with its link is told again.
                if self.checker.handed.insert(*trajectory, *agent) != Some(*agent) {
                    self.check_begun(Step(trajectory.batch));
                }
                self.check_dispatch(*agent, *trajectory);
            }
            Output::Route { ticket, rollout } => self.check_route(*ticket, *rollout),
            Output::Probe {
                incarnation,
                suspect: true,
                ..
            } => {
                self.checker.suspects.insert(*incarnation);
            }
            _ => {}
        }
    }

    pub(in super::super) fn must(
        &mut self,
        holds: bool,
        invariant: &str,
        text: impl FnOnce() -> String,
    ) {
        let now = self.now;
        self.checker.hold(now, holds, invariant, text);
    }

    fn check_spawn(&mut self, id: InstanceId, incarnation: Incarnation, generation: Generation) {
        let (highest, newest) = (self.checker.highest, self.gang.newest);
        self.must(incarnation > highest, "I-1", || {
            format!("{id} is started as {incarnation}, {highest} was used already")
        });
        self.checker.highest = highest.max(incarnation);
        if id.role == Role::Trainer {
            self.check_generation(generation);
        }
        self.must(
            id.role != Role::Trainer || generation >= newest,
            "I-1",
            || format!("{id} is started for {generation}, the newest is {newest}"),
        );
    }

    fn check_gang(&mut self, generation: Generation, ranks: &[Incarnation]) {
        let newest = self.gang.newest;
        self.must(generation == newest, "I-1", || {
            format!("{generation} is called, the newest is {newest}")
        });
        let count = u32::try_from(ranks.len()).unwrap_or(0);
        let promised = self.office.promises.counts.get(&Role::Trainer).copied();
        let before = self.checker.ranks;
        let known =
            count == before || promised == Some(count) || self.checker.may_have.contains(&count);
        self.must(known, "ranks", || {
            format!("{count} ranks are called, there were {before}, {promised:?} are wanted")
        });
        self.checker.ranks = count;
        self.check_alike(ranks);
        let lives: Vec<_> = (0..count)
            .map(|index| self.life(super::super::id(Role::Trainer, index)))
            .collect();
        self.must(lives == ranks, "I-1", || {
            format!("{ranks:?} are called, the newest lives are {lives:?}")
        });
    }

    fn check_training(&mut self, step: Step, trajectories: &[TrajectoryId]) {
        let committed = self.checker.committed;
        self.must(step == committed.next(), "I-3", || {
            format!("step {step} is trained, committed is {committed}")
        });
        self.check_batch(step, trajectories);
        let ranks = self.checker.ranks.max(1) as usize;
        let aside = self.checker.poisoning.of_batch(step.0);
        let divides = aside > 0 || trajectories.len().is_multiple_of(ranks);
        self.must(divides, "shape", || {
            format!("{} samples for {ranks} ranks", trajectories.len())
        });
    }

    /// While the job is to pause, nothing of a later step is begun.
    fn check_begun(&mut self, step: Step) {
        let last = self.office.promises.pause;
        self.must(last.is_none_or(|last| step <= last), "pause", || {
            format!("step {step} is begun, the last before the pause is {last:?}")
        });
    }

    /// Nobody may still read the buffer that a version is written into.
    fn check_buffer(&mut self, generation: Generation, version: WeightVersion) {
        let rank = self
            .gang
            .ranks
            .get(&generation)
            .and_then(|ranks| ranks.first());
        let rank = rank.copied().unwrap_or_default();
        // One that was told to pull a newer version gives this one up, and the rank lets nobody read on from a
        // buffer that it writes into; one without its link was told nothing.
        let leaves = |life: &Incarnation, version: WeightVersion, linked: bool| {
            let told = self.pullers.get(life).map(|ordered| ordered.version);
            linked && told > Some(version)
        };
        let reader = self.procs.iter().find(|(life, p)| {
            p.works()
                && !p.over
                && self.in_touch(**life, rank)
                && p.pulling.as_ref().is_some_and(|t| {
                    // One that has every part of it only waits to change over.
                    t.from_trainer
                        && p.holds(t.version) != Some(PARTS)
                        && t.version < version
                        && !leaves(life, t.version, p.linked)
                        && t.version.0 % 2 == version.0 % 2
                        && self.gang.holds(generation, t.version)
                })
        });
        let reader = reader.map(|(life, _)| *life);
        self.must(reader.is_none(), "I-4", || {
            format!("{version} is written into the buffer that {reader:?} reads")
        });
    }

    fn check_dispatch(&mut self, agent: Incarnation, t: TrajectoryId) {
        let known = self.checker.finished.contains(&t) && self.stored.contains(&t);
        let again = known || t.batch <= self.checker.committed.0;
        self.must(!again, "I-2", || {
            format!("{t} is finished and handed out again")
        });
        let aside = self.checker.poisoning.is_set_aside(t);
        self.must(!aside, "poison", || {
            format!("{t} was set aside and is handed out again")
        });
        self.check_holder(agent, t);
    }

    /// A lease moves only from one that is not current any more, or was told so (I-2).
    pub(in super::super) fn check_holder(&mut self, agent: Incarnation, t: TrajectoryId) {
        let holder = self.daemon.holder_of(t).filter(|h| *h != agent);
        let holder = holder.filter(|h| self.core.is_current(*h).is_some());
        self.must(holder.is_none(), "I-2", || {
            format!("{t} is handed to {agent} while {holder:?} holds it")
        });
    }

    fn check_route(&mut self, ticket: u64, rollout: Incarnation) {
        self.check_turn(rollout);
        let suspect = self.checker.suspects.contains(&rollout);
        self.must(!suspect, "routing", || {
            format!("a request goes to the suspect {rollout}")
        });
        let has = self.procs.get(&rollout).and_then(|p| p.version);
        let Some(d) = self.asked.get(&ticket).copied() else {
            return;
        };
        let newest = d.trajectory.batch.saturating_sub(1);
        let fit = has.is_some_and(|v| match self.config.mode {
            Mode::Sync => v.0 == newest,
            Mode::SemiSync | Mode::Async => v.0 + self.config.route_staleness() >= newest,
        });
        let known = self.procs.contains_key(&rollout);
        self.must(fit || !known, "I-4", || {
            format!("{} goes to {rollout}, which verified {has:?}", d.trajectory)
        });
    }
}
