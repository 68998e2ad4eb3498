//! Where the daemon listens and how to get a client for it.
use crate::error::CliError;
use hyper_util::rt::TokioIo;
use robust_identity::{Caller, Holders, Unsealed, unsealed};
use robust_proto::endpoint::default_state_dir;
use robust_proto::v1;
use robust_proto::v1::control_client::ControlClient;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tonic::transport::{Channel, Uri};
use tonic::{Status, Streaming};

/// A daemon that takes longer than this to answer a plain question is hung or gone.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// A connection that is silent for so long is asked whether anybody is there, and breaks when nothing
/// comes back within [`ANSWER_WITHIN`]: one to a stopped daemon stays open, and so does a stalled tunnel.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Reports of long runs are large.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// A client of the daemon.
pub type Client = ControlClient<Channel>;

/// Where a daemon listens.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// The socket in its state directory.
    Unix {
        /// The state directory.
        state_dir: PathBuf,
    },
    /// TCP (`robustd --listen`), with TLS.
    Tcp {
        /// Host and port.
        at: String,
        /// Where the token is.
        token_file: PathBuf,
        /// Proves to have it, and that the daemon has it.
        caller: Caller,
    },
}

impl Endpoint {
    /// From the command line's global options.
    pub fn resolve(
        state_dir: Option<&Path>,
        connect: Option<&str>,
        token_file: Option<&Path>,
    ) -> Result<Endpoint, CliError> {
        let state_dir = state_dir.map_or_else(default_state_dir, Path::to_path_buf);
        let Some(text) = connect else {
            return Ok(Endpoint::Unix { state_dir });
        };
        let port = text
            .rsplit_once(':')
            .map(|(host, port)| (host, port.parse::<u16>()));
        if !port.is_some_and(|(host, port)| !host.is_empty() && port.is_ok()) {
            let text = format!("--connect {text}: write HOST:PORT, such as 10.0.0.1:7070");
            return Err(CliError::Usage(text));
        }
        let token_file = token_file.map_or_else(|| state_dir.join("token"), Path::to_path_buf);
        let token = std::fs::read_to_string(&token_file).map_err(|e| {
            CliError::Usage(format!(
                "cannot read the token file {}: {e}; name the daemon's with --token-file",
                token_file.display()
            ))
        })?;
        if token.trim().is_empty() {
            let text = format!("the token file {} is empty", token_file.display());
            return Err(CliError::Usage(text));
        }
        let caller = Holders::of(&token).and_then(|holders| holders.caller());
        let caller = caller.map_err(|e| CliError::Failed(e.to_string()))?;
        Ok(Endpoint::Tcp {
            at: text.to_owned(),
            token_file,
            caller,
        })
    }

    /// The state directory whose files can be read from here.
    pub fn state_dir(&self) -> Option<&Path> {
        match self {
            Endpoint::Unix { state_dir } => Some(state_dir),
            Endpoint::Tcp { .. } => None,
        }
    }

    /// The place in words, for messages.
    pub fn place(&self) -> String {
        match self {
            Endpoint::Unix { .. } => format!("unix socket {}", self.socket().display()),
            Endpoint::Tcp { at, .. } => format!("tcp {at}"),
        }
    }

    /// What to do when nobody listens there.
    pub fn fix(&self) -> String {
        match self {
            Endpoint::Unix { state_dir } => format!(
                "start one:  robustd --job FILE --state-dir {0}\n\
                 or, to look at a job that is over:  robustd --inspect --state-dir {0}\n\
                 or name another's state directory with --state-dir DIR or ROBUST_STATE_DIR",
                state_dir.display()
            ),
            Endpoint::Tcp { at, .. } => {
                format!("start one that listens there:  robustd --job FILE --listen {at}")
            }
        }
    }

    fn socket(&self) -> PathBuf {
        match self {
            Endpoint::Unix { state_dir } => state_dir.join("control.sock"),
            Endpoint::Tcp { .. } => PathBuf::new(),
        }
    }

    fn no_daemon(&self, reason: String) -> CliError {
        CliError::NoDaemon {
            place: self.place(),
            reason,
            fix: self.fix(),
        }
    }

    /// Connects now, so that an absent daemon is told from one that refuses.
    pub async fn connect(&self) -> Result<Client, CliError> {
        tokio::time::timeout(ANSWER_WITHIN, self.try_connect())
            .await
            .unwrap_or_else(|_| Err(self.no_daemon("it accepts no connection".to_owned())))
    }

    /// Connects, and has a question answered: the system takes connections for a stopped daemon too.
    pub async fn reach(&self) -> Result<Client, CliError> {
        let mut client = self.connect().await?;
        self.ask(client.get_status(v1::GetStatusRequest {})).await?;
        Ok(client)
    }

