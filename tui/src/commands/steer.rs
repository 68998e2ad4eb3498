//! `robustctl pause`, `resume`, `restart`, `scale`, `update`, `cordon`, `uncordon`, `restore-slot`, `quarantine`, `readmit`
//! and `note`: verbs of a job that runs.
use super::{forecast, pause, put};
use crate::cli::{
    EngineArgs, NodeArgs, NoteArgs, RestartTarget, RestoreSlotArgs, ScaleArgs, SteerCommand,
    UpdateArgs, Who,
};
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::steer::Steer;
use robust_proto::v1;

/// Has the daemon do it and prints what it answers, or what it would bring.
pub async fn run(endpoint: &Endpoint, command: SteerCommand, json: bool) -> Result<(), CliError> {
    let (steer, dry_run) = match command {
        SteerCommand::Pause(args) => return pause::run(endpoint, &args, json).await,
        SteerCommand::Resume => (Steer::Resume, false),
        SteerCommand::Restart(args) => (restart(args.target), args.dry_run),
        SteerCommand::Scale(args) => scale(&args),
        SteerCommand::Update(args) => (update(args), false),
        SteerCommand::Cordon(args) => cordon(args, true),
        SteerCommand::Uncordon(args) => cordon(args, false),
        SteerCommand::RestoreSlot(args) => (restore(args), false),
        SteerCommand::Quarantine(args) => (Steer::Quarantine(engine(&args)), false),
        SteerCommand::Readmit(args) => (Steer::Readmit(engine(&args)), false),
        SteerCommand::Note(NoteArgs { incident, text }) => {
            (Steer::Note(v1::NoteRequest { incident, text }), false)
        }
    };
    if dry_run {
        let blind = || CliError::Usage("nobody looks ahead of this".to_owned());
        let act = steer.ahead().ok_or_else(blind)?;
        return forecast::run(endpoint, act, json).await;
    }
    let done = steer.ask(endpoint).await?;
    let said = if json { done.json } else { done.words };
    put(&(said + "\n"))
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

fn scale(args: &ScaleArgs) -> (Steer, bool) {
    let request = v1::ScaleRequest {
        role: args.role.name().to_owned(),
        count: args.count,
    };
    (Steer::Scale(request), args.dry_run)
}

fn update(args: UpdateArgs) -> Steer {
    Steer::Update(v1::UpdateRequest {
        role: args.role.name().to_owned(),
        changes: args.set,
    })
}

fn cordon(args: NodeArgs, out: bool) -> (Steer, bool) {
    let NodeArgs { node, dry_run } = args;
    (Steer::Cordon(v1::CordonRequest { node, out }), dry_run)
}

fn restore(args: RestoreSlotArgs) -> Steer {
    let RestoreSlotArgs { node, pool, index } = args;
    Steer::RestoreSlot(v1::RestoreSlotRequest { node, pool, index })
}

fn engine(args: &EngineArgs) -> v1::QuarantineRequest {
    v1::QuarantineRequest {
        role: args.role.name().to_owned(),
        index: args.index,
    }
}
