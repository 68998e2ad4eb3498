//! `robustctl traj`: what was generated, as it is stored.
mod export;
mod parquet;
mod witness;

pub use witness::sentence;

use super::{put, put_json};
use crate::cli::{TrajCommand, TrajFilter};
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::paint::Paint;
use crate::table::Table;
use robust_proto::v1;
use robust_shared::ids::TrajectoryId;
use tokio_stream::StreamExt as _;
use tonic::Streaming;

/// Runs one of the commands.
pub async fn run(endpoint: &Endpoint, command: &TrajCommand, json: bool) -> Result<(), CliError> {
    match command {
        TrajCommand::Ls(filter) => list(endpoint, filter, json).await,
        TrajCommand::Show { id } => show(endpoint, id, json).await,
        TrajCommand::Export { filter, to, format } => {
            export::run(endpoint, filter, to, *format, json).await
        }
    }
}

/// Asks for those the filter names.
async fn ask(
    endpoint: &Endpoint,
    filter: &TrajFilter,
    content: bool,
) -> Result<Streaming<v1::Trajectory>, CliError> {
    let request = v1::TrajectoriesRequest {
        from_batch: filter.from,
        to_batch: filter.to_batch.unwrap_or(0),
        state: filter.state.clone().unwrap_or_default(),
        content,
        trajectory: None,
    };
    let mut client = endpoint.connect().await?;
    endpoint.ask(client.trajectories(request)).await
}

/// The next one, if there are more.
async fn next(
    endpoint: &Endpoint,
    stream: &mut Streaming<v1::Trajectory>,
) -> Result<Option<v1::Trajectory>, CliError> {
    let broken = |status| CliError::from_status(&status, &endpoint.place());
    stream.next().await.transpose().map_err(broken)
}

fn name(t: &v1::Trajectory) -> String {
    let id = TrajectoryId {
        batch: t.batch,
        group: t.group,
        member: t.member,
    };
    id.to_string()
}

async fn list(endpoint: &Endpoint, filter: &TrajFilter, json: bool) -> Result<(), CliError> {
    let mut stream = ask(endpoint, filter, false).await?;
    let heads = [
        "TRAJECTORY",
        "STATE",
        ">TURNS",
        ">TOKENS",
        ">REWARD",
        ">OLDEST",
        ">STEP",
        ">STALE",
    ];
    let mut table = Table::new(&heads);
    let dash = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    while let Some(t) = next(endpoint, &mut stream).await? {
        if json {
            put_json(&t)?;
            continue;
        }
        let reward = t
            .reward
            .map_or_else(|| "-".to_owned(), |r| format!("{r:.2}"));
        table.row([
            name(&t),
            t.state.clone(),
            t.turn_count.to_string(),
            t.tokens.to_string(),
            reward,
            format!("v{}", t.oldest_version),
            dash(t.consumed_by),
            dash(t.staleness),
        ]);
    }
    match json {
        true => Ok(()),
        false => put(&table.render(Paint::stdout())),
    }
}

fn parse(id: &str) -> Option<TrajectoryId> {
    let mut parts = id.split('.');
    let id = TrajectoryId {
        batch: parts.next()?.parse().ok()?,
        group: parts.next()?.parse().ok()?,
        member: parts.next()?.parse().ok()?,
    };
    parts.next().is_none().then_some(id)
}

async fn show(endpoint: &Endpoint, id: &str, json: bool) -> Result<(), CliError> {
    let wanted = parse(id).ok_or_else(|| {
        CliError::Usage(format!(
            "`{id}` names no trajectory; write BATCH.GROUP.MEMBER, as `ls` does"
        ))
    })?;
    let request = v1::TrajectoriesRequest {
        content: true,
        trajectory: Some(wanted.key()),
        ..Default::default()
    };
    let mut client = endpoint.connect().await?;
    let mut stream = endpoint.ask(client.trajectories(request)).await?;
    let Some(t) = next(endpoint, &mut stream).await? else {
        let text =
            format!("the job has no trajectory {id}: neither a step nor an open batch names it");
        return Err(CliError::Usage(text));
    };
    match json {
        true => put_json(&t)?,
        false => put(&text(&t))?,
    }
    match t.witness.map_or(0, |w| w.disagreements.len()) {
        0 => Ok(()),
        n => Err(CliError::Failed(format!(
            "{n} records of {id} contradict each other"
        ))),
    }
}

fn text(t: &v1::Trajectory) -> String {
    let mut text = format!("trajectory {}, {}\n", name(t), t.state);
    text += &t.witness.as_ref().map_or_else(String::new, witness::text);
    if let Some(reward) = t.reward {
        text += &format!("reward      {reward:.2}, answer {:?}\n", t.answer);
    }
    if let Some(step) = t.consumed_by {
        let stale = t.staleness.unwrap_or(0);
        text += &format!("trained     in step {step}, {stale} versions after its oldest weights\n");
    }
    text += &format!(
        "prompt      {} tokens {:?}\n",
        t.prompt_ids.len(),
        t.prompt_ids
    );
    for turn in &t.turns {
        text += &format!("turn {}\n", turn.index);
        for span in &turn.spans {
            let mean = span.logprobs.iter().map(|&l| f64::from(l)).sum::<f64>();
            let mean = mean / span.logprobs.len().max(1) as f64;
            text += &format!(
                "  v{:<6} {} tokens {:?}, mean logprob {mean:.3}\n",
                span.version,
                span.ids.len(),
                span.ids
            );
        }
        if !turn.tool_call.is_empty() {
            text += &format!("  tool    {} = {}\n", turn.tool_call, turn.tool_result);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_trajectorys_name_reads_back_and_nothing_else_does() {
        let id = parse("12.3.4").unwrap();
        assert_eq!((id.batch, id.group, id.member), (12, 3, 4));
        assert_eq!(id.to_string(), "12.3.4");
        for wrong in ["", "1", "1.2", "1.2.3.4", "a.b.c", "1.-2.3"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
