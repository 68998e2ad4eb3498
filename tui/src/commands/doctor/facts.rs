//! What was found on a machine: plain values, so that verdicts can be tested without the machine and
//! facts of one machine be judged on another.
use robust_shared::job::{ControlGroups, EngineKind, HideState, Isolate, WeightTransport};
use robust_shared::trial::{Ended, Failure, Up};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// A fact, or why it could not be had.
pub type Found<T> = Result<T, String>;

/// Everything that is looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Facts {
    /// What the job file asks for.
    pub job: Option<Found<JobFacts>>,
    /// The driver's side of the accelerators.
    pub driver: Driver,
    /// Processes that hold accelerators, and role processes.
    pub processes: Vec<Process>,
    /// The worker program, what it links and what UCX offers it.
    pub worker: Option<Found<Worker>>,
    /// Version of the robustd beside this program.
    pub robustd: Option<Found<String>>,
    /// Version of this program.
    pub robustctl: String,
    /// InfiniBand and RoCE devices.
    pub rdma: Vec<String>,
    /// Open files.
    pub files: Option<Found<Limit>>,
    /// Memory that may be locked.
    pub memlock: Option<Found<Limit>>,
    /// Bytes of memory that programs can still take.
    pub memory: Option<Found<u64>>,
    /// Where snapshots lie.
    pub shm: Option<Found<Folder>>,
    /// Where the state lies.
    pub state: Option<Found<Folder>>,
    /// Where temporary files lie.
    pub tmp: Option<Found<Folder>>,
    /// How fast the state's disk is.
    pub disk: Option<Found<Written>>,
    /// Ports that connections get by themselves: first and last.
    pub ephemeral: Option<Found<(u16, u16)>>,
    /// Whether the kernel has its module `tls` loaded, by which it seals connections.
    pub kernel_tls: Option<Found<bool>>,
    /// Addresses to listen on.
    pub ports: Vec<Port>,
    /// Addresses that others would use to reach this machine.
    pub addresses: Vec<Address>,
    /// Daemons elsewhere.
    pub peers: Vec<Peer>,
}

/// What a job asks of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobFacts {
    /// Its name.
    pub name: String,
    /// Instances of all roles.
    pub instances: u32,
    /// Nodes.
    pub nodes: u32,
    /// Bytes of weights and optimiser, where they are known.
    pub state_bytes: Option<u64>,
    /// Checkpoints that are kept at most at a time, the one being written included.
    pub checkpoints: u32,
    /// Which roads weights take.
    #[serde(default)]
    pub transport: WeightTransport,
    /// UCX's devices, as the job names them.
    pub net_devices: String,
    /// Files that are not there: key and reason.
    pub missing: Vec<(String, String)>,
    /// Its own programs: engines and services.
    #[serde(default)]
    pub commands: Vec<CommandFacts>,
    /// What its built-in roles take, where they all run on one node and the model is known.
    #[serde(default)]
    pub roles: Vec<RoleMemory>,
    /// The devices of its first node's slots, as they would be here; none where nobody takes any.
    #[serde(default)]
    pub devices: Option<Found<Assigned>>,
    /// Variables that are set here and pass to no process of the job.
    #[serde(default)]
    pub held_back: Vec<String>,
    /// Whether its lives can be in control groups.
    #[serde(default)]
    pub groups: Option<GroupFacts>,
}

/// The control groups of a job's lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupFacts {
    /// What the job asks for.
    pub asked: ControlGroups,
    /// The keys of the job file that limit what runs on its first node.
    pub limits: Vec<String>,
    /// Of which versions they would be, as this user and from where this program runs.
    pub found: Found<String>,
}

/// The memory that the processes of a built-in role take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleMemory {
    /// The role.
    pub role: String,
    /// How many processes.
    pub count: u32,
    /// Bytes of each.
    pub bytes: u64,
    /// What they consist of, in words.
    pub parts: String,
}

/// The devices of a node's slots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assigned {
    /// Of each pool that has some: its name, and its devices in the order of its slots.
    pub pools: Vec<(String, String)>,
    /// Why nobody has any, though somebody was to.
    pub unassigned: Option<String>,
}

/// A program that a job names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandFacts {
    /// The table that names it.
    pub at: String,
    /// Where it is.
    pub program: Found<PathBuf>,
    /// Variables that it names and that are not set.
    pub unset: Vec<String>,
    /// Whether the state directory is to be hidden from it, and whether it can be. None: there is nothing to say.
    #[serde(default)]
    pub hidden: Option<HiddenFacts>,
    /// What else is known of an engine.
    pub engine: Option<EngineFacts>,
    /// What came of starting it once, where that was asked for.
    #[serde(default)]
    pub tried: Option<Tried>,
}

