//! `robustctl note`.
use super::{put, put_json};
use crate::cli::NoteArgs;
use crate::endpoint::Endpoint;
use crate::error::CliError;
use robust_proto::v1;

/// Has the daemon keep a line beside an incident.
pub async fn run(endpoint: &Endpoint, args: NoteArgs, json: bool) -> Result<(), CliError> {
    let NoteArgs { incident, text } = args;
    let mut client = endpoint.connect().await?;
    let request = v1::NoteRequest { incident, text };
    let reply = endpoint.ask(client.note(request)).await?;
    match json {
        true => put_json(&reply),
        false => put(&format!(
            "note {} of incident {incident} is kept\n",
            reply.count
        )),
    }
}
