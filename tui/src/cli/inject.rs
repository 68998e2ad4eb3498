//! Options of `inject`.
use super::values::{role, seconds};
use clap::Args as ClapArgs;
use robust_shared::ids::Role;

/// Options of `inject`.
#[derive(Debug, ClapArgs)]
#[command(group(clap::ArgGroup::new("fault").required(true).args(["kill", "hang", "lose_slot"])))]
pub struct InjectArgs {
    /// Kill (SIGKILL) an instance of this role
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub kill: Option<Role>,
    /// Hang (SIGSTOP) an instance of this role
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub hang: Option<Role>,
    /// Take an instance of this role out with its slot, until `restore-slot`
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub lose_slot: Option<Role>,
    /// Which of them [default: the first that lives]
    #[arg(long, value_name = "N")]
    pub index: Option<u32>,
    /// Only this life of it; refused when another runs there by now
    #[arg(long, value_name = "NUMBER")]
    pub incarnation: Option<u64>,
    /// Wait until the recovery is over and print its timings
    #[arg(long)]
    pub wait: bool,
    /// With --wait: give up after this time
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    pub timeout: f64,
}
