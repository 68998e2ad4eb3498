//! What operators ask about nodes to be: tokens, certificates, and taking them back.
use crate::nodes::{LONGEST_NAME, Members, Sessions, unix_ms};
use robust_proto::v1::{self, revoke_join_request::What};
use tonic::Status;

/// Who may become a node of the job, and who is one now.
#[derive(Clone, Debug)]
pub struct Joins {
    /// The leader's list.
    pub members: Members,
    /// Of those that are joined.
    pub sessions: Sessions,
}

impl Joins {
    pub(super) async fn create(
        self,
        asked: v1::CreateJoinTokenRequest,
    ) -> Result<v1::CreateJoinTokenReply, Status> {
        if asked.node.len() > LONGEST_NAME {
            let len = asked.node.len();
            let text = format!("the node's name is too long ({len} bytes); at most {LONGEST_NAME}");
            return Err(Status::invalid_argument(text));
        }
        let node = Some(asked.node).filter(|name| !name.is_empty());
        let created = on_disk(move || self.members.create(node, asked.ttl_s, unix_ms())).await?;
        Ok(v1::CreateJoinTokenReply {
            id: created.id,
            token: created.token.reveal().to_owned(),
            expires_ms: created.expires_ms,
        })
    }

    pub(super) async fn revoke(
        self,
        asked: v1::RevokeJoinRequest,
    ) -> Result<v1::RevokeJoinReply, Status> {
        let nothing = || Status::invalid_argument("say which token or which node");
        let Self { members, sessions } = self;
        match asked.what.ok_or_else(nothing)? {
            What::Token(id) => on_disk(move || members.revoke_token(&id, unix_ms())).await?,
            What::Node(name) => {
                let revoked = name.clone();
                on_disk(move || members.revoke_node(&revoked, unix_ms())).await?;
                sessions.close(&name);
                tracing::warn!("node {name}'s certificate was taken back: its link is closed");
            }
        }
        Ok(v1::RevokeJoinReply {})
    }

    pub(super) fn list(&self) -> v1::ListJoinsReply {
        let (tokens, nodes) = self.members.list(unix_ms());
        let tokens = tokens.into_iter().map(|t| v1::JoinToken {
            id: t.id,
            node: t.node.unwrap_or_default(),
            expires_ms: t.expires_ms,
            used_by: t.used_by.unwrap_or_default(),
        });
        let nodes = nodes.into_iter().map(|node| v1::EnrolledNode {
            joined: self.sessions.has(&node.name),
            name: node.name,
            since_ms: node.since_ms,
            fingerprint: node.fingerprint,
            until_ms: node.until_ms,
        });
        v1::ListJoinsReply {
            tokens: tokens.collect(),
            nodes: nodes.collect(),
            revoked: Vec::new(),
        }
    }
}

/// A change is on disk before it is answered.
pub(super) async fn on_disk<T, E>(
    change: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, Status>
where
    T: Send + 'static,
    E: Send + 'static,
    Status: From<E>,
{
    let changed = tokio::task::spawn_blocking(change).await;
    Ok(changed.map_err(|_| Status::internal("writing it down ended"))??)
}
