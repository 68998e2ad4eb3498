//! What an instant counts in the ETTR ledger, as a function of what is seen then.
//!
//! | the task | the trainer | engines | counts | cause |
//! | --- | --- | --- | --- | --- |
//! | restarts | - | - | 0 | task restart |
//! | | recovers | generate | (R + hybrids that generate) / (R + T) | trainer recovers |
//! | | recovers | none generates | 0 | recovery |
//! | nothing was ever published | | - | 0 | initialisation |
//! | | computes | generate | 1 | both |
//! | | computes | none generates | 1 | training |
//! | | - | generate | 1 | generation |
//! | | slots change hands | none generates | 0 | context switch |
//! | | is paused | none generates | 0 | paused |
//! | | - | none generates | 0 | blocked |
//!
//! R and T are the slots of rollouts and trainer: of a program that has several, as an engine of four devices or
//! a rank that starts a process a device, each counts. A hybrid engine that generates while the gang
//! recovers keeps its rank's slots at work. Everybody restarts under policy `task`, so
//! there the second and third row never occur.
use super::Core;
use super::config::CoreConfig;
use super::state::State;
use crate::core::Incident;
use crate::core::gang::Stage;
use crate::core::recover::Scope;
use crate::ettr::{Cause, Seen, Slice};
use crate::ids::Role;
use crate::time::Time;

/// What is seen at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moment {
    /// T: slots of the trainer.
    pub trainer_slots: u32,
    /// R: slots of rollouts.
    pub rollout_slots: u32,
    /// The whole task restarts.
    pub task_restarts: bool,
    /// The gang restarts.
    pub trainer_recovers: bool,
    /// There were weights to generate with.
    pub published: bool,
    /// A step is under way and a rank computes.
    pub training: bool,
    /// A rollout generates.
    pub rollout_generates: bool,
    /// Slots of hybrid engines that generate.
    pub hybrid_slots_generate: u32,
    /// The trainer's slots change hands.
    pub switches: bool,
    /// An operator paused the job.
    pub paused: bool,
}

impl Moment {
    /// What it counts, and why.
    pub fn worth(&self) -> (f64, Cause) {
        let generating = self.rollout_generates || self.hybrid_slots_generate > 0;
        if self.task_restarts {
            return (0.0, Cause::TaskRestart);
        }
        if self.trainer_recovers {
            return match generating {
                true => (self.share_at_work(), Cause::TrainerRecovers),
                false => (0.0, Cause::Recovery),
            };
        }
        if !self.published {
            return (0.0, Cause::Initialisation);
        }
        match (self.training, generating) {
            (true, true) => (1.0, Cause::Both),
            (true, false) => (1.0, Cause::Training),
            (false, true) => (1.0, Cause::Generation),
            (false, false) if self.paused => (0.0, Cause::Paused),
            (false, false) if self.switches => (0.0, Cause::ContextSwitch),
            (false, false) => (0.0, Cause::Blocked),
        }
    }

    fn share_at_work(&self) -> f64 {
        let (t, r) = (f64::from(self.trainer_slots), f64::from(self.rollout_slots));
        let at_work = r + f64::from(self.hybrid_slots_generate.min(self.trainer_slots));
        if t + r > 0.0 { at_work / (t + r) } else { 0.0 }
    }
}

impl Core {
    /// As the index was last brought up to date, which must be now.
    pub(super) fn moment(&self) -> Moment {
        let begun = self.s.gang.is_in_step();
        let recovers = |scope| self.s.recover.recoveries().iter().any(|r| r.scope == scope);
        let works = |role| self.s.index_now().counts(role).works;
        Moment {
            trainer_slots: self.s.slots_of(&self.config, Role::Trainer),
            rollout_slots: self.s.slots_of(&self.config, Role::Rollout),
            task_restarts: recovers(Scope::Task),
            trainer_recovers: recovers(Scope::Gang),
            published: self.s.has_begun(&self.config),
            training: begun && works(Role::Trainer) > 0,
            rollout_generates: works(Role::Rollout) > 0,
            hybrid_slots_generate: works(Role::Hybrid).saturating_mul(self.config.rank_slots),
            switches: self.s.gang.context().switches(),
            paused: self.s.orders.is_paused(),
        }
    }

    /// Tells the ledger in which slice this instant is, after which one, and of a recovery that begins since when nobody
    /// knew of it.
    pub(super) fn spend(&mut self, cause: Cause, before: Option<Slice>) {
        let slice = Slice::of(cause, self.seen());
        let recovers = before.is_some_and(Slice::is_recovery);
        if slice.is_recovery()
            && !recovers
            && let Some(struck) = self.struck()
        {
            self.s.ledger.found(struck, self.now);
        }
        self.s.ledger.spend(self.now, slice);
    }

    fn seen(&self) -> Seen {
        let pulls = |role| self.s.index_now().counts(role).pulls > 0;
        let attached = |i: &Incident| i.attached.is_some();
        Seen {
            idle: self.s.gang.stage() == Stage::Ready,
            pulls: pulls(Role::Rollout) || pulls(Role::Hybrid),
            paused: self.s.orders.is_paused(),
            attached: self.stops_trainer().all(attached),
        }
    }

