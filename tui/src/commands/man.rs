//! `robustctl man`: the manual, made from the command line's own description.
use crate::cli::{Args, ManArgs};
use crate::error::CliError;
use crate::output::put;
use clap::CommandFactory as _;
use robust_shared::nearest::instead_of;

/// Prints a page, or writes all of them.
pub fn run(args: &ManArgs) -> Result<(), CliError> {
    let mut root = Args::command().disable_help_subcommand(true);
    if let Some(dir) = &args.dir {
        let wrong = |e| CliError::Failed(format!("{}: {e}", dir.display()));
        std::fs::create_dir_all(dir).map_err(wrong)?;
        return clap_mangen::generate_to(root, dir).map_err(wrong);
    }
    root.build();
    let mut page = Vec::new();
    clap_mangen::Man::new(found(&root, &args.command)?).render(&mut page)?;
    put(&String::from_utf8_lossy(&page))
}

fn found(root: &clap::Command, path: &[String]) -> Result<clap::Command, CliError> {
    let mut command = root;
    for name in path {
        command = command.find_subcommand(name).ok_or_else(|| {
            let known: Vec<&str> = command
                .get_subcommands()
                .map(clap::Command::get_name)
                .collect();
            let hint = instead_of(name, &known, "its commands are");
            let of = command.get_name();
            CliError::Usage(format!("{of} has no command `{name}`; {hint}"))
        })?;
    }
    Ok(command.clone())
}
