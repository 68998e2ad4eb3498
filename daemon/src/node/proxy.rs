//! The role socket of a node: what roles say goes to the leader, what it answers comes back.
use super::relay::{LEFT, Relay};
use super::shards::Shards;
use super::{Upstream, UpstreamWatch};
use crate::grpc::{MAX_MESSAGE_BYTES, Origin};
use crate::launcher::Launcher;
use robust_proto::v1;
use robust_proto::v1::role_host_client::RoleHostClient;
use robust_proto::v1::role_host_server::RoleHost;
use robust_proto::v1::role_message::Body;
use robust_shared::ids::Incarnation;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

/// Messages between the two streams of a link.
const IN_FLIGHT: usize = 64;
/// A process can be quicker than its launcher takes note of it.
const PATIENCE: (u32, Duration) = (40, Duration::from_millis(50));

/// Ends when the node goes to another leader, or to none: one that is frozen ends no connection by itself.
async fn left(mut ways: UpstreamWatch, from: &Upstream) {
    let is_other =
        |now: &Option<Upstream>| now.as_ref().is_none_or(|now| now.session != from.session);
    // Without a watch the node itself ends.
    let _ = ways.wait_for(is_other).await;
}

/// See the module's doc.
#[derive(Clone)]
pub(super) struct RoleProxy {
    pub launcher: Launcher,
    pub upstream: UpstreamWatch,
    pub shards: Shards,
}

impl RoleProxy {
    fn upstream(&self) -> Result<Upstream, Status> {
        let upstream = self.upstream.borrow().clone();
        // The role goes on and asks again: the leader may be restarting.
        upstream.ok_or_else(|| Status::unavailable("this node is not joined"))
    }

    fn client(upstream: &Upstream) -> RoleHostClient<Channel> {
        RoleHostClient::new(upstream.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// What the leader answers to a role's call.
    async fn ask<T, R, F>(
        &self,
        request: Request<T>,
        incarnation: u64,
        call: impl FnOnce(RoleHostClient<Channel>, Request<T>) -> F,
    ) -> Result<Response<R>, Status>
    where
        F: Future<Output = Result<Response<R>, Status>>,
    {
        self.check(&request, incarnation)?;
        let upstream = self.upstream()?;
        let request = upstream.request(request.into_inner());
        tokio::select! {
            answered = call(Self::client(&upstream), request) => answered,
            () = left(self.upstream.clone(), &upstream) => Err(Status::unavailable(LEFT)),
        }
    }

    /// Whether this very process was started here.
    async fn is_here(&self, hello: &v1::Hello) -> bool {
        let me = (Incarnation(hello.incarnation), hello.pid);
        for _ in 0..PATIENCE.0 {
            let running = self.launcher.running();
            if running.iter().any(|(i, p)| (*i, p.pid) == me) {
                return true;
            }
            tokio::time::sleep(PATIENCE.1).await;
        }
        false
    }

    /// Whether a call comes from the process of the incarnation that it names.
    fn check<T>(&self, request: &Request<T>, incarnation: u64) -> Result<(), Status> {
        let origin = Origin::of(request)?;
        let running = self.launcher.running();
        let me = running.iter().find(|(i, _)| i.0 == incarnation);
        let is_its = me.is_some_and(|(_, process)| origin.is_of_process(process.pid));
        let text = || format!("this call is not of #{incarnation}: a role acts for itself only");
        is_its
            .then_some(())
            .ok_or_else(|| Status::permission_denied(text()))
    }
}

#[tonic::async_trait]
impl RoleHost for RoleProxy {
    type AttachStream = ReceiverStream<Result<v1::HostMessage, Status>>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::RoleMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let origin = Origin::of(&request)?;
        let mut said = request.into_inner();
        let first = said.message().await?.and_then(|m| m.body);
        let Some(Body::Hello(hello)) = first else {
            return Err(Status::invalid_argument("a link starts with hello"));
        };
        if !origin.is_of_process(hello.pid) || !self.is_here(&hello).await {
            let text = format!("fenced: #{} does not run here", hello.incarnation);
            return Err(Status::failed_precondition(text));
        }
        let upstream = self.upstream()?;
        let (up, outgoing) = mpsc::channel(IN_FLIGHT);
        let (incarnation, rank) = (hello.incarnation, hello.index);
        let hello = v1::RoleMessage {
            body: Some(Body::Hello(hello)),
        };
        // There is room: it is the first.
        let _ = up.send(hello).await;
        let attaching = upstream.request(ReceiverStream::new(outgoing));
        let mut leader = Self::client(&upstream);
        let heard = tokio::select! {
            heard = leader.attach(attaching) => heard?.into_inner(),
            () = left(self.upstream.clone(), &upstream) => return Err(Status::unavailable(LEFT)),
        };
        let (down, messages) = mpsc::channel(IN_FLIGHT);
        let relay = Relay {
            upstream,
            shards: self.shards.clone(),
            incarnation,
            rank,
            up,
            down,
        };
        let ways = self.upstream.clone();
        tokio::spawn(async move {
            let way = relay.upstream.clone();
            let left = left(ways, &way);
            relay.run((said, heard), left).await;
        });
        Ok(Response::new(ReceiverStream::new(messages)))
    }

    async fn route(
        &self,
        request: Request<v1::RouteRequest>,
    ) -> Result<Response<v1::RouteReply>, Status> {
        let life = request.get_ref().incarnation;
        self.ask(request, life, |mut leader, request| async move {
            leader.route(request).await
        })
        .await
    }

    async fn release_route(
        &self,
        request: Request<v1::ReleaseRouteRequest>,
    ) -> Result<Response<v1::Ack>, Status> {
        let life = request.get_ref().incarnation;
        self.ask(request, life, |mut leader, request| async move {
            leader.release_route(request).await
        })
        .await
    }

    async fn append_turn(
        &self,
        request: Request<v1::AppendTurnRequest>,
    ) -> Result<Response<v1::Ack>, Status> {
        let life = request.get_ref().incarnation;
        self.ask(request, life, |mut leader, request| async move {
            leader.append_turn(request).await
        })
        .await
    }

    async fn append_spans(
        &self,
        request: Request<v1::AppendSpansRequest>,
    ) -> Result<Response<v1::Ack>, Status> {
        let life = request.get_ref().incarnation;
        self.ask(request, life, |mut leader, request| async move {
            leader.append_spans(request).await
        })
        .await
    }

    async fn append_spans_batch(
        &self,
        request: Request<v1::SpansBatch>,
    ) -> Result<Response<v1::SpansBatchReply>, Status> {
        let life = request.get_ref().incarnation;
        self.ask(request, life, |mut leader, request| async move {
            leader.append_spans_batch(request).await
        })
        .await
    }

    async fn finish_trajectory(
        &self,
        request: Request<v1::FinishTrajectoryRequest>,
    ) -> Result<Response<v1::Ack>, Status> {
        let life = request.get_ref().incarnation;
        self.ask(request, life, |mut leader, request| async move {
            leader.finish_trajectory(request).await
        })
        .await
    }
}
