//! What role processes ask of their daemon.
use super::callers::{Callers, Origin};
use crate::leases::{Held, LeaseError, Leases};
use crate::links::{LinkEvent, LinkId, RouteEvent};
use crate::store::{Appended, Durable, Finish, Store, StoreError, Tokens};
use crate::tell::Tell;
use futures::future::join_all;
use robust_proto::MOST_PARTS;
use robust_proto::v1::{self, role_host_server::RoleHost, role_message::Body};
use robust_shared::ids::{Incarnation, TrajectoryId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// The service role processes attach to. Writes of trajectories go to the store from here; all else
/// goes to the driver.
#[derive(Clone)]
pub struct RoleHostService {
    links: Tell<LinkEvent>,
    routes: Tell<RouteEvent>,
    leases: Leases,
    store: Store,
    callers: Callers,
    numbers: Arc<AtomicU64>,
}

impl std::fmt::Debug for RoleHostService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RoleHostService")
    }
}

impl RoleHostService {
    /// `first_number` names links and route requests from there on; it must be above those of
    /// earlier lives of the daemon.
    pub fn new(
        (links, routes): (Tell<LinkEvent>, Tell<RouteEvent>),
        leases: Leases,
        store: Store,
        first_number: u64,
    ) -> Self {
        Self {
            links,
            routes,
            leases,
            store,
            callers: Callers::default(),
            numbers: Arc::new(AtomicU64::new(first_number)),
        }
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn tell(&self, event: LinkEvent) -> Result<(), Status> {
        self.links.tell(event).map_err(|_| ending())
    }

    fn tell_of_route(&self, event: RouteEvent) -> Result<(), Status> {
        self.routes.tell(event).map_err(|_| ending())
    }

    async fn admit(
        &self,
        hello: v1::Hello,
        link: LinkId,
        origin: Origin,
    ) -> Result<Attached, Status> {
        let (via, origin) = match origin {
            Origin::Node(via) => (Some(via.clone()), Origin::Node(via)),
            caller if caller.is_of_process(hello.pid) => (None, Origin::Process(hello.pid)),
            Origin::Process(caller) => {
                let (of, pid) = (hello.incarnation, hello.pid);
                let text = format!("process {caller} is not #{of}, which is process {pid}");
                tracing::warn!("a link was refused: {text}");
                return Err(Status::permission_denied(text));
            }
        };
        let (down, messages) = mpsc::unbounded_channel();
        let (admitted, answer) = oneshot::channel();
        let incarnation = Incarnation(hello.incarnation);
        let hello = Box::new(hello);
        self.tell(LinkEvent::Attach {
            hello,
            link,
            down,
            via,
            admitted,
        })?;
        answer
            .await
            .map_err(|_| ending())?
            .map_err(|fenced| Status::failed_precondition(fenced.to_string()))?;
        self.callers.linked(incarnation, link, origin);
        Ok(Attached {
            incarnation,
            messages,
        })
    }
}

struct Attached {
    incarnation: Incarnation,
    messages: mpsc::UnboundedReceiver<v1::HostMessage>,
}

fn ending() -> Status {
    Status::unavailable("the daemon is ending")
}

impl From<LeaseError> for Status {
    fn from(error: LeaseError) -> Self {
        Status::failed_precondition(error.to_string())
    }
}

// UNAVAILABLE lets the agent try again: nothing was acknowledged.
fn not_stored(error: StoreError) -> Status {
    match error.is_refusal() {
        true => Status::invalid_argument(error.to_string()),
        false => Status::unavailable(format!("not stored: {error}")),
    }
}

async fn relay(
    service: RoleHostService,
    incarnation: Incarnation,
    link: LinkId,
    mut up: Streaming<v1::RoleMessage>,
) {
    while let Ok(Some(message)) = up.message().await {
        let Some(body) = message.body.map(Box::new) else {
            continue;
        };
        if service
            .tell(LinkEvent::Said {
                incarnation,
                link,
                body,
            })
            .is_err()
        {
            return;
        }
    }
    service.callers.closed(incarnation, link);
    // When the driver is gone there is nobody to tell.
    let _ = service.tell(LinkEvent::Closed { incarnation, link });
}

/// Releases a route request when the agent stops waiting for the answer.
struct ReleaseUnlessAnswered {
    routes: Tell<RouteEvent>,
    ticket: Option<u64>,
}

impl Drop for ReleaseUnlessAnswered {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            // When the driver is gone there is nothing to release.
            let broken = false;
            let _ = self.routes.tell(RouteEvent::Released { ticket, broken });
        }
    }
}

