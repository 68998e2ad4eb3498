//! A follower's own signs of life, and what it proves by them.
use super::setting::{HaError, Setting};
use super::site::{Lacks, Member, Proof, Sign, kept};
use crate::files::Standing;
use robust_arbiter::{Arbiter, Etcd, Write};
use robust_grouplog::GroupLog;
use robust_remote::Remote;
use robust_shared::ha::Event;
use robust_shared::time::Time;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{sleep, timeout};

/// A store that takes longer than this to take a few bytes is no better than the leader's.
const PROOF: Duration = Duration::from_secs(2);
/// Between two proofs.
const PAUSE: Duration = Duration::from_secs(1);

/// What a follower says of itself.
pub(super) struct Signs {
    arbiter: Etcd,
    name: String,
    key: String,
    log: (Remote, String),
    proved: Arc<Mutex<Option<Proof>>>,
    proving: Arc<AtomicBool>,
}

impl Signs {
    pub fn new(setting: &Setting) -> Result<Self, HaError> {
        let name = setting.advert.name.clone();
        Ok(Self {
            arbiter: setting.arbiter()?,
            key: setting.keys().member(&name),
            name,
            log: (setting.remote.clone(), setting.job.clone()),
            proved: Arc::default(),
            proving: Arc::default(),
        })
    }

    /// Tells etcd that this candidate lives, in the background; `told` hears that it was answered.
    pub fn give(
        &self,
        (applied, files): (u64, Standing),
        told: UnboundedSender<Event>,
        given: Time,
    ) {
        let (arbiter, key) = (self.arbiter.clone(), self.key.clone());
        let proved = *self.proved.lock().unwrap_or_else(PoisonError::into_inner);
        let lacks = (!files.has_all()).then_some(Lacks {
            files: files.lacks,
            bytes: files.lacking_bytes,
            of: files.bytes,
            why: files.why,
        });
        let member = Member {
            applied,
            proved,
            lacks,
        };
        tokio::spawn(async move {
            let write = Write::Put {
                key,
                value: kept(&member),
                lease: None,
            };
            if arbiter.transact(Vec::new(), vec![write]).await.is_ok() {
                // Nobody hears any more: it leads.
                drop(told.send(Event::Answered { given }));
            }
        });
    }

    /// The leader waits to write the log of this life of the job: proves, in the background, that this candidate can.
    pub fn prove(&self, run: &str, asked: &Sign) {
        if self.proving.swap(true, Ordering::AcqRel) {
            return;
        }
        let (remote, job) = &self.log;
        let log = GroupLog::new(remote, job, run);
        let (proved, proving) = (Arc::clone(&self.proved), Arc::clone(&self.proving));
        let name = self.name.clone();
        let proof = Proof {
            epoch: asked.epoch,
            number: asked.number,
        };
        tokio::spawn(async move {
            match timeout(PROOF, log.prove(&name)).await {
                Ok(Ok(())) => {
                    *proved.lock().unwrap_or_else(PoisonError::into_inner) = Some(proof);
                }
                Ok(Err(error)) => tracing::warn!(
                    "the leader cannot write the job's log, and neither can this controller: {error}"
                ),
                Err(_) => tracing::warn!(
                    "the leader cannot write the job's log, and neither can this controller: no answer within {} s",
                    PROOF.as_secs()
                ),
            }
            sleep(PAUSE).await;
            proving.store(false, Ordering::Release);
        });
    }
}
