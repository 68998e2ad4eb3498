//! Parts of logs for operators, read where the process is.
//!
//! ```text
//!  ReadLog ──┬─ here ──► a thread reads the file ──────────────► answer
//!            └─ there ─► order to the node's daemon ── LogRead ─► answer
//! ```
//! A node that does not answer leaves its reader waiting; the reader has a limit of its own.
use super::Driver;
use super::nodes::Remote;
use crate::launcher::{LogPage, page};
use robust_proto::v1::{self, leader_message::Body as Down};
use robust_shared::core::Refusal;
use robust_shared::ids::{InstanceId, NodeId};
use std::collections::HashMap;
use std::path::Path;
use tokio::sync::oneshot;

/// Where a part of a log goes.
pub type LogAnswer = oneshot::Sender<Result<NodePage, LogError>>;

/// A part of a log and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePage {
    /// The node's name.
    pub node: String,
    /// The part.
    pub page: LogPage,
}

/// Why a log cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// There is no such instance.
    #[error(transparent)]
    Unknown(#[from] Refusal),
    /// Its node is not linked.
    #[error("the log is on node `{node}`, which is not joined now; try again when it is")]
    Away {
        /// The node's name.
        node: String,
    },
    /// The file cannot be read.
    #[error("the log of {id} on node `{node}` cannot be read: {reason}")]
    Unreadable {
        /// Whose.
        id: InstanceId,
        /// The node's name.
        node: String,
        /// The system's words.
        reason: String,
    },
}

/// Those that wait for another node's answer.
#[derive(Debug, Default)]
pub(super) struct Readers(HashMap<u64, (InstanceId, String, LogAnswer)>);

impl Driver {
    pub(super) fn on_read_log(
        &mut self,
        id: InstanceId,
        (offset, bytes): (u64, u32),
        answer: LogAnswer,
    ) {
        // Whoever asked may have left, then and below.
        let node = match self.core.node_of(id) {
            Ok(node) => node.unwrap_or(NodeId::LEADER),
            Err(refusal) => return drop(answer.send(Err(refusal.into()))),
        };
        let name = self.core.node(node).map(|n| n.name.clone());
        let name = name.unwrap_or_else(|| self.parts.feeds.node().to_owned());
        if node == NodeId::LEADER {
            let logs = self.parts.state.logs();
            return read_here(&logs, (id, name), (offset, bytes), answer);
        }
        if !self.nodes.get(node).is_some_and(Remote::is_linked) {
            return drop(answer.send(Err(LogError::Away { node: name })));
        }
        self.tasks += 1;
        let ticket = self.tasks;
        // Those that gave up.
        self.readers.0.retain(|_, (.., answer)| !answer.is_closed());
        self.readers.0.insert(ticket, (id, name, answer));
        self.nodes.remote(node).order(Down::ReadLog(v1::ReadLog {
            ticket,
            role: id.role.name().to_owned(),
            index: id.index,
            offset,
            bytes,
        }));
    }

    /// A node read a part of a log.
    pub(super) fn on_log_read(&mut self, read: v1::LogRead) {
        let Some((id, node, answer)) = self.readers.0.remove(&read.ticket) else {
            return;
        };
        let v1::LogRead {
            data, size, error, ..
        } = read;
        let page = match error.is_empty() {
            true => Ok(LogPage { data, size }),
            false => Err(error),
        };
        let _ = answer.send(whole(id, node, page));
    }
}

/// Reads a log in this folder, on a thread of its own.
pub fn read_here(
    logs: &Path,
    (id, node): (InstanceId, String),
    (offset, bytes): (u64, u32),
    answer: LogAnswer,
) {
    let path = logs.join(format!("{id}.log"));
    tokio::task::spawn_blocking(move || {
        let read = page(&path, offset, bytes).map_err(|e| e.to_string());
        // Whoever asked may have left.
        let _ = answer.send(whole(id, node, read));
    });
}

fn whole(
    id: InstanceId,
    node: String,
    page: Result<LogPage, String>,
) -> Result<NodePage, LogError> {
    match page {
        Ok(page) => Ok(NodePage { node, page }),
        Err(reason) => Err(LogError::Unreadable { id, node, reason }),
    }
}
