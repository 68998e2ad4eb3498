//! The TCP addresses, bound before anything is started.
use super::checks::Prepared;
use super::clients;
use super::failure::Failure;
use crate::files::JobFiles;
use crate::grpc::{Joins, Rights, Token, Tokens, bind_tcp};
use crate::links::RouteEvent;
use crate::metrics::{self, IsKey, Metrics, Text};
use crate::nodes::{
    Authorities, JobSecret, JobToken, JoinToken, Members, NodeHostService, NodeLinkEvent, Sessions,
    Shards, unix_ms,
};
use crate::router::{self, Serving};
use crate::state::{Readers, StateDir, read_private};
use crate::store::Store;
use crate::tell::Tell;
use robust_http::Wire;
use robust_identity::{Door, EngineClient, EngineKeys, IdentityError};
use robust_proto::v1;
use robust_shared::job::Job;
use robust_tree::lend_ports;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// What is listened on besides the sockets.
pub(super) struct Listeners {
    /// For operators' tools.
    pub control: Option<(TcpListener, Door<Rights>)>,
    /// For Prometheus.
    pub metrics: Option<MetricsListener>,
    /// For clients of the engines.
    pub router: Option<RouterListener>,
    /// For nodes.
    pub nodes: Option<NodesListener>,
    /// Certify nodes and roles.
    pub authorities: Authorities,
    /// Names this life of the job.
    pub run: String,
}

/// Where nodes join, not served yet.
pub(super) struct NodesListener {
    pub listener: TcpListener,
    pub members: Members,
    pub sessions: Sessions,
    pub roles_token: JobToken,
    pub run: String,
    /// The term that this controller leads in; 0: it is the only one.
    pub epoch: u64,
}

impl Listeners {
    /// Binds what the command line names. `is_new`: no life of the job was before.
    pub async fn bind(
        prepared: &Prepared,
        state: &StateDir,
        is_new: bool,
        epoch: u64,
    ) -> Result<Self, Failure> {
        let secret = job_secret(state, prepared.join_token.as_ref(), is_new)?;
        let authorities = Authorities::open(state, secret, &prepared.job.job.name, is_new)?;
        let viewer = prepared.viewer_token.as_deref();
        let break_glass = prepared.break_glass_token.as_deref();
        let control = match prepared.listen {
            Some(addr) => {
                let door = door(state, viewer, break_glass)?;
                Some((bind_tcp("--listen", addr).await?, door))
            }
            None => None,
        };
        let run = state.run(is_new)?;
        let nodes = match prepared.nodes {
            Some((addr, _)) => Some(NodesListener {
                listener: bind_tcp("--listen-nodes", addr).await?,
                members: members(prepared, state, &authorities)?,
                sessions: Sessions::default(),
                roles_token: authorities.job_token(),
                run: run.clone(),
                epoch,
            }),
            None => None,
        };
        let metrics = match prepared.metrics {
            Some(addr) => Some(MetricsListener::bind(state, addr).await?),
            None => None,
        };
        let router = match prepared.router {
            Some(addr) => Some(bind_tcp("--router", addr).await?),
            None if generates_by_itself(&prepared.job) => Some(own_router(state).await?),
            None => None,
        };
        let with_key = |listener: TcpListener| {
            let key = Token::load_or_create(&state.router_key())?;
            let wire = wire(state, &listener, "a port for the router")?;
            Ok::<_, Failure>(RouterListener {
                listener,
                wire,
                key,
            })
        };
        let router = router.map(with_key).transpose()?;
        Ok(Self {
            control,
            metrics,
            router,
            nodes,
            authorities,
            run,
        })
    }

    /// The address for clients of the engines; empty without one.
    pub fn routed_at(&self) -> String {
        let router = self.router.as_ref();
        let at = router.and_then(|router| router.listener.local_addr().ok());
        // As a client calls it: on the network it listens with TLS.
        let scheme = router.map_or("http", |router| router.scheme());
        at.map_or_else(String::new, |at| format!("{scheme}://{at}"))
    }
}

