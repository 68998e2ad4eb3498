//! From a role's words to the core's inputs. Nonsense is refused here, not in the core.
use robust_proto::v1::{self, pull_done, role_message::Body};
use robust_shared::core::{Hello, Input, PullFailure, ReturnedBy, RoleEvent};
use robust_shared::ids::{Incarnation, Step, TrajectoryId, WeightVersion};
use robust_shared::phase::UnknownPhase;
use robust_shared::wire::PullFault;

/// What a role said when it linked.
pub fn hello(hello: &v1::Hello) -> Hello {
    Hello {
        transport_addr: hello.transport_addr.clone(),
        http_addr: hello.http_addr.clone(),
        version: hello.version.map(WeightVersion),
        step: hello.step.map(Step),
        leases: hello
            .leases
            .iter()
            .copied()
            .map(TrajectoryId::from_key)
            .collect(),
    }
}

/// The input a message stands for; none for those the driver handles by itself.
pub fn input(incarnation: Incarnation, body: &Body) -> Result<Option<Input>, UnknownPhase> {
    Ok(match body {
        Body::Hello(_)
        | Body::Sample(_)
        | Body::Reply(_)
        | Body::IdentityTaken(_)
        | Body::Pong(_) => None,
        Body::Phase(change) => Some(Input::Role(
            incarnation,
            RoleEvent::PhaseChanged {
                phase: change.phase.parse()?,
                step: Step(change.step),
            },
        )),
        Body::PullStarted(started) => Some(Input::Role(
            incarnation,
            RoleEvent::PullStarted {
                version: WeightVersion(started.version),
                order: started.order,
            },
        )),
        Body::PullProgress(p) => Some(Input::Role(
            incarnation,
            RoleEvent::PullProgress {
                version: WeightVersion(p.version),
                bytes: p.bytes,
                total: p.total,
            },
        )),
        Body::Damaged(damaged) => Some(Input::Role(
            incarnation,
            RoleEvent::Damaged {
                version: WeightVersion(damaged.version),
                chunks: damaged.chunks,
                total: damaged.chunks_total,
            },
        )),
        Body::PullDone(done) => Some(Input::Role(
            incarnation,
            RoleEvent::Pulled {
                version: WeightVersion(done.version),
                order: done.order,
                result: pulled(done.result.as_ref()),
            },
        )),
        Body::Struck(struck) => Some(Input::Role(
            incarnation,
            RoleEvent::FaultStruck {
                number: struck.id,
                refused: Some(struck.refused.clone()).filter(|why| !why.is_empty()),
            },
        )),
        Body::Returned(returned) => Some(Input::Role(
            incarnation,
            RoleEvent::TrajectoryReturned {
                trajectory: TrajectoryId::from_key(returned.trajectory),
                reason: returned.reason.clone(),
                by: match returned.anew {
                    true => ReturnedBy::Diverged,
                    false => ReturnedBy::Worker,
                },
                lease: 0,
            },
        )),
    })
}

fn pulled(result: Option<&pull_done::Result>) -> Result<(), PullFailure> {
    match result {
        Some(pull_done::Result::Ok(_)) => Ok(()),
        Some(pull_done::Result::Error(e)) => Err(match e.kind() {
            Some(PullFault::Superseded) => PullFailure::Superseded,
            Some(PullFault::Damaged) => PullFailure::Damaged {
                reason: e.reason.clone(),
            },
            // It names nobody.
            _ if e.source == 0 => PullFailure::Own {
                reason: e.reason.clone(),
            },
            Some(PullFault::Corrupt) => PullFailure::Corrupt {
                source: Incarnation(e.source),
            },
            _ => PullFailure::Source {
                source: Incarnation(e.source),
                reason: e.reason.clone(),
            },
        }),
        None => Err(PullFailure::Own {
            reason: "the puller gave no result".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_unknown_phase_is_refused_and_a_pull_without_a_result_failed() {
        let phase = v1::PhaseChange {
            phase: "dancing".into(),
            step: 1,
        };
        assert_eq!(
            input(Incarnation(1), &Body::Phase(phase))
                .unwrap_err()
                .to_string(),
            "unknown phase `dancing`"
        );
        let done = v1::PullDone {
            version: 3,
            order: 5,
            result: None,
        };
        let Some(Input::Role(_, RoleEvent::Pulled { order, result, .. })) =
            input(Incarnation(1), &Body::PullDone(done)).unwrap()
        else {
            unreachable!()
        };
        assert!(matches!(result, Err(PullFailure::Own { .. })), "{result:?}");
        assert_eq!(order, 5);
    }

    #[test]
    fn a_pull_that_failed_and_names_no_source_failed_by_itself() {
        let failed = |kind: &str, source| {
            let (kind, reason) = (kind.to_owned(), "why".to_owned());
            let error = v1::PullError {
                kind,
                source,
                reason,
            };
            pulled(Some(&pull_done::Result::Error(error)))
        };
        let reason = "why".to_owned();
        for kind in ["source", "corrupt"] {
            let own = PullFailure::Own {
                reason: reason.clone(),
            };
            assert_eq!(failed(kind, 0), Err(own));
        }
        let source = Incarnation(3);
        assert_eq!(failed("corrupt", 3), Err(PullFailure::Corrupt { source }));
        assert_eq!(
            failed("source", 3),
            Err(PullFailure::Source { source, reason })
        );
        assert_eq!(failed("superseded", 0), Err(PullFailure::Superseded));
    }
}
