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
use crate::state::{StateDir, write_private};
use robust_shared::core::{CoreConfig, Input, Refusal, Reply, Request};
use robust_shared::ids::{NodeId, Role};
use robust_shared::job::Job;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

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

/// The revisions of the job file, as roles on other nodes are told them: read once, so that nobody waits
/// for the disk when such a role is started.
#[derive(Debug, Default)]
pub(super) struct Revisions {
    texts: BTreeMap<u32, Arc<str>>,
    /// Of the last one that was refused: its number is the next one's.
    removing: Option<JoinHandle<()>>,
}

impl Revisions {
    /// Those of an earlier life, up to the newest. One that cannot be read is missed when it is wanted.
    pub fn read(state: &StateDir, newest: u32) -> Self {
        let read = |number| {
            let text = std::fs::read(state.job_revision(number)).ok()?;
            text_for_nodes(serde_json::from_slice(&text).ok()?).ok()
        };
        let texts = (1..=newest).filter_map(|number| Some((number, read(number)?)));
        Self {
            texts: texts.collect(),
            removing: None,
        }
    }
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
        let removing = self.revisions.removing.take();
        tokio::spawn(async move {
            if let Some(removing) = removing {
                // What a refused one of this number left must be gone before this one is there.
                let _ = removing.await;
            }
            let job = Arc::clone(&revision.job);
            let writing = tokio::task::spawn_blocking(move || write(&path, &job));
            let written = writing.await.unwrap_or_else(|e| Err(e.to_string()));
            let revision = Box::new(revision);
            // When the driver is gone, so is whoever waits for the answer.
            let _ = events.send(StoreEvent::Revised { revision, written }.into());
        });
    }

    /// It is on disk: the core decides.
    pub(super) fn on_revised(&mut self, revision: Revision, written: Result<Arc<str>, String>) {
        let Revision {
            role,
            change,
            number,
            job,
            answer,
        } = revision;
        match written {
            Ok(text) => drop(self.revisions.texts.insert(number, text)),
            Err(problem) => {
                self.revising = Revising::Nothing;
                return drop(answer.send(Err(Refusal::BadValue { problem })));
            }
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
            self.revisions.texts.remove(number);
            self.revisions.removing = Some(tokio::task::spawn_blocking(move || {
                if let Err(error) = std::fs::remove_file(&path) {
                    let path = path.display();
                    tracing::warn!("a refused revision of the job stays: {path}: {error}");
                }
            }));
        }
        self.revising = Revising::Nothing;
    }

    /// The revision that a role on another node reads, unless it is the first, which is there.
    /// The error says why it cannot be read.
    pub(super) fn job_text(&self, node: NodeId, revision: u32) -> Result<Option<Arc<str>>, String> {
        if node == NodeId::LEADER || revision == 0 {
            return Ok(None);
        }
        let text = self.revisions.texts.get(&revision).cloned();
        text.map(Some).ok_or_else(|| {
            let path = self.parts.state.job_revision(revision);
            format!(
                "the job's revision {revision} could not be read when this daemon began: {}",
                path.display()
            )
        })
    }
}

/// A revision as roles on other nodes read it.
fn text_for_nodes(job: Job) -> serde_json::Result<Arc<str>> {
    serde_json::to_string_pretty(&job.for_nodes()).map(Into::into)
}

/// Puts a revision on disk; its text for other nodes.
fn write(path: &Path, job: &Job) -> Result<Arc<str>, String> {
    let text = serde_json::to_string_pretty(job).map_err(|e| e.to_string())?;
    write_private(path, text.as_bytes()).map_err(|e| e.to_string())?;
    text_for_nodes(job.clone()).map_err(|e| e.to_string())
}
