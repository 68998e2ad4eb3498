//! The job file: what to train, with which roles, on which nodes, watched how.
//!
//! ```text
//!  text ──parse──► Job ──resolve──► absolute paths ──► job.json for the roles' processes
//!           │
//!           └─► JobError: file:line:column, what is wrong, what to do about it
//! ```
//!
//! Every key has a documented default except `data.prompts` and `data.tokenizer` (of a job whose trainer
//! runs a loop of its own there is no `data` at all, see `own_loop`); an unknown key is
//! refused. Nothing here touches the disk: [`Job::required_files`] says what the daemon must find.

mod command;
mod devices;
mod environment;
mod error;
mod limits;
mod locate;
mod moments;
mod order;
mod own_loop;
mod placement;
mod sections;
mod size;
mod units;
mod update;
mod validate;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_commands;
#[cfg(test)]
mod tests_devices;

pub use command::{Missing, Part, Placeholder, Scope, ServiceTies, Template, TemplateError};
pub use devices::{DEVICES_VARIABLE, NoSuchDevice, SeenDevices, SlotDevices};
pub use environment::{PASSED, Passed};
pub use error::{JobError, Location, Problem};
pub(crate) use error::{from_toml, list, suggest};
pub use limits::{Limited, Resource};
pub(crate) use locate::Document;
pub use moments::Moments;
pub use order::WARMUP_RECIPE;
pub use placement::{Place, ServicePlace};
pub use sections::{
    Agent, AgentCommand, Alarms, Attaches, BatchShape, Canary, Checkpoint, ControlGroups, Data,
    Detect, DetectValue, Dtype, EngineHealth, EngineKind, EngineWeights, Flush, General, Ha,
    HideState, HybridMode, Isolate, Kept, KeptStore, KindBudget, Launcher, Level, Limits, Mode,
    Model, ModelConfig, Needed, Node, PauseMode, Policy, ProbeBy, PublishAfter, Ready, Restart,
    Rollout, RolloutCommand, Service, ServiceHealth, Stop, StopSignal, Swap, Tool, Train, Trainer,
    TrainerCommand, TrainerReady, Verification, WarmupSettings, Watch, WeightTransport, Weights,
    WrittenBy,
};
pub use size::{MemorySize, NoSize};
pub(crate) use units::seconds;
pub use update::updatable;
pub use validate::{BATCH_LIMIT, POOL_LIMIT};

use crate::ids::Role;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// A job as its file describes it. Serialises to JSON (`job.json`) and back without loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// `[job]`: name, mode, length.
    #[serde(default)]
    pub job: General,
    /// `[model]`: where the initial weights come from.
    #[serde(default)]
    pub model: Model,
    /// `[data]`: prompts and tokenizer. Without any only where the trainer's loop is its own.
    #[serde(default)]
    pub data: Data,
    /// `[batch]`: samples of one step.
    #[serde(default)]
    pub batch: BatchShape,
    /// `[train]`: loss and optimizer.
    #[serde(default)]
    pub train: Train,
    /// `[trainer]`: the gang.
    #[serde(default)]
    pub trainer: Trainer,
    /// `[rollout]`: the generation replicas.
    #[serde(default)]
    pub rollout: Rollout,
    /// `[agent]`: the agent workers.
    #[serde(default)]
    pub agent: Agent,
    /// `[checkpoint]`: checkpoints on disk.
    #[serde(default)]
    pub checkpoint: Checkpoint,
    /// `[store]`: what the controller remembers.
    #[serde(default)]
    pub store: KeptStore,
    /// `[ha]`: several controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ha: Option<Ha>,
    /// `[alarms]`: who is told of alarms and incidents.
    #[serde(default, skip_serializing_if = "Alarms::is_default")]
    pub alarms: Alarms,
    /// `[weights]`: how weights travel.
    #[serde(default)]
    pub weights: Weights,
    /// `[detect]`: windows of the detection rules.
    #[serde(default)]
    pub detect: Detect,
    /// `[restart]`: budgets.
    #[serde(default)]
    pub restart: Restart,
    /// `[service.NAME]`: other programs that the job needs.
    #[serde(
        default,
        rename = "service",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub services: BTreeMap<String, Service>,
    /// `[[node]]`: machines and their pools. Without any: one node `local` with just the slots the
    /// roles need.
    #[serde(default, rename = "node")]
    pub nodes: Vec<Node>,
}

/// How many instances of a role there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Fewest.
    pub min: u32,
    /// Most.
    pub max: u32,
    /// That must serve before anything is generated.
    pub n_init: u32,
}

/// A file the job cannot run without, and the key that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredFile {
    /// Dotted key of the job file, without a service's name.
    pub key: &'static str,
    /// The file or folder (for `model.path` the folder's `config.json`; the weights beside it may be
    /// one file or several).
    pub path: PathBuf,
}

