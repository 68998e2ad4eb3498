//! The gang alone: there is no controller, and nobody runs.
use super::*;
use crate::core::config::Mode;
use crate::core::effects::{Cx, Effects};
use crate::core::output::{Outcome, Output};
use crate::core::roster::instances::Instances;
use crate::core::weights::Weights;
use crate::core::work::trajectories::{Place, Trajectories};
use crate::ids::TrajectoryId;

/// A gang of two ranks, and whatever it looks at.
struct Alone {
    gang: Gang,
    config: CoreConfig,
    committed: Step,
    last: Step,
    batches: Trajectories,
    weights: Weights,
    instances: Instances,
    out: Effects,
}

impl Alone {
    fn new(config: CoreConfig) -> Self {
        let mut batches = Trajectories::default();
        batches.open(1, config.prompts, config.responses);
        let mut gang = Gang::default();
        gang.form(&config, Generation(1), false);
        Self {
            gang,
            committed: Step(0),
            last: Step(u64::MAX),
            batches,
            weights: Weights::default(),
            instances: Instances::new(&config),
            out: Effects::default(),
            config,
        }
    }

    fn small() -> Self {
        Self::new(CoreConfig {
            mode: Mode::SemiSync,
            steps: 2,
            prompts: 2,
            responses: 1,
            ..CoreConfig::default()
        })
    }

    fn with<R>(&mut self, f: impl FnOnce(&mut Gang, &mut Cx<'_>, &Around<'_>) -> R) -> R {
        let around = Around {
            committed: self.committed,
            last: self.last,
            batches: &self.batches,
            weights: &self.weights,
            instances: &self.instances,
        };
        let mut cx = Cx {
            now: Time(7),
            config: &self.config,
            out: &mut self.out,
        };
        f(&mut self.gang, &mut cx, &around)
    }

    fn advance(&mut self) -> Option<Due> {
        self.with(|gang, cx, around| gang.advance(cx.config, around))
    }

    /// The call that is issued for its stage, in words.
    fn call(&mut self) -> String {
        self.with(|gang, cx, around| gang.call(cx, around));
        match self.out.pop() {
            None => "none".to_owned(),
            Some(Output::Restore { step, .. }) => format!("restore {step}"),
            Some(Output::Publish { version, .. }) => format!("publish {version}"),
            Some(Output::Prepare { trajectories, .. }) => {
                format!("prepare {}", trajectories.len())
            }
            Some(Output::TrainStep {
                step, trajectories, ..
            }) => format!("train {step} on {}", trajectories.len()),
            Some(other) => format!("{other:?}"),
        }
    }

    fn finish(&mut self, group: u32) {
        let id = TrajectoryId {
            batch: self.committed.next().0,
            group,
            member: 0,
        };
        let oldest = WeightVersion(0);
        let reward = 0.0;
        self.batches.set(id, Place::Finished { reward, oldest });
    }

    /// Restored and published, with nothing to train on yet.
    fn idle(mut self) -> Self {
        self.advance();
        assert!(self.gang.restored(Step(0)));
        self.advance();
        assert!(self.gang.published(WeightVersion(0)));
        self
    }
}

const CALL: Option<Due> = Some(Due::Call { begins_step: false });
const STEP: Option<Due> = Some(Due::Call { begins_step: true });

#[test]
fn it_restores_publishes_prepares_trains_and_says_which_call_begins_a_step() {
    let mut alone = Alone::small();
    assert_eq!((alone.advance(), alone.call()), (CALL, "restore 0".into()));
    assert!(alone.gang.restored(Step(0)));
    assert_eq!((alone.advance(), alone.call()), (CALL, "publish v0".into()));
    assert!(alone.gang.published(WeightVersion(0)));
    assert_eq!(alone.advance(), None, "nothing is finished");
    alone.finish(0);
    assert_eq!((alone.advance(), alone.call()), (STEP, "prepare 1".into()));
    alone.finish(1);
    assert_eq!(alone.advance(), None, "a call is under way");
    alone.gang.note_prepared(Step(1));
    let trains = "train 1 on 2".to_owned();
    assert_eq!((alone.advance(), alone.call()), (CALL, trains));
}

#[test]
fn a_call_that_is_repeated_asks_for_the_same_and_is_over_with_its_first_answer() {
    let mut alone = Alone::small().idle();
    (0..2).for_each(|group| alone.finish(group));
    assert_eq!(alone.advance(), STEP);
    assert_eq!(alone.call(), alone.call());
    let config = alone.config.clone();
    assert!(alone.gang.is_training(&config, Step(1)));
    assert!(alone.with(|gang, cx, around| gang.step_done(cx, around, Step(1))));
    assert!(!alone.gang.is_training(&config, Step(1)));
}

#[test]
fn an_answer_to_no_call_or_to_another_one_changes_nothing() {
    let mut alone = Alone::small();
    assert!(!alone.gang.restored(Step(0)), "it is still forming");
    alone.advance();
    let before = alone.gang.clone();
    assert!(!alone.gang.restored(Step(1)));
    assert!(!alone.gang.published(WeightVersion(0)));
    alone.gang.note_prepared(Step(1));
    assert_eq!(alone.gang, before);
}

#[test]
fn no_step_is_begun_beyond_the_last_and_none_after_all_of_them() {
    let mut alone = Alone::small().idle();
    (0..2).for_each(|group| alone.finish(group));
    alone.last = Step(0);
    assert_eq!(alone.advance(), None);
    alone.committed = Step(2);
    assert_eq!(
        alone.advance(),
        CALL,
        "what is committed is published first"
    );
    assert!(alone.gang.published(WeightVersion(2)));
    let over = Some(Due::Over(Outcome::Completed));
    assert_eq!(alone.advance(), over);
}

#[test]
fn a_fault_counts_against_the_start_before_it_is_restored_and_against_the_step_after() {
    let (mut alone, window) = (Alone::small(), std::time::Duration::from_secs(9));
    let counts = |gang: &Gang| (gang.failed_restarts(), gang.faults_in_step());
    let kind = crate::core::FaultKind::Exit;
    assert_eq!(alone.gang.count_fault(kind, window, Time(1)), 1);
    assert_eq!(counts(&alone.gang), (1, 0));
    let mut alone = Alone {
        gang: alone.gang,
        ..Alone::small()
    }
    .idle();
    assert_eq!(alone.gang.count_fault(kind, window, Time(2)), 2);
    assert_eq!(counts(&alone.gang), (0, 1), "it was restored between");
    alone.gang.succeeded(&alone.config);
    assert_eq!(alone.gang.count_fault(kind, window, Time(3)), 1);
}

#[test]
fn what_a_generation_prepared_is_lost_with_it_and_with_the_daemon() {
    for lose in [
        |gang: &mut Gang, config: &CoreConfig| gang.form(config, Generation(2), true),
        |gang: &mut Gang, _: &CoreConfig| gang.rejoin(),
    ] {
        let mut alone = Alone::small().idle();
        alone.finish(0);
        assert_eq!(alone.advance(), STEP);
        alone.gang.note_prepared(Step(1));
        assert!(alone.gang.has_begun_step());
        lose(&mut alone.gang, &alone.config);
        assert!(!alone.gang.has_begun_step());
        assert_eq!(alone.gang.serves(), None, "nobody can read it");
    }
}
