//! `robustctl pause`, `resume`, `restart`, `scale`, `update`, `cordon`, `uncordon`, `restore-slot`, `quarantine`, `readmit`
//! and `note`: verbs of a job that runs.
use super::{forecast, note, pause, put, put_json};
use crate::cli::{
    EngineArgs, NodeArgs, RestartArgs, RestartTarget, RestoreSlotArgs, ScaleArgs, SteerCommand,
    UpdateArgs, Who,
};
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format::who;
use robust_proto::v1::{self, forecast_act::Act};
use robust_shared::verbs;
use serde::Serialize;

/// Has the daemon do it, and prints what it answers.
pub async fn run(endpoint: &Endpoint, command: SteerCommand, json: bool) -> Result<(), CliError> {
    match command {
        SteerCommand::Pause(args) => pause::run(endpoint, &args, json).await,
        SteerCommand::Resume => resume(endpoint, json).await,
        SteerCommand::Restart(args) => restart(endpoint, &args, json).await,
        SteerCommand::Scale(args) => scale(endpoint, &args, json).await,
        SteerCommand::Update(args) => update(endpoint, args, json).await,
        SteerCommand::Cordon(args) => cordon(endpoint, args, true, json).await,
        SteerCommand::Uncordon(args) => cordon(endpoint, args, false, json).await,
        SteerCommand::RestoreSlot(args) => restore(endpoint, args, json).await,
        SteerCommand::Quarantine(args) => traffic(endpoint, &args, true, json).await,
        SteerCommand::Readmit(args) => traffic(endpoint, &args, false, json).await,
        SteerCommand::Note(args) => note::run(endpoint, args, json).await,
    }
}

/// Prints the answer: as a sentence, or as JSON.
fn answer<T: Serialize>(reply: &T, done: &str, json: bool) -> Result<(), CliError> {
    match json {
        true => put_json(reply),
        false => put(&format!("{done}\n")),
    }
}

/// The end of a pause.
async fn resume(endpoint: &Endpoint, json: bool) -> Result<(), CliError> {
    let mut client = endpoint.connect().await?;
    let reply = endpoint.ask(client.resume(v1::ResumeRequest {})).await?;
    answer(&reply, verbs::resume::DONE.text(), json)
}

/// New processes without a fault.
async fn restart(endpoint: &Endpoint, args: &RestartArgs, json: bool) -> Result<(), CliError> {
    let request = match args.target {
        RestartTarget::Task => v1::RestartRequest {
            role: "task".to_owned(),
            index: None,
        },
        RestartTarget::Who(Who { role, index }) => v1::RestartRequest {
            role: role.name().to_owned(),
            index,
        },
    };
    if args.dry_run {
        return forecast::run(endpoint, Act::Restart(request), json).await;
    }
    let mut client = endpoint.connect().await?;
    let reply = endpoint.ask(client.restart(request)).await?;
    let done = verbs::restart::DONE.say([&reply.what, &reply.when]);
    answer(&reply, &done, json)
}

/// More or fewer instances of a role.
async fn scale(endpoint: &Endpoint, args: &ScaleArgs, json: bool) -> Result<(), CliError> {
    let request = v1::ScaleRequest {
        role: args.role.name().to_owned(),
        count: args.count,
    };
    if args.dry_run {
        return forecast::run(endpoint, Act::Scale(request), json).await;
    }
    let mut client = endpoint.connect().await?;
    let reply = endpoint.ask(client.scale(request)).await?;
    let (from, to) = (reply.from.to_string(), reply.to.to_string());
    let done = verbs::scale::DONE.say([&reply.role, &from, &to, &reply.when]);
    answer(&reply, &done, json)
}

/// New values for one role.
async fn update(endpoint: &Endpoint, args: UpdateArgs, json: bool) -> Result<(), CliError> {
    let mut client = endpoint.connect().await?;
    let words = args.set.join(", ");
    let request = v1::UpdateRequest {
        role: args.role.name().to_owned(),
        changes: args.set,
    };
    let reply = endpoint.ask(client.update(request)).await?;
    let (role, revision, when) = (&reply.role, reply.revision, &reply.when);
    let done = format!("{role} is restarted with {words} (revision {revision} of the job): {when}");
    answer(&reply, &done, json)
}

/// Nothing new is started on a node, or again.
async fn cordon(
    endpoint: &Endpoint,
    args: NodeArgs,
    out: bool,
    json: bool,
) -> Result<(), CliError> {
    let NodeArgs { node, dry_run } = args;
    let request = v1::CordonRequest { node, out };
    if dry_run {
        return forecast::run(endpoint, Act::Cordon(request), json).await;
    }
    let mut client = endpoint.connect().await?;
    let reply = endpoint.ask(client.cordon(request)).await?;
    let done = match out {
        true => verbs::cordon::DONE,
        false => verbs::uncordon::DONE,
    };
    answer(&reply, &done.say([&reply.node]), json)
}

/// A lost slot is there again.
async fn restore(endpoint: &Endpoint, args: RestoreSlotArgs, json: bool) -> Result<(), CliError> {
    let mut client = endpoint.connect().await?;
    let RestoreSlotArgs { node, pool, index } = args;
    let done = verbs::restore_slot::DONE.say([&index.to_string(), &pool, &node]);
    let request = v1::RestoreSlotRequest { node, pool, index };
    let reply = endpoint.ask(client.restore_slot(request)).await?;
    answer(&reply, &done, json)
}

/// An engine out of traffic, or in again.
async fn traffic(
    endpoint: &Endpoint,
    engine: &EngineArgs,
    out: bool,
    json: bool,
) -> Result<(), CliError> {
    let request = v1::QuarantineRequest {
        role: engine.role.name().to_owned(),
        index: engine.index,
    };
    let mut client = endpoint.connect().await?;
    let reply = match out {
        true => endpoint.ask(client.quarantine(request)).await?,
        false => endpoint.ask(client.readmit(request)).await?,
    };
    let done = match reply.quarantined {
        true => verbs::quarantine::DONE,
        false => verbs::readmit::DONE,
    };
    answer(&reply, &done.say([&who(&reply.role, reply.index)]), json)
}
