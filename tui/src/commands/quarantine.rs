//! `robustctl quarantine` and `robustctl readmit`.
use super::{put, put_json};
use crate::cli::EngineArgs;
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format::who;
use robust_proto::v1;
use robust_shared::verbs;

/// Takes the engine out of traffic, or lets it in again.
pub async fn run(
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
    if json {
        return put_json(&reply);
    }
    let who = who(&reply.role, reply.index);
    let done = match reply.quarantined {
        true => verbs::quarantine::DONE,
        false => verbs::readmit::DONE,
    };
    put(&format!("{}\n", done.say([&who])))
}
