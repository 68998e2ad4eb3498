//! One file per command. Each prints to stdout and ends in a [`CliError`] or well.
mod audit;
mod audit_check;
mod bench;
mod ca;
mod ca_site;
mod ckpt;
mod compare;
mod contexts;
mod doctor;
mod drill;
mod events;
mod export;
mod forecast;
mod inject;
mod inspect;
mod logs;
mod man;
mod pause;
mod promises;
mod report;
mod roles;
mod rules;
mod run;
mod sim;
mod slurm;
mod status;
mod steer;
mod stop;
mod store;
mod token;
mod traj;
mod watch;

pub use drill::{OwnJob, recovery, unless_interrupted};

use crate::cli::{Args, Command, RulesArgs, StoreCommand};
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::output::put;
use clap::CommandFactory as _;

/// Runs the command of the command line.
pub async fn run(args: Args) -> Result<(), CliError> {
    let Args { global, command } = args;
    if let Command::Completions { shell } = command {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Args::command(), "robustctl", &mut script);
        return put(&String::from_utf8_lossy(&script));
    }
    if let Command::Man(man) = &command {
        return man::run(man);
    }
    if let Command::Status(args) = &command
        && let Some(names) = &args.contexts
    {
        return contexts::status(names, &global).await;
    }
    let global = global.in_context()?;
    if let Command::Rules(RulesArgs {
        job: Some(job),
        rule,
    }) = &command
    {
        return rules::of_file(job, rule.as_deref(), global.json);
    }
    if let Command::Drill(drill) = &command {
        return drill::run(drill, &global).await;
    }
    if let Command::Sim(args) = &command {
        return sim::run(args, global.json);
    }
    if let Command::Bench(args) = &command {
        return bench::run(args, global.json);
    }
    if let Command::Doctor(args) = &command {
        return doctor::run(args, &global).await;
    }
    if let Command::Compare(args) = &command {
        return compare::run(args, &global).await;
    }
    if let Command::Ckpt(command) = &command {
        return ckpt::run(command, &global).await;
    }
    if let Command::Slurm(command) = command {
        return slurm::run(command, global.json).await;
    }
    let endpoint = Endpoint::resolve(
        global.state_dir.as_deref(),
        global.connect.as_deref(),
        global.token_file.as_deref(),
    )?;
    match command {
        Command::Run(run) => run::run(&endpoint, &run, &global).await,
        Command::Roles(roles) => roles::run(&endpoint, &roles, global.json).await,
        Command::Logs(logs) => logs::run(&endpoint, logs, global.json).await,
        Command::Inspect(args) => inspect::inspect(&endpoint, &args, global.json).await,
        Command::Probe(args) => inspect::probe(&endpoint, &args, global.json).await,
        Command::Status(status) => status::run(&endpoint, &status, global.json).await,
        Command::Nodes => status::nodes_only(&endpoint, global.json).await,
        Command::Watch(watch) => watch::run(&endpoint, &watch, global.json).await,
        Command::Events(events) => events::run(&endpoint, &events, global.json).await,
        Command::Inject(inject) => inject::run(&endpoint, &inject, global.json).await,
        Command::Audit(args) => audit::run(&endpoint, &args, global.json).await,
        Command::Report(report) => report::run(&endpoint, &report, global.json).await,
        Command::Export(command) => export::run(&endpoint, &command, global.json).await,
        Command::Steer(command) => steer::run(&endpoint, command, global.json).await,
        Command::Ca(command) => ca::run(&endpoint, command, global.json).await,
        Command::Token(command) => token::run(&endpoint, command, global.json).await,
        Command::Rules(args) => rules::run(&endpoint, args.rule.as_deref(), global.json).await,
        Command::Traj(command) => traj::run(&endpoint, &command, global.json).await,
        Command::Store(StoreCommand::Check) => store::check(&endpoint, global.json).await,
        Command::Stop(args) => stop::run(&endpoint, &args, global.json).await,
        // The console is begun past the commands (`main`), and the others have ended above.
        Command::Tui(_)
        | Command::Completions { .. }
        | Command::Bench(_)
        | Command::Ckpt(_)
        | Command::Compare(_)
        | Command::Doctor(_)
        | Command::Drill(_)
        | Command::Man(_)
        | Command::Sim(_)
        | Command::Slurm(_) => Ok(()),
    }
}
