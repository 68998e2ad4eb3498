//! Connections of operators' tools over TCP, handed on once it is proven whose token they hold.
//!
//! ```text
//!  accept ──► among the unproven, of whom there are few ──► TLS, both certified ──► the calls, with its rights
//!                │ the oldest of too many, or too slow: closed
//! ```
//! Of the places for those who hold a token, viewers have [`MOST_VIEWERS`]: however many connections are theirs, an
//! operator and who breaks the glass get in.
use super::rights::{Caller, Peer, Rights};
use crate::known::Known;
use crate::logging::Seldom;
use robust_http::{Callers, Closed, MOST_CALLERS, PATIENCE};
use robust_identity::{Door, Person, Unsealed, unsealed};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

/// After an error that is the machine's own, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);
/// Proven and not served yet.
const WAITING: usize = 16;

/// Connections of viewers at a time.
const MOST_VIEWERS: usize = 1024;
const _: () = assert!(MOST_VIEWERS < MOST_CALLERS, "the rest is for operators");

/// A proven connection.
pub(super) type Sealed = Known<TlsStream<TcpStream>, Caller>;

/// Takes the listener's connections, for as long as the stream is kept.
pub(super) fn bounded(
    listener: TcpListener,
    door: Door<Rights>,
) -> ReceiverStream<io::Result<Sealed>> {
    bounded_until_left(listener, door).0
}

/// The same, and what ends once the stream is dropped and the listener is closed.
pub(super) fn bounded_until_left(
    listener: TcpListener,
    door: Door<Rights>,
) -> (ReceiverStream<io::Result<Sealed>>, JoinHandle<()>) {
    with_viewers(MOST_VIEWERS, listener, door)
}

fn with_viewers(
    most: usize,
    listener: TcpListener,
    door: Door<Rights>,
) -> (ReceiverStream<io::Result<Sealed>>, JoinHandle<()>) {
    let (proven, stream) = mpsc::channel(WAITING);
    let viewers = Arc::new(Semaphore::new(most));
    let accepting = tokio::spawn(accept(listener, door, viewers, proven));
    (ReceiverStream::new(stream), accepting)
}

async fn accept(
    listener: TcpListener,
    door: Door<Rights>,
    viewers: Arc<Semaphore>,
    proven: mpsc::Sender<io::Result<Sealed>>,
) {
    let (callers, log) = (Callers::default(), Arc::new(Seldom::default()));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = proven.closed() => return,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                log.say(|| format!("no connection of a tool can be taken: {error}"));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(caller) = callers.enter(from.ip()) else {
            log.say(|| format!("a connection from {from} was closed: there are too many"));
            continue;
        };
        let (door, proven, log) = (door.clone(), proven.clone(), Arc::clone(&log));
        let viewers = Arc::clone(&viewers);
        tokio::spawn(async move {
            match answer(&door, &caller, stream).await {
                Ok((rights, person, stream)) => {
                    let Some(place) = Place::of(rights, caller, viewers) else {
                        return log.say(|| {
                            format!("a viewer's connection from {from} was closed: there are too many of viewers")
                        });
                    };
                    let tcp = stream.get_ref().0.connect_info();
                    let known = Caller::new(Peer::Tcp(tcp, person, Arc::new(place)), rights);
                    // Fails only when nobody serves any more.
                    let _ = proven.send(Ok(Known::new(stream, known))).await;
                }
                Err(error) => log.say(|| refusal(from, &error)),
            }
        });
    }
}

/// The place of a connection on which a token was proven; dropped, it is free.
pub(super) struct Place {
    _of: Arc<robust_http::Caller>,
    _of_viewers: Option<OwnedSemaphorePermit>,
}

impl Place {
    fn of(
        rights: Rights,
        caller: Arc<robust_http::Caller>,
        viewers: Arc<Semaphore>,
    ) -> Option<Self> {
        let of_viewers = match rights {
            Rights::Viewer => Some(viewers.try_acquire_owned().ok()?),
            Rights::Operator | Rights::BreakGlass | Rights::Role | Rights::Over => None,
        };
        caller.proves();
        Some(Self {
            _of: caller,
            _of_viewers: of_viewers,
        })
    }
}

async fn answer(
    door: &Door<Rights>,
    caller: &robust_http::Caller,
    stream: TcpStream,
) -> io::Result<(Rights, Option<Person>, TlsStream<TcpStream>)> {
    stream.set_nodelay(true)?;
    tokio::select! {
        answered = door.answer(stream) => answered,
        closed = caller.without_key() => {
            let text = match closed {
                Closed::Late => format!("no token was proven within {PATIENCE:?}"),
                Closed::ForAnother => "too many came that proved no token".to_owned(),
            };
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        }
    }
}

