//! The router's task: it ends after those whom it serves.
use super::{Parts, serve};
use robust_http::Wire;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long those are waited for who are still answered when everything else has ended. Their
/// engines are gone by then, and so is their wait for another.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// A router that is served beside everything else.
#[derive(Debug)]
pub struct Serving {
    task: JoinHandle<()>,
    end: oneshot::Sender<()>,
}

impl Serving {
    /// Serves clients from now on.
    pub fn start(listener: (TcpListener, Wire), parts: Parts) -> Self {
        let (end, ended) = oneshot::channel();
        // Whoever drops the sender wants no router any more, either.
        let ended = async move { drop(ended.await) };
        let task = tokio::spawn(serve(listener, parts, ended));
        Self { task, end }
    }

    /// Lets nobody in any more, and lets those be answered who are.
    pub async fn end(self) {
        let Self { mut task, end } = self;
        // A task that ended before listens to nobody.
        let _ = end.send(());
        if tokio::time::timeout(LAST_ANSWERS, &mut task).await.is_err() {
            task.abort();
        }
    }
}
