//! One role's link through this node, with its paths rewritten.
use super::Upstream;
use super::shards::Shards;
use robust_proto::v1::{self, call, call_reply, host_message, role_message};
use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming};

/// What a role hears whose node went to another leader; it asks again.
pub(super) const LEFT: &str = "this node has left the leader that was asked";

/// Both directions of a link; the end of one is the end of both.
pub(super) struct Relay {
    pub upstream: Upstream,
    pub shards: Shards,
    pub incarnation: u64,
    pub rank: u32,
    pub up: mpsc::Sender<v1::RoleMessage>,
    pub down: mpsc::Sender<Result<v1::HostMessage, Status>>,
}

/// The link is over: the role, or the leader, will begin a new one.
struct Over(Status);

/// The leader is away, or away for this session: all of it is done again over the next link.
fn is_passing(status: &Status) -> bool {
    !matches!(
        status.code(),
        Code::InvalidArgument
            | Code::NotFound
            | Code::DataLoss
            | Code::ResourceExhausted
            | Code::FailedPrecondition
    )
}

fn refusal(call_id: u64, status: &Status) -> v1::CallReply {
    v1::CallReply {
        call_id,
        error: status.message().to_owned(),
        ..v1::CallReply::default()
    }
}

impl Relay {
    /// Until either side leaves, or the node `left` the leader.
    pub async fn run(
        self,
        (mut said, mut heard): (Streaming<v1::RoleMessage>, Streaming<v1::HostMessage>),
        left: impl Future<Output = ()>,
    ) {
        let over = tokio::select! {
            () = left => Over(Status::unavailable(LEFT)),
            Err(over) = self.upward(&mut said) => over,
            Err(over) = self.downward(&mut heard) => over,
            else => return,
        };
        // UNAVAILABLE, whatever it was: only the answer to a hello can fence a role.
        let status = Status::unavailable(over.0.message());
        // The role may have left first.
        let _ = self.down.try_send(Err(status));
    }

    async fn upward(&self, said: &mut Streaming<v1::RoleMessage>) -> Result<(), Over> {
        loop {
            let message = said.message().await.map_err(Over)?;
            let message = message.ok_or_else(|| Over(Status::cancelled("the role left")))?;
            let message = self.outward(message).await?;
            self.send_up(message).await?;
        }
    }

    async fn send_up(&self, message: v1::RoleMessage) -> Result<(), Over> {
        let sent = self.up.send(message).await;
        sent.map_err(|_| Over(Status::unavailable("the leader is away")))
    }

    async fn downward(&self, heard: &mut Streaming<v1::HostMessage>) -> Result<(), Over> {
        loop {
            let message = heard.message().await.map_err(Over)?;
            let message = message.ok_or_else(|| Over(Status::unavailable("closed")))?;
            let Some(message) = self.inward(message).await? else {
                continue;
            };
            let sent = self.down.send(Ok(message)).await;
            sent.map_err(|_| Over(Status::cancelled("the role left")))?;
        }
    }

    /// A rank's snapshot stays in its slot here, where other nodes read it; a leader of an earlier build is told of it
    /// once it has it.
    async fn outward(&self, message: v1::RoleMessage) -> Result<v1::RoleMessage, Over> {
        let Some(role_message::Body::Reply(mut reply)) = message.body else {
            return Ok(message);
        };
        if let Some(call_reply::Result::Snapshot(shard)) = &reply.result {
            if self.upstream.gives {
                let kept = v1::SnapshotReply {
                    path: String::new(),
                    ..shard.clone()
                };
                reply.result = Some(call_reply::Result::Snapshot(kept));
                let body = Some(role_message::Body::Reply(reply));
                return Ok(v1::RoleMessage { body });
            }
            let (me, shard) = (self.incarnation, shard.clone());
            let sending = self.shards.send(&self.upstream, me, self.rank, shard);
            reply = match sending.await {
                Ok(kept) => v1::CallReply {
                    result: Some(call_reply::Result::Snapshot(kept)),
                    ..reply
                },
                Err(status) if is_passing(&status) => return Err(Over(status)),
                Err(status) => refusal(reply.call_id, &status),
            };
        }
        Ok(v1::RoleMessage {
            body: Some(role_message::Body::Reply(reply)),
        })
    }

    /// A rank is told to restore shards once they are here; none when they cannot be had.
    async fn inward(&self, message: v1::HostMessage) -> Result<Option<v1::HostMessage>, Over> {
        let Some(host_message::Body::Call(mut call)) = message.body else {
            return Ok(Some(message));
        };
        if let Some(call::Body::Restore(restore)) = &mut call.body {
            let shards = std::mem::take(&mut restore.shards);
            let only = restore.own.then_some(self.rank);
            match self.shards.bring(&self.upstream, shards, only).await {
                Ok(here) => restore.shards = here,
                Err(status) if is_passing(&status) => return Err(Over(status)),
                Err(status) => {
                    let reply = role_message::Body::Reply(refusal(call.call_id, &status));
                    self.send_up(v1::RoleMessage { body: Some(reply) }).await?;
                    return Ok(None);
                }
            }
        }
        let body = Some(host_message::Body::Call(call));
        Ok(Some(v1::HostMessage { body }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_asking_again_cannot_help_is_an_answer() {
        assert!(is_passing(&Status::unavailable("")));
        assert!(is_passing(&Status::unauthenticated("")));
        assert!(is_passing(&Status::unknown("")));
        assert!(!is_passing(&Status::data_loss("")));
        assert!(!is_passing(&Status::resource_exhausted("")));
    }
}
