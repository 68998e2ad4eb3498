//! Processes that are told what to do by lines of JSON on standard input, and tell what happens by
//! lines of JSON on standard output. They end when standard input closes.
mod compare;
mod pull;
mod road;
mod source;

pub(crate) use compare::{CompareArgs, compare};
pub(crate) use pull::{PullArgs, pull};
pub(crate) use road::RoadArg;
pub(crate) use source::{SourceArgs, source};

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use robust_shared::weights::TensorSpec;
use robust_transport::{Buffer, Config, JobToken, Staging, Transport};
use robust_weights::made_up::one_tensor;

/// What every process needs.
#[derive(clap::Args, Clone)]
pub(crate) struct NodeArgs {
    /// Size of a version in bytes, a multiple of 4.
    #[arg(long)]
    bytes: usize,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    bind: IpAddr,
    /// The road: shm:FOLDER, in which processes of one machine find each other, tls or ucx.
    #[arg(long, default_value = "ucx")]
    road: RoadArg,
    /// A source that says nothing for so long has failed.
    #[arg(long, default_value_t = 2000)]
    stall_ms: u64,
    /// Shared secret of those who talk to each other.
    #[arg(long, env = "ROBUST_WEIGHTS_TOKEN", hide_env_values = true)]
    token: String,
    /// The numbers of a version: F32 or BF16.
    #[arg(long, default_value = "F32")]
    dtype: String,
    /// Keep versions in this CUDA device's memory instead of the host's.
    #[arg(long, env = "ROBUST_WEIGHTS_DEVICE")]
    device: Option<usize>,
    /// MiB of pinned memory that a device's bytes may pass through.
    #[arg(long, default_value_t = 64, env = "ROBUST_WEIGHTS_BUFFER_MIB")]
    buffer_mib: usize,
}

impl NodeArgs {
    fn transport(&self) -> anyhow::Result<Transport> {
        let stall = Duration::from_millis(self.stall_ms);
        let config = Config {
            bind: self.bind,
            stall_timeout: stall,
            ..Config::new(JobToken::new(self.token.as_bytes()))
        };
        let config = self.road.settings(&self.token, config)?;
        Ok(Transport::start(config)?)
    }

    /// Memory for `N` versions.
    fn buffers<const N: usize>(&self) -> anyhow::Result<[Arc<Buffer>; N]> {
        let staging = |device| Staging::open(device, self.buffer_mib << 20);
        let staging = self.device.map(staging).transpose()?;
        let buffer = |_| match &staging {
            None => Buffer::new(self.bytes),
            Some(staging) => Buffer::on_device(staging, self.bytes),
        };
        let buffers: Vec<_> = (0..N).map(buffer).collect::<Result<_, _>>()?;
        buffers
            .try_into()
            .map_err(|_| anyhow::anyhow!("not {N} buffers"))
    }

    /// The version as one tensor.
    fn layout(&self) -> Vec<TensorSpec> {
        one_tensor(&self.dtype, self.bytes as u64)
    }
}
