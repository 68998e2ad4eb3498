//! Verbs of a job that runs, with their options where those are few. `inject` and `stop` stand apart.
use super::values::role;
use super::{PauseArgs, RestartArgs};
use clap::{Args as ClapArgs, Subcommand};
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
