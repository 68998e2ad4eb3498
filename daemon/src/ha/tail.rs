//! The candidate's store, brought to wherever the log is.
use super::setting::{HaError, Setting};
use super::site::Head;
use crate::grouplog::{RestoreError, newest, write_files};
use crate::state::StateDir;
use crate::store::Replica;
use robust_grouplog::{GroupLog, Seal};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Between two tries to read the log.
const RETRY: Duration = Duration::from_millis(250);

/// The files of the state directory that came with the log.
struct Laid {
    state: StateDir,
    seal: Arc<Seal>,
    files: Vec<(String, Vec<u8>)>,
}

impl Laid {
    /// Lays them there if they changed.
    fn again(&mut self, replica: &Replica) -> Result<(), RestoreError> {
        let files = replica.files()?;
        if files != self.files {
            write_files(replica, &self.state, Some(&self.seal))?;
            self.files = files;
        }
        Ok(())
    }
}

/// A replica that follows a head in the background.
pub struct Tail {
    heads: watch::Sender<Option<Head>>,
    applied: watch::Receiver<u64>,
    following: JoinHandle<Result<Replica, HaError>>,
}

impl Tail {
    /// Follows the heads that it is given. The files that come with the log lie in the state directory as soon as they
    /// come: operators' tools ask the leader with them.
    pub fn start(setting: &Setting, seal: Arc<Seal>, mut replica: Replica) -> Self {
        let (remote, job) = (setting.remote.clone(), setting.job.clone());
        let mut laid = Laid {
            state: setting.state.clone(),
            seal,
            files: Vec::new(),
        };
        let (heads, mut wanted) = watch::channel(None::<Head>);
        let (told, applied) = watch::channel(replica.at().map_or(0, |at| at.number));
        let following = tokio::spawn(async move {
            // What was applied before the last end of this controller may not have been laid there.
            laid.again(&replica)?;
            loop {
                // Whoever gives the heads is gone: this is as far as it is to go.
                let is_last = wanted.changed().await.is_err();
                let head = wanted.borrow_and_update().clone();
                if let Some(head) = head
                    && replica.at() != Some(head.at)
                {
                    let log = GroupLog::new(&remote, &job, &head.run);
                    match newest(&log, &mut replica, &head.at).await {
                        Ok(()) => {
                            laid.again(&replica)?;
                            // Nobody asks any more: the candidate is about to lead.
                            let _ = told.send(head.at.number);
                        }
                        Err(RestoreError::Log(error)) if error.may_pass() => {
                            tracing::warn!("the job's log cannot be followed: {error}");
                            sleep(RETRY).await;
                            wanted.mark_changed();
                            continue;
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                if is_last {
                    return Ok(replica);
                }
            }
        });
        Self {
            heads,
            applied,
            following,
        }
    }

    /// The log counts to there now.
    pub fn follow(&self, head: Head) {
        self.heads.send_if_modified(|now| {
            let news = now.as_ref() != Some(&head);
            *now = Some(head);
            news
        });
    }

    /// The number of the last group that its store has.
    pub fn applied(&self) -> u64 {
        *self.applied.borrow()
    }

    /// The number of the last group that it was told of.
    pub fn told(&self) -> u64 {
        let head = self.heads.borrow();
        head.as_ref().map_or(0, |head| head.at.number)
    }

    /// Waits until its store has all groups that it was told of, for so long at most.
    pub async fn catch_up(&self, within: Duration) {
        let mut applied = self.applied.clone();
        let told = self.told();
        // One that came to its end is seen elsewhere.
        let _ = timeout(within, applied.wait_for(|applied| *applied >= told)).await;
    }

    /// Whether it came to its end, which only an error brings about.
    pub fn has_failed(&self) -> bool {
        self.following.is_finished()
    }

    /// The replica, once it has all that it was told of.
    pub async fn caught_up(self) -> Result<Replica, HaError> {
        drop(self.heads);
        let ended = self.following.await;
        ended.unwrap_or_else(|e| {
            Err(HaError::Start {
                what: "the replica of the log",
                source: std::io::Error::other(e),
            })
        })
    }
}