#[tonic::async_trait]
impl RoleHost for RoleHostService {
    type AttachStream =
        std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Result<v1::HostMessage, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::RoleMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let origin = Origin::of(&request)?;
        let mut up = request.into_inner();
        let first = up.message().await?.and_then(|m| m.body);
        let Some(Body::Hello(hello)) = first else {
            return Err(Status::invalid_argument("a link starts with hello"));
        };
        let link = LinkId(self.number());
        let attached = self.admit(hello, link, origin).await?;
        tokio::spawn(relay(self.clone(), attached.incarnation, link, up));
        let messages = UnboundedReceiverStream::new(attached.messages).map(Ok);
        Ok(Response::new(Box::pin(messages)))
    }

    async fn route(
        &self,
        request: Request<v1::RouteRequest>,
    ) -> Result<Response<v1::RouteReply>, Status> {
        let origin = Origin::of(&request)?;
        let request = request.into_inner();
        let (incarnation, trajectory) = named(request.incarnation, request.trajectory);
        drop(self.held(incarnation, trajectory, &origin).await?);
        let ticket = self.number();
        self.callers.gave(ticket, incarnation);
        let (answer, answered) = oneshot::channel();
        let mut waiting = ReleaseUnlessAnswered {
            routes: self.routes.clone(),
            ticket: Some(ticket),
        };
        self.tell_of_route(RouteEvent::Wanted {
            ticket,
            incarnation,
            trajectory,
            answer,
        })?;
        let reply = answered.await.map_err(|_| {
            Status::failed_precondition(format!("the request of {trajectory} is void"))
        })?;
        waiting.ticket = None;
        Ok(Response::new(reply))
    }

    async fn release_route(
        &self,
        request: Request<v1::ReleaseRouteRequest>,
    ) -> Result<Response<v1::Ack>, Status> {
        let origin = Origin::of(&request)?;
        let v1::ReleaseRouteRequest {
            ticket,
            broken,
            incarnation,
        } = request.into_inner();
        let incarnation = Incarnation(incarnation);
        self.callers.check(incarnation, &origin)?;
        // One that an earlier daemon gave is unknown, and so it is to the core.
        if self.callers.takes_back(ticket, incarnation) {
            self.tell_of_route(RouteEvent::Released { ticket, broken })?;
        }
        Ok(Response::new(v1::Ack {}))
    }

    async fn append_turn(
        &self,
        request: Request<v1::AppendTurnRequest>,
    ) -> Result<Response<v1::Ack>, Status> {
        let origin = Origin::of(&request)?;
        let request = request.into_inner();
        let (incarnation, trajectory) = named(request.incarnation, request.trajectory);
        let turn = request
            .turn
            .ok_or_else(|| Status::invalid_argument("no turn given"))?;
        let held = self.held(incarnation, trajectory, &origin).await?;
        let write = self.store.append_turn(trajectory, request.prompt_ids, turn);
        match written_under(held, write).await? {
            Appended::Stored | Appended::Repeated => Ok(Response::new(v1::Ack {})),
            Appended::Already => Err(Status::invalid_argument(format!(
                "{trajectory} has another turn of this index, or another beginning of it; that stays"
            ))),
        }
    }

    async fn append_spans(
        &self,
        request: Request<v1::AppendSpansRequest>,
    ) -> Result<Response<v1::Ack>, Status> {
        let origin = Origin::of(&request)?;
        self.append_part(&origin, request.into_inner()).await?;
        Ok(Response::new(v1::Ack {}))
    }

    async fn append_spans_batch(
        &self,
        request: Request<v1::SpansBatch>,
    ) -> Result<Response<v1::SpansBatchReply>, Status> {
        let origin = Origin::of(&request)?;
        let v1::SpansBatch { incarnation, parts } = request.into_inner();
        if parts.len() > MOST_PARTS {
            let text = format!("{} parts are more than {MOST_PARTS}", parts.len());
            return Err(Status::invalid_argument(text));
        }
        // Together: the store makes one group of what comes at the same time.
        let appending = parts.into_iter().map(|part| {
            let part = v1::AppendSpansRequest {
                incarnation,
                ..part
            };
            self.append_part(&origin, part)
        });
        let replies = join_all(appending).await.into_iter().map(|appended| {
            let refused = appended.err();
            let code = refused.as_ref().map_or(tonic::Code::Ok, Status::code);
            v1::PartReply {
                code: code.into(),
                message: refused.map_or_else(String::new, |status| status.message().to_owned()),
            }
        });
        Ok(Response::new(v1::SpansBatchReply {
            replies: replies.collect(),
        }))
    }

    async fn finish_trajectory(
        &self,
        request: Request<v1::FinishTrajectoryRequest>,
    ) -> Result<Response<v1::Ack>, Status> {
        let origin = Origin::of(&request)?;
        let request = request.into_inner();
        let (incarnation, trajectory) = named(request.incarnation, request.trajectory);
        if !request.reward.is_finite() {
            return Err(Status::invalid_argument(
                "the reward is not a finite number",
            ));
        }
        let held = self.held(incarnation, trajectory, &origin).await?;
        let service = self.clone();
        to_its_end(async move {
            let oldest_version = service.store_end(trajectory, &request, &held).await?;
            // Told while the lease is held: the driver hears of the end before the trajectory settles, and
            // so before anything of it is read for the next holder.
            let reward = request.reward;
            service.tell(LinkEvent::Finished {
                incarnation,
                trajectory,
                reward,
                oldest_version,
                lease: held.number(),
            })?;
            drop(held);
            Ok(Response::new(v1::Ack {}))
        })
        .await
    }
}

