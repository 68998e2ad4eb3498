//! Connections to a daemon: over its socket, or over TCP to the first of several addresses that proves to be one.
use super::ANSWER_WITHIN;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use hyper_util::rt::TokioIo;
use robust_identity::{Caller, Unsealed, unsealed};
use robust_proto::endpoint::{FOLLOWER, LEADER_AT};
use robust_proto::v1;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tonic::transport::{Channel, Uri};

/// A connection that is silent for so long is asked whether anybody is there, and breaks when nothing
/// comes back within [`ANSWER_WITHIN`]: one to a stopped daemon stays open, and so does a stalled tunnel.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// One that follows says so at once; whoever takes longer to say it is taken for the leader, and answers for itself.
const FOLLOWER_SAYS_SO: Duration = Duration::from_secs(2);

/// Why nobody was reached.
#[derive(Debug)]
pub(super) enum Refused {
    /// There is no such socket, or nobody listens at it.
    Nobody(io::ErrorKind),
    /// Who listens knows none of our token.
    OtherToken,
    /// It is a controller that follows another one.
    Follows {
        /// What it says of itself, and of that one.
        said: String,
        /// Where that one is reached, where it is known.
        at: Option<String>,
    },
    /// Anything else, in words.
    Other(String),
}

impl Refused {
    /// In words.
    pub fn reason(&self) -> String {
        match self {
            Self::Nobody(io::ErrorKind::NotFound) => "there is no such socket".to_owned(),
            Self::Nobody(_) => "nobody listens there any more".to_owned(),
            Self::OtherToken => "it knows no such token".to_owned(),
            Self::Follows { said, .. } => said.clone(),
            Self::Other(reason) => reason.clone(),
        }
    }
}

impl From<io::Error> for Refused {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            kind @ (io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                Self::Nobody(kind)
            }
            _ => Self::Other(e.to_string()),
        }
    }
}

/// A connection to the socket, whose owner was looked at. It is tried by hand first: the transport's own error hides the
/// system's reason.
pub(super) async fn unix(path: &Path) -> Result<Channel, Refused> {
    drop(UnixStream::connect(path).await?);
    let path = path.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let connecting = transport().connect_with_connector(connector).await;
    connecting.map_err(|e| Refused::Other(error_chain(&e)))
}

/// A connection to whoever is first to prove that it is the daemon, and does not follow another one; otherwise why each of
/// them is not. Where one that follows says where the leader is, that is asked at once: another address may not answer for long.
pub(super) async fn tcp(
    addresses: &[String],
    caller: &Caller,
) -> Result<Channel, Vec<(String, Refused)>> {
    let attempt = |at: String| async move {
        let tried = leader(&at, caller).await;
        (at, tried)
    };
    let mut asked: Vec<String> = addresses.to_vec();
    let mut tries: FuturesUnordered<_> = addresses.iter().cloned().map(attempt).collect();
    let mut refusals = Vec::new();
    while let Some((at, tried)) = tries.next().await {
        match tried {
            Ok(channel) => return Ok(channel),
            Err(refused) => {
                if let Refused::Follows { at: Some(next), .. } = &refused
                    && !asked.contains(next)
                {
                    asked.push(next.clone());
                    tries.push(attempt(next.clone()));
                }
                refusals.push((at, refused));
            }
        }
    }
    Err(refusals)
}

async fn leader(at: &str, caller: &Caller) -> Result<Channel, Refused> {
    proven(at, caller).await?;
    let channel = sealed(at, caller).await?;
    // A question that costs a daemon next to nothing, and that those of every build answer.
    let mut client = super::client(channel.clone());
    let asked = timeout(FOLLOWER_SAYS_SO, client.get_rules(v1::GetRulesRequest {}));
    match asked.await {
        Ok(Err(status)) if status.metadata().contains_key(FOLLOWER) => {
            let at = status.metadata().get(LEADER_AT);
            Err(Refused::Follows {
                said: status.message().to_owned(),
                at: at.and_then(|at| at.to_str().ok()).map(str::to_owned),
            })
        }
        _ => Ok(channel),
    }
}

async fn proven(at: &str, caller: &Caller) -> Result<(), Refused> {
    let stream = TcpStream::connect(at).await?;
    drop(caller.call(stream).await.map_err(|e| unproven(&e))?);
    Ok(())
}

async fn sealed(at: &str, caller: &Caller) -> Result<Channel, Refused> {
    let (at, caller) = (at.to_owned(), caller.clone());
    let connector = tower::service_fn(move |_: Uri| {
        let (at, caller) = (at.clone(), caller.clone());
        async move {
            let stream = TcpStream::connect(at).await?;
            stream.set_nodelay(true)?;
            caller.call(stream).await.map(TokioIo::new)
        }
    });
    let connecting = transport().connect_with_connector(connector).await;
    connecting.map_err(|e| Refused::Other(error_chain(&e)))
}

fn transport() -> tonic::transport::Endpoint {
    // The URI is never looked at for a socket path, but it becomes the :authority header.
    tonic::transport::Endpoint::from_static("http://robustd")
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(ANSWER_WITHIN)
        .keep_alive_while_idle(true)
}

/// What keeps the two sides from believing each other.
fn unproven(error: &io::Error) -> Refused {
    match unsealed(error) {
        Some(Unsealed::OtherToken) => Refused::OtherToken,
        Some(Unsealed::NoTls) => Refused::Other(
            "it speaks no TLS 1.3: is it the --listen of a robustd, of this build?".to_owned(),
        ),
        Some(Unsealed::OursIsOver | Unsealed::TheirsIsOver) => Refused::Other(
            "one of the two sides takes the other's certificate for expired: compare the clocks of both machines"
                .to_owned(),
        ),
        None => Refused::Other(error.to_string()),
    }
}

fn error_chain(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut next = e.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
