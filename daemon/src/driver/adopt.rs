//! Beginning: a new job, or one that an earlier life of the daemon left running.
use super::change::Revisions;
use super::console::Printer;
use super::dispatched::Loader;
use super::gauges::Gauges;
use super::hands::{Here, Process};
use super::inspect::Inspecting;
use super::logs::Readers;
use super::nodes::Nodes;
use super::pulled::Pulls;
use super::saved::{self, Saved, SavedError};
use super::taped::Taped;
use super::{Driver, Frame, Parts};
use crate::control::GangCalls;
use crate::launcher::kill_spares_before;
use crate::links::Links;
use crate::logging::Rarer;
use crate::services::Services;
use crate::state::StateDir;
use crate::store::{Store, StoreError, StoredInstance};
use crate::tell::Tell;
use robust_proto::v1;
use robust_shared::core::{Core, CoreConfig, Exit, Input, RoleEvent, Severity};
use robust_shared::ids::{Incarnation, NodeId, Step, TrajectoryId, WeightVersion};
use robust_shared::job::Job;
use robust_shared::time::Time;
use robust_shared::wire::JobState;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// What an earlier life left; nothing for a new job.
#[derive(Debug, Default)]
pub struct Past {
    pub(super) saved: Option<Saved>,
    /// What has to be said of how it was found; a sentence.
    pub(super) said: Option<String>,
    /// The step gone on from, where no checkpoint of it is on disk and none was ever on its way.
    pub(super) unwritten: Option<Step>,
}

impl Past {
    /// The latest time it recorded.
    pub fn until(&self) -> Time {
        self.saved.as_ref().map_or(Time::default(), |s| s.at)
    }

    /// Whether there was no job before.
    pub fn is_empty(&self) -> bool {
        self.saved.is_none()
    }

    /// The last status of a job that is over.
    pub fn over(&self, job: &Job) -> Option<v1::Status> {
        let status = self.status(job)?;
        let over = [Some(JobState::Completed), Some(JobState::Failed)];
        over.contains(&status.state()).then_some(status)
    }

    /// The number of the job's revision that was in force; 0: the first.
    pub fn revision(&self) -> u32 {
        self.saved.as_ref().map_or(0, |s| s.core.revision())
    }

    /// The revision of the job that was in force, if it was not the first.
    pub fn job(&self, state: &StateDir) -> Result<Option<Job>, AdoptError> {
        let revision = self.revision();
        if revision == 0 {
            return Ok(None);
        }
        let path = state.job_revision(revision);
        let lost = |why: String| AdoptError::Revision {
            path: path.clone(),
            why,
        };
        let text = std::fs::read_to_string(&path).map_err(|e| lost(e.to_string()))?;
        let job = serde_json::from_str(&text).map_err(|e| lost(e.to_string()))?;
        Ok(Some(job))
    }

    /// What is known of the job before its roles are looked for: progress and history.
    pub fn progress(&self, job: &Job) -> Option<v1::Status> {
        let state = JobState::Starting.word().to_owned();
        Some(v1::Status {
            state,
            roles: Vec::new(),
            ..self.status(job)?
        })
    }

    fn status(&self, job: &Job) -> Option<v1::Status> {
        let saved = self.saved.as_ref()?;
        let view = Core::restore(CoreConfig::from(job), saved.core.clone()).view(saved.at);
        Some(Frame::new(job).status(&view, saved.at))
    }
}

