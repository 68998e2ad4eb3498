//! `robustctl scale`, `update`, `cordon`, `uncordon` and `restore-slot`: who takes part in the job,
//! where and with which values.
use super::{forecast, put, put_json};
use crate::cli::{NodeArgs, RestoreSlotArgs, ScaleArgs, UpdateArgs};
use crate::endpoint::Endpoint;
use crate::error::CliError;
use robust_proto::v1::{self, forecast_act::Act};
use robust_shared::verbs;

/// More or fewer instances of a role.
pub async fn scale(endpoint: &Endpoint, args: &ScaleArgs, json: bool) -> Result<(), CliError> {
    let request = v1::ScaleRequest {
        role: args.role.name().to_owned(),
        count: args.count,
    };
    if args.dry_run {
        return forecast::run(endpoint, Act::Scale(request), json).await;
    }
    let mut client = endpoint.connect().await?;
    let reply = endpoint.ask(client.scale(request)).await?;
    if json {
        return put_json(&reply);
    }
    let v1::ChangeReply {
        role,
        when,
        from,
        to,
        ..
    } = reply;
    let (from, to) = (from.to_string(), to.to_string());
    let done = verbs::scale::DONE.say([&role, &from, &to, &when]);
    put(&format!("{done}\n"))
}

/// New values for one role.
pub async fn update(endpoint: &Endpoint, args: UpdateArgs, json: bool) -> Result<(), CliError> {
    let mut client = endpoint.connect().await?;
    let words = args.set.join(", ");
    let request = v1::UpdateRequest {
        role: args.role.name().to_owned(),
        changes: args.set,
    };
    let reply = endpoint.ask(client.update(request)).await?;
    if json {
        return put_json(&reply);
    }
    let (role, revision, when) = (reply.role, reply.revision, reply.when);
    put(&format!(
        "{role} is restarted with {words} (revision {revision} of the job): {when}\n"
    ))
}

/// Nothing new is started on a node, or again.
pub async fn cordon(
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
    if json {
        return put_json(&reply);
    }
    let done = match out {
        true => verbs::cordon::DONE,
        false => verbs::uncordon::DONE,
    };
    put(&format!("{}\n", done.say([&reply.node])))
}

/// A lost slot is there again.
pub async fn restore(
    endpoint: &Endpoint,
    args: RestoreSlotArgs,
    json: bool,
) -> Result<(), CliError> {
    let mut client = endpoint.connect().await?;
    let RestoreSlotArgs { node, pool, index } = args;
    let done = verbs::restore_slot::DONE.say([&index.to_string(), &pool, &node]);
    let request = v1::RestoreSlotRequest { node, pool, index };
    let reply = endpoint.ask(client.restore_slot(request)).await?;
    if json {
        return put_json(&reply);
    }
    put(&format!("{done}\n"))
}
