//! The role socket of a node: what roles say goes to the leader, what it answers comes back.
use super::relay::Relay;
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
        let heard = Self::client(&upstream)
            .attach(attaching)
            .await?
            .into_inner();
        let (down, messages) = mpsc::channel(IN_FLIGHT);
        let relay = Relay {
            upstream,
            shards: self.shards.clone(),
            incarnation,
            rank,
            up,
            down,
        };
        tokio::spawn(relay.run(said, heard));
        Ok(Response::new(ReceiverStream::new(messages)))
    }

    async fn route(
        &self,
        request: Request<v1::RouteRequest>,
    ) -> Result<Response<v1::RouteReply>, Status> {
        self.check(&request, request.get_ref().incarnation)?;
        let upstream = self.upstream()?;
        let request = upstream.request(request.into_inner());
        Self::client(&upstream).route(request).await
    }

    async fn release_route(
        &self,
        request: Request<v1::ReleaseRouteRequest>,
    ) -> Result<Response<v1::Ack>, Status> {
        self.check(&request, request.get_ref().incarnation)?;
        let upstream = self.upstream()?;
        let request = upstream.request(request.into_inner());
        Self::client(&upstream).release_route(request).await
    }

    async fn append_turn(
        &self,
        request: Request<v1::AppendTurnRequest>,
    ) -> Result<Response<v1::Ack>, Status> {
        self.check(&request, request.get_ref().incarnation)?;
        let upstream = self.upstream()?;
        let request = upstream.request(request.into_inner());
        Self::client(&upstream).append_turn(request).await
    }

    async fn append_spans(
        &self,
        request: Request<v1::AppendSpansRequest>,
    ) -> Result<Response<v1::Ack>, Status> {
        self.check(&request, request.get_ref().incarnation)?;
        let upstream = self.upstream()?;
        let request = upstream.request(request.into_inner());
        Self::client(&upstream).append_spans(request).await
    }

    async fn finish_trajectory(
        &self,
        request: Request<v1::FinishTrajectoryRequest>,
    ) -> Result<Response<v1::Ack>, Status> {
        self.check(&request, request.get_ref().incarnation)?;
        let upstream = self.upstream()?;
        let request = upstream.request(request.into_inner());
        Self::client(&upstream).finish_trajectory(request).await
    }
}
