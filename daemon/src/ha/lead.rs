//! A term: what only a leader does.
use super::keeper::Keeper;
use super::roster;
use super::setting::{HaError, Setting};
use super::site::{Head, Keys, kept, read};
use super::takeover::{Stage, Takeover};
use crate::grouplog::{Fate, Register};
use futures::future::BoxFuture;
use robust_arbiter::{Arbiter, Compare, Entry, Etcd, LeaseId, Revision, Transacted, Write};
use robust_grouplog::Position;
use robust_proto::v1;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// Between two tries to tell the arbiter something.
const RETRY: Duration = Duration::from_millis(100);
/// So often the last word of a leader is tried.
const LAST_TRIES: usize = 20;

/// A term in which this candidate leads.
#[derive(Debug)]
pub struct Lead {
    name: String,
    arbiter: Etcd,
    keys: Keys,
    takeover: Takeover,
    epoch: Revision,
    lease: LeaseId,
    /// The head as it was put last, with the change that put it; none: there is none yet.
    head: Mutex<Option<(Head, Revision)>>,
    /// One is put after the other: each names the one before.
    putting: tokio::sync::Mutex<()>,
    keeper: Mutex<Option<Keeper>>,
    /// The place was given up: the program ends.
    resigned: AtomicBool,
}

impl Lead {
    pub(super) fn new(
        setting: &Setting,
        (epoch, lease): (Revision, LeaseId),
        head: Option<(Head, Revision)>,
        (keeper, takeover): (Keeper, Takeover),
    ) -> Result<Self, HaError> {
        Ok(Self {
            name: setting.advert.name.clone(),
            takeover,
            arbiter: setting.arbiter()?,
            keys: setting.keys(),
            epoch,
            lease,
            head: Mutex::new(head),
            putting: tokio::sync::Mutex::new(()),
            keeper: Mutex::new(Some(keeper)),
            resigned: AtomicBool::new(false),
        })
    }

    /// The number of the term.
    pub fn epoch(&self) -> u64 {
        self.epoch.0.unsigned_abs()
    }

    /// The controllers, as they are seen from now on.
    pub fn controllers(self: &Arc<Self>) -> watch::Receiver<v1::Controllers> {
        let of = (self.arbiter.clone(), self.keys.clone(), self.name.clone());
        roster::watch(self, of)
    }

    /// Begins anew where the place may be somebody else's by now: nothing more is decided then, nor told to anybody
    /// (CLUSTER.md 1.3-4).
    pub fn check(&self) {
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keeper) = &*keeper {
            keeper.check();
        }
    }

    /// Nodes may join from now on.
    pub fn serves(&self) {
        self.takeover.ends(Stage::Start);
    }

    pub(super) fn takeover(&self) -> &Takeover {
        &self.takeover
    }

    /// Where the log stands that this term goes on with; none: the job begins.
    pub fn head(&self) -> Option<Head> {
        self.known().map(|(head, _)| head)
    }

    /// The log of a job that begins counts from this base on.
    pub async fn begin(&self, run: &str, at: Position) {
        loop {
            match self.put(Some((run, at)), None).await {
                Fate::Registered => return,
                Fate::Deposed(why) => begin_anew(&why),
                Fate::Away(why) => {
                    tracing::warn!("etcd cannot be told that the job begins: {why}");
                    sleep(RETRY).await;
                }
            }
        }
    }

    /// The job is over: all other candidates end, too.
    pub async fn finish(&self, how: &str) {
        for _ in 0..LAST_TRIES {
            match self.put(None, Some(how.to_owned())).await {
                Fate::Registered => break,
                Fate::Deposed(why) => {
                    tracing::warn!(
                        "the end of the job was not told to the other controllers: {why}"
                    );
                    break;
                }
                Fate::Away(_) => sleep(RETRY).await,
            }
        }
        self.resign().await;
    }

    /// Gives the place up, in order: somebody else leads within moments.
    pub async fn resign(&self) {
        self.resigned.store(true, Ordering::Release);
        let keeper = self
            .keeper
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(keeper);
        if let Err(error) = self.arbiter.revoke(self.lease).await {
            tracing::warn!("the lease could not be given back, and is over soon: {error}");
        }
    }

    fn known(&self) -> Option<(Head, Revision)> {
        let head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        head.clone()
    }

    /// Puts the head: at another place, or where it is.
    async fn put(&self, to: Option<(&str, Position)>, over: Option<String>) -> Fate {
        let _one = self.putting.lock().await;
        let known = self.known();
        let place = match (to, &known) {
            (Some((run, at)), _) => Some((run.to_owned(), at)),
            (None, Some((head, _))) => Some((head.run.clone(), head.at)),
            (None, None) => None,
        };
        let Some((run, at)) = place else {
            return Fate::Registered;
        };
        let head = Head { run, at, over };
        let key = self.keys.head();
        let ours = Compare::Created {
            key: self.keys.leader(),
            revision: self.epoch,
        };
        let last = match &known {
            Some((_, revision)) => Compare::Modified {
                key: key.clone(),
                revision: *revision,
            },
            None => Compare::Absent { key: key.clone() },
        };
        let value = kept(&head);
        let write = Write::Put {
            key,
            value: value.clone(),
            lease: None,
        };
        let revision = match self.arbiter.transact(vec![ours, last], vec![write]).await {
            Ok(Transacted::Done(revision)) => revision,
            Ok(Transacted::Refused { found }) => match self.made_before(&found, &value) {
                Ok(revision) => revision,
                Err(why) => return Fate::Deposed(why),
            },
            Err(error) => return Fate::Away(error.to_string()),
        };
        let mut known = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some((head, revision));
        Fate::Registered
    }

    /// The change by which the very same was put before, whose answer was lost; or why it was not and never will be.
    fn made_before(&self, found: &[Entry], value: &[u8]) -> Result<Revision, String> {
        let of = |key: String| found.iter().find(|entry| entry.key == key);
        match (of(self.keys.leader()), of(self.keys.head())) {
            (Some(leader), Some(head)) if leader.created == self.epoch && head.value == value => {
                Ok(head.modified)
            }
            (Some(leader), _) if leader.created != self.epoch => Err(format!(
                "{} leads, in epoch {}",
                read::<super::site::Advert>(&leader.value)
                    .unwrap_or_default()
                    .name,
                leader.created
            )),
            (None, _) => Err("its place was taken away".to_owned()),
            _ => Err("the log went on without it".to_owned()),
        }
    }
}

impl Register for Lead {
    fn register<'a>(&'a self, _from: &'a Position, to: &'a Position) -> BoxFuture<'a, Fate> {
        Box::pin(async move {
            let run = self.known().map(|(head, _)| head.run).unwrap_or_default();
            let fate = self.put(Some((&run, *to)), None).await;
            if fate == Fate::Registered {
                self.takeover.recorded();
            }
            fate
        })
    }

    fn step_down(&self, why: &str) {
        if !self.resigned.load(Ordering::Acquire) {
            begin_anew(why);
        }
        // The place was given up, and the program ends in a moment. Whoever writes waits for that: a write that fails ends the
        // job's roles, with which another controller goes on.
        loop {
            std::thread::park();
        }
    }
}

/// Another one leads, or may: nothing more is said or done in this one's name. The program begins anew, and follows.
pub(super) fn begin_anew(why: &str) -> ! {
    tracing::warn!("this controller leads no more: {why}; it begins anew, and follows");
    // Also where another build has taken its place meanwhile.
    let program = "/proc/self/exe";
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let error = Command::new(program).arg0(name).args(arguments).exec();
    tracing::error!("it cannot begin anew: {error}");
    std::process::exit(1)
}
