//! Who leads a job: leases, fenced transactions and watches, in etcd.
//!
//! ```text
//!                 ┌─ Etcd ──── gRPC, TLS ──► members of etcd, one after the other
//!  Arbiter ───────┤
//!  (the seam)     └─ Client ── in memory ──► Virtual, with a clock that tests move
//! ```
//! The members of etcd keep a small ordered map of keys. Each change has a [`Revision`], greater than all before it.
//! Whoever leads holds a key that is bound to a lease, and compares in each of its transactions that this is still the
//! key that it made: the transaction of one who was deposed is refused, whatever any clock says.
//!
//! A transaction whose answer was lost may have been made, or may be made later, by a member that was frozen in between
//! ([`ArbiterError::Unknown`]). So each transaction should compare something that it changes itself, as the revision of
//! a key that it puts: then it is made once at most, and whoever reads sees whether it was. The same that is asked
//! again, after the read, is refused if the lost one was made meanwhile.

use std::fmt::{self, Debug, Display};
use std::time::Duration;

use futures::stream::BoxStream;

mod error;
mod etcd;
mod in_memory;

pub use error::ArbiterError;
pub use etcd::{Etcd, Options, SettingError, Tls};
pub use in_memory::{Client, Trouble, Virtual};

/// Generated from `proto/*.proto`; a test regenerates and compares it.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
#[rustfmt::skip]
mod generated {
    pub mod mvccpb {
        include!("generated/mvccpb.rs");
    }
    pub mod etcdserverpb {
        include!("generated/etcdserverpb.rs");
    }
}

/// The number of a change of the whole map: of all keys, in the order in which they were changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub i64);

impl Revision {
    /// The one after: where a watch goes on that has seen all up to here.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(&self.0, f)
    }
}

/// What keys are bound to that vanish with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

impl Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As etcdctl shows it.
        fmt::LowerHex::fmt(&self.0, f)
    }
}

/// A lease that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// By which it is kept alive, and keys are bound to it.
    pub id: LeaseId,
    /// How long it lives without being kept alive: at least what was asked for, in whole seconds.
    pub ttl: Duration,
}

/// What a key holds.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub key: String,
    /// What was put last.
    pub value: Vec<u8>,
    /// The change that made it: another one each time that it was deleted and put again.
    pub created: Revision,
    /// The change that put its value.
    pub modified: Revision,
    /// With which it vanishes.
    pub lease: Option<LeaseId>,
}

impl Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("key", &self.key)
            .field("value", &Shown(&self.value))
            .field("created", &self.created.0)
            .field("modified", &self.modified.0)
            .field("lease", &self.lease)
            .finish()
    }
}

/// A value as logs show it: one of megabytes is not told byte by byte.
struct Shown<'a>(&'a [u8]);

impl Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            0..=64 => write!(f, "b\"{}\"", self.0.escape_ascii()),
            bytes => write!(f, "{bytes} bytes"),
        }
    }
}

/// What must hold for a transaction to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// There is no such key.
    Absent {
        /// Its name.
        key: String,
    },
    /// The key is there, and this change made it: nobody deleted it since.
    Created {
        /// Its name.
        key: String,
        /// As [`Entry::created`].
        revision: Revision,
    },
    /// The key is there, and this change put its value.
    Modified {
        /// Its name.
        key: String,
        /// As [`Entry::modified`].
        revision: Revision,
    },
}

impl Compare {
    /// Whose state is compared.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Absent { key } | Self::Created { key, .. } | Self::Modified { key, .. } => key,
        }
    }
}

/// What a transaction changes.
#[derive(Clone, PartialEq, Eq)]
pub enum Write {
    /// Puts a value, whether the key was there or not.
    Put {
        /// Its name.
        key: String,
        /// Its value from then on.
        value: Vec<u8>,
        /// With which it vanishes from then on; one that it was bound to before counts no longer.
        lease: Option<LeaseId>,
    },
    /// Deletes a key, if it is there.
    Delete {
        /// Its name.
        key: String,
    },
}

impl Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { key, value, lease } => f
                .debug_struct("Put")
                .field("key", key)
                .field("value", &Shown(value))
                .field("lease", lease)
                .finish(),
            Self::Delete { key } => f.debug_struct("Delete").field("key", key).finish(),
        }
    }
}

impl Write {
    /// Which key is changed.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// What came of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Transacted {
    /// All compares held, and all writes were made, as this change.
    Done(Revision),
    /// A compare did not hold, and nothing was written.
    Refused {
        /// What the compared keys were then, each once; one that is missing was not there.
        found: Vec<Entry>,
    },
}

/// All that one transaction changed under a watched prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// A watch goes on from the [next](Revision::next) one.
    pub revision: Revision,
    /// At least one, in the order in which they were written.
    pub changes: Vec<Change>,
}

/// What became of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was put.
    Put(Entry),
    /// It was deleted, or the lease that it was bound to is over.
    Deleted {
        /// Its name.
        key: String,
    },
}

impl Change {
    /// Which key it is.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Put(entry) => &entry.key,
            Self::Deleted { key } => key,
        }
    }
}

/// Decides between those who would lead. Each call ends within a time that the implementation was told; none but
/// [`watch`](Self::watch) waits for anything to happen.
///
/// Reads see all that was answered before they were asked, whoever was answered. All calls but
/// [`transact`](Self::transact) may be made again as they are.
#[tonic::async_trait]
pub trait Arbiter: Send + Sync + Debug {
    /// What a key holds now.
    async fn read(&self, key: &str) -> Result<Option<Entry>, ArbiterError>;

    /// What all keys hold whose names begin so, in the order of their names, and the revision at which they did: a
    /// watch goes on from the next one.
    async fn read_prefix(&self, prefix: &str) -> Result<(Vec<Entry>, Revision), ArbiterError>;

    /// Makes all writes in one change if all compares hold, and else none of them. A key may be put once only. etcd takes
    /// 128 of either, and 1.5 MiB in all.
    ///
    /// [`ArbiterError::Unknown`]: nobody knows whether it was made, or still will be. Any other error says that it
    /// certainly was not and will not be.
    async fn transact(
        &self,
        compares: Vec<Compare>,
        writes: Vec<Write>,
    ) -> Result<Transacted, ArbiterError>;

    /// A new lease of at least this duration. What etcd grants at least depends on its election timeout: 1 s where that
    /// is 500 ms, 2 s where it is one second.
    async fn grant(&self, ttl: Duration) -> Result<Lease, ArbiterError>;

    /// Lets a lease live on for its whole duration, which is returned: counted from when this was called, it is safe.
    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, ArbiterError>;

    /// Ends a lease, and with it the keys that are bound to it. One that is over already is no error.
    async fn revoke(&self, lease: LeaseId) -> Result<(), ArbiterError>;

    /// All changes of keys whose names begin so, from this revision on, that one included, in their order and without
    /// gaps. The stream ends with its first error: the caller begins again after the last change that it saw, or reads
    /// anew where that is [`ArbiterError::Compacted`].
    fn watch(
        &self,
        prefix: &str,
        from: Revision,
    ) -> BoxStream<'static, Result<Changed, ArbiterError>>;
}
