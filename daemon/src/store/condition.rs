//! How the database is: what operators are told, and what the job waits for.
use std::fmt;
use tokio::sync::watch;

/// How the database is. `Display` is a sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Writes are taken.
    #[default]
    Sound,
    /// The disk is nearly full: no write is taken, so that what is stored stays readable. Writes are
    /// taken again, of themselves, when there is room.
    Full {
        /// Bytes left.
        free: u64,
        /// Bytes that must be free before writes are taken again.
        wanted: u64,
    },
    /// The job's log cannot be written: nothing is acknowledged, and all that waits for that is done, of itself, when
    /// it can.
    LogAway {
        /// What the object store says.
        detail: String,
    },
    /// Something stored cannot be read any more.
    Damaged {
        /// What.
        detail: String,
    },
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sound => write!(f, "the database takes writes"),
            Self::Full { free, wanted } => write!(
                f,
                "the database's disk is full ({} MiB left): the job waits until {} MiB are free",
                free >> 20,
                wanted >> 20
            ),
            Self::LogAway { detail } => write!(
                f,
                "the job's log cannot be written ({detail}): what runs goes on, and the job waits until the log takes \
                 writes again"
            ),
            Self::Damaged { detail } => write!(
                f,
                "the database is damaged: {detail}; restart robustd, which sets it aside"
            ),
        }
    }
}

/// Where the condition is told.
#[derive(Clone, Debug)]
pub(super) struct Conditions(watch::Sender<Condition>);

impl Conditions {
    pub fn new() -> Self {
        Self(watch::channel(Condition::Sound).0)
    }

    pub fn watch(&self) -> watch::Receiver<Condition> {
        self.0.subscribe()
    }

    /// Tells it if it is news. Damage stays until the database is opened anew.
    pub fn set(&self, next: Condition) {
        self.0.send_if_modified(|now| {
            let news = *now != next && !matches!(now, Condition::Damaged { .. });
            if news {
                match &next {
                    Condition::Sound => tracing::info!("{next}"),
                    _ => tracing::error!("{next}"),
                }
                *now = next;
            }
            news
        });
    }
}
