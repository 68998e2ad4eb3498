//! Changes of a role while the job runs: each is a revision of the job file, on disk before the core
//! is asked, in force when it agrees.
//!
//! ```text
//!  asked ── the job with it ── job.N.json ── core ──► accepted: roles started from then on read it
//!              │ not a job                    │
//!              ▼                              ▼
//!           refused                        refused: the file is removed, nothing changed
//! ```
use super::{Driver, StoreEvent};
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

/// A revision on its way: made of the job as it is, so there is one at a time.
#[derive(Debug)]
pub struct Revision {
    role: Role,
    change: Change,
    number: u32,
    job: Arc<Job>,
    answer: oneshot::Sender<Result<Reply, Refusal>>,
}

/// How far a revision is.
#[derive(Debug, Default)]
pub(super) enum Revising {
    /// There is none.
    #[default]
    Nothing,
    /// It is written.
    Writing,
    /// The core is asked.
    Asked {
        /// The request.
        ticket: u64,
        /// The revision's number.
        number: u32,
        /// The job with it.
        job: Arc<Job>,
    },
}

impl Driver {
    pub(super) fn on_change(
        &mut self,
        role: Role,
        change: Change,
        answer: oneshot::Sender<Result<Reply, Refusal>>,
    ) {
        let job = match (&self.revising, &change) {
            (Revising::Nothing, Change::Count(count)) => Ok(self.parts.job.scaled(role, *count)),
            (Revising::Nothing, Change::Values(values)) => {
                let problem = |p: robust_shared::job::Problem| p.to_string();
                let job = self.parts.job.updated(role, values);
                job.map_err(|p| Refusal::BadValue {
                    problem: problem(p),
                })
            }
            _ => Err(Refusal::Busy {
                what: "another change of the job".to_owned(),
            }),
        };
        let job = match job {
            Ok(job) => Arc::new(job),
            // The operator may have left.
            Err(refusal) => return drop(answer.send(Err(refusal))),
        };
        self.revising = Revising::Writing;
        let revision = Revision {
            role,
            change,
            number: self.core.state().revision() + 1,
            job,
            answer,
        };
        let path = self.parts.state.job_revision(revision.number);
        let events = self.parts.events.clone();
        tokio::task::spawn_blocking(move || {
            let text = serde_json::to_string_pretty(&*revision.job).map_err(|e| e.to_string());
            let written = text.and_then(|text| {
                write_private(&path, text.as_bytes()).map_err(|e: StateDirError| e.to_string())
            });
            let revision = Box::new(revision);
            // When the driver is gone, so is whoever waits for the answer.
            let _ = events.send(StoreEvent::Revised { revision, written }.into());
        });
    }

    /// It is on disk: the core decides.
    pub(super) fn on_revised(&mut self, revision: Revision, written: Result<(), String>) {
        let Revision {
            role,
            change,
            number,
            job,
            answer,
        } = revision;
        if let Err(problem) = written {
            self.revising = Revising::Nothing;
            return drop(answer.send(Err(Refusal::BadValue { problem })));
        }
        self.tasks += 1;
        let ticket = self.tasks;
        let request = match change {
            Change::Count(count) => Request::Scale {
                role,
                count,
                revision: number,
            },
            Change::Values(changes) => Request::Update {
                role,
                config: Box::new(CoreConfig::from(&*job)),
                revision: number,
                changes,
            },
        };
        self.requests.insert(ticket, answer);
        self.revising = Revising::Asked {
            ticket,
            number,
            job,
        };
        self.inputs.push_back(Input::Operator(ticket, request));
    }

    /// The core has decided on a request, which may be a change.
    pub(super) fn settle_change(&mut self, request: u64, accepted: bool) {
        let Revising::Asked {
            ticket,
            number,
            job,
        } = &self.revising
        else {
            return;
        };
        if *ticket != request {
            return;
        }
        if accepted {
            self.parts.job = Arc::clone(job);
        } else {
            let path = self.parts.state.job_revision(*number);
            if let Err(error) = std::fs::remove_file(&path) {
                let path = path.display();
                tracing::warn!("a refused revision of the job stays: {path}: {error}");
            }
        }
        self.revising = Revising::Nothing;
    }

    /// The revision that a role on another node reads, unless it is the first, which is there.
    /// The error says why it cannot be read.
    pub(super) fn job_text(&self, node: NodeId, revision: u32) -> Result<Option<Arc<str>>, String> {
        if node == NodeId::LEADER || revision == 0 {
            return Ok(None);
        }
        let path = self.parts.state.job_revision(revision);
        let text = std::fs::read_to_string(&path);
        text.map(|text| Some(text.into()))
            .map_err(|e| format!("the job's revision {revision}: {}: {e}", path.display()))
    }
}