impl Job {
    /// Reads a job file's text; `path` is only for messages. The result is validated.
    pub fn parse(text: &str, path: &Path) -> Result<Job, JobError> {
        let document = Document::parse(text);
        let mut job: Job = toml::from_str(text)
            .map_err(|e| error::from_toml(&e, text, path, document.as_ref()))?;
        if job.own_loop().is_some() {
            let says = |section| document.as_ref().and_then(|d| d.locate(section)).is_some();
            job.fill_own_loop(says("rollout"));
        }
        job.job.steps = job.steps();
        if job.ha.is_some() {
            let says = |key| document.as_ref().and_then(|d| d.locate(key)).is_some();
            if !says("checkpoint.publish_after") {
                // The memory of a leader is lost with it, and another machine leads then.
                job.checkpoint.publish_after = PublishAfter::Replica;
            }
        } else if job.nodes.is_empty() {
            job.nodes = vec![job.default_node()];
        }
        job.validate().map_err(|problem| {
            let missing = matches!(problem, Problem::MissingKey { .. }).then_some(0);
            let offset = document.as_ref().and_then(|d| d.locate(problem.key()?));
            let offset = offset.or(missing);
            JobError::new(path, text, offset, problem)
        })?;
        if job.ha.is_some() {
            job.nodes.insert(0, Node::of_controllers());
        }
        Ok(job)
    }

    /// A job as `job.json` has it: what [`Job::parse`] made, as JSON.
    pub fn from_json(text: &[u8]) -> Result<Job, serde_json::Error> {
        let job: Job = serde_json::from_slice(text)?;
        match job.check_data() {
            Ok(()) => Ok(job),
            Err(problem) => Err(serde::de::Error::custom(problem)),
        }
    }

    /// The same for the job's nodes: without what is the leader's affair alone, where it is a key that nodes of the build
    /// before do not know and refuse.
    pub fn for_nodes(mut self) -> Job {
        self.checkpoint.written_by = WrittenBy::default();
        self.alarms = Alarms::default();
        self
    }

    /// Makes every path absolute against `base_dir`, the (absolute) folder of the job file. Purely
    /// lexical: `..` is folded, links are not followed.
    pub fn resolve(&mut self, base_dir: &Path) {
        let has_data = self.own_loop().is_none();
        let command = self.rollout.command.as_mut();
        let of_command = command.map(|c| [Some(&mut c.cwd), c.api_key_file.as_mut()]);
        let of_trainer = self.trainer.command.as_mut().map(|c| &mut c.cwd);
        let of_agent = self.agent.command.as_mut().map(|c| &mut c.cwd);
        let of_data = [&mut self.data.prompts, &mut self.data.tokenizer];
        for path in of_data
            .into_iter()
            .filter(|_| has_data)
            .chain(self.model.path.as_mut())
            .chain(of_command.into_iter().flatten().flatten())
            .chain(of_trainer)
            .chain(of_agent)
            .chain(self.checkpoint.remote_signing_key_file.as_mut())
            .chain(self.store.secret_file.as_mut())
            .chain(self.alarms.webhook_secret_file.as_mut())
            .chain(self.ha.iter_mut().flat_map(Ha::files))
            .chain(self.services.values_mut().map(|s| &mut s.cwd))
        {
            *path = fold_dots(&base_dir.join(&*path));
        }
    }

    /// The files the daemon must find before it starts anything.
    pub fn required_files(&self) -> Vec<RequiredFile> {
        let mut files = Vec::new();
        if self.own_loop().is_none() {
            let data = [
                ("data.prompts", &self.data.prompts),
                ("data.tokenizer", &self.data.tokenizer),
            ];
            files.extend(data.map(|(key, path)| RequiredFile {
                key,
                path: path.clone(),
            }));
        }
        let folder = self.model.path.as_ref();
        files.extend(folder.map(|folder| RequiredFile {
            key: "model.path",
            path: folder.join("config.json"),
        }));
        let mut also = |key, path: &PathBuf| {
            let path = path.clone();
            files.push(RequiredFile { key, path });
        };
        if let Some(command) = &self.rollout.command {
            also("rollout.command.cwd", &command.cwd);
            if let Some(file) = &command.api_key_file {
                also("rollout.command.api_key_file", file);
            }
        }
        if let Some(command) = &self.trainer.command {
            also("trainer.command.cwd", &command.cwd);
        }
        if let Some(command) = &self.agent.command {
            also("agent.command.cwd", &command.cwd);
        }
        for service in self.services.values() {
            also("service.cwd", &service.cwd);
        }
        if let Some(file) = &self.checkpoint.remote_signing_key_file {
            also("checkpoint.remote_signing_key_file", file);
        }
        if let Some(file) = &self.store.secret_file {
            also("store.secret_file", file);
        }
        if let Some(file) = &self.alarms.webhook_secret_file {
            also("alarms.webhook_secret_file", file);
        }
        if let Some(ha) = &self.ha {
            let of_etcd = [
                ("ha.etcd_certificate", &ha.etcd_certificate),
                ("ha.etcd_key", &ha.etcd_key),
                ("ha.etcd_authority", &ha.etcd_authority),
            ];
            for (key, file) in of_etcd {
                file.iter().for_each(|file| also(key, file));
            }
        }
        files
    }

