//! Connections of operators' tools over TCP, each within its bounds until it shows a token.
//!
//! ```text
//!  accept ──► among the callers without a token, of whom there are few ──► the calls
//!                │ the oldest of too many, or too long without: closed
//! ```
use robust_http::{Caller, Callers, PATIENCE};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// After an error that is the machine's own, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);
/// Taken and not served yet.
const WAITING: usize = 16;

/// A connection that is closed unless it shows a token in time.
pub(super) struct Bounded {
    stream: TcpStream,
    caller: Arc<Caller>,
    closes: Pin<Box<dyn Future<Output = ()> + Send>>,
    closed: bool,
}

/// What requests know of their connection.
#[derive(Clone)]
pub(super) struct Connection {
    /// Its addresses.
    pub tcp: TcpConnectInfo,
    caller: Arc<Caller>,
}

impl Connection {
    /// A request on it showed a token.
    pub fn proves(&self) {
        self.caller.proves();
    }
}

/// Takes the listener's connections, for as long as the stream is kept.
pub(super) fn bounded(listener: TcpListener) -> ReceiverStream<io::Result<Bounded>> {
    let (taken, stream) = mpsc::channel(WAITING);
    tokio::spawn(accept(listener, taken));
    ReceiverStream::new(stream)
}

async fn accept(listener: TcpListener, taken: mpsc::Sender<io::Result<Bounded>>) {
    let callers = Callers::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = taken.closed() => return,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!("no connection of a tool can be taken: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(caller) = callers.enter(from.ip()) else {
            tracing::debug!("a connection from {from} was closed: there are too many");
            continue;
        };
        let waits = Arc::clone(&caller);
        let closes = Box::pin(async move { waits.without_key().await });
        let bounded = Bounded {
            stream,
            caller,
            closes,
            closed: false,
        };
        if taken.send(Ok(bounded)).await.is_err() {
            return;
        }
    }
}

impl Connected for Bounded {
    type ConnectInfo = Connection;

    fn connect_info(&self) -> Connection {
        let caller = Arc::clone(&self.caller);
        let tcp = self.stream.connect_info();
        Connection { tcp, caller }
    }
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.closed || self.closes.as_mut().poll(cx).is_ready() {
            self.closed = true;
            let text = format!("no token was shown within {PATIENCE:?}");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)));
        }
        Pin::new(&mut self.stream).poll_read(cx, to)
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_http::MOST_UNPROVEN;
    use tokio::io::AsyncReadExt;
    use tokio_stream::StreamExt;

    /// How a connection ends that nobody ends at the other side.
    async fn refused(of: &mut Bounded) -> io::Error {
        let mut byte = [0];
        let read = tokio::time::timeout(2 * PATIENCE, of.read(&mut byte)).await;
        read.unwrap().unwrap_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_on_which_nobody_shows_a_token_is_closed_in_time_and_another_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let mut taken = bounded(listener);
        let (_one, _other) = (
            TcpStream::connect(at).await.unwrap(),
            TcpStream::connect(at).await.unwrap(),
        );
        let mut silent = taken.next().await.unwrap().unwrap();
        let mut keyed = taken.next().await.unwrap().unwrap();
        keyed.connect_info().proves();
        let error = refused(&mut silent).await;
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        refused(&mut silent).await;
        let waiting = tokio::time::timeout(10 * PATIENCE, keyed.read(&mut [0])).await;
        assert!(waiting.is_err(), "it may say nothing for long");
    }

    #[tokio::test]
    async fn strangers_who_hold_connections_make_room_for_the_next() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let mut taken = bounded(listener);
        let (mut callers, mut served) = (Vec::new(), Vec::new());
        for _ in 0..=MOST_UNPROVEN {
            callers.push(TcpStream::connect(at).await.unwrap());
            served.push(taken.next().await.unwrap().unwrap());
        }
        refused(&mut served[0]).await;
        let mut byte = [0];
        let newest = served.last_mut().unwrap().read(&mut byte);
        let newest = tokio::time::timeout(Duration::from_millis(50), newest).await;
        assert!(newest.is_err(), "it is not closed");
    }
}
