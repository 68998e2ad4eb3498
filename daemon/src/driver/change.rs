//! Changes of a role while the job runs: each is a revision of the job file, on disk before the core
//! is asked, in force when it agrees.
//!
//! ```text
//!  asked ── the job with it ── job.N.json ── core ──► accepted: roles started from then on read it
//!              │ not a job                    │
//!              ▼                              ▼
//!           refused                        refused: the file is removed, nothing changed
//! ```
use super::Driver;
use crate::state::{StateDirError, write_private};
use robust_shared::core::{CoreConfig, Input, Refusal, Reply, Request};
use robust_shared::ids::{NodeId, Role};
use robust_shared::job::Job;
use std::sync::Arc;
use tokio::sync::oneshot;

/// What an operator wants of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// So many instances.
    Count(u32),
    /// New values, as `key=value`.
    Values(Vec<String>),
}

/// A revision that the core decides on.
#[derive(Debug)]
pub(super) struct Revision {
    number: u32,
    job: Arc<Job>,
}

impl Driver {
    pub(super) fn on_change(
        &mut self,
        role: Role,
        change: Change,
        answer: oneshot::Sender<Result<Reply, Refusal>>,
    ) {
        let revision = match self.revision(role, &change) {
            Ok(revision) => revision,
            // The operator may have left.
            Err(problem) => return drop(answer.send(Err(Refusal::BadValue { problem }))),
        };
        self.tasks += 1;
        let (ticket, number) = (self.tasks, revision.number);
        let request = match change {
            Change::Count(count) => Request::Scale {
                ticket,
                role,
                count,
                revision: number,
            },
            Change::Values(changes) => Request::Update {
                ticket,
                role,
                config: Box::new(CoreConfig::from(&*revision.job)),
                revision: number,
                changes,
            },
        };
        self.requests.insert(ticket, answer);
        self.changes.insert(ticket, revision);
        self.inputs.push_back(Input::Operator(request));
    }

    /// The job with a change, on disk.
    fn revision(&self, role: Role, change: &Change) -> Result<Revision, String> {
        let job = match change {
            Change::Count(count) => self.parts.job.scaled(role, *count),
            Change::Values(values) => {
                let changed = self.parts.job.updated(role, values);
                changed.map_err(|problem| problem.to_string())?
            }
        };
        let asked = self.changes.values().map(|r| r.number).max().unwrap_or(0);
        let number = self.core.state().revision().max(asked) + 1;
        let job = Arc::new(job);
        let text = serde_json::to_string_pretty(&*job).map_err(|e| e.to_string())?;
        let path = self.parts.state.job_revision(number);
        write_private(&path, text.as_bytes()).map_err(|e: StateDirError| e.to_string())?;
        Ok(Revision { number, job })
    }

    /// The core has decided on a request, which may be a change.
    pub(super) fn settle_change(&mut self, ticket: u64, accepted: bool) {
        let Some(Revision { number, job }) = self.changes.remove(&ticket) else {
            return;
        };
        if accepted {
            self.parts.job = job;
            return;
        }
        let path = self.parts.state.job_revision(number);
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::warn!(
                "a refused revision of the job stays: {}: {error}",
                path.display()
            );
        }
    }

    /// The revision that a role on another node reads, unless it is the first, which is there.
    pub(super) fn job_text(&self, node: NodeId, revision: u32) -> Option<Arc<str>> {
        if node == NodeId::LEADER || revision == 0 {
            return None;
        }
        let path = self.parts.state.job_revision(revision);
        match std::fs::read_to_string(&path) {
            Ok(text) => Some(text.into()),
            Err(error) => {
                tracing::error!("the job's revision {revision}: {}: {error}", path.display());
                None
            }
        }
    }
}
