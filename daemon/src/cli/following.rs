//! What a controller serves while it follows: metrics of its own at `--metrics`, and at `--listen` who leads.
//!
//! The keys and tokens that callers show are the job's, and come with its log. Until they have, nobody is answered; when they
//! are others, they are read again. The addresses are free when this ends: whoever leads serves everything there.
use super::checks::Prepared;
use super::failure::Failure;
use super::listeners::{MetricsListener, door};
use crate::grpc::{Revoked, Rights, bind_tcp, serve_answers};
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

/// Files that say who is answered.
#[derive(Default)]
struct Files {
    /// Until these are there, nobody is answered.
    needed: Vec<PathBuf>,
    /// These may be there or not.
    others: Vec<PathBuf>,
}

/// What files hold; none for one that is not there.
type Held = Vec<Option<Vec<u8>>>;

impl Files {
    /// What they hold; none: one that is needed is not there.
    fn held(&self) -> Option<Held> {
        let read = |file: &PathBuf| fs::read(file).ok();
        let needed: Option<Vec<_>> = self.needed.iter().map(read).collect();
        let needed = needed?.into_iter().map(Some);
        Some(needed.chain(self.others.iter().map(read)).collect())
    }

    /// Waits until all that are needed are there, and they hold something else than this.
    async fn changed(&self, known: Option<&Held>) {
        loop {
            sleep(LOOK).await;
            if let Some(now) = self.held()
                && Some(&now) != known
            {
                return;
            }
        }
    }
}

/// A warning that lasts, which is said once.
#[derive(Default)]
struct Lasting(Option<String>);

impl Lasting {
    /// Whether it is another one than the last.
    fn is_new(&mut self, text: &str) -> bool {
        let is_new = self.0.as_deref() != Some(text);
        if is_new {
            self.0 = Some(text.to_owned());
        }
        is_new
    }

    fn warn(&mut self, text: &str) {
        if self.is_new(text) {
            tracing::warn!("{text}");
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
            true => Files::default(),
            false => Files {
                needed: vec![self.state.clients_key(), self.state.metrics_key()],
                others: Vec::new(),
            },
        };
        let mut fails = Lasting::default();
        let stands = self.stands.clone();
        let metrics = Arc::new(FollowerMetrics::new(move || follower(&stands.borrow())));
        while !*ends.borrow() {
            let Some(known) = files.held() else {
                tokio::select! {
                    () = files.changed(None) => {}
                    () = ended(ends.clone()) => {}
                }
                continue;
            };
            let serving = match MetricsListener::bind(&self.state, self.addr).await {
                Ok(listener) => {
                    let metrics = Arc::clone(&metrics);
                    let (at, serving) = listener.serve_text(Arc::new(move || metrics.encode()));
                    tracing::info!("metrics of a controller that follows on {at}");
                    fails = Lasting::default();
                    Some(serving)
                }
                Err(error) => {
                    fails.warn(&format!("metrics are not served: {error}"));
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
                () = files.changed(Some(&known)) => {}
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
        let others = [self.viewer.clone(), self.break_glass.clone()];
        let others = others.into_iter().flatten();
        let files = Files {
            needed: vec![self.state.token()],
            others: others.chain([self.state.revoked_persons()]).collect(),
        };
        let mut fails = Lasting::default();
        while !*ends.borrow() {
            let Some(known) = files.held() else {
                tokio::select! {
                    () = files.changed(None) => {}
                    () = ended(ends.clone()) => {}
                }
                continue;
            };
            let opened = match self.open().await {
                Ok(opened) => Some(opened),
                Err(error) => {
                    fails.warn(&format!("operators' tools are not told who leads: {error}"));
                    None
                }
            };
            let Some((listener, door, revoked)) = opened else {
                tokio::select! {
                    () = sleep(LOOK) => {}
                    () = ended(ends.clone()) => {}
                }
                continue;
            };
            tracing::info!("operators' tools are told who leads on {}", self.addr);
            fails = Lasting::default();
            let until = async {
                tokio::select! {
                    () = files.changed(Some(&known)) => {}
                    () = ended(ends.clone()) => {}
                }
            };
            let answers = answers(self.stands.clone(), Some(revoked));
            if let Err(error) = serve_answers(listener, answers, door, until).await {
                tracing::warn!("operators' tools are not told who leads any more: {error}");
            }
        }
    }

    async fn open(&self) -> Result<(TcpListener, Door<Rights>, Revoked), Failure> {
        let viewer = self.viewer.as_deref();
        let door = door(&self.state, viewer, self.break_glass.as_deref())?;
        let revoked = Revoked::open(&self.state.revoked_persons())?;
        Ok((bind_tcp("--listen", self.addr).await?, door, revoked))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_that_are_needed_are_waited_for_and_a_change_of_any_is_seen() {
        let temp = tempfile::tempdir().unwrap();
        let (token, revoked) = (temp.path().join("token"), temp.path().join("revoked"));
        let files = Files {
            needed: vec![token.clone()],
            others: vec![revoked.clone()],
        };
        assert_eq!(files.held(), None);
        fs::write(&token, "secret").unwrap();
        let first = files.held().unwrap();
        assert_eq!(first, [Some(b"secret".to_vec()), None]);
        fs::write(&revoked, "alice").unwrap();
        assert_ne!(files.held().unwrap(), first);
    }

    #[test]
    fn a_warning_that_lasts_is_new_once() {
        let mut fails = Lasting::default();
        let said = ["full", "full", "away", "full"].map(|text| fails.is_new(text));
        assert_eq!(said, [true, false, true, true]);
    }
}
