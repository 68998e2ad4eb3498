//! Connections of nodes, handed on once it is proven whose they are.
//!
//! ```text
//!  accept ──► a place among the unproven, by address ──► TLS, both certified ──► the services
//!                │ none left: closed                       │ refused, or too slow: closed, and said
//! ```
//! Whoever has not proven himself costs a place for [`PATIENCE`] at most, and one address has few of them: a
//! stranger who holds connections open keeps nobody out but whoever shares his address.
use super::members::Members;
use super::proven::{Proof, Proven};
use super::unix_ms;
use crate::known::Known;
use crate::logging::Seldom;
use robust_identity::{Fingerprint, ShownChain, Unsealed, answer_named, network, unsealed};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// How long a caller may take to prove itself.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Unproven callers of one address at a time; more are closed at once, and a node tries again.
pub const OF_ONE_ADDRESS: usize = 16;
/// Of all addresses.
pub const IN_ALL: usize = 256;
/// After an error that is the machine's own, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);
/// Proven and not taken yet.
const WAITING: usize = 16;

/// A proven connection.
pub type Sealed = Known<TlsStream<TcpStream>, Peer>;

/// Who is at the other end of one; its requests know it.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Who it proved to be when it called.
    pub proven: Proven,
    /// The certificate by which it proved that.
    pub shown: Option<Fingerprint>,
    /// The same with all that came with it, where it is one from outside.
    outside: Option<ShownChain>,
    tcp: TcpConnectInfo,
}

impl Peer {
    /// Where its connection comes from.
    pub fn address(&self) -> Option<SocketAddr> {
        self.tcp.remote_addr()
    }

    /// Whether it came with a certificate from outside.
    pub(super) fn is_from_outside(&self) -> bool {
        self.outside.is_some()
    }

    /// Who it is as things are now: a connection outlives the certificate that opened it.
    pub(super) fn proven_now(&self, members: &Members) -> Proven {
        match (&self.outside, self.shown) {
            (Some(chain), _) => members.node_outside(chain),
            (None, Some(shown)) => members.node_of(shown, unix_ms()),
            (None, None) => Proven::Former,
        }
    }
}

/// Takes the listener's connections, for as long as the stream is kept.
pub fn sealed(listener: TcpListener, members: Members) -> ReceiverStream<io::Result<Sealed>> {
    let answer = move |stream| {
        let members = members.clone();
        async move { answer(&members, stream).await }
    };
    proven_connections(listener, answer, refusal)
}

/// The listener's connections, each once `answer` says who is at its other end, for as long as the stream is kept.
pub fn proven_connections<S, F>(
    listener: TcpListener,
    answer: impl Fn(TcpStream) -> F + Send + 'static,
    refusal: fn(SocketAddr, &io::Error) -> String,
) -> ReceiverStream<io::Result<S>>
where
    S: Send + 'static,
    F: Future<Output = io::Result<S>> + Send + 'static,
{
    let (proven, stream) = mpsc::channel(WAITING);
    tokio::spawn(accept(listener, answer, refusal, proven));
    ReceiverStream::new(stream)
}

