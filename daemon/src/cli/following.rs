//! What a controller serves while it follows: metrics of its own at `--metrics`, and at `--listen` who leads.
//!
//! The keys and tokens that callers show are the job's, and come with its log. Until they have, nobody is answered; when they
//! are others, they are read again. The addresses are free when this ends: whoever leads serves everything there.
use super::checks::Prepared;
use super::failure::Failure;
use super::listeners::{MetricsListener, door};
use crate::grpc::{Rights, bind_tcp, serve_answers};
use crate::ha::{Candidacy, answers};
use crate::metrics::{Followed, Follower, FollowerMetrics};
use crate::state::StateDir;
use robust_identity::Door;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Between two looks at the files of keys and tokens.
const LOOK: Duration = Duration::from_secs(1);

/// The servers; dropped, they end at once.
pub(super) struct Following {
    ends: watch::Sender<bool>,
    serving: JoinSet<()>,
}

impl Following {
    /// Serves at the addresses of the command line what is known of a candidate.
    ///
    /// # Errors
    /// When one of them cannot be bound, as this controller could not lead then.
    pub async fn begin(
        prepared: &Prepared,
        state: &StateDir,
        stands: watch::Receiver<Candidacy>,
    ) -> Result<Self, Failure> {
        let (ends, _) = watch::channel(false);
        let mut serving = JoinSet::new();
        if let Some(addr) = prepared.metrics {
            drop(bind_tcp("--metrics", addr).await?);
            let metrics = Scraped {
                addr,
                state: state.clone(),
                stands: stands.clone(),
            };
            serving.spawn(metrics.serve(ends.subscribe()));
        }
        if let Some(addr) = prepared.listen {
            drop(bind_tcp("--listen", addr).await?);
            let control = Asked {
                addr,
                state: state.clone(),
                viewer: prepared.viewer_token.clone(),
                break_glass: prepared.break_glass_token.clone(),
                stands,
            };
            serving.spawn(control.serve(ends.subscribe()));
        }
        Ok(Self { ends, serving })
    }

    /// Ends, and leaves the addresses to the leader's own servers.
    pub async fn end(mut self) {
        self.ends.send_replace(true);
        while self.serving.join_next().await.is_some() {}
    }
}

/// What files hold; none: one of them is not there.
fn held(files: &[PathBuf]) -> Option<Vec<Vec<u8>>> {
    files.iter().map(|file| fs::read(file).ok()).collect()
}

/// Waits until all files are there, and hold something else than this.
async fn changed(files: &[PathBuf], known: Option<&Vec<Vec<u8>>>) {
    loop {
        sleep(LOOK).await;
        if let Some(now) = held(files)
            && Some(&now) != known
        {
            return;
        }
    }
}

/// Waits for the end of all that is served.
async fn ended(mut ends: watch::Receiver<bool>) {
    // Whoever would say so may be gone: then it is the end, too.
    drop(ends.wait_for(|is_end| *is_end).await);
}

/// Where metrics are scraped.
struct Scraped {
    addr: SocketAddr,
    state: StateDir,
    stands: watch::Receiver<Candidacy>,
}

impl Scraped {
    async fn serve(self, ends: watch::Receiver<bool>) {
        // Nobody shows or is shown anything on this machine's own address.
        let files = match self.addr.ip().to_canonical().is_loopback() {
            true => Vec::new(),
            false => vec![self.state.clients_key(), self.state.metrics_key()],
        };
        let stands = self.stands.clone();
        let metrics = Arc::new(FollowerMetrics::new(move || follower(&stands.borrow())));
        while !*ends.borrow() {
            let Some(known) = held(&files) else {
                tokio::select! {
                    () = changed(&files, None) => {}
                    () = ended(ends.clone()) => {}
                }
                continue;
            };
            let serving = match MetricsListener::bind(&self.state, self.addr).await {
                Ok(listener) => {
                    let metrics = Arc::clone(&metrics);
                    let (at, serving) = listener.serve_text(Arc::new(move || metrics.encode()));
                    tracing::info!("metrics of a controller that follows on {at}");
                    Some(serving)
                }
                Err(error) => {
                    tracing::warn!("metrics are not served: {error}");
                    None
                }
            };
            let serving = async move {
                match serving {
                    Some(serving) => serving.await,
                    None => sleep(LOOK).await,
                }
            };
            tokio::select! {
                () = serving => {}
                () = changed(&files, Some(&known)) => {}
                () = ended(ends.clone()) => {}
            }
        }
    }
}

/// Where operators' tools are told who leads.
struct Asked {
    addr: SocketAddr,
    state: StateDir,
    viewer: Option<PathBuf>,
    break_glass: Option<PathBuf>,
    stands: watch::Receiver<Candidacy>,
}

impl Asked {
    async fn serve(self, ends: watch::Receiver<bool>) {
        let files = [self.state.token()];
        while !*ends.borrow() {
            let Some(known) = held(&files) else {
                tokio::select! {
                    () = changed(&files, None) => {}
                    () = ended(ends.clone()) => {}
                }
                continue;
            };
            let opened = match self.open().await {
                Ok(opened) => Some(opened),
                Err(error) => {
                    tracing::warn!("operators' tools are not told who leads: {error}");
                    None
                }
            };
            let Some((listener, door)) = opened else {
                tokio::select! {
                    () = sleep(LOOK) => {}
                    () = ended(ends.clone()) => {}
                }
                continue;
            };
            tracing::info!("operators' tools are told who leads on {}", self.addr);
            let until = async {
                tokio::select! {
                    () = changed(&files, Some(&known)) => {}
                    () = ended(ends.clone()) => {}
                }
            };
            let answers = answers(self.stands.clone());
            if let Err(error) = serve_answers(listener, answers, door, until).await {
                tracing::warn!("operators' tools are not told who leads any more: {error}");
            }
        }
    }

    async fn open(&self) -> Result<(TcpListener, Door<Rights>), Failure> {
        let viewer = self.viewer.as_deref();
        let door = door(&self.state, viewer, self.break_glass.as_deref())?;
        Ok((bind_tcp("--listen", self.addr).await?, door))
    }
}

/// As it is scraped.
fn follower(of: &Candidacy) -> Follower {
    let leader = of.leader.as_ref().map(|leader| Followed {
        name: leader.name.clone(),
        epoch: leader.epoch,
        since: leader
            .since
            .duration_since(UNIX_EPOCH)
            .map_or(0.0, |since| since.as_secs_f64()),
        silent: leader.lived.elapsed(),
    });
    Follower {
        name: of.name.clone(),
        leader,
        group: of.applied,
        behind: of.behind(),
        may_lead: of.files.has_all(),
        lacks_bytes: of.files.lacking_bytes,
    }
}
