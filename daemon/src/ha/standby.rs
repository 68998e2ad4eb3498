//! What operators hear at the socket of a controller that follows: who leads.
use super::setting::{HaError, Setting};
use super::site::Advert;
use crate::files::Standing;
use crate::grpc::{Revoked, bind_unix, refused_to};
use robust_proto::endpoint::{FOLLOWER, LEADER_AT};
use robust_shared::ha::Leader;
use std::io;
use std::time::{Instant, SystemTime};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Status;
use tonic::body::Body;
use tonic::metadata::MetadataValue;
use tonic::service::Routes;
use tonic::transport::Server;

/// What a candidate that follows knows of itself, and of whom it follows.
#[derive(Clone, Debug, Default)]
pub struct Candidacy {
    /// Its name.
    pub name: String,
    /// The job's name.
    pub job: String,
    /// Who leads; none: nobody does, as far as is known here.
    pub leader: Option<Leading>,
    /// The number of the last group of the job's log that its store has.
    pub applied: u64,
    /// That of the last group that counts, as far as is known here.
    pub told: u64,
    /// What it has of the job's files.
    pub files: Standing,
}

/// A leader, as one that follows it sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leading {
    /// Its name.
    pub name: String,
    /// The number of its term.
    pub epoch: u64,
    /// Where `robustctl` reaches it; empty: nowhere but at its socket.
    pub control: String,
    /// When it was first seen to lead.
    pub since: SystemTime,
    /// When it was last seen to live.
    pub lived: Instant,
}

impl Candidacy {
    /// How many groups of the log its store lacks.
    pub fn behind(&self) -> u64 {
        self.told.saturating_sub(self.applied)
    }

    /// Whom it follows, in words.
    fn text(&self) -> String {
        let (name, job) = (&self.name, &self.job);
        match &self.leader {
            None => format!(
                "{name} is a controller of the job `{job}` that follows, and none leads at this moment: try again"
            ),
            Some(leader) => {
                let at = match leader.control.as_str() {
                    "" => "on its machine".to_owned(),
                    address => format!("with --connect {address}"),
                };
                format!(
                    "{name} is a controller of the job `{job}` that follows; {} leads it (epoch {}): ask there, {at}",
                    leader.name, leader.epoch
                )
            }
        }
    }

    /// The answer to every call.
    fn status(&self) -> Status {
        let log = match (self.told, self.behind()) {
            (0, _) => "It has read nothing of the job's log yet".to_owned(),
            (told, 0) => format!("It has all of the job's log, {told} groups"),
            (told, behind) => format!("It is {behind} of {told} groups behind in the job's log"),
        };
        let lacks = match self.files.why.as_str() {
            "" => String::new(),
            lacks => format!(". This controller cannot lead: {lacks}"),
        };
        let mut status = Status::unavailable(format!("{}. {log}{lacks}", self.text()));
        let metadata = status.metadata_mut();
        metadata.insert(FOLLOWER, MetadataValue::from_static("yes"));
        let at = self.leader.as_ref().map(|leader| leader.control.as_str());
        if let Some(at) = at.filter(|at| !at.is_empty())
            && let Ok(at) = at.parse()
        {
            metadata.insert(LEADER_AT, at);
        }
        status
    }
}

/// Answers every call of operators' tools with who leads, but for those whose token was taken back, where they show one.
pub fn answers(stands: watch::Receiver<Candidacy>, revoked: Option<Revoked>) -> Routes {
    let fallback = move |request: axum::extract::Request| {
        let revoked = revoked.as_ref();
        let refused = revoked.and_then(|revoked| refused_to(request.extensions(), revoked));
        let status = refused.unwrap_or_else(|| stands.borrow().status());
        async move {
            let answer = status.into_http::<Body>();
            answer.map(axum::body::Body::new)
        }
    };
    Routes::from(axum::Router::new().fallback(fallback))
}

/// The socket.
pub(super) struct Standby {
    stands: watch::Sender<Candidacy>,
    end: oneshot::Sender<()>,
    serving: JoinHandle<()>,
    socket: std::path::PathBuf,
}

