//! The command line and how the program ends.
use crate::launcher::SlowArgs;
use crate::logging::LogFormat;
use crate::node::JoinArgs;
use crate::nodes::OutsidePaths;
use crate::telemetry;
use clap::{ArgGroup, Parser, Subcommand};
use robust_proto::endpoint::{NoFolder, default_state_dir};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

/// Runs an RL post-training job on this node and keeps it running through the failures of its
/// roles.
#[derive(Clone, Debug, Parser)]
#[command(name = "robustd", version, after_help = exit_codes())]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
#[command(group = ArgGroup::new("between_daemons").args(["listen_nodes", "join"]).multiple(true))]
pub struct Args {
    /// What else than a job is run.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The job file (TOML)
    #[arg(long, value_name = "FILE", required_unless_present_any = ["join", "inspect"])]
    pub job: Option<PathBuf>,
    /// Run nothing: show the job of the state directory to robustctl (status, events, logs, report, traj, store check)
    #[arg(long, conflicts_with_all = ["job", "join", "listen", "listen_nodes", "metrics", "router", "otlp", "fresh", "steps"])]
    pub inspect: bool,
    /// Where the job's state and the control socket live [default: $ROBUST_STATE_DIR, else
    /// $XDG_RUNTIME_DIR/robust, else $XDG_STATE_HOME/robust, else ~/.local/state/robust]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Serve the control API on this TCP address too, over TLS 1.3, to who has the token in STATE/token:
    /// robustctl --connect
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// With --listen: whoever has what is in this file may look and change nothing [made if missing]
    #[arg(long, value_name = "FILE", requires = "listen")]
    pub viewer_token_file: Option<PathBuf>,
    /// With --listen: on a job that is marked `protected` faults are injected only by whoever has what is in this file, and
    /// the audit log says so [made if missing]
    #[arg(long, value_name = "FILE", requires = "listen")]
    pub break_glass_token_file: Option<PathBuf>,
    /// Serve Prometheus metrics on this TCP address (http://ADDR/metrics); on an address of the network over TLS, by the
    /// authority in STATE/clients.pem, to who has the key in STATE/metrics.key
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<String>,
    /// Serve the job's engines to other clients on this TCP address, as SGLang and OpenAI do (the key is in
    /// STATE/router.key; port 0: any, see robustctl status --json); to other machines over TLS, by the authority in
    /// STATE/clients.pem
    #[arg(long, value_name = "ADDR", conflicts_with = "join")]
    pub router: Option<String>,
    /// Send a trace of each incident to this OpenTelemetry collector, such as http://127.0.0.1:4318
    /// (OTLP over HTTP; headers and the like as OTEL_EXPORTER_OTLP_HEADERS says)
    #[arg(long, value_name = "URL", conflicts_with = "join")]
    pub otlp: Option<String>,
    /// Let other daemons join the job as its nodes at this TCP address
    #[arg(long, value_name = "ADDR", conflicts_with = "join")]
    pub listen_nodes: Option<String>,
    /// With --join: a join token, which a node needs until it has a certificate, and not with --certificate. With --listen-nodes: the one that any
    /// machine may use [default for the leader: STATE/nodes.token]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Have no join token that any machine may use: each needs one of its own (robustctl token create)
    #[arg(long, requires = "listen_nodes", conflicts_with = "token_file")]
    pub single_use_tokens: bool,
    /// With --listen-nodes or --join: show nodes, or the leader, a certificate from outside the job, such as cert-manager's
    /// or SPIFFE's, which names robust://JOB/node/NAME or spiffe://TRUST-DOMAIN/../node/NAME (the leader: control/NAME);
    /// a node needs no join token then. The three files are read again when they change
    #[arg(long, value_name = "FILE", requires_all = ["between_daemons", "key", "authority"])]
    pub certificate: Option<PathBuf>,
    /// The private key of --certificate
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// The certificates of the authorities that stand for the job's other daemons, as --certificate shows them
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub authority: Option<PathBuf>,
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
    /// Go on with the job of the job file from its log (store.remote_log of the machine that was lost), in an empty state
    /// directory
    #[arg(long, value_name = "URL", conflicts_with_all = ["join", "inspect", "fresh"])]
    pub restore_from: Option<String>,
    /// This controller's name among those of a job file with an ha table [default: the host's name]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["join", "inspect", "fresh", "restore_from"])]
    pub candidate: Option<String>,
    /// Of a job file with an ha table, where etcd was lost with its data and all controllers have ended: lead the job without
    /// etcd, as its only controller (with --restore-from in an empty state directory)
    #[arg(long, conflicts_with_all = ["join", "inspect", "fresh", "candidate"])]
    pub alone: bool,
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

impl Args {
    /// The state directory that is named, or the user's own.
    pub fn state_dir(&self) -> Result<PathBuf, NoFolder> {
        self.state_dir.clone().map_or_else(default_state_dir, Ok)
    }

    /// The files of a certificate from outside.
    pub fn outside(&self) -> Option<OutsidePaths> {
        Some(OutsidePaths {
            certificate: self.certificate.clone()?,
            key: self.key.clone()?,
            authority: self.authority.clone()?,
        })
    }
}

/// What else than a job is run.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
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

impl ExitCode {
    /// All of them, by number.
    pub const ALL: [Self; 10] = [
        Self::Completed,
        Self::Failed,
        Self::BadJob,
        Self::InUse,
        Self::Store,
        Self::Address,
        Self::Environment,
        Self::NotJoined,
        Self::Interrupted,
        Self::Terminated,
    ];

    /// What it tells whoever started the program; the help and the documents have these words.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Completed => "the job completed (or was completed before)",
            Self::Failed => {
                "the job failed (or failed before: --fresh begins anew), or was stopped through the control API; \
                 old processes cannot be killed"
            }
            Self::BadJob => "wrong usage, or a bad job file or dataset",
            Self::InUse => "the state directory is in use, or belongs to another job",
            Self::Store => "the store or the state directory cannot be used",
            Self::Address => "the address is in use or refused",
            Self::Environment => {
                "something the job needs is missing (worker program, model, dataset, tokenizer, token, \
                 certificate, the file of SSL_CERT_FILE, control groups for its limits), the object store cannot be opened, or the warm-up failed"
            }
            Self::NotJoined => "leader and node do not agree (token, name, slots)",
            Self::Interrupted => "ended in order after SIGINT",
            Self::Terminated => "ended in order after SIGTERM",
        }
    }
}

/// What each exit code means, for the help.
fn exit_codes() -> String {
    let lines = ExitCode::ALL.map(|code| format!("\n  {:<5}{}", code as u8, code.meaning()));
    format!("Exit codes:{}", lines.concat())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_exit_code_is_listed_once() {
        use clap::CommandFactory;
        Args::command().debug_assert();
        let listed = ExitCode::ALL.map(|code| code as u8);
        assert!(listed.is_sorted_by(|a, b| a < b), "{listed:?}");
    }
}
