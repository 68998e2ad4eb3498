//! How it is kept running: `[checkpoint]`, `[weights]`, `[restart]`, `[[node]]`.
use super::super::units::{millis, seconds};
use super::command::Dtype;
use crate::core::{Budget, Budgets, FaultKind, Labels};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// `[checkpoint]`: checkpoints on disk; shared-memory snapshots are taken at every step anyway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Checkpoint {
    /// Steps between checkpoints; with 0 only the last step is written, when the job ends or stops.
    pub every: u64,
    /// Newest complete checkpoints kept.
    pub keep: u32,
    /// Checkpoints of every so many steps are kept for good; 0: none for this.
    pub keep_every: u64,
    /// So many checkpoints with the highest mean reward are kept.
    pub keep_best: u32,
    /// How safe a step's result must be before it is committed and its version published (I-5).
    pub publish_after: PublishAfter,
    /// An object store that checkpoints are put into as well: `s3://BUCKET/PREFIX`,
    /// `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX` or `file:///FOLDER`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// A file with a secret of 32 bytes or more, readable by its owner and his group only. With it what is put there is
    /// signed, and nothing is taken back that is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_signing_key_file: Option<PathBuf>,
    /// At least so many steps between checkpoints that are put there; 1: each one.
    pub remote_every: u64,
    /// Who writes checkpoints, `leader` if absent. `nodes`: each machine puts the shards in its memory into `remote`, and none is on the
    /// leader's disk.
    #[serde(skip_serializing_if = "WrittenBy::is_default")]
    pub written_by: WrittenBy,
}

/// `[checkpoint] written_by`: through which machines a checkpoint passes on its way to where it is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WrittenBy {
    /// The leader gathers all shards, writes them to its disk, and puts them into `remote` from there.
    #[default]
    Leader,
    /// Each shard is put into `remote` by a machine that holds it; needs `remote`, and the store's credentials on all
    /// nodes.
    Nodes,
}

impl WrittenBy {
    /// As a job file says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Nodes => "nodes",
        }
    }

    // Nodes of an earlier build do not know the key.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// `[checkpoint] publish_after`: what has to be lost before a committed step is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PublishAfter {
    /// Complete in the leader's memory, where ranks of other nodes have theirs copied: the leader's
    /// machine, and with it the memory of every rank's node.
    #[default]
    Snapshot,
    /// Held by another node too, in another failure domain where there is one: both machines.
    Replica,
    /// A checkpoint on the leader's disk: every step is written, and waits for it.
    Disk,
}

crate::wire::named! {
    PublishAfter:
    /// As a job file says it.
    name {
        Snapshot = "snapshot",
        Replica = "replica",
        Disk = "disk",
    }
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self {
            every: 10,
            keep: 3,
            keep_every: 0,
            keep_best: 0,
            publish_after: PublishAfter::default(),
            remote: None,
            remote_signing_key_file: None,
            remote_every: 1,
            written_by: WrittenBy::default(),
        }
    }
}

/// `[store]`: what the controller remembers, and where else than on its disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeptStore {
    /// An object store, or a folder that other machines see, that everything is written to before it counts:
    /// `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX` or `file:///FOLDER`. The loss of the
    /// controller's machine with its disk then loses nothing: `robustd --restore-from` goes on elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_log: Option<String>,
    /// A file with a secret of 32 bytes or more, readable by its owner and his group only. With it the keys and tokens of the state
    /// directory go into the log as well, sealed, so that the job's nodes and roles know who goes on elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// The largest file of model, tokenizer and prompts, in MB of a million bytes, that is put beside the log as well, so that
    /// whoever goes on elsewhere need not have it; larger ones have to be at the paths of the job file there. 0: none is put;
    /// all are if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_files_up_to_mb: Option<u64>,
}

impl KeptStore {
    /// The most bytes of a file that is put beside the log; none: however many.
    pub fn copy_files_up_to_bytes(&self) -> Option<u64> {
        Some(self.copy_files_up_to_mb?.saturating_mul(1_000_000))
    }
}

/// `[ha]`: several controllers, of which one leads the job and another one goes on when it is lost. With it, no role runs
/// on a controller: every machine with slots is a `[[node]]` that joins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ha {
    /// The members of the etcd that decides who leads: `https://HOST:PORT` each.
    pub etcd: Vec<String>,
    /// The certificate that is shown to etcd, where it asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_certificate: Option<PathBuf>,
    /// The private key of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_key: Option<PathBuf>,
    /// The authority that stands for etcd's members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_authority: Option<PathBuf>,
    /// Seconds after which the place of a leader that etcd has not heard is free; a leader that etcd has not answered for
    /// three fifths of that leads no more. More than etcd's own members need to choose their leader.
    #[serde(default = "lease_s")]
    pub lease_s: f64,
    /// Seconds of a leader's silence after which another controller, which etcd hears, takes its place.
    #[serde(default = "silence_s")]
    pub silence_s: f64,
}