async fn accept<S, F>(
    listener: TcpListener,
    answer: impl Fn(TcpStream) -> F,
    refusal: fn(SocketAddr, &io::Error) -> String,
    proven: mpsc::Sender<io::Result<S>>,
) where
    S: Send + 'static,
    F: Future<Output = io::Result<S>> + Send + 'static,
{
    let (unproven, log) = (Unproven::default(), Arc::new(Seldom::default()));
    loop {
        let taken = tokio::select! {
            taken = listener.accept() => taken,
            () = proven.closed() => return,
        };
        let (stream, from) = match taken {
            Ok(taken) => taken,
            Err(error) => {
                log.say(|| format!("no connection can be taken: {error}"));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(place) = unproven.enter(from.ip()) else {
            log.say(|| format!("a connection from {from} was closed: too many are unproven"));
            continue;
        };
        let (answering, proven, log) = (answer(stream), proven.clone(), Arc::clone(&log));
        tokio::spawn(async move {
            let slow =
                |_| io::Error::new(io::ErrorKind::TimedOut, "it said too little for too long");
            let answered = timeout(PATIENCE, answering).await.map_err(slow);
            match answered.flatten() {
                Ok(stream) => {
                    drop(place);
                    // Fails only when nobody serves any more.
                    let _ = proven.send(Ok(stream)).await;
                }
                Err(error) => log.say(|| refusal(from, &error)),
            }
        });
    }
}

async fn answer(members: &Members, stream: TcpStream) -> io::Result<Sealed> {
    stream.set_nodelay(true)?;
    let answering = answer_named(stream, |name| {
        let answering = members.answering(name, unix_ms());
        answering
            .inspect_err(|error| tracing::error!("nobody can be answered: {error}"))
            .ok()
    });
    let (proof, stream) = answering.await?;
    let mut peer = Peer {
        proven: Proven::Former,
        shown: Fingerprint::of_caller(&stream),
        outside: None,
        tcp: stream.get_ref().0.connect_info(),
    };
    if proof == Proof::Outside {
        peer.outside = ShownChain::of_caller(&stream);
    }
    let shown = peer.shown;
    peer.proven = match proof {
        Proof::Token(token) => Proven::Holder(token),
        Proof::Certificate | Proof::Outside => peer.proven_now(members),
    };
    if let Some(new) = shown.filter(|shown| members.is_next(*shown)) {
        let members = members.clone();
        let noted = tokio::task::spawn_blocking(move || members.was_used(new, unix_ms()));
        if let Ok(Err(error)) = noted.await {
            // Both certificates count until the node calls again.
            tracing::warn!("that a node has a new certificate cannot be noted: {error}");
        }
    }
    Ok(Known::new(stream, peer))
}

fn refusal(from: SocketAddr, error: &io::Error) -> String {
    let why = match unsealed(error) {
        Some(Unsealed::OtherToken) => {
            "it is certified by another leader, or has no join token that this one knows; or its certificate from outside is \
             by an authority that is not in the file of --authority"
                .to_owned()
        }
        Some(Unsealed::NoTls) => {
            "it speaks no TLS 1.3: is it a robustd or robustctl of an earlier build?".to_owned()
        }
        Some(Unsealed::TheirsIsOver) => {
            "its certificate has expired, or is not good yet: compare the clocks of both machines; with a token that \
             `robustctl token create` made it gets another, unless it is one from outside"
                .to_owned()
        }
        Some(Unsealed::OursIsOver) => {
            "it takes this leader's certificate for expired: compare the clocks of both machines"
                .to_owned()
        }
        None => error.to_string(),
    };
    format!("a connection from {from} was refused: {why}")
}

/// Who has not proven himself yet. Clones share it.
#[derive(Clone, Default)]
struct Unproven(Arc<Mutex<Counted>>);

#[derive(Default)]
struct Counted {
    of: HashMap<IpAddr, usize>,
    all: usize,
}

/// A place among them; dropped, it is free.
struct Place {
    unproven: Unproven,
    of: IpAddr,
}

impl Unproven {
    fn enter(&self, of: IpAddr) -> Option<Place> {
        let of = network(of);
        let mut counted = self.lock();
        if counted.all >= IN_ALL || counted.of.get(&of).is_some_and(|n| *n >= OF_ONE_ADDRESS) {
            return None;
        }
        counted.all += 1;
        *counted.of.entry(of).or_default() += 1;
        let unproven = self.clone();
        Some(Place { unproven, of })
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        // No code can panic while it holds the lock, so a poisoned count is as good as any.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counted = self.unproven.lock();
        counted.all -= 1;
        if let Some(of) = counted.of.get_mut(&self.of) {
            *of -= 1;
            if *of == 0 {
                counted.of.remove(&self.of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn one_address_takes_no_more_than_its_places_and_gives_them_back() {
        let unproven = Unproven::default();
        let [stranger, node] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let held: Vec<_> = std::iter::from_fn(|| unproven.enter(stranger)).collect();
        assert_eq!(held.len(), OF_ONE_ADDRESS);
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert!(unproven.enter(mapped).is_none(), "it is the same address");
        drop(unproven.enter(node).unwrap());
        // One machine may have all addresses of its network.
        let of_one_network = |host| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, host]);
        let mut hosts = (1..=100).map(of_one_network);
        let v6: Vec<_> = hosts.by_ref().map_while(|at| unproven.enter(at)).collect();
        assert_eq!(v6.len(), OF_ONE_ADDRESS);
        drop((held, v6));
        assert!(unproven.enter(stranger).is_some());
        assert!(unproven.lock().of.is_empty());
    }

    #[test]
    fn all_addresses_together_have_a_bound() {
        let unproven = Unproven::default();
        let of = |n: usize| IpAddr::from([10, 0, (n / 256) as u8, (n % 256) as u8]);
        let held: Vec<_> = (0..2 * IN_ALL)
            .filter_map(|n| unproven.enter(of(n)))
            .collect();
        assert_eq!(held.len(), IN_ALL);
    }
}
