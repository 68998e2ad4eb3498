//! What processes of roles do now, and whether they answer: a question to the driver for each instance.
//!
//! ```text
//!  request ──► whom, as the status has them ──► so many at once ──► parts, in the status's order
//!                 │
//!                 └─ native: an operator's, and in the audit log before and after
//! ```
//! Each question has a time after which its part says so: neither a node nor a process keeps the others waiting.
use super::control::ControlService;
use super::rights::{Caller, Rights};
use super::words::role as role_named;
use crate::driver::OperatorEvent;
use crate::launcher::Depth;
use crate::probe;
use crate::tell::Tell;
use futures::StreamExt as _;
use robust_proto::v1;
use robust_shared::ids::Incarnation;
use robust_shared::wire::{AuditResult, InspectWay, ProbeTarget, ServiceState, Word as _};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use tonic::Status;

/// Instances that are looked at, or asked, at once.
const AT_ONCE: usize = 64;
/// How long a service's port is asked.
const PORT_WITHIN: Duration = Duration::from_secs(5);
/// How long the driver's word of a probe is waited for, which has a time of its own.
const PROBE_WITHIN: Duration = Duration::from_secs(10);
const ENDING: &str = "the daemon is ending";

type Parts = Receiver<Result<v1::InspectPart, Status>>;

/// What is wanted of each instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Look(Depth),
    Probe,
}

impl Way {
    fn of_word(word: &str) -> Result<Self, Status> {
        let unknown = || {
            let text = format!(
                "`{word}` is no way to look inside; it is threads, stacks, native or probe"
            );
            Status::invalid_argument(text)
        };
        match (word, InspectWay::known(word)) {
            ("", _) => Ok(Self::Look(Depth::Stacks)),
            (_, Some(InspectWay::Probe)) => Ok(Self::Probe),
            _ => Depth::of_word(word).map(Self::Look).ok_or_else(unknown),
        }
    }
}

/// What is to be written into the audit log when all is done.
struct Logged {
    asked: v1::AuditEntry,
    began: Instant,
}

impl ControlService {
    /// Looks, or asks; the parts come as they are known.
    pub(super) async fn on_inspect(
        &self,
        request: v1::InspectRequest,
        caller: Option<Caller>,
    ) -> Result<Parts, Status> {
        let way = Way::of_word(&request.what)?;
        let status = self.status.borrow().clone();
        let whom = whom(&status, &request)?;
        let logged = match way {
            Way::Look(Depth::Native) => Some(self.may_stop(&request, caller).await?),
            _ => None,
        };
        let services = match (way, request.role.is_empty()) {
            (Way::Probe, true) => status.services.clone(),
            _ => Vec::new(),
        };
        let (to, parts) = channel(AT_ONCE);
        let (driver, audit) = (self.driver.clone(), self.audit.clone());
        tokio::spawn(async move {
            send(driver, way, (whom, services), to).await;
            let Some(Logged { asked, began }) = logged else {
                return;
            };
            let written = tokio::task::spawn_blocking(move || {
                audit.came_of(&asked, AuditResult::Done, "", began.elapsed())
            });
            if let Ok(Err(error)) = written.await {
                tracing::error!("a result is missing in the audit log: {error}");
            }
        });
        Ok(parts)
    }

    /// A debugger stops processes, if only for a moment: that is an operator's, and is written down first.
    async fn may_stop(
        &self,
        request: &v1::InspectRequest,
        caller: Option<Caller>,
    ) -> Result<Logged, Status> {
        let unknown = || Status::unauthenticated("nobody knows who calls");
        let caller = caller.ok_or_else(unknown)?;
        let (who, rights) = (caller.who(), caller.rights());
        let audit = self.audit.clone();
        if !stops(rights) {
            let why = rights.falls_short_of("inspect with a debugger");
            let text = why.clone();
            let logged =
                tokio::task::spawn_blocking(move || audit.refused(&who, "inspect", &text)).await;
            if let Ok(Err(error)) = logged {
                tracing::error!("a refusal is missing in the audit log: {error}");
            }
            return Err(Status::permission_denied(why));
        }
        let on = serde_json::json!({
            "role": request.role,
            "index": request.index,
            "what": request.what,
        });
        let on = on.to_string();
        let began = Instant::now();
        let asked = tokio::task::spawn_blocking(move || audit.asked(&who, "inspect", &on)).await;
        let unlogged = |error: &dyn std::fmt::Display| {
            Status::unavailable(format!(
                "nothing is stopped that cannot be written to the audit log: {error}"
            ))
        };
        let asked = asked.map_err(|error| unlogged(&error))?;
        let asked = asked.map_err(|error| unlogged(&error))?;
        self.audit.settled().await;
        Ok(Logged { asked, began })
    }
}

/// Whose it is to stop a process, if only for a moment.
fn stops(rights: Rights) -> bool {
    match rights {
        Rights::Operator | Rights::BreakGlass => true,
        Rights::Viewer | Rights::Role | Rights::Over => false,
    }
}

