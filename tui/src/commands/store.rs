//! `robustctl store`.
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format;
use crate::output::{put, put_json};
use indicatif::ProgressBar;
use robust_proto::v1;
use std::time::Duration;
use tokio_stream::StreamExt as _;

/// Has everything checked; an error if anything is wrong.
pub async fn check(endpoint: &Endpoint, json: bool) -> Result<(), CliError> {
    let mut client = endpoint.connect().await?;
    let mut words = endpoint
        .ask(client.check_store(v1::CheckStoreRequest {}))
        .await?;
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(100));
    let result = loop {
        match words.next().await {
            Some(Ok(word)) if word.done => break Ok(word),
            Some(Ok(word)) => bar.set_message(format!("{} entries read", word.keys)),
            Some(Err(status)) => break Err(CliError::from_status(&status, &endpoint.place())),
            None => {
                break Err(CliError::Protocol(
                    "the check ended without a result".into(),
                ));
            }
        }
    };
    bar.finish_and_clear();
    let result = result?;
    match json {
        true => put_json(&result)?,
        false => put(&text(&result))?,
    }
    match result.problems_total {
        0 => Ok(()),
        n => Err(CliError::Failed(format!("{n} problems in the store"))),
    }
}

fn text(found: &v1::StoreCheck) -> String {
    let mut text = format!(
        "{} entries ({}), {} records, {} committed steps\n{} trajectories with {} turns\n\
         {} checkpoints ({})\n",
        found.keys,
        format::bytes(found.bytes),
        found.records,
        found.committed,
        found.trajectories,
        found.turns,
        found.checkpoints,
        format::bytes(found.checkpoint_bytes),
    );
    for problem in &found.problems {
        text += &format!("problem: {problem}\n");
    }
    if found.problems_total == 0 {
        text += "everything is as it was written\n";
    }
    text
}
