//! Messages that come far too late: what an earlier life of a place, or an earlier gang, once said.
use super::{Happening, World};
use robust_shared::core::{
    CallFault, Exit, GangEvent, Hello, Input, PullFailure, ReturnedBy, RoleEvent, Sample,
    StepMetrics,
};
use robust_shared::ids::{
    Generation, Incarnation, InstanceId, Role, Step, TrajectoryId, WeightVersion,
};
use robust_shared::phase::Phase;
use std::time::Duration;

/// A second and a half: long enough to meet every stage of a step.
const TIMES: u32 = 25;
const APART: Duration = Duration::from_millis(60);

impl World {
    /// Everything that the life before the present one at a place may have said arrives again and
    /// again for a while.
    pub fn ghosts(&mut self, who: InstanceId) {
        for n in 0..TIMES {
            self.after(APART * n, Happening::Ghosts(who));
        }
    }

    pub(super) fn haunt(&mut self, who: InstanceId) {
        // One that was replaced may still be about to end: nobody says before that that it has.
        let ended = |old: &Incarnation| self.procs.get(old).is_none_or(|p| !p.alive);
        let Some(old) = self.before.get(&who).copied().filter(ended) else {
            return;
        };
        for input in self.of_old_life(old) {
            self.feed(input);
        }
        if who.role == Role::Trainer && self.gang.newest.0 > 1 {
            let generation = Generation(self.gang.newest.0 - 1);
            for input in self.of_old_gang(generation) {
                self.feed(input);
            }
        }
    }

    fn of_old_life(&self, incarnation: Incarnation) -> Vec<Input> {
        let version = self.published().unwrap_or_default();
        let trajectory = TrajectoryId {
            batch: self.committed() + 1,
            group: 0,
            member: 0,
        };
        let hello = Hello {
            version: Some(WeightVersion(version.0 + 1)),
            leases: vec![trajectory],
            ..Hello::default()
        };
        let sample = Sample {
            busy: Duration::from_secs(9999),
            tokens_total: 1 << 30,
            ..Sample::default()
        };
        let source = incarnation;
        let (step, pid) = (Step(self.committed()), 7);
        vec![
            Input::Role(incarnation, RoleEvent::Attached { hello }),
            Input::Role(
                incarnation,
                RoleEvent::PhaseChanged {
                    phase: Phase::Idle,
                    step,
                },
            ),
            Input::Role(incarnation, RoleEvent::Sampled { sample }),
            Input::Role(incarnation, RoleEvent::Spawned { pid }),
            Input::Role(incarnation, RoleEvent::Probed { ok: false }),
            Input::Role(
                incarnation,
                RoleEvent::Pulled {
                    version,
                    order: 1,
                    result: Ok(()),
                },
            ),
            Input::Role(
                incarnation,
                RoleEvent::Pulled {
                    version,
                    order: 1,
                    result: Err(PullFailure::Corrupt { source }),
                },
            ),
            Input::Role(
                incarnation,
                RoleEvent::TrajectoryReturned {
                    trajectory,
                    reason: "late".to_owned(),
                    by: ReturnedBy::Worker,
                    lease: 0,
                },
            ),
            Input::Role(incarnation, RoleEvent::Detached),
            Input::Role(
                incarnation,
                RoleEvent::SpawnFailed {
                    reason: "late".to_owned(),
                },
            ),
            Input::Role(
                incarnation,
                RoleEvent::Exited {
                    at: None,
                    exit: Exit::Gone,
                    detail: String::new(),
                },
            ),
        ]
    }

    fn of_old_gang(&self, generation: Generation) -> Vec<Input> {
        let (step, next) = (Step(self.committed()), Step(self.committed() + 1));
        let metrics = StepMetrics::default();
        let published = |version: u64| {
            Input::Gang(
                generation,
                GangEvent::Published {
                    version: WeightVersion(version),
                    bytes: 1,
                    digest: String::new(),
                },
            )
        };
        vec![
            Input::Gang(generation, GangEvent::Restored { step }),
            published(step.0),
            published(next.0),
            Input::Gang(
                generation,
                GangEvent::StepDone {
                    step: next,
                    metrics,
                },
            ),
            Input::Gang(
                generation,
                GangEvent::StepFailed {
                    step: next,
                    rank: None,
                    fault: CallFault::Exception,
                    reason: "late".to_owned(),
                },
            ),
        ]
    }
}