    async fn try_connect(&self) -> Result<Client, CliError> {
        // Asked first by hand: the transport's own error hides the system's reason.
        let refused = |e: io::Error| {
            self.no_daemon(match e.kind() {
                io::ErrorKind::NotFound => "there is no such socket".to_owned(),
                io::ErrorKind::ConnectionRefused => "nobody listens there any more".to_owned(),
                _ => e.to_string(),
            })
        };
        // The URI is never looked at for a socket path, but it becomes the :authority header.
        let endpoint = tonic::transport::Endpoint::from_static("http://robustd")
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(ANSWER_WITHIN)
            .keep_alive_while_idle(true);
        let channel = match self {
            Endpoint::Unix { .. } => {
                let path = self.socket();
                let owner = std::fs::metadata(&path).map_err(refused)?.uid();
                if !is_trusted(owner, &path) {
                    return Err(self.no_daemon(format!(
                        "the socket belongs to uid {owner}, who could have laid it there"
                    )));
                }
                drop(UnixStream::connect(&path).await.map_err(refused)?);
                let connector = tower::service_fn(move |_: Uri| {
                    let path = path.clone();
                    async move { UnixStream::connect(path).await.map(TokioIo::new) }
                });
                endpoint.connect_with_connector(connector).await
            }
            Endpoint::Tcp {
                at,
                token_file,
                caller,
            } => {
                let stream = TcpStream::connect(at).await.map_err(refused)?;
                let sealed = caller.call(stream).await;
                drop(sealed.map_err(|e| self.unproven(token_file, &e))?);
                let (at, caller) = (at.clone(), caller.clone());
                let connector = tower::service_fn(move |_: Uri| {
                    let (at, caller) = (at.clone(), caller.clone());
                    async move {
                        let stream = TcpStream::connect(at).await?;
                        stream.set_nodelay(true)?;
                        caller.call(stream).await.map(TokioIo::new)
                    }
                });
                endpoint.connect_with_connector(connector).await
            }
        };
        let channel = channel.map_err(|e| self.no_daemon(error_chain(&e)))?;
        Ok(ControlClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES))
    }

    /// What keeps the two sides from believing each other.
    fn unproven(&self, token_file: &Path, error: &io::Error) -> CliError {
        match unsealed(error) {
            Some(Unsealed::OtherToken) => CliError::Refused(format!(
                "wrong token: who listens at {} knows none as in {}; copy `token` of the daemon's state \
                 directory, and name the copy with --token-file",
                self.place(),
                token_file.display()
            )),
            Some(Unsealed::NoTls) => self.no_daemon(
                "it speaks no TLS 1.3: is it the --listen of a robustd, of this build?".to_owned(),
            ),
            Some(Unsealed::OursIsOver | Unsealed::TheirsIsOver) => self.no_daemon(
                "one of the two sides takes the other's certificate for expired: compare the clocks of both machines"
                    .to_owned(),
            ),
            None => self.no_daemon(error.to_string()),
        }
    }

    /// Asks one question with the time limit that a plain answer may take.
    pub async fn ask<T>(
        &self,
        answer: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, CliError> {
        match tokio::time::timeout(ANSWER_WITHIN, answer).await {
            Ok(Ok(reply)) => Ok(reply.into_inner()),
            Ok(Err(status)) => Err(CliError::from_status(&status, &self.place())),
            Err(_) => Err(self.silent()),
        }
    }

    /// The next part of an answer that comes in parts, each with that time limit; none at its end.
    pub async fn next<T>(&self, parts: &mut Streaming<T>) -> Result<Option<T>, CliError> {
        match tokio::time::timeout(ANSWER_WITHIN, parts.message()).await {
            Ok(Ok(part)) => Ok(part),
            Ok(Err(status)) => Err(CliError::from_status(&status, &self.place())),
            Err(_) => Err(self.silent()),
        }
    }

    /// The next part of what is followed, whenever it comes; it has no end.
    pub async fn follow<T>(&self, parts: &mut Streaming<T>) -> Result<T, CliError> {
        match parts.message().await {
            Ok(Some(part)) => Ok(part),
            Ok(None) => Err(self.ended()),
            Err(status) => Err(CliError::from_status(&status, &self.place())),
        }
    }

    /// What is followed came to an end, as when the daemon ends in order.
    pub fn ended(&self) -> CliError {
        CliError::NoDaemon {
            place: self.place(),
            reason: "it ended the stream".to_owned(),
            fix: "try again when it is back".to_owned(),
        }
    }

    fn silent(&self) -> CliError {
        CliError::NoDaemon {
            place: self.place(),
            reason: format!("it did not answer within {} s", ANSWER_WITHIN.as_secs()),
            fix: "it may be stopped or overloaded; look at its log".to_owned(),
        }
    }
}

/// Whether a daemon at a socket of this owner is believed: ours, root's, and for root whose it chose. Below
/// `/tmp` nobody chose: anybody can make the folder that a daemon of ours would have.
fn is_trusted(owner: u32, socket: &Path) -> bool {
    let us = rustix::process::geteuid();
    owner == us.as_raw() || owner == 0 || (us.is_root() && !socket.starts_with("/tmp"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_another_user_laid_below_tmp_is_not_believed() {
        let (us, stranger) = (rustix::process::geteuid(), 65_534);
        let planted = Path::new("/tmp/robust-0/control.sock");
        assert!(is_trusted(us.as_raw(), planted) && is_trusted(0, planted));
        assert!(!is_trusted(stranger, planted));
        let chosen = is_trusted(stranger, Path::new("/srv/job/control.sock"));
        assert_eq!(chosen, us.is_root());
    }
}
