//! Injection as operators' tools ask for it.
use super::control::ControlService;
use super::rights::Rights;
use super::words::{ending, refused, role};
use crate::ckpt;
use crate::driver::{OperatorEvent, Struck, armed};
use robust_proto::v1;
use robust_shared::core::{IncidentOutcome, Reply, Request as CoreRequest};
use robust_shared::fault::{At, Fault, Spec, Target};
use robust_shared::ids::Incarnation;
use std::time::Duration;
use tokio::sync::oneshot;
use tonic::Status;

/// How long an injection with `wait` waits by default.
const DEFAULT_WAIT: Duration = Duration::from_secs(120);

fn wrong(error: impl std::fmt::Display) -> Status {
    Status::invalid_argument(error.to_string())
}

/// The fault of a request.
fn fault(request: &v1::InjectRequest) -> Result<Fault, Status> {
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let spec = Spec {
        kind: request.fault.clone(),
        code: request.code,
        seconds: request.seconds,
        percent: request.percent,
        peer: given(&request.peer),
        node: given(&request.node),
        event: given(&request.event),
    };
    spec.fault().map_err(wrong)
}

fn moment(request: &v1::InjectRequest) -> Result<Option<At>, Status> {
    let at = Some(request.at.as_str()).filter(|at| !at.is_empty());
    at.map(|at| at.parse().map_err(wrong)).transpose()
}

/// What a request for a fault asks of the controller.
pub(super) fn wish(request: &v1::InjectRequest) -> Result<CoreRequest, Status> {
    let fault = fault(request)?;
    Ok(match fault.kind().target() {
        Target::Instance => CoreRequest::Inject {
            fault,
            role: role(&request.role)?,
            index: request.index,
            incarnation: request.incarnation.map(Incarnation),
            at: moment(request)?,
        },
        Target::Node | Target::Leader => CoreRequest::Afflict { fault },
    })
}

impl ControlService {
    pub(super) async fn on_inject(
        &self,
        request: v1::InjectRequest,
        caller: Option<Rights>,
    ) -> Result<v1::InjectReply, Status> {
        let fault = fault(&request)?;
        if self.status.borrow().protected {
            if !request.i_know {
                return Err(Status::failed_precondition(format!(
                    "the job is protected, and `{fault}` would strike it; say `--i-know` if that is \
                     what you want"
                )));
            }
            if self.has_break_glass && caller != Some(Rights::BreakGlass) {
                return Err(Status::permission_denied(format!(
                    "the job is protected: `{fault}` needs the break-glass token (robustd's \
                     --break-glass-token-file). With a copy of it: --connect HOST:PORT --token-file COPY"
                )));
            }
        }
        match fault.kind().target() {
            Target::Instance => self.strike(&request, fault).await,
            Target::Node | Target::Leader => self.afflict(&request, fault).await,
        }
    }

    async fn strike(
        &self,
        request: &v1::InjectRequest,
        fault: Fault,
    ) -> Result<v1::InjectReply, Status> {
        let role = role(&request.role)?;
        let at = moment(request)?;
        if request.wait && at.is_some_and(At::is_start_up) {
            return Err(wrong(
                "the fault waits for the next start of the process, so --wait has nothing to wait for: leave it out",
            ));
        }
        if matches!(fault, Fault::Hardware { .. }) && !self.has_test_devices {
            return Err(Status::failed_precondition(
                "`hardware` can only be injected where robustd runs with the fake NVML library; on real devices use \
                 another fault",
            ));
        }
        let text = fault.to_string();
        let (answer, answered) = oneshot::channel();
        self.tell(OperatorEvent::Inject {
            fault,
            role,
            index: request.index,
            incarnation: request.incarnation.map(Incarnation),
            at,
            answer,
        })?;
        let struck = answered.await.map_err(|_| ending())?;
        let struck = struck.map_err(|refusal| refused(&refusal))?;
        let wait = match request.wait_timeout_ms {
            0 => DEFAULT_WAIT,
            ms => Duration::from_millis(ms.into()),
        };
        let incident = match request.wait {
            true => Some(self.recovery_of(&struck, wait).await?),
            false => None,
        };
        Ok(v1::InjectReply {
            role: struck.id.role.name().to_owned(),
            index: struck.id.index,
            incarnation: struck.incarnation.0,
            pid: struck.pid,
            slot: struck.slot,
            incident,
            armed: struck.armed,
            at: at.map(|at| at.to_string()).unwrap_or_default(),
            fault: text,
        })
    }

