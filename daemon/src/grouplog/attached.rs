//! A log that is written.
use super::bases::Bases;
use super::carried::Carried;
use crate::store::database::Commit;
use crate::store::{Condition, Dumper, StoreError, stored_position};
use bytes::Bytes;
use futures::future::BoxFuture;
use robust_grouplog::{Group, GroupLog, LogError, Position};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

/// How long one put may take before it is tried again.
const PUT: Duration = Duration::from_secs(10);
/// The same where another controller would have the place after five seconds in which it can write and this one cannot.
const PUT_OF_SEVERAL: Duration = Duration::from_secs(4);
/// How long a group is waited for where somebody wants the end.
const HURRIED: Duration = Duration::from_secs(5);
/// Between two tries.
const RETRY: Duration = Duration::from_millis(250);

/// What becomes of a group that is in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It counts.
    Registered,
    /// Whoever decides cannot be reached: it is asked again.
    Away(String),
    /// Another controller leads: this one acknowledges nothing any more.
    Deposed(String),
}

/// Who decides whether a group counts.
pub trait Register: Send + Sync {
    /// Moves the log's head from one position to the next. Asking for the same again is fine.
    fn register<'a>(&'a self, from: &'a Position, to: &'a Position) -> BoxFuture<'a, Fate>;

    /// What is done when another controller leads: nothing more may be said in this one's name. A controller's own does not
    /// come back.
    fn step_down(&self, why: &str);
}

/// A log, and where it stands.
pub struct Attached {
    log: GroupLog,
    epoch: u64,
    at: Position,
    runtime: Handle,
    register: Option<Arc<dyn Register>>,
    carried: Carried,
    bases: Bases,
    hurried: Arc<AtomicBool>,
    /// A group failed: the database may have it or not, and so may the log.
    broken: bool,
    /// Another controller goes on with the log: nothing is acknowledged any more.
    over: Option<LogError>,
}

impl Attached {
    /// The log goes on after `at`, in the term `epoch`; it has a base up to `base`. For the runtime that this is called in.
    pub fn new(
        (log, epoch, at): (GroupLog, u64, Position),
        base: u64,
        register: Option<Arc<dyn Register>>,
        carried: Carried,
        dumper: Dumper,
    ) -> Self {
        let runtime = Handle::current();
        Self {
            bases: Bases::new(
                log.clone(),
                dumper,
                runtime.clone(),
                at.number.saturating_sub(base),
            ),
            log,
            epoch,
            at,
            runtime,
            register,
            carried,
            hurried: Arc::default(),
            broken: false,
            over: None,
        }
    }

    pub(super) fn hurried_by(self, hurried: Arc<AtomicBool>) -> Self {
        Self { hurried, ..self }
    }

    pub(super) fn files(&mut self) -> Vec<(String, Option<Vec<u8>>)> {
        self.carried.changed()
    }

    /// Puts a group into both.
    pub(super) fn commit(
        &mut self,
        tree: &sled::Tree,
        group: Group,
        commit: &mut dyn Commit,
        tell: &(dyn Fn(Condition) + Send + Sync),
    ) -> Result<(), StoreError> {
        if let Some(error) = &self.over {
            return Err(StoreError::Log(error.clone()));
        }
        if self.broken {
            self.mend(tree, tell)?;
        }
        let (bytes, next) = group.encode(self.epoch, &self.at);
        let size = bytes.len() as u64;
        let put = Put {
            log: self.log.clone(),
            at: next,
            bytes,
            within: match self.register {
                Some(_) => PUT_OF_SEVERAL,
                None => PUT,
            },
            patience: Patience::new(&self.hurried),
        };
        let patience = put.patience.clone();
        let mut local = group;
        local.writes.push(stored_position(&next));
        self.broken = true;
        let (written, logged) = self.runtime.clone().block_on(async {
            match &self.register {
                // What has never counted is in no store of a controller: it would follow no chain of the log.
                Some(_) => {
                    let logged = match put.patiently(tell).await {
                        Ok(()) => self.registered(&next, &patience, tell).await,
                        failed => failed,
                    };
                    let written = match &logged {
                        Ok(()) => commit.commit(tree, local),
                        Err(error) => Err(StoreError::Log(error.clone())),
                    };
                    (written, logged)
                }
                None => {
                    // The disk beside the network; the store's own thread may block.
                    let putting = tokio::spawn(put.clone().first());
                    let written = commit.commit(tree, local);
                    let logged = match putting.await {
                        Ok(Ok(())) => Ok(()),
                        _ => put.patiently(tell).await,
                    };
                    (written, logged)
                }
            }
        });
        if let Err(error @ LogError::Taken { .. }) = &logged {
            self.over = Some(error.clone());
            self.deposed(&error.to_string());
        }
        written?;
        logged.map_err(StoreError::Log)?;
        self.at = next;
        self.broken = false;
        self.bases.wrote(size, next);
        Ok(())
    }