    /// Incidents whose recovery the trainer waits for.
    fn stops_trainer(&self) -> impl Iterator<Item = &Incident> {
        let under_way = self.s.recover.recoveries().iter();
        let whole = under_way.filter(|r| r.scope != Scope::Instance);
        whole.filter_map(move |r| self.s.recover.incidents().get(r.incident))
    }

    /// When the first of their faults struck.
    fn struck(&self) -> Option<Time> {
        self.stops_trainer().map(|i| i.struck).min()
    }
}

impl State {
    /// Whether there were weights to generate with, or a trainer that publishes none was at work.
    pub(super) fn has_begun(&self, config: &CoreConfig) -> bool {
        let silent = config.own_loop.is_some_and(|own| !own.publishes);
        let gang = &self.gang;
        let works = matches!(gang.stage(), Stage::Training(_)) || gang.generation().0 > 1;
        self.weights.published().is_some() || silent && works
    }

    /// All slots that instances of a role have.
    fn slots_of(&self, config: &CoreConfig, role: Role) -> u32 {
        let each = match role {
            Role::Rollout => config.rollout_slots,
            _ => config.rank_slots,
        };
        self.roster.instances().count(role).saturating_mul(each)
    }

    /// T/(R+T): the trainer's part of the job's slots.
    pub(super) fn trainer_share(&self, config: &CoreConfig) -> f64 {
        let slots = |role| f64::from(self.slots_of(config, role));
        let (t, r) = (slots(Role::Trainer), slots(Role::Rollout));
        if t + r > 0.0 { t / (t + r) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNS: Moment = Moment {
        trainer_slots: 2,
        rollout_slots: 3,
        task_restarts: false,
        trainer_recovers: false,
        published: true,
        training: false,
        rollout_generates: false,
        hybrid_slots_generate: 0,
        switches: false,
        paused: false,
    };

    #[test]
    fn in_sync_mode_generation_and_training_count_and_what_lies_between_does_not() {
        let rolls = Moment {
            rollout_generates: true,
            ..RUNS
        };
        assert_eq!(rolls.worth(), (1.0, Cause::Generation));
        let trains = Moment {
            training: true,
            ..RUNS
        };
        assert_eq!(trains.worth(), (1.0, Cause::Training));
        assert_eq!(RUNS.worth(), (0.0, Cause::Blocked));
        let switches = Moment {
            switches: true,
            ..RUNS
        };
        assert_eq!(switches.worth(), (0.0, Cause::ContextSwitch));
        let hybrids_only = Moment {
            hybrid_slots_generate: 2,
            ..RUNS
        };
        assert_eq!(hybrids_only.worth(), (1.0, Cause::Generation));
    }

    #[test]
    fn in_semi_sync_mode_a_context_switch_counts_while_rollouts_generate() {
        let switches = Moment {
            switches: true,
            rollout_generates: true,
            ..RUNS
        };
        assert_eq!(switches.worth(), (1.0, Cause::Generation));
        let rest = Moment {
            training: true,
            rollout_generates: true,
            ..RUNS
        };
        assert_eq!(rest.worth(), (1.0, Cause::Both));
    }

    #[test]
    fn while_the_trainer_recovers_the_slots_at_work_count() {
        let recovers = Moment {
            trainer_recovers: true,
            ..RUNS
        };
        assert_eq!(recovers.worth(), (0.0, Cause::Recovery));
        let rollouts = Moment {
            rollout_generates: true,
            ..recovers
        };
        assert_eq!(rollouts.worth(), (0.6, Cause::TrainerRecovers));
        let hybrids = Moment {
            hybrid_slots_generate: 1,
            ..rollouts
        };
        assert_eq!(hybrids.worth(), (0.8, Cause::TrainerRecovers));
    }

    #[test]
    fn a_task_restart_counts_nothing_in_every_mode_whoever_still_works() {
        let all = Moment {
            task_restarts: true,
            trainer_recovers: true,
            training: true,
            rollout_generates: true,
            hybrid_slots_generate: 2,
            switches: true,
            ..RUNS
        };
        assert_eq!(all.worth(), (0.0, Cause::TaskRestart));
    }

    #[test]
    fn a_pause_counts_nothing_once_the_last_turn_is_generated() {
        let paused = Moment {
            paused: true,
            ..RUNS
        };
        assert_eq!(paused.worth(), (0.0, Cause::Paused));
        let last_turn = Moment {
            rollout_generates: true,
            ..paused
        };
        assert_eq!(last_turn.worth(), (1.0, Cause::Generation));
    }

    #[test]
    fn before_the_first_version_everything_is_initialisation() {
        let starts = Moment {
            published: false,
            switches: true,
            ..RUNS
        };
        assert_eq!(starts.worth(), (0.0, Cause::Initialisation));
    }
}
