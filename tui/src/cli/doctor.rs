//! Options of `doctor`.
use clap::Args as ClapArgs;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Options of `doctor`.
#[derive(Debug, ClapArgs)]
pub struct DoctorArgs {
    /// Also check what this job needs: its files, memory, disk, descriptors, devices; the programs of
    /// its commands and services, their versions, ports, variables and isolation
    #[arg(long, value_name = "FILE")]
    pub job: Option<PathBuf>,
    /// Start each program of the job's commands and services once, outside of any job: until it is ready
    /// and answered a generation or its health route, then end it
    #[arg(long, requires = "job", conflicts_with = "facts")]
    pub check_roles: bool,
    /// The leader's address for nodes (robustd --listen-nodes): is it reached, do the clocks agree
    #[arg(long, value_name = "IP:PORT", requires = "token_file")]
    pub peer: Vec<SocketAddr>,
    /// The job's token, as robustd --join has it, for --peer
    #[arg(long, value_name = "FILE", requires = "peer")]
    pub token_file: Option<PathBuf>,
    /// The address by which other nodes reach this one [default: that of the way to --peer, and
    /// those that this machine's name has]
    #[arg(long, value_name = "IP")]
    pub advertise: Option<IpAddr>,
    /// An address that robustd is to listen on: is it free
    #[arg(long, value_name = "IP:PORT")]
    pub listen: Vec<SocketAddr>,
    /// How much is written to measure the disk; 0: it is not measured
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    pub disk_mib: u32,
    /// Judge facts that another machine's `doctor --json` printed, instead of this machine's
    #[arg(long, value_name = "FILE", conflicts_with_all = ["job", "peer", "advertise", "listen"])]
    pub facts: Option<PathBuf>,
    /// The robust-worker program [default: beside robustctl]
    #[arg(long, value_name = "PATH", env = "ROBUST_WORKER")]
    pub worker: Option<PathBuf>,
    /// The library of the accelerators' driver
    #[arg(long, value_name = "PATH", env = "ROBUST_NVML_LIB", hide = true)]
    #[arg(default_value = "libnvidia-ml.so.1")]
    pub nvml_lib: OsString,
}