fn lease_s() -> f64 {
    5.0
}

fn silence_s() -> f64 {
    0.7
}

/// `[weights]`: how weight versions travel to the rollouts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Weights {
    /// Size of a chunk, the unit of transfer and digest, in KiB. One of 1023 travels in one piece that
    /// fills its TCP segments (see `robust-transport`); one of 1024 needs two.
    pub chunk_kib: u64,
    /// Seconds without a byte of progress after which a source counts as dead.
    pub stall_timeout_s: f64,
    /// Pullers one source serves at a time (I-6).
    pub pullers_per_source: u32,
    /// Versions whose number is a multiple of it are pulled whole; of the others rollouts on other
    /// machines that have the one before get what changed, if versions are bfloat16. 1: all whole.
    pub full_every: u64,
    /// The numbers that versions travel as; left out: those that the engines hold.
    pub dtype: Option<Dtype>,
    /// What part of a core's time moving weights takes at most in an engine that generates meanwhile, pulling
    /// or serving others; 1: as much as it can get. Where nothing is generated it is never bounded.
    pub beside_generation: f64,
    /// Most pinned memory, in MiB, that one role's weights pass through on their way to a device and
    /// from it. Weights in host memory need none. Roles find it in `ROBUST_WEIGHTS_BUFFER_MIB`.
    pub buffer_mib: u64,
    /// Which roads they take.
    pub transport: WeightTransport,
    /// UCX network devices (`UCX_NET_DEVICES`).
    pub net_devices: String,
}

/// `weights.transport`: how weights and gradients come from role to role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeightTransport {
    /// Through shared memory where both are on one machine; between machines by RDMA where `net_devices`
    /// names devices of it and both have one that is up, else by TCP with TLS. With no other machine in the
    /// job no port is opened.
    #[default]
    Auto,
    /// Through shared memory only: a job of one machine.
    Shm,
    /// By TCP with TLS 1.3 only, on one machine too; the job's authority certifies its roles.
    Tls,
    /// Over UCX's RDMA transports only.
    Ucx,
    /// Over whatever UCX finds, on one machine too. Over TCP whoever reaches a role's port can write to
    /// its memory: UCX does as told by anybody who knows its format.
    UcxTcpUnsafe,
}

impl WeightTransport {
    /// Whether weights may go by RDMA between machines, over these `net_devices`. Devices of RDMA are named
    /// with their port, as `mlx5_0:1`, or `rdma` for all that are up: a job that names some means them.
    pub fn takes_rdma(self, net_devices: &str) -> bool {
        match self {
            Self::Auto => net_devices
                .split(',')
                .any(|device| device.contains(':') || device == "rdma"),
            Self::Ucx => true,
            Self::Shm | Self::Tls | Self::UcxTcpUnsafe => false,
        }
    }
}

impl Weights {
    /// Size of a chunk in bytes.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_kib.saturating_mul(1024)
    }

    /// `full_every` of a rank of the trainer: all have the same bytes, and the first one says what changed.
    pub fn full_every_of(&self, rank: u32) -> u64 {
        if rank == 0 { self.full_every } else { 1 }
    }

    /// `stall_timeout_s` as a duration.
    pub fn stall_timeout(&self) -> Duration {
        seconds(self.stall_timeout_s)
    }
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            chunk_kib: 1023,
            stall_timeout_s: 2.0,
            pullers_per_source: 1,
            full_every: 50,
            dtype: None,
            beside_generation: 0.5,
            buffer_mib: 64,
            transport: WeightTransport::Auto,
            net_devices: "lo".to_owned(),
        }
    }
}

