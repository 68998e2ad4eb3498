//! The progress thread.
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use crate::command::CommandQueue;
use crate::config::Config;
use crate::error::TransportError;
use crate::transport::Shared;

pub(crate) fn run(
    _config: &Config,
    _queue: CommandQueue,
    _shared: Arc<Shared>,
    ready: Sender<Result<SocketAddr, TransportError>>,
) {
    let _ = ready.send(Err(TransportError::Shutdown));
}
