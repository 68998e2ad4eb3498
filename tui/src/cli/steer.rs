//! Verbs of a job that runs, with their options where those are few. `inject` and `stop` stand apart.
use super::values::role;
use super::{PauseArgs, RestartArgs, RestartTarget, Who};
use crate::steer::Steer;
use clap::{Args as ClapArgs, Subcommand};
use robust_proto::v1;
use robust_shared::ids::Role;
use robust_shared::verbs;

/// What changes a job that runs.
#[derive(Debug, Subcommand)]
pub enum SteerCommand {
    #[command(about = verbs::pause::VERB.about)]
    Pause(PauseArgs),
    #[command(about = verbs::resume::VERB.about)]
    Resume,
    #[command(about = verbs::restart::VERB.about)]
    Restart(RestartArgs),
    #[command(about = verbs::scale::VERB.about)]
    Scale(ScaleArgs),
    #[command(about = verbs::update::VERB.about)]
    Update(UpdateArgs),
    #[command(about = verbs::cordon::VERB.about)]
    Cordon(NodeArgs),
    #[command(about = verbs::uncordon::VERB.about)]
    Uncordon(NodeArgs),
    #[command(about = verbs::restore_slot::VERB.about)]
    RestoreSlot(RestoreSlotArgs),
    #[command(about = verbs::quarantine::VERB.about)]
    Quarantine(EngineArgs),
    #[command(about = verbs::readmit::VERB.about)]
    Readmit(EngineArgs),
    #[command(about = verbs::note::VERB.about)]
    Note(NoteArgs),
}

impl SteerCommand {
    /// Whether nothing is to be done, and only said what it would bring.
    pub fn is_dry_run(&self) -> bool {
        match self {
            SteerCommand::Restart(args) => args.dry_run,
            SteerCommand::Scale(args) => args.dry_run,
            SteerCommand::Cordon(args) | SteerCommand::Uncordon(args) => args.dry_run,
            SteerCommand::Pause(_)
            | SteerCommand::Resume
            | SteerCommand::Update(_)
            | SteerCommand::RestoreSlot(_)
            | SteerCommand::Quarantine(_)
            | SteerCommand::Readmit(_)
            | SteerCommand::Note(_) => false,
        }
    }

    /// What it asks of the daemon.
    pub fn asks(self) -> Steer {
        match self {
            SteerCommand::Pause(_) => Steer::Pause,
            SteerCommand::Resume => Steer::Resume,
            SteerCommand::Restart(args) => restart(args.target),
            SteerCommand::Scale(args) => Steer::Scale(v1::ScaleRequest {
                role: args.role.name().to_owned(),
                count: args.count,
            }),
            SteerCommand::Update(args) => Steer::Update(v1::UpdateRequest {
                role: args.role.name().to_owned(),
                changes: args.set,
            }),
            SteerCommand::Cordon(args) => cordon(args.node, true),
            SteerCommand::Uncordon(args) => cordon(args.node, false),
            SteerCommand::RestoreSlot(RestoreSlotArgs { node, pool, index }) => {
                Steer::RestoreSlot(v1::RestoreSlotRequest { node, pool, index })
            }
            SteerCommand::Quarantine(args) => Steer::Quarantine(engine(&args)),
            SteerCommand::Readmit(args) => Steer::Readmit(engine(&args)),
            SteerCommand::Note(NoteArgs { incident, text }) => {
                Steer::Note(v1::NoteRequest { incident, text })
            }
        }
    }
}

fn restart(target: RestartTarget) -> Steer {
    Steer::Restart(match target {
        RestartTarget::Task => v1::RestartRequest {
            role: "task".to_owned(),
            index: None,
        },
        RestartTarget::Who(Who { role, index }) => v1::RestartRequest {
            role: role.name().to_owned(),
            index,
        },
    })
}

fn cordon(node: String, out: bool) -> Steer {
    Steer::Cordon(v1::CordonRequest { node, out })
}

fn engine(args: &EngineArgs) -> v1::QuarantineRequest {
    v1::QuarantineRequest {
        role: args.role.name().to_owned(),
        index: args.index,
    }
}

/// Options of `scale`.
#[derive(Debug, ClapArgs)]
pub struct ScaleArgs {
    /// The role
    #[arg(value_name = "ROLE", value_parser = role())]
    pub role: Role,
    /// How many instances it shall have
    #[arg(value_name = "N")]
    pub count: u32,
    /// Do nothing; say what it would bring
    #[arg(long)]
    pub dry_run: bool,
}

/// Options of `update`.
#[derive(Debug, ClapArgs)]
pub struct UpdateArgs {
    /// The role
    #[arg(value_name = "ROLE", value_parser = role())]
    pub role: Role,
    /// A key of the job file and its new value; may be given several times
    #[arg(long, value_name = "KEY=VALUE", required = true)]
    pub set: Vec<String>,
}

/// Which node `cordon` and `uncordon` are about.
#[derive(Debug, ClapArgs)]
pub struct NodeArgs {
    /// Its name
    #[arg(value_name = "NODE")]
    pub node: String,
    /// Do nothing; say what it would bring
    #[arg(long)]
    pub dry_run: bool,
}

/// Which slot `restore-slot` is about.
#[derive(Debug, ClapArgs)]
pub struct RestoreSlotArgs {
    /// The node's name
    #[arg(value_name = "NODE")]
    pub node: String,
    /// The pool's name
    #[arg(value_name = "POOL")]
    pub pool: String,
    /// The slot within the pool on that node, from 0
    #[arg(value_name = "N")]
    pub index: u32,
}

/// Options of `note`.
#[derive(Debug, ClapArgs)]
pub struct NoteArgs {
    /// The incident's number
    #[arg(value_name = "INCIDENT")]
    pub incident: u64,
    /// What was found or done: one line of 2,000 characters at most
    #[arg(value_name = "TEXT")]
    pub text: String,
}

/// Which engine `quarantine` and `readmit` are about.
#[derive(Debug, ClapArgs)]
pub struct EngineArgs {
    /// A role that generates
    #[arg(value_name = "ROLE", value_parser = role())]
    pub role: Role,
    /// Which of them
    #[arg(value_name = "N")]
    pub index: u32,
}
