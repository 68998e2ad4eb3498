//! Processes that are told what to do by lines of JSON on standard input, and tell what happens by
//! lines of JSON on standard output. They end when standard input closes.
mod lines;
mod pull;
mod source;

pub(crate) use lines::{Done, OrderLine, SourceLine, Told, Wish, tell};
pub(crate) use pull::{PullArgs, pull};
pub(crate) use source::{SourceArgs, source};

use std::net::IpAddr;
use std::time::Duration;

use robust_shared::weights::TensorSpec;
use robust_transport::{Config, JobToken, Transport};

/// What every process needs.
#[derive(clap::Args, Clone)]
pub(crate) struct NodeArgs {
    /// Size of a version in bytes, a multiple of 4.
    #[arg(long)]
    bytes: usize,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    bind: IpAddr,
    /// A source that says nothing for so long has failed.
    #[arg(long, default_value_t = 2000)]
    stall_ms: u64,
    /// Shared secret of those who talk to each other.
    #[arg(long, env = "ROBUST_WEIGHTS_TOKEN", hide_env_values = true)]
    token: String,
}

impl NodeArgs {
    fn transport(&self) -> anyhow::Result<Transport> {
        let stall = Duration::from_millis(self.stall_ms);
        Ok(Transport::start(Config {
            bind: self.bind,
            stall_timeout: stall,
            ..Config::new(JobToken::new(self.token.as_bytes()))
        })?)
    }

    /// The version as one tensor.
    fn layout(&self) -> Vec<TensorSpec> {
        let bytes = self.bytes as u64;
        vec![TensorSpec {
            name: "weights".into(),
            dtype: "F32".into(),
            shape: vec![bytes / 4],
            offset: 0,
            bytes,
        }]
    }
}