/// Where operators' tools are answered that hold one of these tokens, each made if it is missing.
pub(super) fn door(
    state: &StateDir,
    viewer: Option<&Path>,
    break_glass: Option<&Path>,
) -> Result<Door<Rights>, Failure> {
    let tokens = Tokens {
        operator: Token::load_or_create(&state.token())?,
        viewer: viewer.map(Token::load_or_create_shared).transpose()?,
        break_glass: break_glass.map(Token::load_or_create).transpose()?,
    };
    tokens.door().map_err(no_tls("TLS for robustctl"))
}

/// The leader's secret. Until it had one of its own, all that is made of it was made of what nodes had, and before that
/// of what operators had: a job that began then goes on with that, for its roles live.
fn job_secret(
    state: &StateDir,
    named: Option<&JoinToken>,
    is_new: bool,
) -> Result<JobSecret, Failure> {
    let (own, nodes, operators) = (state.authority_key(), state.nodes_token(), state.token());
    if is_new || own.exists() {
        return Ok(JobSecret::load_or_create(&own, None)?);
    }
    let of = |path: &Path| read_private(path, Readers::Owner);
    let (known, of_operators) = match (named, of(&nodes)?) {
        (Some(named), _) => (Some(named.reveal().to_owned()), false),
        (None, Some(text)) => (Some(text), false),
        (None, None) => (of(&operators)?, true),
    };
    if known.is_some() {
        tracing::warn!(
            "nodes of the earlier build know what this job's certificates are made of; for a secret of the leader's \
             alone end the job, remove {} and begin it anew",
            own.display()
        );
    }
    let secret = JobSecret::load_or_create(&own, known.as_deref())?;
    // Not before it is kept: the roles that live have nothing else.
    if of_operators && known.is_some() {
        tracing::warn!(
            "operators need a copy of the new {}: the one before is the job's own from now on",
            operators.display()
        );
        fs::remove_file(&operators).map_err(|source| Failure::Start {
            what: "a token for operators",
            source,
        })?;
    }
    Ok(secret)
}

/// Who may become a node.
fn members(
    prepared: &Prepared,
    state: &StateDir,
    authorities: &Authorities,
) -> Result<Members, Failure> {
    let shared = match (&prepared.join_token, prepared.single_use_tokens) {
        (Some(named), _) => Some(named.clone()),
        (None, true) => None,
        (None, false) => Some(Token::load_or_create(&state.nodes_token())?.join_token()),
    };
    let outside = prepared.outside.clone();
    Ok(Members::open(
        &state.joins(),
        authorities,
        shared.as_ref(),
        outside,
    )?)
}

pub(super) fn no_tls(what: &'static str) -> impl FnOnce(IdentityError) -> Failure {
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

/// What callers speak at a listener.
fn wire(state: &StateDir, listener: &TcpListener, what: &'static str) -> Result<Wire, Failure> {
    let at = listener.local_addr();
    let at = at.map_err(|source| Failure::Start { what, source })?;
    clients::wire(state, at, unix_ms())
}

/// Where metrics are scraped, not served yet.
pub(super) struct MetricsListener {
    listener: TcpListener,
    wire: Wire,
    /// Knows what scrapers show, where the network reaches it.
    key: Option<IsKey>,
}

impl MetricsListener {
    /// Binds its address; keys are made if they are missing.
    pub async fn bind(state: &StateDir, addr: SocketAddr) -> Result<Self, Failure> {
        let listener = bind_tcp("--metrics", addr).await?;
        let wire = wire(state, &listener, "a port for metrics")?;
        let key = match wire {
            Wire::Plain => None,
            _ => {
                let key = Token::load_or_create(&state.metrics_key())?;
                Some(Arc::new(move |shown: &str| key.matches(shown)) as IsKey)
            }
        };
        Ok(Self {
            listener,
            wire,
            key,
        })
    }

    /// Serves scrapes from now on; where.
    pub fn serve(self, metrics: Arc<Metrics>) -> (String, impl Future<Output = ()>) {
        self.serve_text(Arc::new(move || metrics.encode()))
    }

    /// The same of this text, made anew at each scrape.
    pub fn serve_text(self, text: Text) -> (String, impl Future<Output = ()>) {
        let scheme = if self.key.is_some() { "https" } else { "http" };
        let at = self.listener.local_addr();
        let at = at.map_or_else(|_| String::new(), |at| format!("{scheme}://{at}/metrics"));
        (at, metrics::serve(self.listener, self.wire, self.key, text))
    }
}

/// Where clients reach the engines, not served yet.
pub(super) struct RouterListener {
    listener: TcpListener,
    wire: Wire,
    key: Token,
}

impl RouterListener {
    /// How clients of other machines call it.
    fn scheme(&self) -> &'static str {
        match self.wire {
            Wire::Plain => "http",
            _ => "https",
        }
    }

    /// Where it is and with what clients are let in, for the log.
    pub fn said(&self, state: &StateDir, at: &str) -> String {
        let key = state.router_key().display().to_string();
        match self.wire {
            Wire::Plain => format!("router on {at}, key in {key}"),
            _ => format!(
                "router on {at}, from other machines over TLS (https) by whom the authority in {} is known to; key in {key}",
                state.clients_authority().display()
            ),
        }
    }

    /// Serves clients of the job's engines from now on.
    pub fn serve(
        self,
        job: &Job,
        (engines, client): (EngineKeys, EngineClient),
        routes: Tell<RouteEvent>,
        status: watch::Receiver<Arc<v1::Status>>,
    ) -> Serving {
        let parts = router::Parts {
            key: self.key,
            engines,
            client,
            kind: router::kind_of(job),
            routes,
            status,
            limits: router::Limits::default(),
        };
        Serving::start((self.listener, self.wire), parts)
    }
}