impl RoleHostService {
    /// Makes tokens of a turn under way durable.
    async fn append_part(
        &self,
        origin: &Origin,
        request: v1::AppendSpansRequest,
    ) -> Result<(), Status> {
        let (incarnation, trajectory) = named(request.incarnation, request.trajectory);
        let whole = |span: &v1::Span| !span.ids.is_empty() && span.ids.len() == span.logprobs.len();
        if request.spans.is_empty() || !request.spans.iter().all(whole) {
            let text = "every span has tokens, and a logprob for each";
            return Err(Status::invalid_argument(text));
        }
        let tokens = Tokens {
            turn: request.turn,
            offset: request.offset,
            spans: request.spans,
        };
        let held = self.held(incarnation, trajectory, origin).await?;
        let write = self
            .store
            .append_spans(trajectory, request.prompt_ids, tokens);
        match written_under(held, write).await? {
            Appended::Stored | Appended::Repeated => Ok(()),
            Appended::Already => Err(Status::invalid_argument(format!(
                "{trajectory} has other tokens there; they stay as they are"
            ))),
        }
    }
}

/// Writes under a lease, which stays until the write is durable, also when the caller is gone by
/// then: tonic drops the request of a process that died, and a write that is queued comes after all.
async fn written_under(held: Held, write: Durable<Appended>) -> Result<Appended, Status> {
    to_its_end(async move {
        let written = write.await;
        drop(held);
        written.map_err(not_stored)
    })
    .await
}

/// Runs on though the caller be gone.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    tokio::spawn(work).await.unwrap_or_else(|_| Err(ending()))
}

impl RoleHostService {
    /// The lease, for a call of who holds it and nobody else.
    async fn held(
        &self,
        incarnation: Incarnation,
        trajectory: TrajectoryId,
        caller: &Origin,
    ) -> Result<Held, Status> {
        let held = self.leases.check(incarnation, trajectory).await?;
        self.callers.check(incarnation, caller)?;
        Ok(held)
    }

    async fn store_end(
        &self,
        trajectory: TrajectoryId,
        request: &v1::FinishTrajectoryRequest,
        held: &Held,
    ) -> Result<u64, Status> {
        let store = self.store.clone();
        let reading = tokio::task::spawn_blocking(move || store.trajectory(trajectory));
        let stored = reading.await.map_err(|_| ending())?;
        let stored = stored.map_err(not_stored)?.unwrap_or_default();
        let versions = stored
            .turns
            .iter()
            .flat_map(|t| &t.spans)
            .map(|s| s.version);
        let oldest_version = versions.min().unwrap_or(0);
        let finish = Finish {
            reward: request.reward,
            answer: request.answer.clone(),
            oldest_version,
            turns: request.turns,
            lease: held.number(),
            agent: Incarnation(request.incarnation),
        };
        self.store
            .finish(trajectory, finish)
            .await
            .map_err(not_stored)?;
        Ok(oldest_version)
    }
}

fn named(incarnation: u64, trajectory: u64) -> (Incarnation, TrajectoryId) {
    (Incarnation(incarnation), TrajectoryId::from_key(trajectory))
}

#[cfg(test)]
#[path = "roles_tests.rs"]
#[allow(clippy::unwrap_used)]
mod tests;
