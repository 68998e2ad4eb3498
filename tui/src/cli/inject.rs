//! Options of `inject` and `audit`.
use super::values::{role, seconds};
use clap::Args as ClapArgs;
use robust_shared::fault::{At, Kind};
use robust_shared::ids::Role;
use robust_shared::verbs;

/// Options of `inject`.
#[derive(Debug, ClapArgs)]
#[command(group(clap::ArgGroup::new("fault").required(true).args([
    "kill", "exit", "hang", "slow", "oom", "exception", "nan", "corrupt_weights", "stall_network",
    "cut_network", "hang_tool", "kill_tool", "kill_engine_child", "kill_engine_leader", "hang_engine",
    "pause_engine", "lose_slot", "hardware", "lose_node", "corrupt_checkpoint", "disk_full", "no_processes",
    "leader_crash", "disarm",
])))]
pub struct InjectArgs {
    /// Kill (SIGKILL) an instance of this role
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub kill: Option<Role>,
    /// Have it exit with --code
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub exit: Option<Role>,
    /// Hang (SIGSTOP) an instance of this role
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub hang: Option<Role>,
    /// Let it run for --percent of the time only, for --seconds
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub slow: Option<Role>,
    /// Give it no more memory
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub oom: Option<Role>,
    /// Have it raise an exception
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub exception: Option<Role>,
    /// Make its loss no number (trainer)
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub nan: Option<Role>,
    /// Flip bytes of the weights it serves
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub corrupt_weights: Option<Role>,
    /// Stop all traffic between it and --peer, for --seconds
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub stall_network: Option<Role>,
    /// Close its connections to --peer
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub cut_network: Option<Role>,
    /// Let its tool not answer, for --seconds (agent)
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub hang_tool: Option<Role>,
    /// Kill every process of its tool, for --seconds (agent)
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub kill_tool: Option<Role>,
    /// Kill the busiest process that its engine started (rollouts of [rollout.command])
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub kill_engine_child: Option<Role>,
    /// Kill its engine's first process, and no other (the same)
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub kill_engine_leader: Option<Role>,
    /// Hang (SIGSTOP) all processes of its engine (the same)
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub hang_engine: Option<Role>,
    /// Pause its engine, as a client that leaves it so, for --seconds (rollout)
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub pause_engine: Option<Role>,
    /// Take an instance of this role out with its slot, until `restore-slot`
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub lose_slot: Option<Role>,
    /// Let its device show --event (with NVML's test library only)
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub hardware: Option<Role>,
    /// Lose a node: its daemon and all its processes
    #[arg(long, value_name = "NODE")]
    pub lose_node: Option<String>,
    /// Flip a byte of the newest checkpoint
    #[arg(long)]
    pub corrupt_checkpoint: bool,
    /// Let the store have no room, for --seconds
    #[arg(long)]
    pub disk_full: bool,
    /// Let the leader's node start no process, for --seconds
    #[arg(long)]
    pub no_processes: bool,
    /// Let the leader's daemon die
    #[arg(long)]
    pub leader_crash: bool,
    #[arg(long, value_name = "ID", help = verbs::disarm::VERB.about)]
    pub disarm: Option<Which>,
    /// Which of them [default: the first that lives]
    #[arg(long, value_name = "N")]
    pub index: Option<u32>,
    /// Only this life of it; refused when another runs there by now
    #[arg(long, value_name = "NUMBER")]
    pub incarnation: Option<u64>,
    /// Not now but when it comes there: `update`, `generating`, `pull:50%`; `init` and `load_checkpoint`
    /// are those of its next life
    #[arg(long, value_name = "PHASE[:PERCENT%]")]
    pub at: Option<At>,
    /// The code of --exit [default: 1]
    #[arg(long, value_name = "CODE")]
    pub code: Option<u32>,
    /// How long it lasts [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// The part of the time that --slow leaves [default: 50]
    #[arg(long, value_name = "PERCENT")]
    pub percent: Option<u32>,
    /// The other end of --stall-network and --cut-network: `rollout-1`
    #[arg(long, value_name = "INSTANCE")]
    pub peer: Option<String>,
    /// What --hardware shows: `xid-48`, `ecc-uncorrected`, `device-lost`, ...
    #[arg(long, value_name = "EVENT")]
    pub event: Option<String>,
    /// The job is protected, and I want it all the same
    #[arg(long)]
    pub i_know: bool,
    /// Do nothing; say what it would bring
    #[arg(long, conflicts_with_all = ["wait", "disarm"])]
    pub dry_run: bool,
    /// Wait until the recovery is over and print its timings
    #[arg(long)]
    pub wait: bool,
    /// With --wait: give up after this time
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    pub timeout: f64,
}

impl InjectArgs {
    /// The fault, and the role it is for; clap sees to it that there is exactly one.
    pub fn chosen(&self) -> Option<(Kind, Option<Role>)> {
        let of_roles = [
            (Kind::Kill, self.kill),
            (Kind::Exit, self.exit),
            (Kind::Hang, self.hang),
            (Kind::Slow, self.slow),
            (Kind::Oom, self.oom),
            (Kind::Exception, self.exception),
            (Kind::Nan, self.nan),
            (Kind::CorruptWeights, self.corrupt_weights),
            (Kind::StallNetwork, self.stall_network),
            (Kind::CutNetwork, self.cut_network),
            (Kind::HangTool, self.hang_tool),
            (Kind::KillTool, self.kill_tool),
            (Kind::KillEngineChild, self.kill_engine_child),
            (Kind::KillEngineLeader, self.kill_engine_leader),
            (Kind::HangEngine, self.hang_engine),
            (Kind::PauseEngine, self.pause_engine),
            (Kind::LoseSlot, self.lose_slot),
            (Kind::Hardware, self.hardware),
        ];
        let of_others = [
            (Kind::LoseNode, self.lose_node.is_some()),
            (Kind::CorruptCheckpoint, self.corrupt_checkpoint),
            (Kind::DiskFull, self.disk_full),
            (Kind::NoProcesses, self.no_processes),
            (Kind::LeaderCrash, self.leader_crash),
        ];
        let role = of_roles.into_iter().find(|(_, role)| role.is_some());
        let other = || of_others.into_iter().find(|(_, given)| *given);
        role.or_else(|| other().map(|(kind, _)| (kind, None)))
    }
}

/// Which faults are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one of this number.
    One(u64),
    /// All that wait.
    All,
}

impl std::str::FromStr for Which {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(Self::All),
            number => number
                .parse()
                .map(Self::One)
                .map_err(|_| "must be a number, as `robustctl status` shows it, or `all`".into()),
        }
    }
}

/// Options of `audit`.
#[derive(Debug, ClapArgs)]
pub struct AuditArgs {
    /// Go on with those to come
    #[arg(long, short)]
    pub follow: bool,
    /// Start at this number
    #[arg(long, value_name = "ID", default_value_t = 0)]
    pub since: u64,
    /// Say where the log was changed, cut or reordered (exit code 1); needs no daemon
    #[arg(long, conflicts_with_all = ["follow", "since"])]
    pub verify: bool,
}
