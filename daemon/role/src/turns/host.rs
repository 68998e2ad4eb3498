//! What an agent asks of the daemon, patiently: it may be restarting.

use std::path::Path;
use std::time::Duration;

use crate::Link;
use robust_proto::v1::role_host_client::RoleHostClient;
use robust_proto::v1::{
    AppendSpansRequest, AppendTurnRequest, FinishTrajectoryRequest, ReleaseRouteRequest,
    RouteReply, RouteRequest, Span,
};
use tonic::transport::Channel;
use tonic::{Code, Status};

/// Pause before an unanswered request is repeated. Whether the daemon stays away too long is the
/// link's to judge.
const RETRY: Duration = Duration::from_millis(100);

/// Why the daemon does not do what was asked.
#[derive(Debug)]
pub enum Refusal {
    /// The lease is void: the trajectory is somebody else's now.
    Void,
    /// It will not work by asking again.
    Other(String),
}

/// The daemon as an agent asks it. What it acknowledged is logged (debug, `kept: ...`): evidence, for
/// whoever doubts it, that lies outside of the daemon's reach.
#[derive(Clone)]
pub struct Host {
    client: RoleHostClient<Channel>,
    link: Link,
    /// Who asks.
    pub incarnation: u64,
}

impl Host {
    /// At this socket.
    pub fn new(socket: &Path, link: Link, incarnation: u64) -> Self {
        let client = RoleHostClient::new(crate::channel(socket));
        Self {
            client,
            link,
            incarnation,
        }
    }

    /// Waits for a rollout.
    pub async fn route(&self, trajectory: u64) -> Result<RouteReply, Refusal> {
        let request = RouteRequest {
            incarnation: self.incarnation,
            trajectory,
        };
        self.ask(|mut client| async move { client.route(request).await })
            .await
    }

    /// Gives the rollout's place back, without waiting for it. `broken`: the rollout did not end the
    /// request.
    pub fn release(&self, ticket: u64, broken: bool) {
        let host = self.clone();
        // Without a runtime the process is ending, and all its places with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            let incarnation = host.incarnation;
            let request = ReleaseRouteRequest {
                ticket,
                broken,
                incarnation,
            };
            let released = host
                .ask(|mut c| async move { c.release_route(request).await })
                .await;
            if let Err(refusal) = released {
                // A restarted daemon does not know the ticket, and counts from the start.
                tracing::debug!(ticket, ?refusal, "release");
            }
        });
    }

    /// Returns when the turn is stored durably.
    pub async fn append(&self, request: AppendTurnRequest) -> Result<(), Refusal> {
        self.ask(|mut client| {
            let request = request.clone();
            async move { client.append_turn(request).await }
        })
        .await?;
        let trajectory = request.trajectory;
        let turn = request.turn.unwrap_or_default();
        let tokens = count(&turn.spans);
        tracing::debug!(trajectory, turn = turn.index, tokens, "kept: turn");
        Ok(())
    }

    /// Returns when tokens of a turn under way are stored durably.
    pub async fn append_spans(&self, request: AppendSpansRequest) -> Result<(), Refusal> {
        self.ask(|mut client| {
            let request = request.clone();
            async move { client.append_spans(request).await }
        })
        .await?;
        let (trajectory, turn) = (request.trajectory, request.turn);
        let tokens = request.offset as usize + count(&request.spans);
        tracing::debug!(trajectory, turn, tokens, "kept: tokens");
        Ok(())
    }

    /// Returns when the trajectory's end is stored durably.
    pub async fn finish(&self, request: FinishTrajectoryRequest) -> Result<(), Refusal> {
        self.ask(|mut client| {
            let request = request.clone();
            async move { client.finish_trajectory(request).await }
        })
        .await?;
        let (trajectory, turn) = (request.trajectory, request.turns);
        tracing::debug!(trajectory, turn, tokens = 0, "kept: end");
        Ok(())
    }

    async fn ask<T, F>(&self, request: impl Fn(RoleHostClient<Channel>) -> F) -> Result<T, Refusal>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        loop {
            self.link.linked().await;
            let status = match request(self.client.clone()).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) => status,
            };
            match status.code() {
                Code::FailedPrecondition => return Err(Refusal::Void),
                Code::InvalidArgument
                | Code::NotFound
                | Code::Unimplemented
                | Code::OutOfRange
                | Code::PermissionDenied => {
                    return Err(Refusal::Other(status.message().to_owned()));
                }
                // The daemon is away, ends, or could not store it: its own matter.
                _ => tracing::debug!(%status, "asking the daemon again"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

fn count(spans: &[Span]) -> usize {
    spans.iter().map(|span| span.ids.len()).sum()
}
