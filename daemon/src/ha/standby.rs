//! What operators hear at the socket of a controller that follows: who leads.
use super::setting::{HaError, Setting};
use super::site::Advert;
use crate::grpc::bind_unix;
use robust_proto::endpoint::LEADER_AT;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::Server;

/// What is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    text: String,
    /// Where `robustctl` reaches the leader; empty: nowhere but at its socket.
    at: String,
    /// Why this controller cannot lead; empty: it can.
    lacks: String,
}

impl Said {
    fn status(&self) -> Status {
        let text = match self.lacks.as_str() {
            "" => self.text.clone(),
            lacks => format!("{}. This controller cannot lead: {lacks}", self.text),
        };
        let mut status = Status::unavailable(text);
        if let Some(at) = Some(&self.at).filter(|at| !at.is_empty())
            && let Ok(at) = at.parse()
        {
            status.metadata_mut().insert(LEADER_AT, at);
        }
        status
    }
}

/// The socket.
pub(super) struct Standby {
    name: String,
    job: String,
    said: Arc<Mutex<Said>>,
    end: oneshot::Sender<()>,
    serving: JoinHandle<()>,
    socket: std::path::PathBuf,
}

impl Standby {
    /// Answers at the state directory's socket for that.
    pub fn start(setting: &Setting) -> Result<Self, HaError> {
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
        let said = Arc::new(Mutex::new(Said::default()));
        let answer = Arc::clone(&said);
        let fallback = move || {
            let said = answer
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            async move {
                let answer = said.status().into_http::<Body>();
                answer.map(axum::body::Body::new)
            }
        };
        let routes = Routes::from(axum::Router::new().fallback(fallback));
        let (end, ends) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            let incoming = UnixListenerStream::new(listener);
            let ends = async move { ends.await.unwrap_or_default() };
            let serving = Server::builder().add_routes(routes);
            if let Err(error) = serving.serve_with_incoming_shutdown(incoming, ends).await {
                tracing::error!("who leads is not said any more: {error}");
            }
        });
        let standby = Self {
            name: setting.advert.name.clone(),
            job: setting.job.clone(),
            said,
            end,
            serving,
            socket,
        };
        standby.follows(None);
        Ok(standby)
    }

    /// Who leads now.
    pub fn follows(&self, leader: Option<&Advert>) {
        let (name, job) = (&self.name, &self.job);
        let text = match leader {
            None => format!(
                "{name} is a controller of the job `{job}` that follows, and none leads at this moment: try again"
            ),
            Some(leader) => {
                let at = match leader.control.as_str() {
                    "" => "on its machine".to_owned(),
                    address => format!("with --connect {address}"),
                };
                format!(
                    "{name} is a controller of the job `{job}` that follows; {} leads it: ask there, {at}",
                    leader.name
                )
            }
        };
        let at = leader.map_or_else(String::new, |leader| leader.control.clone());
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.text != text {
            tracing::info!("{text}");
        }
        (said.text, said.at) = (text, at);
    }

    /// Why this controller cannot lead; none: it can.
    pub fn lacks(&self, why: Option<&str>) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        why.unwrap_or_default().clone_into(&mut said.lacks);
    }

    /// Leaves the socket to the leader's own server.
    pub async fn end(self) {
        let _ = self.end.send(());
        self.serving.abort();
        let _ = self.serving.await;
        let _ = std::fs::remove_file(self.socket);
    }
}
