//! The arbiter of tests: what etcd does, in memory, with a clock that nobody moves but the test.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt as _};
use tokio::sync::watch;

use self::store::Store;
use crate::{
    Arbiter, ArbiterError, Changed, Compare, Entry, Lease, LeaseId, Revision, Transacted, Write,
};

mod store;

/// Where clients of [`Virtual`] say that they asked.
const AT: &str = "the virtual etcd";

/// All members of an etcd that never fails. What fails are the ways of its [clients](Client) to it.
#[derive(Clone, Debug, Default)]
pub struct Virtual {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    store: Mutex<Store>,
    /// Moved where something changed: watches look again.
    changed: watch::Sender<()>,
}

impl Shared {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is wrong with a client's way to etcd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Trouble {
    /// Nothing is.
    #[default]
    None,
    /// No connection comes about, and watches break: nothing is done.
    Unreachable,
    /// What is asked is lost on its way: nothing is done, and nobody knows.
    RequestsLost,
    /// What is asked is done, and the answer is lost.
    AnswersLost,
}

impl Trouble {
    const ALL: [Self; 4] = [
        Self::None,
        Self::Unreachable,
        Self::RequestsLost,
        Self::AnswersLost,
    ];
}

impl Virtual {
    /// An empty one, at its first revision.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Somebody who asks it, with a way of his own that can be broken.
    #[must_use]
    pub fn client(&self) -> Client {
        Client {
            shared: Arc::clone(&self.shared),
            trouble: Arc::default(),
            troubled: watch::Sender::new(()),
        }
    }

    /// Lets time pass: leases that are not kept alive end, the first one first.
    pub fn advance(&self, time: Duration) {
        self.shared.store().advance(time);
        self.shared.changed.send_replace(());
    }

    /// Forgets the changes before this revision.
    pub fn compact(&self, kept: Revision) {
        self.shared.store().compact(kept);
        self.shared.changed.send_replace(());
    }
}

/// One who asks a [`Virtual`]. Clones share the way, and its trouble.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    trouble: Arc<AtomicU8>,
    troubled: watch::Sender<()>,
}

impl Client {
    /// Breaks its way, or mends it.
    pub fn set_trouble(&self, trouble: Trouble) {
        self.trouble.store(trouble as u8, Ordering::SeqCst);
        self.troubled.send_replace(());
    }

    fn trouble(&self) -> Trouble {
        let number = usize::from(self.trouble.load(Ordering::SeqCst));
        Trouble::ALL.get(number).copied().unwrap_or_default()
    }

    /// Does what may be asked again, so that all there is to say of a lost answer is that there is none.
    fn ask<T>(
        &self,
        ask: impl FnOnce(&mut Store) -> Result<T, ArbiterError>,
    ) -> Result<T, ArbiterError> {
        let unavailable = |why: &str| ArbiterError::Unavailable {
            tried: format!("{AT}: {why}"),
        };
        match self.trouble() {
            Trouble::None => self.done(ask),
            Trouble::Unreachable => Err(unavailable("cannot be reached")),
            Trouble::RequestsLost => Err(unavailable("there was no answer")),
            Trouble::AnswersLost => {
                _ = self.done(ask);
                Err(unavailable("there was no answer"))
            }
        }
    }

    fn done<T>(&self, ask: impl FnOnce(&mut Store) -> T) -> T {
        let answer = ask(&mut self.shared.store());
        self.shared.changed.send_replace(());
        answer
    }
}

#[tonic::async_trait]
impl Arbiter for Client {
    async fn read(&self, key: &str) -> Result<Option<Entry>, ArbiterError> {
        self.ask(|store| store.read(key))
    }

    async fn read_prefix(&self, prefix: &str) -> Result<(Vec<Entry>, Revision), ArbiterError> {
        self.ask(|store| Ok(store.read_prefix(prefix)))
    }

    async fn transact(
        &self,
        compares: Vec<Compare>,
        writes: Vec<Write>,
    ) -> Result<Transacted, ArbiterError> {
        let unknown = || ArbiterError::Unknown {
            at: AT.to_owned(),
            why: "there was no answer".to_owned(),
        };
        match self.trouble() {
            Trouble::RequestsLost => Err(unknown()),
            Trouble::AnswersLost => {
                _ = self.done(|store| store.transact(&compares, writes));
                Err(unknown())
            }
            Trouble::None | Trouble::Unreachable => {
                self.ask(|store| store.transact(&compares, writes))
            }
        }
    }

    async fn grant(&self, ttl: Duration) -> Result<Lease, ArbiterError> {
        self.ask(|store| Ok(store.grant(ttl)))
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, ArbiterError> {
        self.ask(|store| store.keep_alive(lease))
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), ArbiterError> {
        self.ask(|store| {
            store.revoke(lease);
            Ok(())
        })
    }

    fn watch(
        &self,
        prefix: &str,
        from: Revision,
    ) -> BoxStream<'static, Result<Changed, ArbiterError>> {
        let watching = Watching {
            changed: self.shared.changed.subscribe(),
            troubled: self.troubled.subscribe(),
            client: self.clone(),
            prefix: prefix.to_owned(),
            from,
            over: false,
        };
        futures::stream::unfold(watching, Watching::step).boxed()
    }
}

struct Watching {
    client: Client,
    changed: watch::Receiver<()>,
    troubled: watch::Receiver<()>,
    prefix: String,
    from: Revision,
    over: bool,
}

impl Watching {
    async fn step(mut self) -> Option<(Result<Changed, ArbiterError>, Self)> {
        loop {
            if self.over {
                return None;
            }
            // Marked as seen before it is looked at, so that nothing between the two is missed.
            self.changed.mark_unchanged();
            self.troubled.mark_unchanged();
            let next = match self.client.trouble() {
                Trouble::None => self
                    .client
                    .shared
                    .store()
                    .next_change(&self.prefix, self.from),
                _ => Err(ArbiterError::WatchBroken {
                    at: AT.to_owned(),
                    why: "it does not answer".to_owned(),
                }),
            };
            match next {
                Ok(Some(changed)) => {
                    self.from = changed.revision.next();
                    return Some((Ok(changed), self));
                }
                Err(error) => {
                    self.over = true;
                    return Some((Err(error), self));
                }
                // Both senders live as long as this client.
                Ok(None) => tokio::select! {
                    _ = self.changed.changed() => {}
                    _ = self.troubled.changed() => {}
                },
            }
        }
    }
}
