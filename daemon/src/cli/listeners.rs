//! The TCP addresses, bound before anything is started.
use super::checks::Prepared;
use super::failure::Failure;
use crate::driver::Happenings;
use crate::grpc::{Token, Tokens, bind_tcp};
use crate::nodes::{Digests, JobFiles, NodeHostService, Secret, Sessions, Shards};
use crate::state::StateDir;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::net::TcpListener;

/// What is listened on besides the sockets.
pub(super) struct Listeners {
    /// For operators' tools.
    pub control: Option<(TcpListener, Tokens)>,
    /// For Prometheus.
    pub metrics: Option<TcpListener>,
    /// For nodes.
    pub nodes: Option<NodesListener>,
    /// What nodes prove to know, and roles to each other a part of.
    pub secret: Secret,
    /// Names this life of the job.
    pub run: String,
}

/// Where nodes join, not served yet.
pub(super) struct NodesListener {
    pub listener: TcpListener,
    pub secret: Secret,
    pub run: String,
}

impl Listeners {
    /// Binds what the command line names. `is_new`: no life of the job was before.
    pub async fn bind(
        prepared: &Prepared,
        state: &StateDir,
        is_new: bool,
    ) -> Result<Self, Failure> {
        let viewer = prepared.viewer_token.as_deref();
        let control = match prepared.listen {
            Some(addr) => {
                let tokens = Tokens {
                    operator: Token::load_or_create(&state.token())?,
                    viewer: viewer.map(Token::load_or_create).transpose()?,
                };
                Some((bind_tcp("--listen", addr).await?, tokens))
            }
            None => None,
        };
        let secret = match prepared.secret.clone() {
            Some(secret) => secret,
            None => Token::load_or_create(&state.token())?.secret(),
        };
        let run = state.run(is_new)?;
        let nodes = match prepared.nodes {
            Some((addr, _)) => Some(NodesListener {
                listener: bind_tcp("--listen-nodes", addr).await?,
                secret: secret.clone(),
                run: run.clone(),
            }),
            None => None,
        };
        let metrics = match prepared.metrics {
            Some(addr) => Some(bind_tcp("--metrics", addr).await?),
            None => None,
        };
        Ok(Self {
            control,
            metrics,
            nodes,
            secret,
            run,
        })
    }
}

impl NodesListener {
    /// The service to serve there.
    pub fn service(
        (secret, run): (Secret, String),
        (prepared, digests): (&Prepared, Digests),
        shards: Shards,
        happenings: Happenings,
        job: String,
    ) -> NodeHostService {
        let files = JobFiles::new(&prepared.job, digests);
        let reading = files.clone();
        // So that the first node need not wait for the digests; it says why there are none.
        tokio::spawn(async move { drop(reading.list().await) });
        NodeHostService {
            happenings,
            secret,
            run,
            job: job.into(),
            files,
            shards,
            sessions: Sessions::default(),
            numbers: Arc::new(AtomicU64::new(1)),
        }
    }
}
