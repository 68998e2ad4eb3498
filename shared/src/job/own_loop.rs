//! Jobs whose trainer runs a loop of its own (`trainer.command.level` below `data`): what they do
//! without, and what they must not say.
use super::error::Problem;
use super::validate::{bad, time};
use super::{Agent, BatchShape, Data, EngineWeights, Job, Kept, Level, Mode, TrainerCommand};
use crate::core::OwnLoop;
use crate::ids::Role;

/// Steps of a job that says no number.
const STEPS: u64 = 100;

impl Job {
    /// The trainer's loop, where it is its own.
    pub fn own_loop(&self) -> Option<OwnLoop> {
        let command = self.trainer.command.as_ref()?;
        let level = command.level;
        (level < Level::Data).then(|| OwnLoop {
            commits: level >= Level::Weights,
            publishes: level >= Level::Weights && self.pulls_weights(),
            keeps_state: level >= Level::State && command.snapshot != Kept::Own,
        })
    }

    /// Training steps of the whole job; none: as many as the trainer's own loop takes.
    pub fn steps(&self) -> Option<u64> {
        let default = self.own_loop().is_none().then_some(STEPS);
        self.job.steps.or(default)
    }

    /// Whether it has a model that the job knows of: one that is named, or that a warm-up makes of its data.
    pub fn has_model(&self) -> bool {
        self.model.path.is_some() || self.own_loop().is_none()
    }

    /// Whether engines take the trainer's versions up.
    fn pulls_weights(&self) -> bool {
        let command = self.rollout.command.as_ref();
        let own = command
            .is_some_and(|c| matches!(c.weights, EngineWeights::Theirs | EngineWeights::None));
        self.rollout.replicas > 0 && !own
    }

    /// There are no agents, and rollouts only where the file speaks of them.
    pub(super) fn fill_own_loop(&mut self, has_rollouts: bool) {
        if self.agent == Agent::default() {
            self.agent.workers = 0;
        }
        if !has_rollouts {
            self.rollout.replicas = 0;
        }
    }

    pub(super) fn may_be_without(&self, role: Role) -> bool {
        self.own_loop().is_some() && matches!(role, Role::Rollout | Role::Agent)
    }

    pub(super) fn check_data(&self) -> Result<(), Problem> {
        let named = self.data != Data::default();
        match (self.own_loop(), named) {
            (None, false) => Err(Problem::MissingKey {
                key: "data".to_owned(),
            }),
            (Some(_), true) => Err(self.not_of_an_own_loop("data", "its data is its own")),
            _ => Ok(()),
        }
    }

    pub(super) fn check_level(&self, c: &TrainerCommand) -> Result<(), Problem> {
        time("trainer.command.watch.silent_s", c.watch.silent_s)?;
        if c.snapshot == Kept::Own && c.level != Level::State {
            let must = match c.level {
                Level::Data => {
                    "batches are consumed once only by a state that is kept with them; write \
                                \"slot\", or `level = \"state\"` for a loop of its own"
                }
                _ => "below level \"state\" nothing is kept for the program; leave it out",
            };
            return Err(bad("trainer.command.snapshot", "\"own\"", must));
        }
        if c.snapshot == Kept::Dcp && c.level < Level::State {
            let must = "below level \"state\" nothing is kept for the program; leave it out";
            return Err(bad("trainer.command.snapshot", "\"dcp\"", must));
        }
        if c.level == Level::Data {
            return Ok(());
        }
        if self.agent.workers > 0 {
            return Err(self.not_of_an_own_loop("agent", "no conversation is the job's"));
        }
        if self.batch != BatchShape::default() {
            return Err(self.not_of_an_own_loop("batch", "no batch is the job's"));
        }
        if self.job.mode != Mode::Async {
            let must = "a trainer whose loop is its own generates when it likes; leave it out";
            let mode = format!("{:?}", self.job.mode.name());
            return Err(bad("job.mode", mode, must));
        }
        if self.model.path.is_none() && self.pulls_weights() {
            // The engines begin with it.
            return Err(Problem::MissingKey {
                key: "model.path".to_owned(),
            });
        }
        if self.rollout.replicas > 0 && !self.pulls_weights() {
            let weights = self
                .rollout
                .command
                .as_ref()
                .map_or("", |c| c.weights.name());
            let must = "an engine of a job serves the versions that the job's trainer publishes; write \"disk\" or \
                        \"plugin\", or start engines that get their weights otherwise as a [service.NAME]";
            let found = format!("{weights:?}");
            return Err(bad("rollout.command.weights", found, must));
        }
        if c.level < Level::Weights && self.pulls_weights() {
            let must = "the rollouts would wait for weights for ever, for below \"weights\" nothing is \
                        published; raise it, or start the engines as a [service.NAME]";
            return Err(bad(
                "trainer.command.level",
                format!("{:?}", c.level.name()),
                must,
            ));
        }
        Ok(())
    }

    fn not_of_an_own_loop(&self, section: &str, why: &str) -> Problem {
        let level = self.trainer.command.as_ref().map_or("", |c| c.level.name());
        let must = format!(
            "remove it: with `trainer.command.level = \"{level}\"` the trainer's loop is its own, and {why}"
        );
        bad(section, "set", must)
    }
}
