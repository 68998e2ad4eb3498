//! Where the daemon listens and how to get a client for it.
//!
//! Of a job with several controllers the one that leads is found: it is one of the addresses that are named, or a controller
//! that follows says at its socket, or at its address, where it is.
mod dial;

use crate::error::CliError;
use crate::format::moment_of;
use dial::Refused;
use robust_identity::{Caller, Holders, Person};
use robust_proto::endpoint::{CONTROL_SOCKET, FOLLOWER_SOCKET, LEADER_AT, default_state_dir};
use robust_proto::v1;
use robust_proto::v1::control_client::ControlClient;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// A daemon that takes longer than this to answer a plain question is hung or gone.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// What to do where only controllers answer that follow.
const TRY_AGAIN: &str = "try again, or ask on the machine of the one that leads";
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
        /// Host and port, of each controller that may lead.
        at: Vec<String>,
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
        let state_dir = || match state_dir {
            Some(named) => Ok(named.to_owned()),
            None => default_state_dir().map_err(|e| CliError::Usage(e.to_string())),
        };
        let Some(text) = connect else {
            let state_dir = state_dir()?;
            return Ok(Endpoint::Unix { state_dir });
        };
        let at: Vec<String> = text.split(',').map(|at| at.trim().to_owned()).collect();
        if !at.iter().all(|at| is_address(at)) {
            let text = format!(
                "--connect {text}: write HOST:PORT, such as 10.0.0.1:7070; of several controllers all, with commas between"
            );
            return Err(CliError::Usage(text));
        }
        let token_file = match token_file {
            Some(named) => named.to_owned(),
            None => state_dir()?.join("token"),
        };
        let caller = caller_of(&token_file)?;
        Ok(Endpoint::Tcp {
            at,
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
            Endpoint::Tcp { at, .. } => format!("tcp {}", at.join(", ")),
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
                let at = at.first().map_or("HOST:PORT", String::as_str);
                format!(
                    "see whether it runs there and whether the address can be reached from here;\n\
                     if it has ended, start it again with its job and state directory:\n  \
                     robustd --job FILE --state-dir DIR --listen {at}"
                )
            }
        }
    }

    fn socket(&self) -> PathBuf {
        match self {
            Endpoint::Unix { state_dir } => state_dir.join(CONTROL_SOCKET),
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
        let channel = match self {
            Endpoint::Unix { state_dir } => match self.socket_of(&self.socket()).await {
                Ok(channel) => channel,
                Err(refused @ Refused::Nobody(_)) => match self.follower(state_dir).await? {
                    Some(channel) => channel,
                    None => return Err(self.no_daemon(refused.reason())),
                },
                Err(refused) => return Err(self.no_daemon(refused.reason())),
            },
            Endpoint::Tcp {
                at,
                token_file,
                caller,
            } => match dial::tcp(at, caller).await {
                Ok(channel) => channel,
                Err(refusals) => {
                    let not_led = self.not_led(&refusals);
                    return Err(not_led.unwrap_or_else(|| self.unreached(token_file, &refusals)));
                }
            },
        };
        Ok(client(channel))
    }

    /// A connection to a socket whose owner is believed.
    async fn socket_of(&self, path: &Path) -> Result<Channel, Refused> {
        // Its disk may hang, and whoever waits for it waits alone.
        let owner = tokio::fs::metadata(path).await?.uid();
        if !is_trusted(owner, path) {
            return Err(Refused::Other(format!(
                "the socket belongs to uid {owner}, who could have laid it there"
            )));
        }
        dial::unix(path).await
    }

    /// A connection to the controller that the one of this state directory follows; none where that one follows nobody.
    async fn follower(&self, state_dir: &Path) -> Result<Option<Channel>, CliError> {
        let Ok(channel) = self.socket_of(&state_dir.join(FOLLOWER_SOCKET)).await else {
            return Ok(None);
        };
        let asked = client(channel).get_status(v1::GetStatusRequest {}).await;
        let Err(answer) = asked else { return Ok(None) };
        let at = answer.metadata().get(LEADER_AT);
        let Some(at) = at.and_then(|at| at.to_str().ok()) else {
            return Err(CliError::from_status(&answer, &self.place()));
        };
        // It comes with the job's log, as soon as this controller has read that.
        let caller = read_caller(state_dir.join("token"))
            .await
            .map_err(|e| self.not_led_to(answer.message(), at, &e.to_string()))?;
        let dialled = dial::tcp(&[at.to_owned()], &caller).await;
        let dialled =
            dialled.map_err(|refusals| self.not_led_to(answer.message(), at, &reasons(&refusals)));
        dialled.map(Some)
    }

    /// Why the controller was not reached that one of those that were dialled follows; none where none of them follows any.
    fn not_led(&self, refusals: &[(String, Refused)]) -> Option<CliError> {
        let mut followers: Vec<(&str, Option<&str>)> = refusals
            .iter()
            .filter_map(|(_, refused)| match refused {
                Refused::Follows { said, at } => Some((said.as_str(), at.as_deref())),
                _ => None,
            })
            .collect();
        // Those first that know where the leader is.
        followers.sort_by_key(|(_, at)| at.is_none());
        let (said, at) = *followers.first()?;
        let Some(at) = at else {
            return Some(CliError::NoDaemon {
                place: self.place(),
                reason: said.to_owned(),
                fix: TRY_AGAIN.to_owned(),
            });
        };
        // Those that followers name are dialled, too.
        let there = refusals.iter().find(|(dialled, _)| dialled == at);
        let reason = there.map_or_else(String::new, |(_, refused)| refused.reason());
        Some(self.not_led_to(said, at, &reason))
    }

    /// A controller that follows said where the leader is, and nobody who leads was there.
    fn not_led_to(&self, said: &str, at: &str, reason: &str) -> CliError {
        CliError::NoDaemon {
            place: self.place(),
            reason: format!("{said}; the leader is not reached at {at} from here: {reason}"),
            fix: TRY_AGAIN.to_owned(),
        }
    }

    /// Why none of the addresses was a daemon.
    fn unreached(&self, token_file: &Path, refusals: &[(String, Refused)]) -> CliError {
        let is_wrong = |(_, refused): &(_, Refused)| matches!(refused, Refused::OtherToken);
        // Of several the one that is meant may be away.
        if refusals.iter().all(is_wrong) {
            return CliError::Refused(format!(
                "wrong token: who listens at {} knows none as in {}; copy `token` of the daemon's state \
                 directory, and name the copy with --token-file",
                self.place(),
                token_file.display()
            ));
        }
        self.no_daemon(reasons(refusals))
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

/// Why none of them answered.
fn reasons(refusals: &[(String, Refused)]) -> String {
    let of = |(at, refused): &(String, Refused)| format!("{at}: {}", refused.reason());
    match refusals {
        [(_, one)] => one.reason(),
        all => all.iter().map(of).collect::<Vec<_>>().join("; "),
    }
}

/// The token in that file.
pub fn read_token(token_file: &Path) -> Result<String, CliError> {
    let token = std::fs::read_to_string(token_file).map_err(|e| {
        CliError::Usage(format!(
            "cannot read the token file {}: {e}; name the daemon's with --token-file",
            token_file.display()
        ))
    })?;
    if token.trim().is_empty() {
        let text = format!("the token file {} is empty", token_file.display());
        return Err(CliError::Usage(text));
    }
    Ok(token)
}

/// Proves to have the token of that file.
fn caller_of(token_file: &Path) -> Result<Caller, CliError> {
    let token = read_token(token_file)?;
    if let Some(person) = Person::of_token(&token)
        && person.is_over()
    {
        let text = format!(
            "the token of {} in {} is over since {}; whoever has the daemon's makes another with \
             `robustctl token create --{} {}`",
            person.name(),
            token_file.display(),
            moment_of(person.until_s() * 1000),
            person.kind(),
            person.name()
        );
        return Err(CliError::Usage(text));
    }
    let caller = Holders::of(&token).and_then(|holders| holders.caller());
    caller.map_err(|e| CliError::Failed(e.to_string()))
}

/// The same of a file whose disk may hang, beside whatever else is done.
async fn read_caller(token_file: PathBuf) -> Result<Caller, CliError> {
    let read = tokio::task::spawn_blocking(move || caller_of(&token_file));
    let ended = |e| CliError::Failed(format!("the token cannot be read: {e}"));
    read.await.map_err(ended)?
}

fn is_address(text: &str) -> bool {
    let port = text
        .rsplit_once(':')
        .map(|(host, port)| (host, port.parse::<u16>()));
    port.is_some_and(|(host, port)| !host.is_empty() && port.is_ok())
}

fn client(channel: Channel) -> Client {
    ControlClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES)
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