impl Standby {
    /// Answers at the state directory's socket for that; `stands` is what others see of it.
    pub fn start(setting: &Setting, stands: watch::Sender<Candidacy>) -> Result<Self, HaError> {
        let start = |source: io::Error| HaError::Start {
            what: "the socket of a controller that follows",
            source,
        };
        let socket = setting.state.follower_socket();
        setting
            .state
            .remove_sockets()
            .map_err(|e| start(io::Error::other(e.to_string())))?;
        let listener = bind_unix(&socket).map_err(|e| start(io::Error::other(e.to_string())))?;
        // Its mode opens the socket for the user of the daemon alone, who shows no token.
        let routes = answers(stands.subscribe(), None);
        let (end, ends) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            let incoming = UnixListenerStream::new(listener);
            let ends = async move { ends.await.unwrap_or_default() };
            let serving = Server::builder().add_routes(routes);
            if let Err(error) = serving.serve_with_incoming_shutdown(incoming, ends).await {
                tracing::error!("who leads is not said any more: {error}");
            }
        });
        tracing::info!("{}", stands.borrow().text());
        Ok(Self {
            stands,
            end,
            serving,
            socket,
        })
    }

    /// Who leads now.
    pub fn follows(&self, leader: Option<&(Leader, Advert)>) {
        let before = self.stands.borrow().text();
        self.stands.send_modify(|stands| {
            let known = stands.leader.take();
            stands.leader = leader.map(|(leader, advert)| {
                let known = known.filter(|known| known.epoch == leader.epoch);
                Leading {
                    name: leader.name.clone(),
                    epoch: leader.epoch,
                    control: advert.control.clone(),
                    since: known
                        .as_ref()
                        .map_or_else(SystemTime::now, |known| known.since),
                    lived: known.map_or_else(Instant::now, |known| known.lived),
                }
            });
        });
        let now = self.stands.borrow().text();
        if now != before {
            tracing::info!("{now}");
        }
    }

    /// The leader gave a sign.
    pub fn lives(&self) {
        self.stands.send_if_modified(|stands| {
            let leader = stands.leader.as_mut();
            leader.is_some_and(|leader| {
                leader.lived = Instant::now();
                true
            })
        });
    }

    /// How far its store is, of how far the log counts.
    pub fn reads(&self, applied: u64, told: u64) {
        self.stands.send_if_modified(|stands| {
            let is_new = (stands.applied, stands.told) != (applied, told);
            (stands.applied, stands.told) = (applied, told);
            is_new
        });
    }

    /// What this controller has of the job's files.
    pub fn has(&self, files: &Standing) {
        self.stands
            .send_modify(|stands| stands.files.clone_from(files));
    }

    /// Leaves the socket to the leader's own server.
    pub async fn end(self) {
        let _ = self.end.send(());
        self.serving.abort();
        let _ = self.serving.await;
        let _ = std::fs::remove_file(self.socket);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn candidacy() -> Candidacy {
        Candidacy {
            name: "b".to_owned(),
            job: "demo".to_owned(),
            ..Candidacy::default()
        }
    }

    fn leading(control: &str) -> Leading {
        Leading {
            name: "a".to_owned(),
            epoch: 7,
            control: control.to_owned(),
            since: SystemTime::now(),
            lived: Instant::now(),
        }
    }

    #[test]
    fn every_answer_says_that_it_is_a_followers_whom_it_follows_and_how_far_it_is() {
        let mut of = candidacy();
        let status = of.status();
        assert!(status.metadata().contains_key(FOLLOWER));
        assert!(!status.metadata().contains_key(LEADER_AT));
        assert_eq!(
            status.message(),
            "b is a controller of the job `demo` that follows, and none leads at this moment: try again. It has read \
             nothing of the job's log yet"
        );
        of.leader = Some(leading("10.0.0.1:7070"));
        (of.applied, of.told) = (40, 42);
        of.files.why = "a file is missing".to_owned();
        let status = of.status();
        assert_eq!(status.metadata().get(LEADER_AT).unwrap(), "10.0.0.1:7070");
        assert_eq!(
            status.message(),
            "b is a controller of the job `demo` that follows; a leads it (epoch 7): ask there, with --connect \
             10.0.0.1:7070. It is 2 of 42 groups behind in the job's log. This controller cannot lead: a file is missing"
        );
        of.leader = Some(leading(""));
        (of.applied, of.files.why) = (42, String::new());
        let status = of.status();
        assert!(status.metadata().contains_key(FOLLOWER));
        assert!(!status.metadata().contains_key(LEADER_AT));
        assert!(
            status
                .message()
                .ends_with("ask there, on its machine. It has all of the job's log, 42 groups"),
            "{}",
            status.message()
        );
    }
}