impl NodesListener {
    /// What operators ask about it.
    pub fn joins(&self) -> Joins {
        let (members, sessions) = (self.members.clone(), self.sessions.clone());
        Joins { members, sessions }
    }

    /// The service to serve there.
    pub fn service(
        &self,
        (files, store): (JobFiles, Store),
        shards: Shards,
        events: Tell<NodeLinkEvent>,
        job: String,
    ) -> NodeHostService {
        let reading = files.clone();
        // So that the first node need not wait for the digests; it says why there are none.
        tokio::spawn(async move { drop(reading.list().await) });
        NodeHostService {
            events,
            members: self.members.clone(),
            roles_token: self.roles_token.clone(),
            run: self.run.clone(),
            epoch: self.epoch,
            job: job.into(),
            files,
            store,
            shards,
            sessions: self.sessions.clone(),
            numbers: Arc::new(AtomicU64::new(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_job_of_an_earlier_build_goes_on_with_what_its_roles_have_and_a_new_one_has_its_own() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::make(temp.path()).unwrap();
        let operators = Token::load_or_create(&state.token()).unwrap();
        let of = |secret: &JobSecret| secret.job_token().reveal().to_owned();
        let secret =
            |named: Option<&JoinToken>, is_new| of(&job_secret(&state, named, is_new).unwrap());
        let own = secret(None, true);
        assert_eq!(secret(None, false), own, "it is started again");
        assert_eq!(secret(None, true), own, "and begun anew: its nodes go on");
        assert!(state.token().exists() && !state.nodes_token().exists());
        // Of a build in which the operators' token was everything.
        fs::remove_file(state.authority_key()).unwrap();
        let kept = secret(None, false);
        assert_eq!(kept, of(&JobSecret::of(operators.join_token().reveal())));
        assert!(!state.token().exists(), "operators get another");
        assert_ne!(Token::load_or_create(&state.token()).unwrap(), operators);
        assert_eq!(secret(None, false), kept);
        // Of one in which nodes had a token of their own, or of a file.
        fs::remove_file(state.authority_key()).unwrap();
        let nodes = Token::load_or_create(&state.nodes_token()).unwrap();
        let nodes = of(&JobSecret::of(nodes.join_token().reveal()));
        assert_eq!(secret(None, false), nodes);
        fs::remove_file(state.authority_key()).unwrap();
        let named = JoinToken::of("a file of the user's");
        assert_eq!(
            secret(Some(&named), false),
            of(&JobSecret::of(named.reveal()))
        );
        assert!(state.token().exists());
    }
}
