//! The core's choice of an engine, asked for through the driver, and given back.
use crate::links::RouteEvent;
use crate::tell::Tell;
use robust_proto::v1;
use robust_shared::ids::Incarnation;
use robust_shared::wire::JobState;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// Clients' tickets are from here on: those below are numbered by the agents' service.
const FIRST: u64 = 1 << 63;

/// Why there is no engine for a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoRoute {
    /// It took too long.
    #[error(
        "no engine could take the request within {:.0} s; the job is {state}",
        waited.as_secs_f64()
    )]
    Late {
        /// How long it waited.
        waited: Duration,
        /// The job's state.
        state: String,
    },
    /// Nobody chooses engines now: the job has not begun, or has ended.
    #[error("the job is {state}: no engine serves")]
    NotRunning {
        /// The job's state.
        state: String,
    },
}

/// The engine that a request goes to. Its end gives the ticket back.
#[derive(Debug)]
pub(super) struct Route {
    /// Its life.
    pub engine: Incarnation,
    /// Where it serves.
    pub http_addr: String,
    _ticket: Ticket,
}

/// A question, and then a request that counts; released when it is dropped.
#[derive(Debug)]
struct Ticket {
    routes: Tell<RouteEvent>,
    number: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let ticket = self.number;
        // When the driver is gone there is nothing to release.
        let _ = self.routes.tell(RouteEvent::Released {
            ticket,
            broken: false,
        });
    }
}

/// Where tickets come from.
#[derive(Debug)]
pub(super) struct Tickets {
    routes: Tell<RouteEvent>,
    status: watch::Receiver<Arc<v1::Status>>,
    next: AtomicU64,
}

impl Tickets {
    pub fn new(routes: Tell<RouteEvent>, status: watch::Receiver<Arc<v1::Status>>) -> Self {
        Self {
            routes,
            status,
            next: AtomicU64::new(FIRST),
        }
    }

    /// Engines that get requests, as the job's status says.
    pub fn engines(&self) -> usize {
        let status = self.status.borrow();
        if is_over(&status) {
            return 0;
        }
        status.roles.iter().filter(|role| role.admitted).count()
    }

    /// The core's choice, once there is one. `avoid` is taken only where no other engine is fit.
    pub async fn route(
        &self,
        avoid: Option<Incarnation>,
        wait: Duration,
    ) -> Result<Route, NoRoute> {
        let (answer, answered) = oneshot::channel();
        let ticket = Ticket {
            routes: self.routes.clone(),
            number: self.next.fetch_add(1, Ordering::Relaxed),
        };
        let wanted = RouteEvent::WantedByClient {
            ticket: ticket.number,
            avoid,
            answer,
        };
        let mut status = self.status.clone();
        // A dropped sender is answered below, by the end of the answer's own.
        let _ = self.routes.tell(wanted);
        let reply = tokio::select! {
            biased;
            reply = answered => reply.ok(),
            _ = status.wait_for(|status| is_over(status)) => None,
            () = tokio::time::sleep(wait) => {
                let (waited, state) = (wait, self.state());
                return Err(NoRoute::Late { waited, state });
            }
        };
        let reply = reply.ok_or_else(|| NoRoute::NotRunning {
            state: self.state(),
        })?;
        Ok(Route {
            engine: Incarnation(reply.rollout),
            http_addr: reply.http_addr,
            _ticket: ticket,
        })
    }

    fn state(&self) -> String {
        self.status.borrow().state.clone()
    }
}

fn is_over(status: &v1::Status) -> bool {
    status.state().is_some_and(JobState::is_over)
}
