//! What a candidate needs to know, and why it cannot be one.
use super::site::{Advert, Keys};
use crate::files::{FilesError, Holder};
use crate::grouplog::RestoreError;
use crate::state::StateDir;
use crate::store::StoreError;
use robust_arbiter::{Arbiter, ArbiterError, Etcd, Options, SettingError, Tls};
use robust_grouplog::LogError;
use robust_remote::Remote;
use robust_shared::ha::Timing;
use robust_shared::job::Ha;
use robust_shared::time::Time;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};
use tonic::transport::Uri;

/// How long a call to etcd may take.
const CALL: Duration = Duration::from_secs(1);
/// How long etcd may take to choose a leader of its own, and answer.
const ANSWERS: Duration = Duration::from_secs(5);
/// Between two calls until then.
const RETRY: Duration = Duration::from_millis(200);

/// Why a candidate ends, or never was one.
#[derive(Debug, thiserror::Error)]
pub enum HaError {
    /// The job file's etcd cannot be used.
    #[error("[ha]: {0}")]
    Setting(#[from] SettingError),
    /// An address is none.
    #[error("ha.etcd: {url}: {why}")]
    Url {
        /// Which.
        url: String,
        /// Why.
        why: String,
    },
    /// etcd refused something that will not change.
    #[error(transparent)]
    Arbiter(#[from] ArbiterError),
    /// The log cannot be followed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// It cannot be taken over from the log.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The job's files cannot be looked for.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// Something of the system could not be had.
    #[error("cannot start {what}: {source}")]
    Start {
        /// What.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

/// A candidate's settings.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its name and addresses.
    pub advert: Advert,
    /// The job's name.
    pub job: String,
    /// Its state directory.
    pub state: StateDir,
    /// Where the log is.
    pub remote: Remote,
    /// What looks for the job's files.
    pub holder: Holder,
    /// How etcd is reached.
    pub etcd: Options,
    /// How long what is waited for.
    pub timing: Timing,
}

impl Setting {
    /// Of a job file's `[ha]`.
    ///
    /// # Errors
    /// When an address is none.
    pub fn new(
        ha: &Ha,
        (job, advert): (&str, Advert),
        holder: Holder,
        remote: Remote,
    ) -> Result<Self, HaError> {
        let mut endpoints = Vec::new();
        for url in &ha.etcd {
            let parsed = url.parse::<Uri>();
            let uri = parsed.map_err(|e| HaError::Url {
                url: url.clone(),
                why: e.to_string(),
            });
            endpoints.push(uri?);
        }
        let tls = match (&ha.etcd_certificate, &ha.etcd_key, &ha.etcd_authority) {
            (Some(certificate), Some(key), Some(authority)) => Some(Tls {
                certificate: certificate.clone(),
                key: key.clone(),
                authority: authority.clone(),
            }),
            _ => None,
        };
        let lease = Duration::from_secs_f64(ha.lease_s);
        let silence = Duration::from_secs_f64(ha.silence_s);
        Ok(Self {
            advert,
            job: job.to_owned(),
            state: holder.state.clone(),
            remote,
            holder,
            etcd: Options {
                endpoints,
                tls,
                timeout: CALL,
            },
            timing: Timing::new(lease, silence),
        })
    }

    /// A client of etcd, for the runtime that first calls it.
    pub(super) fn arbiter(&self) -> Result<Etcd, HaError> {
        Ok(Etcd::new(self.etcd.clone())?)
    }

    /// Whether etcd answers, and knows how far the log of the job counts. False, too, where nobody answers in time: whether
    /// etcd is lost or only cannot be reached from here is not known then.
    ///
    /// # Errors
    /// When etcd cannot be asked with these settings, or refuses to say it.
    pub async fn is_known_to_etcd(&self) -> Result<bool, HaError> {
        let arbiter = self.arbiter()?;
        let key = self.keys().head();
        let asked = timeout(ANSWERS, async {
            loop {
                match arbiter.read(&key).await {
                    Ok(head) => break Ok(head.is_some()),
                    Err(error @ ArbiterError::Refused { .. }) => break Err(HaError::from(error)),
                    Err(_) => sleep(RETRY).await,
                }
            }
        });
        asked.await.unwrap_or(Ok(false))
    }

    /// Whether a controller leads with etcd now: its sign there changes. False where nobody answers in time.
    ///
    /// # Errors
    /// When etcd cannot be asked with these settings.
    pub async fn is_led(&self) -> Result<bool, HaError> {
        let (arbiter, key) = (self.arbiter()?, self.keys().sign());
        let asked = timeout(ANSWERS, async {
            let mut first = None;
            loop {
                if let Ok(Some(sign)) = arbiter.read(&key).await
                    && *first.get_or_insert(sign.modified) != sign.modified
                {
                    break;
                }
                sleep(RETRY).await;
            }
        });
        Ok(asked.await.is_ok())
    }

    pub(super) fn keys(&self) -> Keys {
        Keys::new(&self.job)
    }
}

/// The time since the program began, by a clock that nobody sets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since(Instant);

impl Since {
    pub fn begin() -> Self {
        Self(Instant::now())
    }

    pub fn now(&self) -> Time {
        let us = self.0.elapsed().as_micros();
        // Not from zero: what was a moment before the beginning is no time.
        Time(
            u64::try_from(us)
                .unwrap_or(u64::MAX)
                .saturating_add(1 << 32),
        )
    }
}
