//! The command line and how the program ends.
use crate::bench::BenchArgs;
use crate::launcher::SlowArgs;
use crate::logging::LogFormat;
use crate::node::JoinArgs;
use crate::telemetry;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

/// Runs an RL post-training job on this node and keeps it running through the failures of its
/// roles.
#[derive(Clone, Debug, Parser)]
#[command(name = "robustd", version, after_help = EXIT_CODES)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub struct Args {
    /// What else than a job is run.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The job file (TOML)
    #[arg(long, value_name = "FILE", required_unless_present_any = ["join", "inspect"])]
    pub job: Option<PathBuf>,
    /// Run nothing: show the job of the state directory to robustctl (status, events, report, traj)
    #[arg(long, conflicts_with_all = ["job", "join", "listen", "listen_nodes", "metrics", "router", "otlp", "fresh", "steps"])]
    pub inspect: bool,
    /// Where the job's state and the control socket live [default: $ROBUST_STATE_DIR, else
    /// $XDG_RUNTIME_DIR/robust, else /tmp/robust-UID]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Serve the control API on this loopback TCP address too (token in STATE/token)
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// With --listen: whoever shows what is in this file may look and change nothing [made if missing]
    #[arg(long, value_name = "FILE", requires = "listen")]
    pub viewer_token_file: Option<PathBuf>,
    /// Serve Prometheus metrics on this loopback TCP address (http://ADDR/metrics, no token)
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<String>,
    /// Serve the job's engines to other clients on this loopback TCP address, as SGLang and OpenAI
    /// do (the key is in STATE/router.key; port 0: any, see robustctl status --json)
    #[arg(long, value_name = "ADDR", conflicts_with = "join")]
    pub router: Option<String>,
    /// Send a trace of each incident to this OpenTelemetry collector, such as http://127.0.0.1:4318
    /// (OTLP over HTTP; headers and the like as OTEL_EXPORTER_OTLP_HEADERS says)
    #[arg(long, value_name = "URL", conflicts_with = "join")]
    pub otlp: Option<String>,
    /// Let other daemons join the job as its nodes at this TCP address
    #[arg(long, value_name = "ADDR", conflicts_with = "join")]
    pub listen_nodes: Option<String>,
    /// Listen for nodes beyond loopback: everybody who can change packets on that network is trusted
    #[arg(long, requires = "listen_nodes")]
    pub i_trust_this_network: bool,
    /// What leader and nodes prove to each other to know [default for the leader: STATE/token]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Where other nodes reach this one's roles [default: the address of --listen-nodes, or that
    /// from which the leader is reached]
    #[arg(long, value_name = "IP")]
    pub advertise: Option<IpAddr>,
    /// The robust-worker program [default: beside robustd]
    #[arg(long, value_name = "PATH", env = "ROBUST_WORKER")]
    pub worker: Option<PathBuf>,
    /// Run that many steps, whatever the job file says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    /// Discard what an earlier job left in the state directory, its checkpoints too
    #[arg(long)]
    pub fresh: bool,
    /// Keep serving status and report for so long after the job's end
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    pub linger: u64,
    /// How the daemon and its roles log on stderr and in STATE/logs
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        env = "ROBUST_LOG_FORMAT",
        default_value = "human"
    )]
    pub log_format: LogFormat,
    /// The library of the accelerators' driver
    #[arg(long, value_name = "PATH", env = "ROBUST_NVML_LIB", hide = true)]
    #[arg(default_value = telemetry::LIBRARY)]
    pub nvml_lib: OsString,
    /// A call into that library is stuck after so long
    #[arg(long, value_name = "SECONDS", env = "ROBUST_NVML_STUCK_S", hide = true)]
    #[arg(default_value_t = 10.0, value_parser = positive)]
    pub nvml_stuck_after: f64,
    /// Being a node. The last, for its heading stands over whatever follows it.
    #[command(flatten)]
    pub join: JoinArgs,
}

/// What else than a job is run.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Measure snapshots, checkpoints and the store on this machine (`robustctl bench store`)
    #[command(hide = true)]
    BenchStore(BenchArgs),
    /// Print the manual's page
    #[command(hide = true)]
    Man,
    /// Print a completion script for a shell
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Stop and continue a process in turn (this program's own helper for injected faults)
    #[command(hide = true)]
    SlowRole(SlowArgs),
}

fn positive(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|e| format!("{e}"))?;
    match seconds.is_finite() && seconds > 0.0 && seconds < 1e9 {
        true => Ok(seconds),
        false => Err("not a number of seconds above 0".to_owned()),
    }
}

/// What each exit code means.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    the job completed (or was completed before)
  1    the job failed, or was stopped through the control API
  2    wrong usage, or a bad job file or dataset
  3    the state directory is in use, or belongs to another job
  4    the store or the state directory cannot be used
  5    the address is in use or refused
  6    something the job needs is missing (worker program, model, dataset, tokenizer, token)
  7    leader and node do not agree (token, name, slots)
  130  ended in order after SIGINT
  143  ended in order after SIGTERM";

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// The job completed.
    Completed = 0,
    /// The job failed or was stopped.
    Failed = 1,
    /// Wrong usage or a bad job file.
    BadJob = 2,
    /// The state directory is in use or another job's.
    InUse = 3,
    /// The store cannot be used.
    Store = 4,
    /// The address is in use or refused.
    Address = 5,
    /// Something is missing.
    Environment = 6,
    /// Leader and node do not agree.
    NotJoined = 7,
    /// Ended after SIGINT.
    Interrupted = 130,
    /// Ended after SIGTERM.
    Terminated = 143,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_exit_code_is_documented() {
        use clap::CommandFactory;
        Args::command().debug_assert();
        for code in [0, 1, 2, 3, 4, 5, 6, 7, 130, 143] {
            assert!(EXIT_CODES.contains(&format!("\n  {code:<5}")), "{code}");
        }
    }
}