fn refusal(from: SocketAddr, error: &io::Error) -> String {
    let why = match unsealed(error) {
        Some(Unsealed::OtherToken) => "it has no token of this daemon".to_owned(),
        Some(Unsealed::NoTls) => {
            "it speaks no TLS 1.3: is it a robustctl of an earlier build?".to_owned()
        }
        Some(Unsealed::OursIsOver | Unsealed::TheirsIsOver) => {
            "by its clock or by this machine's it is before 2020 or after 2120".to_owned()
        }
        None => error.to_string(),
    };
    format!("a tool at {from} was refused: {why}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use robust_http::MOST_UNPROVEN;
    use robust_identity::Holders;
    use tokio::io::AsyncReadExt;
    use tokio_stream::StreamExt;

    const OPERATOR: &str = "an operator's token, of 256 bits";
    const VIEWER: &str = "a viewer's token, of 256 bits";

    const BREAKS_GLASS: &str = "a token for emergencies, of 256 bits";

    async fn served() -> (SocketAddr, ReceiverStream<io::Result<Sealed>>) {
        served_with_viewers(MOST_VIEWERS).await
    }

    async fn served_with_viewers(most: usize) -> (SocketAddr, ReceiverStream<io::Result<Sealed>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let tokens = [
            (OPERATOR, Rights::Operator),
            (BREAKS_GLASS, Rights::BreakGlass),
            (VIEWER, Rights::Viewer),
        ];
        let tokens = tokens.map(|(token, rights)| (Holders::of(token).unwrap(), rights));
        let door = Door::of(tokens.into()).unwrap();
        (at, with_viewers(most, listener, door).0)
    }

    async fn call(at: SocketAddr, token: &str) -> io::Result<()> {
        let caller = Holders::of(token).unwrap().caller().unwrap();
        let mut stream = caller.call(TcpStream::connect(at).await?).await?;
        // The callee's refusal comes after the caller's own part is done.
        stream.read(&mut [0]).await.map(drop)
    }

    /// Whether the daemon ended a connection on which nobody says anything.
    async fn is_closed(stranger: &mut TcpStream, within: Duration) -> bool {
        let read = tokio::time::timeout(within, stranger.read(&mut [0])).await;
        read.is_ok_and(|read| !matches!(read, Ok(1..)))
    }

    #[tokio::test]
    async fn a_connection_has_the_rights_of_the_token_that_was_proven_on_it() {
        let (at, mut proven) = served().await;
        for (token, rights) in [(VIEWER, Rights::Viewer), (OPERATOR, Rights::Operator)] {
            let calling = tokio::spawn(call(at, token));
            let connection = proven.next().await.unwrap().unwrap();
            assert_eq!(connection.connect_info().rights(), rights);
            drop(connection);
            let _ = calling.await.unwrap();
        }
        let refused = call(at, "a guess").await.unwrap_err();
        assert_eq!(unsealed(&refused), Some(Unsealed::OtherToken));
    }

    #[tokio::test]
    async fn viewers_who_hold_all_their_places_keep_no_operator_out() {
        let (at, mut proven) = served_with_viewers(2).await;
        let mut held = Vec::new();
        for _ in 0..2 {
            let calling = tokio::spawn(call(at, VIEWER));
            held.push((proven.next().await.unwrap().unwrap(), calling));
        }
        // It proves its token, and hears the end of its connection.
        let one_more = tokio::time::timeout(Duration::from_secs(10), call(at, VIEWER));
        let _ = one_more.await.expect("a third one is closed");
        for (token, rights) in [
            (OPERATOR, Rights::Operator),
            (BREAKS_GLASS, Rights::BreakGlass),
        ] {
            let calling = tokio::spawn(call(at, token));
            let connection = proven.next().await.unwrap().unwrap();
            assert_eq!(connection.connect_info().rights(), rights);
            held.push((connection, calling));
        }
        // A viewer who leaves makes room for another.
        drop(held.remove(0));
        let calling = tokio::spawn(call(at, VIEWER));
        let connection = proven.next().await.unwrap().unwrap();
        assert_eq!(connection.connect_info().rights(), Rights::Viewer);
        drop((connection, calling, held));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_on_which_nobody_proves_a_token_is_closed_in_time() {
        let (at, _proven) = served().await;
        let mut silent = TcpStream::connect(at).await.unwrap();
        assert!(is_closed(&mut silent, 2 * PATIENCE).await);
    }

    #[tokio::test]
    async fn strangers_who_hold_connections_make_room_for_the_next() {
        let (at, mut proven) = served().await;
        let mut strangers = Vec::new();
        for _ in 0..MOST_UNPROVEN {
            strangers.push(TcpStream::connect(at).await.unwrap());
        }
        let calling = tokio::spawn(call(at, OPERATOR));
        let connection = proven.next().await.unwrap().unwrap();
        let mut closed = 0;
        for stranger in &mut strangers {
            closed += u32::from(is_closed(stranger, Duration::from_millis(20)).await);
        }
        assert_eq!(closed, 1, "one made room");
        drop(connection);
        let _ = calling.await.unwrap();
    }
}