    /// A fault of a node or of the leader; it strikes at once, and there is nothing to wait for.
    async fn afflict(
        &self,
        request: &v1::InjectRequest,
        fault: Fault,
    ) -> Result<v1::InjectReply, Status> {
        let kind = fault.kind();
        if !request.role.is_empty() || !request.at.is_empty() || request.wait {
            return Err(wrong(format!(
                "`{kind}` strikes no instance: it takes no role, no moment and no wait"
            )));
        }
        let mut text = fault.to_string();
        let corrupts = fault == Fault::CorruptCheckpoint;
        self.request(CoreRequest::Afflict { fault }).await?;
        if corrupts {
            text = format!("{text} {}", self.corrupt_checkpoint().await?);
        }
        Ok(v1::InjectReply {
            fault: text,
            ..v1::InjectReply::default()
        })
    }

    async fn corrupt_checkpoint(&self) -> Result<String, Status> {
        let dir = self.state.checkpoints();
        let flipped = tokio::task::spawn_blocking(move || ckpt::corrupt_newest(&dir)).await;
        let failed = |e: &dyn std::fmt::Display| {
            Status::internal(format!("the checkpoint cannot be corrupted: {e}"))
        };
        match flipped {
            Ok(Ok(Some((path, at)))) => Ok(format!("(byte {at} of {})", path.display())),
            Ok(Ok(None)) => Err(Status::failed_precondition(
                "there is no checkpoint yet; try again after the next one",
            )),
            Ok(Err(error)) => Err(failed(&error)),
            Err(error) => Err(failed(&error)),
        }
    }

    pub(super) async fn on_disarm(
        &self,
        request: v1::DisarmRequest,
    ) -> Result<v1::DisarmReply, Status> {
        let number = request.id;
        let reply = self.request(CoreRequest::Disarm { number });
        match reply.await? {
            Reply::Disarmed { faults } => Ok(v1::DisarmReply {
                disarmed: faults.iter().map(armed).collect(),
            }),
            other => Err(Status::internal(format!(
                "an answer to something else: {other:?}"
            ))),
        }
    }

    async fn recovery_of(&self, struck: &Struck, wait: Duration) -> Result<v1::Incident, Status> {
        let mut feed = self.status.clone();
        let closed = feed.wait_for(|status| closed_incident(status, struck).is_some());
        let found = match tokio::time::timeout(wait, closed).await {
            Ok(Ok(status)) => closed_incident(&status, struck).cloned(),
            Ok(Err(_)) => return Err(ending()),
            Err(_) => None,
        };
        found.ok_or_else(|| {
            let (id, life, seconds) = (struck.id, struck.incarnation, wait.as_secs());
            let text = match incident_of(&self.status.borrow(), struck) {
                Some(_) => format!("{id} ({life}) was struck and has not recovered after {seconds} s"),
                None => format!(
                    "no rule has found the fault of {id} ({life}) within {seconds} s; it may still be found: \
                     `robustctl events --follow`"
                ),
            };
            Status::deadline_exceeded(text)
        })
    }
}

/// The incident of the life that was struck: its own, else the one that swept it away before it could have one
/// (another rank of its gang failed at the same time).
fn incident_of<'a>(status: &'a v1::Status, struck: &Struck) -> Option<&'a v1::Incident> {
    let life = struck.incarnation.0;
    let incidents = &status.incidents;
    let own = incidents.iter().find(|i| i.incarnation == life);
    let swept = || incidents.iter().find(|i| i.swept.contains(&life));
    own.or_else(swept)
}

/// The same, once it is over.
fn closed_incident<'a>(status: &'a v1::Status, struck: &Struck) -> Option<&'a v1::Incident> {
    incident_of(status, struck).filter(|i| i.outcome() != Some(IncidentOutcome::Recovering))
}
