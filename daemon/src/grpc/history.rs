//! A run's history for operators' tools.
use super::words::unreadable;
use crate::report::history;
use crate::state::StateDir;
use crate::store::Store;
use robust_proto::v1;
use tokio::sync::mpsc::Sender;
use tonic::Status;

/// Sends the parts of the history until there are no more or nobody listens. Blocks.
pub fn send(
    store: &Store,
    state: &StateDir,
    status: &v1::Status,
    cells: u32,
    to: &Sender<Result<v1::History, Status>>,
) {
    let mut tell = |part| to.blocking_send(Ok(part)).is_ok();
    if let Err(error) = history(store, state, status, cells, &mut tell) {
        // The reader may have left.
        let _ = to.blocking_send(Err(unreadable(error)));
    }
}