/// The instances that are meant, as the job has them.
fn whom(status: &v1::Status, request: &v1::InspectRequest) -> Result<Vec<v1::RoleStatus>, Status> {
    let index = request.index;
    if request.role.is_empty() {
        return match index {
            None => Ok(status.roles.clone()),
            Some(_) => Err(Status::invalid_argument(
                "a number is that of an instance of a role: name the role, too",
            )),
        };
    }
    let role = role_named(&request.role)?;
    let of_role = status.roles.iter().filter(|r| r.role == role.name());
    let has = of_role.clone().count();
    let meant = of_role.filter(|r| index.is_none_or(|index| index == r.index));
    let meant: Vec<v1::RoleStatus> = meant.cloned().collect();
    match meant.is_empty() {
        false => Ok(meant),
        true => {
            let number = index.map_or_else(String::new, |index| format!("-{index}"));
            let text = format!("there is no {role}{number}; the job has {has} of role {role}");
            Err(Status::invalid_argument(text))
        }
    }
}

/// Sends a part for each, until whoever asked leaves.
async fn send(
    driver: Tell<OperatorEvent>,
    way: Way,
    (roles, services): (Vec<v1::RoleStatus>, Vec<v1::ServiceStatus>),
    to: Sender<Result<v1::InspectPart, Status>>,
) {
    let ask = move |role| of_role(driver.clone(), role, way);
    let mut parts = futures::stream::iter(roles).map(ask).buffered(AT_ONCE);
    while let Some(part) = parts.next().await {
        if to.send(Ok(part)).await.is_err() {
            return;
        }
    }
    let mut parts = futures::stream::iter(services)
        .map(of_service)
        .buffered(AT_ONCE);
    while let Some(part) = parts.next().await {
        if to.send(Ok(part)).await.is_err() {
            return;
        }
    }
}

async fn of_role(driver: Tell<OperatorEvent>, role: v1::RoleStatus, way: Way) -> v1::InspectPart {
    let mut part = v1::InspectPart {
        role: role.role.clone(),
        index: role.index,
        incarnation: role.incarnation,
        node: role.node.clone(),
        state: role.state.clone(),
        phase: role.phase.clone(),
        phase_ms: role.phase_ms,
        ..v1::InspectPart::default()
    };
    let known = match way {
        Way::Look(depth) => looked(&driver, &role, depth).await.map(|processes| {
            part.processes = processes;
        }),
        Way::Probe => probed(&driver, &role).await.map(|probes| {
            part.probes = probes;
        }),
    };
    if let Err(error) = known {
        part.error = error;
    }
    part
}

async fn looked(
    driver: &Tell<OperatorEvent>,
    role: &v1::RoleStatus,
    depth: Depth,
) -> Result<Vec<v1::InspectedProcess>, String> {
    let (answer, answered) = oneshot::channel();
    let asked = driver.tell(OperatorEvent::Inspect {
        incarnation: Incarnation(role.incarnation),
        depth,
        answer,
    });
    asked.map_err(|_| ENDING.to_owned())?;
    let within = depth.within();
    let answered = tokio::time::timeout(within, answered).await;
    let late = |_| {
        format!(
            "the daemon of node `{}` did not answer within {within:?}",
            role.node
        )
    };
    let answered = answered.map_err(late)?.map_err(|_| ENDING.to_owned())?;
    answered.map_err(|error| error.to_string())
}

async fn probed(
    driver: &Tell<OperatorEvent>,
    role: &v1::RoleStatus,
) -> Result<Vec<v1::ProbeAnswer>, String> {
    let (answer, answered) = oneshot::channel();
    let asked = driver.tell(OperatorEvent::Probe {
        incarnation: Incarnation(role.incarnation),
        serves: role.admitted,
        answer,
    });
    asked.map_err(|_| ENDING.to_owned())?;
    let answered = tokio::time::timeout(PROBE_WITHIN, answered).await;
    let late = |_| format!("the daemon did not ask it within {PROBE_WITHIN:?}");
    let answered = answered.map_err(late)?.map_err(|_| ENDING.to_owned())?;
    answered.map_err(|error| error.to_string())
}

/// A service is asked at its port; one without a port is as its state says.
async fn of_service(service: v1::ServiceStatus) -> v1::InspectPart {
    let began = Instant::now();
    let (ok, answer) = match service.addr.as_str() {
        "" => (
            service.state() == Some(ServiceState::Up),
            format!("it has no port to be asked at, and is {}", service.state),
        ),
        addr => match probe::accepts(addr, PORT_WITHIN).await {
            true => (true, format!("{addr} takes connections")),
            false => (
                false,
                format!("{addr} took no connection within {PORT_WITHIN:?}"),
            ),
        },
    };
    let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    v1::InspectPart {
        role: service.name,
        index: service.index,
        incarnation: service.incarnation,
        state: service.state,
        probes: vec![v1::ProbeAnswer {
            what: ProbeTarget::Port.word().to_owned(),
            ok,
            us,
            answer,
        }],
        ..v1::InspectPart::default()
    }
}

#[cfg(test)]
#[path = "inspect_tests.rs"]
mod tests;