/// Why it cannot be gone on with.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The state cannot be read.
    #[error("{0}; or discard the job with --fresh")]
    Saved(#[from] SavedError),
    /// The job was changed while it ran, and the change cannot be read.
    #[error("the job's revision in force cannot be read: {path}: {why}; discard it with --fresh")]
    Revision {
        /// Where it should be.
        path: std::path::PathBuf,
        /// Why.
        why: String,
    },
    /// The store knows of no job, and whether there was one cannot be looked at.
    #[error("cannot read the checkpoints in {dir}: {source}")]
    Checkpoints {
        /// Where.
        dir: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The store knows of no job, and its newest checkpoint is elsewhere.
    #[error(
        "the database of the job is gone, and its newest checkpoint, of step {step}, is in {url}; bring it back with \
         `robustctl ckpt fetch {step} --remote={url} --run {run} --state-dir {state}` and start again, or discard the job with --fresh"
    )]
    InStore {
        /// The step.
        step: Step,
        /// The object store.
        url: String,
        /// The life of the job, which it was put under.
        run: String,
        /// The state directory.
        state: String,
    },
    /// The store knows of no job, and nobody can say whether there are checkpoints of it.
    #[error(
        "the database of the job is gone, and whether there are checkpoints of it in {url} cannot be looked at: {why}; start \
         again when the object store answers, or discard the job with --fresh"
    )]
    NoAnswer {
        /// The object store.
        url: String,
        /// What it says.
        why: String,
    },
    /// Old role processes cannot be killed for want of a thread.
    #[error("cannot start the launcher: {0}")]
    Strangers(std::io::Error),
    /// Old role processes are in the way.
    #[error("processes {pids:?} of the job that was here cannot be killed; end them and try again")]
    Unkilled {
        /// Which.
        pids: Vec<u32>,
    },
}

/// Reads what an earlier life left.
pub fn past(store: &Store) -> Result<Past, AdoptError> {
    Ok(Past {
        saved: saved::read(store)?,
        ..Past::default()
    })
}

impl Driver {
    /// A driver that goes on from the past: living role processes are adopted, dead ones reported.
    pub fn new(mut parts: Parts, services: Services, past: Past) -> Result<Self, AdoptError> {
        parts.worker.services = services.addresses().to_owned();
        let config = CoreConfig::from(&*parts.job);
        let (core, snapshots, version_digest, again) = match past.saved {
            None => (Core::new(config), saved::Snapshots::default(), None, false),
            Some(Saved {
                core,
                snapshots,
                published,
                ..
            }) => (Core::restore(config, core), snapshots, published, true),
        };
        let links = Links::default();
        let loader = Loader::start(parts.store.clone(), Tell::into_channel(&parts.events));
        // Numbers from the clock: those of an earlier life are all smaller.
        let first = parts.clock.now().0;
        let here = Here {
            launcher: parts.launcher.clone(),
            afflictions: Default::default(),
            telemetry: parts.telemetry.clone(),
            worker: parts.worker.clone(),
            store: parts.store.clone(),
            events: parts.events.clone(),
            starting: HashMap::new(),
        };
        let revisions = Revisions::read(&parts.state, core.state().revision());
        let taped = Taped::new(parts.feeds.phases().clone());
        let mut driver = Driver {
            here,
            nodes: Nodes::default(),
            calls: GangCalls::new(links.clone(), first),
            parts,
            core,
            links,
            loader,
            gang: None,
            ahead: Default::default(),
            switches: HashMap::new(),
            tasks: first,
            processes: HashMap::new(),
            link_samples: HashMap::new(),
            gauges: Gauges::default(),
            readers: Readers::default(),
            inspecting: Inspecting::default(),
            pulls: Pulls::default(),
            taped,
            served: Default::default(),
            plans: Default::default(),
            snapshots,
            replicas: Default::default(),
            alone_since: None,
            version_digest,
            replayed: None,
            routes: HashMap::new(),
            requests: HashMap::new(),
            revising: Default::default(),
            revisions,
            consumed: None,
            injections: HashMap::new(),
            inputs: VecDeque::new(),
            outbox: Default::default(),
            printer: Printer::start(),
            outcome: None,
            services,
            begun: false,
            written: None,
            pressed: None,
            asked_again: None,
            dirty: true,
            published: tokio::time::Instant::now(),
            viewing: Duration::ZERO,
            showing: Duration::ZERO,
            certified: tokio::time::Instant::now(),
            certifying: Duration::ZERO,
            undropped: Rarer::default(),
            due_view: None,
            due_lost: Vec::new(),
        };
        if let Some(text) = past.said {
            let now = driver.parts.clock.now();
            driver.parts.feeds.note(now, Severity::Warn, "store", text);
        }
        driver.begin_replicas();
        if let Some(step) = past.unwritten {
            driver.write_found(step);
        }
        if again {
            driver.take_over()?;
        }
        // What is adopted by now is all that lives on.
        let of_services = driver.services.launcher();
        driver.parts.launcher.sweep_groups(&[of_services]);
        kill_spares_before(
            driver.parts.state.root().as_os_str(),
            &driver.parts.launcher,
        );
        Ok(driver)
    }