    /// The numbers that versions travel as: those that the engines hold, unless `weights.dtype` says others.
    pub fn wire(&self) -> Dtype {
        let command = self.rollout.command.as_ref();
        let held = command.map_or(self.rollout.dtype, |command| command.dtype);
        self.weights.dtype.unwrap_or(held)
    }

    /// Whether of a version only what changed may be sent: of numbers that mostly stay the same, over TLS.
    pub fn sends_changes(&self) -> bool {
        let weights = &self.weights;
        let by_tls = match weights.transport {
            WeightTransport::Tls => true,
            WeightTransport::Auto => self.nodes.len() > 1,
            _ => false,
        };
        by_tls && self.wire() == Dtype::Bfloat16 && weights.full_every > 1
    }

    /// How many instances of a role the job has.
    pub fn count(&self, role: Role) -> u32 {
        match role {
            Role::Trainer => self.trainer.ranks,
            Role::Hybrid if self.hybrid() => self.trainer.ranks,
            Role::Hybrid => 0,
            Role::Rollout => self.rollout.replicas,
            Role::Agent => self.agent.workers,
        }
    }

    /// Whether a rollout engine shares each trainer slot (`trainer.hybrid`, or the mode's default).
    pub fn hybrid(&self) -> bool {
        self.trainer
            .hybrid
            .unwrap_or(self.job.mode == Mode::SemiSync)
    }

    /// The pool whose slots a role occupies.
    pub fn pool(&self, role: Role) -> &str {
        match role {
            Role::Trainer | Role::Hybrid => &self.trainer.pool,
            Role::Rollout => &self.rollout.pool,
            Role::Agent => &self.agent.pool,
        }
    }

    /// How many instances of a role there may be.
    pub fn bounds(&self, role: Role) -> Bounds {
        let (t, r, a) = (&self.trainer, &self.rollout, &self.agent);
        let (min, max, n_init) = match role {
            // Elsewhere the state of a program of the user's fits the number of ranks that wrote it.
            Role::Trainer if t.command.as_ref().is_some_and(|c| !c.takes_any_number()) => {
                (t.ranks, Some(t.ranks), 1)
            }
            Role::Trainer => (t.min, t.max, 1),
            // They come and go with the ranks whose slots they share.
            Role::Hybrid => (0, None, 0),
            Role::Rollout if r.replicas == 0 => (0, Some(0), 0),
            Role::Rollout => (r.min, r.max, r.n_init),
            Role::Agent if a.workers == 0 => (0, Some(0), 0),
            Role::Agent => (a.min, a.max, 1),
        };
        let max = max.unwrap_or(u32::MAX);
        Bounds { min, max, n_init }
    }

    /// Samples of one step: prompts x responses; none where the trainer's loop is its own.
    pub fn samples_per_step(&self) -> u64 {
        if self.own_loop().is_some() {
            return 0;
        }
        u64::from(self.batch.prompts) * u64::from(self.batch.responses)
    }

    /// Samples of one prompt; none where the trainer's loop is its own.
    pub fn samples_per_prompt(&self) -> u32 {
        match self.own_loop() {
            Some(_) => 0,
            None => self.batch.responses,
        }
    }

    fn default_node(&self) -> Node {
        let mut node = Node {
            name: "local".to_owned(),
            slots: None,
            pools: Default::default(),
            devices: Default::default(),
            labels: Default::default(),
        };
        for role in Role::ALL {
            let slots = node.pools.entry(self.pool(role).to_owned()).or_insert(0);
            // Room for as many as may be asked for.
            let most = Some(self.bounds(role).max).filter(|max| *max < u32::MAX);
            let most = self.count(role).max(most.unwrap_or(0));
            *slots = (*slots).max(most.saturating_mul(self.place_slots(self.pool(role))));
        }
        for service in self.services.values() {
            if let Some(pool) = &service.pool {
                let slots = node.pools.entry(pool.clone()).or_insert(0);
                let more = service.replicas.saturating_mul(service.slots);
                *slots = slots.saturating_add(more);
            }
        }
        node
    }
}

fn fold_dots(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if out.file_name().is_some() => {
                out.pop();
            }
            Component::ParentDir if out.has_root() => {}
            other => out.push(other),
        }
    }
    out
}