/// `[restart]`: how often one kind of fault may restart a role in a row (I-7), for all kinds and, as
/// `[restart.hang]` and so on, for single ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Restart {
    /// Restarts in a row, without useful work between; one more restarts the task.
    pub max: u32,
    /// Seconds after which a restart no longer counts.
    pub window_s: f64,
    /// Milliseconds before the second restart in a row; doubles with each further one.
    pub backoff_ms: u64,
    /// Task restarts in a row without a committed step between, before the job fails.
    pub max_task_restarts: u32,
    /// Times in a row, without useful work between, that one cause is borne: the last of them restarts the
    /// task, and one more ends the job; 0: any number.
    pub same_cause: u32,
    /// Faults of its own from which on a node is cordoned by itself, if everybody there would have another
    /// place; 0: never.
    #[serde(skip_serializing_if = "is_never")]
    pub cordon_after: u32,
    /// Seconds after which a fault of a node counts half, then a quarter, and so on. The default is a day:
    /// a sound node has a fault in months, so several in a day are no chance.
    #[serde(skip_serializing_if = "is_a_day")]
    pub cordon_half_life_s: f64,
    /// Processes that wait beside the trainer and the built-in engines, with all of a start done that needs no
    /// identity, and take over at a restart: so many for each kind of engine on a node, and for each of the
    /// trainer's ranks there, which restart together; 0: none. Each keeps what the program and a model without
    /// weights take of memory. A trainer of yours waits in `robustrl.attach()`, with its imports done, unless a
    /// launcher starts it, it has a `user`, or its `argv` says which rank it is; of your engines and environments
    /// none wait.
    #[serde(skip_serializing_if = "is_never")]
    pub spares: u32,
    /// A linked process ended or lost its link.
    pub exit: KindBudget,
    /// A process did not come up.
    pub start: KindBudget,
    /// A process lives and does nothing.
    pub hang: KindBudget,
    /// A rollout answers and does not generate.
    pub health: KindBudget,
    /// A slot's hardware failed.
    pub hardware: KindBudget,
    /// Loss or gradient are no numbers.
    pub numeric: KindBudget,
    /// A call ended with an exception.
    pub exception: KindBudget,
    /// Weights were served whose digests differ.
    pub corruption: KindBudget,
    /// A node is lost.
    pub node: KindBudget,
}

/// `[restart.KIND]`: what differs from `[restart]` for one kind of fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KindBudget {
    /// Restarts in a row; 0 restarts the task at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// Seconds after which a restart no longer counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_s: Option<f64>,
    /// Milliseconds before the second restart in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_ms: Option<u64>,
}

impl Restart {
    /// What a kind has of its own.
    pub fn own(&self, kind: FaultKind) -> KindBudget {
        match kind {
            FaultKind::Exit => self.exit,
            FaultKind::Start => self.start,
            FaultKind::Hang => self.hang,
            FaultKind::Health => self.health,
            FaultKind::Hardware => self.hardware,
            FaultKind::Numeric => self.numeric,
            FaultKind::Exception => self.exception,
            FaultKind::Corruption => self.corruption,
            FaultKind::Node => self.node,
        }
    }

    /// The budgets of all kinds.
    pub fn budgets(&self) -> Budgets {
        let general = Budget {
            max: self.max,
            window: seconds(self.window_s),
            backoff: millis(self.backoff_ms),
        };
        let own = FaultKind::ALL.map(|kind| {
            let own = self.own(kind);
            let budget = Budget {
                max: own.max.unwrap_or(general.max),
                window: own.window_s.map_or(general.window, seconds),
                backoff: own.backoff_ms.map_or(general.backoff, millis),
            };
            (kind, budget)
        });
        let differs = |(kind, _): &(FaultKind, Budget)| self.own(*kind) != KindBudget::default();
        let own = own.into_iter().filter(differs).collect();
        Budgets { general, own }
    }
}

const DAY_S: f64 = 86_400.0;

// Nodes of an earlier build do not know these keys.
fn is_never(times: &u32) -> bool {
    *times == 0
}

fn is_a_day(seconds: &f64) -> bool {
    *seconds == DAY_S
}

impl Default for Restart {
    fn default() -> Self {
        let none = KindBudget::default();
        Self {
            max: 3,
            window_s: 600.0,
            backoff_ms: 100,
            max_task_restarts: 3,
            same_cause: 3,
            cordon_after: 0,
            cordon_half_life_s: DAY_S,
            spares: 0,
            exit: none,
            start: none,
            hang: none,
            health: none,
            hardware: none,
            numeric: none,
            exception: none,
            corruption: none,
            node: none,
        }
    }
}

/// `[[node]]`: a machine and the named sets of its slots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Unique name.
    pub name: String,
    /// Slots the machine has; its pools together may not exceed it. Unchecked if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Slots by pool. Roles of one pool share its slots (colocation).
    pub pools: BTreeMap<String, u32>,
    /// The device of each slot, by pool; an empty list: the pool's programs see none. Absent: pools in
    /// which programs of the user's run lie one after the other over the node's devices.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, Vec<u32>>,
    /// Data centre, rack and accelerator model.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

/// The name of the machine that leads, whichever it is, where there are several controllers.
pub const CONTROLLERS: &str = "controllers";

impl Node {
    /// The place of those who lead: no role runs there.
    pub(in crate::job) fn of_controllers() -> Self {
        Self {
            name: CONTROLLERS.to_owned(),
            slots: None,
            pools: BTreeMap::new(),
            devices: BTreeMap::new(),
            labels: Labels::default(),
        }
    }
}

impl Ha {
    /// The files that it names.
    pub(in crate::job) fn files(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let of_etcd = [
            &mut self.etcd_certificate,
            &mut self.etcd_key,
            &mut self.etcd_authority,
        ];
        of_etcd.into_iter().flatten()
    }
}
