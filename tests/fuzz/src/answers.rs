//! What sound processes say when the controller wants something of them.

use robust_shared::core::{Exit, GangEvent, Hello, Input, Output, PullFailure, RoleEvent};
use robust_shared::ids::{Incarnation, TrajectoryId, WeightVersion};

use crate::driver::step_done;
use crate::known::Known;

/// The inputs that answer an output.
pub fn answers(output: &Output, known: &mut Known) -> Vec<Input> {
    let role = |life: &Incarnation, event: RoleEvent| Input::Role(*life, event);
    let ended = |life: &Incarnation, exit: Exit| {
        let (at, detail) = (None, String::new());
        vec![role(life, RoleEvent::Exited { at, exit, detail })]
    };
    match output {
        Output::Spawn { incarnation, .. } => {
            let hello = Hello::default();
            vec![
                role(incarnation, RoleEvent::Spawned { pid: 7 }),
                role(incarnation, RoleEvent::Attached { hello }),
            ]
        }
        Output::Kill { incarnation, .. } => ended(incarnation, Exit::Signal(9)),
        Output::Retire { incarnation } => ended(incarnation, Exit::Code(0)),
        Output::Carry {
            incarnation,
            number,
            ..
        } => {
            let (number, refused) = (*number, None);
            vec![role(
                incarnation,
                RoleEvent::FaultStruck { number, refused },
            )]
        }
        Output::Probe { incarnation, .. } => {
            vec![role(incarnation, RoleEvent::Probed { ok: true })]
        }
        Output::CollectEvidence { incarnation, .. } => {
            let (text, seen) = (String::new(), Default::default());
            vec![role(incarnation, RoleEvent::Evidence { text, seen })]
        }
        Output::Restore {
            generation, step, ..
        } => {
            vec![Input::Gang(
                *generation,
                GangEvent::Restored { step: *step },
            )]
        }
        Output::Prepare {
            generation, step, ..
        } => {
            vec![Input::Gang(
                *generation,
                GangEvent::Prepared { step: *step },
            )]
        }
        Output::TrainStep {
            generation, step, ..
        } => {
            vec![Input::Gang(*generation, step_done(*step))]
        }
        Output::Publish {
            generation,
            version,
            ..
        } => {
            let (version, bytes, digest) = (*version, 1 << 20, String::new());
            vec![Input::Gang(
                *generation,
                GangEvent::Published {
                    version,
                    bytes,
                    digest,
                },
            )]
        }
        Output::AssignPull {
            puller,
            version,
            order,
            ..
        } => {
            let (version, order) = (*version, *order);
            let (bytes, total) = (1 << 19, 1 << 20);
            vec![
                role(puller, RoleEvent::PullStarted { version, order }),
                role(
                    puller,
                    RoleEvent::PullProgress {
                        version,
                        bytes,
                        total,
                    },
                ),
                role(
                    puller,
                    RoleEvent::Pulled {
                        version,
                        order,
                        result: Ok(()),
                    },
                ),
            ]
        }
        Output::Pause { engine } => {
            vec![role(
                engine,
                RoleEvent::Switched {
                    paused: true,
                    ok: true,
                },
            )]
        }
        Output::Resume { engine } => {
            vec![role(
                engine,
                RoleEvent::Switched {
                    paused: false,
                    ok: true,
                },
            )]
        }
        Output::Dispatch {
            agent, trajectory, ..
        } => {
            let ticket = known.new_ticket(Some((*agent, *trajectory)));
            let trajectory = *trajectory;
            vec![role(
                agent,
                RoleEvent::RouteRequested { ticket, trajectory },
            )]
        }
        Output::Route { ticket, .. } => routed(*ticket, known),
        _ => Vec::new(),
    }
}

/// A turn ended, and with it its trajectory.
fn routed(ticket: u64, known: &Known) -> Vec<Input> {
    let released = Input::RouteReleased {
        ticket,
        broken: false,
    };
    let finished = known
        .asked
        .get(&ticket)
        .map(|(agent, trajectory)| finished(*agent, *trajectory));
    [released].into_iter().chain(finished).collect()
}

fn finished(agent: Incarnation, trajectory: TrajectoryId) -> Input {
    let (reward, oldest_version, lease) =
        (0.5, WeightVersion(trajectory.batch.saturating_sub(1)), 0);
    let event = RoleEvent::TrajectoryFinished {
        trajectory,
        reward,
        oldest_version,
        lease,
    };
    Input::Role(agent, event)
}

/// Why a pull may fail.
pub fn failure(at: usize, source: Incarnation) -> PullFailure {
    let reason = "no reason".to_owned();
    match at {
        0 => PullFailure::Source { source, reason },
        1 => PullFailure::Corrupt { source },
        2 => PullFailure::Damaged { reason },
        3 => PullFailure::Superseded,
        _ => PullFailure::Own { reason },
    }
}
