//! `robustctl report --incident N`: one incident as Markdown, the text that the console copies.
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::output::{put, put_json};
use crate::postmortem;
use robust_proto::v1;

/// Prints it; an error where the daemon does not have it any more.
pub async fn run(endpoint: &Endpoint, id: u64, json: bool) -> Result<(), CliError> {
    let mut client = endpoint.connect().await?;
    let status = endpoint
        .ask(client.get_status(v1::GetStatusRequest {}))
        .await?;
    let Some(incident) = status.incidents.iter().find(|i| i.id == id) else {
        return Err(CliError::Failed(unknown(&status, id)));
    };
    match json {
        true => put_json(incident),
        false => put(&postmortem::markdown(&status, incident)),
    }
}

fn unknown(status: &v1::Status, id: u64) -> String {
    let ids = || status.incidents.iter().map(|i| i.id);
    match (ids().min(), ids().max()) {
        (Some(first), Some(last)) => format!(
            "there is no incident {id}; the daemon keeps the last 200 whole, which are {first} to {last} \
             (`robustctl report --json` has figures of earlier ones)"
        ),
        _ => format!("there is no incident {id}: the job had none"),
    }
}