    /// Until it counts.
    async fn registered(
        &self,
        next: &Position,
        patience: &Patience,
        tell: &(dyn Fn(Condition) + Send + Sync),
    ) -> Result<(), LogError> {
        let Some(register) = &self.register else {
            return Ok(());
        };
        loop {
            match register.register(&self.at, next).await {
                Fate::Registered => return Ok(()),
                Fate::Deposed(why) => {
                    register.step_down(&why);
                    let key = next.to_string();
                    return Err(LogError::Taken { key });
                }
                Fate::Away(reason) => {
                    let error = LogError::Store {
                        doing: "register",
                        key: next.to_string(),
                        reason,
                    };
                    patience.wait(error, tell).await?;
                }
            }
        }
    }

    fn deposed(&self, why: &str) {
        if let Some(register) = &self.register {
            register.step_down(why);
        }
    }

    /// After a failure: the log goes on from what the database has, which a base says whole. A controller among several
    /// leaves that to another one.
    fn mend(
        &mut self,
        tree: &sled::Tree,
        tell: &(dyn Fn(Condition) + Send + Sync),
    ) -> Result<(), StoreError> {
        self.deposed("a group of writes failed on this machine");
        let epoch = self.epoch + 1;
        let path = self.bases.path().to_owned();
        let number = crate::store::database::last_group(tree, &path)?;
        let at = Position::of_base(self.log.run(), epoch, number);
        let patience = Patience::new(&self.hurried);
        let made = self.runtime.block_on(async {
            loop {
                match self.bases.put_of(at, tree).await {
                    Err(StoreError::Log(error)) if error.may_pass() => {
                        patience.wait(error, tell).await.map_err(StoreError::Log)?;
                    }
                    made => return made,
                }
            }
        });
        if let Err(StoreError::Log(error @ LogError::Taken { .. })) = &made {
            self.over = Some(error.clone());
        }
        made?;
        self.epoch = epoch;
        self.at = at;
        self.broken = false;
        // A file that came with the group that failed is perhaps not there.
        self.carried.again();
        Ok(())
    }
}

/// A group on its way.
#[derive(Clone)]
struct Put {
    log: GroupLog,
    at: Position,
    bytes: Bytes,
    within: Duration,
    patience: Patience,
}

impl Put {
    async fn first(self) -> Result<(), LogError> {
        let put = timeout(self.within, self.log.put(&self.at, self.bytes)).await;
        put.unwrap_or_else(|_| Err(slow(&self.at, self.within)))
    }

    /// Until it is there, or can never be.
    async fn patiently(self, tell: &(dyn Fn(Condition) + Send + Sync)) -> Result<(), LogError> {
        loop {
            match self.clone().first().await {
                Err(error) if error.may_pass() => self.patience.wait(error, tell).await?,
                ended => return ended,
            }
        }
    }
}

fn slow(at: &Position, within: Duration) -> LogError {
    LogError::Store {
        doing: "put",
        key: at.to_string(),
        reason: format!("no answer within {} s", within.as_secs()),
    }
}

/// How long a log that is away is waited for: until it is back, but where somebody wants the end.
#[derive(Clone)]
struct Patience {
    began: Instant,
    hurried: Arc<AtomicBool>,
}

impl Patience {
    fn new(hurried: &Arc<AtomicBool>) -> Self {
        Self {
            began: Instant::now(),
            hurried: Arc::clone(hurried),
        }
    }

    /// Says that the log is away, and waits a moment; with the error once that is enough.
    async fn wait(
        &self,
        error: LogError,
        tell: &(dyn Fn(Condition) + Send + Sync),
    ) -> Result<(), LogError> {
        if self.hurried.load(Ordering::Acquire) && self.began.elapsed() > HURRIED {
            return Err(error);
        }
        let detail = error.to_string();
        tell(Condition::LogAway { detail });
        sleep(RETRY).await;
        Ok(())
    }
}
