//! The TCP addresses, bound before anything is started.
use super::checks::Prepared;
use super::failure::Failure;
use crate::grpc::{Rights, Token, Tokens, bind_tcp};
use crate::links::RouteEvent;
use crate::nodes::{Digests, JobFiles, NodeHostService, NodeLinkEvent, Secret, Sessions, Shards};
use crate::router::{self, Serving};
use crate::state::{Readers, StateDir, read_private};
use crate::tell::Tell;
use robust_identity::{Callee, Door, EngineKeys, IdentityError};
use robust_proto::v1;
use robust_shared::job::Job;
use robust_tree::lend_ports;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// What is listened on besides the sockets.
pub(super) struct Listeners {
    /// For operators' tools.
    pub control: Option<(TcpListener, Door<Rights>)>,
    /// For Prometheus.
    pub metrics: Option<TcpListener>,
    /// For clients of the engines.
    pub router: Option<RouterListener>,
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
    pub callee: Callee,
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
        let secret = match prepared.secret.clone() {
            Some(secret) => secret,
            None => own_secret(state, is_new)?,
        };
        let viewer = prepared.viewer_token.as_deref();
        let control = match prepared.listen {
            Some(addr) => {
                let tokens = Tokens {
                    operator: Token::load_or_create(&state.token())?,
                    viewer: viewer.map(Token::load_or_create_shared).transpose()?,
                };
                let door = tokens.door().map_err(no_tls("TLS for robustctl"))?;
                Some((bind_tcp("--listen", addr).await?, door))
            }
            None => None,
        };
        let run = state.run(is_new)?;
        let nodes = match prepared.nodes {
            Some((addr, _)) => Some(NodesListener {
                listener: bind_tcp("--listen-nodes", addr).await?,
                callee: callee(&secret)?,
                secret: secret.clone(),
                run: run.clone(),
            }),
            None => None,
        };
        let metrics = match prepared.metrics {
            Some(addr) => Some(bind_tcp("--metrics", addr).await?),
            None => None,
        };
        let router = match prepared.router {
            Some(addr) => Some(bind_tcp("--router", addr).await?),
            None if generates_by_itself(&prepared.job) => Some(own_router(state).await?),
            None => None,
        };
        let with_key = |listener| {
            let key = Token::load_or_create(&state.router_key())?;
            Ok::<_, Failure>(RouterListener { listener, key })
        };
        let router = router.map(with_key).transpose()?;
        Ok(Self {
            control,
            metrics,
            router,
            nodes,
            secret,
            run,
        })
    }

    /// The address for clients of the engines; empty without one.
    pub fn routed_at(&self) -> String {
        let router = self.router.as_ref();
        let at = router.and_then(|router| router.listener.local_addr().ok());
        at.map_or_else(String::new, |at| format!("http://{at}"))
    }
}

/// What the job's daemons prove to each other where no file was named. Until there was a token for them alone they
/// had the operators': those that have it go on with it, and operators get another.
fn own_secret(state: &StateDir, is_new: bool) -> Result<Secret, Failure> {
    let (nodes, operators) = (state.nodes_token(), state.token());
    if !is_new && !nodes.exists() && read_private(&operators, Readers::Owner)?.is_some() {
        tracing::warn!(
            "{} is the nodes' from now on, and operators need a copy of the new {}",
            nodes.display(),
            operators.display()
        );
        fs::rename(&operators, &nodes).map_err(|source| Failure::Start {
            what: "a token for nodes",
            source,
        })?;
    }
    Ok(Token::load_or_create(&nodes)?.secret())
}

/// Answers the job's nodes, and nobody else.
fn callee(secret: &Secret) -> Result<Callee, Failure> {
    let made = secret
        .daemons()
        .and_then(|daemons| daemons.callee("control"));
    made.map_err(no_tls("TLS for nodes"))
}

fn no_tls(what: &'static str) -> impl FnOnce(IdentityError) -> Failure {
    move |error| Failure::Start {
        what,
        source: io::Error::other(error),
    }
}

/// Whether the trainer's own loop asks the job's engines.
fn generates_by_itself(job: &Job) -> bool {
    job.own_loop().is_some() && job.rollout.replicas > 0
}

/// Where nobody said an address, the router has one that it keeps: programs know it that outlive the
/// daemon.
async fn own_router(state: &StateDir) -> Result<TcpListener, Failure> {
    let local = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let file = state.router_port();
    let known = fs::read_to_string(&file).ok();
    let known = known.and_then(|text| text.trim().parse().ok());
    if let Some(port) = known
        && let Ok(listener) = bind_tcp("--router", local(port)).await
    {
        return Ok(listener);
    }
    let failed = |what: &'static str| move |source| Failure::Start { what, source };
    let lent =
        lend_ports(1, Ipv4Addr::LOCALHOST.into()).map_err(failed("a port for the router"))?;
    fs::write(&file, lent[0].to_string()).map_err(failed("the router's port on record"))?;
    Ok(bind_tcp("--router", local(lent[0])).await?)
}

/// Where clients reach the engines, not served yet.
pub(super) struct RouterListener {
    listener: TcpListener,
    key: Token,
}

impl RouterListener {
    /// Serves clients of the job's engines from now on.
    pub fn serve(
        self,
        job: &Job,
        engines: EngineKeys,
        routes: Tell<RouteEvent>,
        status: watch::Receiver<Arc<v1::Status>>,
    ) -> Serving {
        let parts = router::Parts {
            key: self.key,
            engines,
            kind: router::kind_of(job),
            routes,
            status,
            limits: router::Limits::default(),
        };
        Serving::start(self.listener, parts)
    }
}

impl NodesListener {
    /// The service to serve there.
    pub fn service(
        (secret, run): (Secret, String),
        (prepared, digests): (&Prepared, Digests),
        shards: Shards,
        events: Tell<NodeLinkEvent>,
        job: String,
    ) -> NodeHostService {
        let files = JobFiles::new(&prepared.job, digests);
        let reading = files.clone();
        // So that the first node need not wait for the digests; it says why there are none.
        tokio::spawn(async move { drop(reading.list().await) });
        NodeHostService {
            events,
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nodes_and_operators_have_tokens_of_their_own_and_nodes_keep_the_one_of_an_earlier_build() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::make(temp.path()).unwrap();
        let earlier = Token::load_or_create(&state.token()).unwrap();
        let of = |secret: Secret| secret.job_token().reveal().to_owned();
        let new = of(own_secret(&state, true).unwrap());
        assert_ne!(
            new,
            of(earlier.secret()),
            "a new job's nodes have their own"
        );
        assert_eq!(Token::load_or_create(&state.token()).unwrap(), earlier);
        fs::remove_file(state.nodes_token()).unwrap();
        let kept = of(own_secret(&state, false).unwrap());
        assert_eq!(kept, of(earlier.secret()), "its roles and nodes go on");
        assert!(!state.token().exists());
        assert_ne!(Token::load_or_create(&state.token()).unwrap(), earlier);
        assert_eq!(of(own_secret(&state, false).unwrap()), kept);
    }
}
