//! What an agent asks of the daemon, patiently: it may be restarting.

use std::path::Path;
use std::time::Duration;

use super::spool::Spool;
use crate::Link;
use robust_proto::v1::role_host_client::RoleHostClient;
use robust_proto::v1::{
    AppendSpansRequest, AppendTurnRequest, FinishTrajectoryRequest, ReleaseRouteRequest,
    RouteReply, RouteRequest, Span, SpansBatch, SpansBatchReply,
};
use tokio::time::Instant;
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
    spool: Spool,
    /// What ticks are counted from.
    began: Instant,
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
            spool: Spool::default(),
            began: Instant::now(),
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

    /// Returns when tokens of a turn under way are stored durably; they go along with those of other conversations.
    pub async fn append_spans(&self, request: AppendSpansRequest) -> Result<(), Refusal> {
        let (trajectory, turn) = (request.trajectory, request.turn);
        let tokens = request.offset as usize + count(&request.spans);
        self.spool.append(self, request).await?;
        tracing::debug!(trajectory, turn, tokens, "kept: tokens");
        Ok(())
    }

    /// The same alone.
    pub(super) async fn append_alone(&self, request: AppendSpansRequest) -> Result<(), Refusal> {
        let stored = self.ask(|mut client| {
            let request = request.clone();
            async move { client.append_spans(request).await }
        });
        stored.await.map(drop)
    }

    /// What became of the tokens of many conversations: one try.
    pub(super) async fn append_batch(
        &self,
        request: SpansBatch,
    ) -> Result<SpansBatchReply, Status> {
        let answer = self.client.clone().append_spans_batch(request).await;
        answer.map(tonic::Response::into_inner)
    }

    /// Waits until there is a daemon to ask.
    pub(super) async fn linked(&self) {
        self.link.linked().await;
    }

    /// Between two tries.
    pub(super) async fn pause(&self) {
        tokio::time::sleep(RETRY).await;
    }

    /// The next moment at which all conversations have their tokens kept that want that so often.
    pub(super) fn next_tick(&self, every: Duration) -> Instant {
        let now = Instant::now();
        let Some(left) = since_tick(now - self.began, every) else {
            return now;
        };
        now + (every - left)
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
            if let Some(refusal) = refusal(status.code(), status.message()) {
                return Err(refusal);
            }
            // The daemon is away, ends, or could not store it: its own matter.
            tracing::debug!(%status, "asking the daemon again");
            self.pause().await;
        }
    }
}

/// What an answer of the daemon says that asking again will not change; none if it may.
pub(super) fn refusal(code: Code, message: &str) -> Option<Refusal> {
    match code {
        Code::FailedPrecondition => Some(Refusal::Void),
        Code::InvalidArgument
        | Code::NotFound
        | Code::Unimplemented
        | Code::OutOfRange
        | Code::PermissionDenied => Some(Refusal::Other(message.to_owned())),
        _ => None,
    }
}

/// How long ago the last tick was; none where there are none.
fn since_tick(passed: Duration, every: Duration) -> Option<Duration> {
    let into = passed.as_nanos().checked_rem(every.as_nanos())?;
    // It is less than `every`, which has fewer.
    Some(Duration::from_nanos(u64::try_from(into).unwrap_or(0)))
}

fn count(spans: &[Span]) -> usize {
    spans.iter().map(|span| span.ids.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_that_begin_at_any_time_have_the_same_ticks() {
        let ms = Duration::from_millis;
        assert_eq!(since_tick(ms(0), ms(250)), Some(ms(0)));
        assert_eq!(since_tick(ms(260), ms(250)), Some(ms(10)));
        assert_eq!(since_tick(ms(1_240), ms(250)), Some(ms(240)));
        assert_eq!(since_tick(ms(7), ms(0)), None);
    }
}
