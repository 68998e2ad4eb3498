//! Options of the commands that change a running job: `scale`, `update`, `cordon`, `restore-slot`,
//! `quarantine`, `note`.
use super::values::role;
use clap::Args as ClapArgs;
use robust_shared::ids::Role;

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