/// How the state directory is kept from a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HiddenFacts {
    /// The user that it runs as, where its command names one, and whether there is such a user.
    pub user: Option<(String, Found<()>)>,
    /// Whether this is root, who may start it as another user and from whom nothing is hidden.
    pub root: bool,
    /// What the job asks for.
    pub asked: HideState,
    /// A process may have mounts of its own here, in a user namespace if it is to stay the same user.
    pub namespace: Found<()>,
    /// The folder of the model that it is given, and whether its user may read that. None: it is given none, or has no
    /// user of its own.
    #[serde(default)]
    pub model: Option<(PathBuf, Found<()>)>,
}

/// A program of a job that was started once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// That it came up and answered, or why not.
    pub came_up: Result<Up, Failure>,
    /// The end of its log, where it did not.
    pub log: Vec<String>,
    /// What it took to end it; none where nothing of it was started.
    pub ended: Option<Found<Ended>>,
}

impl Tried {
    /// One that is of no use, with the end of its log.
    pub fn failed(failure: Failure, log: Vec<String>) -> Self {
        Self {
            came_up: Err(failure),
            log,
            ended: None,
        }
    }
}

/// An engine of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineFacts {
    /// Which.
    pub kind: EngineKind,
    /// Its version, where it could be asked.
    pub version: Option<Found<String>>,
    /// First and last of the ports that are kept for clients.
    pub fixed: Option<(u16, u16)>,
    /// Those of them that somebody has.
    pub taken: Vec<Port>,
    /// How the port that it opens is kept from others.
    pub isolate: Isolate,
    /// It is told a Unix socket to listen on.
    pub socket: bool,
    /// A process may have a network of its own here.
    pub namespace: Found<()>,
    /// Bytes of a version of the weights, where it loads them from shared memory.
    pub version_bytes: Option<u64>,
    /// The most of them that one node has.
    pub replicas: u32,
}

/// What the kernel and NVML say of accelerators.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Driver {
    /// Devices the kernel shows (`/dev/nvidia0` and on).
    pub nodes: u32,
    /// The kernel module's version.
    pub module: Option<String>,
    /// What NVML says.
    pub nvml: Option<Found<Nvml>>,
}

/// NVML's answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Nvml {
    /// Version of the driver.
    pub driver: String,
    /// Newest CUDA it runs, as major and minor.
    pub cuda: Option<(i32, i32)>,
    /// The devices: a name, or why there is none.
    pub devices: Vec<Found<Device>>,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Bytes in all.
    pub memory_total: u64,
    /// Bytes in use.
    pub memory_used: u64,
    /// Uncorrected memory errors since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
}

/// A process that may be left over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// The device it holds.
    pub device: Option<u32>,
    /// Bytes it holds there.
    pub bytes: Option<u64>,
    /// The state directory of the job whose role it is.
    pub role_of: Option<PathBuf>,
    /// Whether a daemon serves that state directory.
    pub supervised: bool,
}

/// What the worker program said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Its version.
    pub version: String,
    /// libtorch's version, where its files tell.
    pub torch: Option<String>,
    /// Whether libtorch computes on CUDA devices.
    pub torch_cuda: bool,
    /// What UCX offers.
    pub ucx: Found<Ucx>,
}

/// UCX as the worker has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ucx {
    /// Its version.
    pub version: String,
    /// Each transport with its device, as UCX writes it: `tcp/eth0`.
    pub transports: Vec<String>,
    /// The job's network devices that it does not have.
    #[serde(default)]
    pub unknown: Vec<String>,
}

/// A resource limit; nothing is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// In force.
    pub soft: Option<u64>,
    /// As far as a process may raise it.
    pub hard: Option<u64>,
}

/// A folder and what it lies on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Folder {
    /// The folder.
    pub path: PathBuf,
    /// The file system's type.
    pub fs: String,
    /// Where that is mounted.
    pub mount: PathBuf,
    /// Bytes left.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
}

/// A measured write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Written {
    /// Bytes.
    pub bytes: u64,
    /// With the flush to the disk.
    pub seconds: f64,
    /// Past the page cache.
    pub direct: bool,
}

impl Written {
    /// Megabytes a second.
    pub fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.seconds.max(1e-9)
    }
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// The address.
    pub at: SocketAddr,
    /// It can be had.
    pub free: Found<()>,
}

/// An address under which others would look for this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Where it comes from, in words.
    pub from: String,
    /// Milliseconds for a connection from this machine to itself by way of it.
    pub to_itself: Found<f64>,
}

/// A daemon elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// Where it listens.
    pub at: SocketAddr,
    /// What it said.
    pub answer: Found<Answer>,
}

/// A daemon's answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Its version.
    pub version: String,
    /// By how much its clock is ahead of this machine's.
    pub ahead_ms: f64,
    /// How wrong that may be: half the way there and back.
    pub within_ms: f64,
    /// The address that our connection came from, as it saw it.
    pub seen_as: Option<IpAddr>,
}