    /// Has a snapshot that only memory holds written to disk.
    fn write_found(&mut self, step: Step) {
        if let Some(generation) = self.snapshots.get(step).map(|s| s.generation) {
            let consumed = batch_of(&self.parts.job, step.0);
            self.offer_checkpoint(step, generation, consumed, None);
        }
    }

    fn take_over(&mut self) -> Result<(), AdoptError> {
        for stored in self.parts.store.instances()? {
            self.take_over_process(&stored);
        }
        self.expect_remote_processes();
        self.restore_leases();
        // Before the ends of processes: one of them may cost all of this work (policy `task`), and
        // what is thrown away then must not come back.
        let committed = self.core.state().committed();
        for (trajectory, end) in self.parts.store.finished_unconsumed(committed)? {
            self.inputs.push_back(Input::Role(
                Incarnation(0),
                RoleEvent::TrajectoryFinished {
                    trajectory,
                    reward: end.reward,
                    oldest_version: WeightVersion(end.oldest_version),
                    lease: 0,
                },
            ));
        }
        let now = self.parts.clock.now();
        let view = self.core.view(now);
        for instance in &view.instances {
            let incarnation = instance.incarnation;
            if incarnation.0 != 0 && !self.processes.contains_key(&incarnation) {
                let detail = "gone while the daemon was away".to_owned();
                let exit = Exit::Gone;
                self.inputs.push_back(Input::Role(
                    incarnation,
                    RoleEvent::Exited {
                        at: None,
                        exit,
                        detail,
                    },
                ));
            }
        }
        Ok(())
    }

    fn take_over_process(&mut self, stored: &StoredInstance) {
        let (incarnation, pid) = (stored.incarnation, stored.pid);
        if !self.here.adopt(stored) {
            drop(self.parts.store.remove_instance(incarnation));
        } else if self.core.is_current(incarnation).is_none() {
            // Its kill was decided and not carried out; its exit will be reported and removes it.
            self.parts.launcher.kill(incarnation);
        } else {
            tracing::info!("adopted {} {incarnation} (pid {pid})", stored.id);
            let process = Process {
                node: NodeId::LEADER,
                pid: Some(pid),
            };
            self.processes.insert(incarnation, process);
            self.inputs
                .push_back(Input::Role(incarnation, RoleEvent::Spawned { pid }));
        }
    }

    /// The leases of agents that live on, so that what they store before they link again counts.
    fn restore_leases(&mut self) {
        for (trajectory, agent) in self.core.leases() {
            if self.processes.contains_key(&agent) {
                let lease = self.core.lease_of(trajectory);
                self.parts.leases.keep(agent, trajectory, lease);
            }
        }
    }
}

/// Every trajectory of a batch.
pub(super) fn batch_of(job: &Job, batch: u64) -> Vec<TrajectoryId> {
    let members = 0..job.batch.responses;
    (0..job.batch.prompts)
        .flat_map(|group| {
            members.clone().map(move |member| TrajectoryId {
                batch,
                group,
                member,
            })
        })
        .collect()
}
