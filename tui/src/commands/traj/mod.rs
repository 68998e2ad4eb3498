//! `robustctl traj`: what was generated, as it is stored.
mod export;
mod parquet;

use crate::cli::{TrajCommand, TrajFilter};
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format::time_of_day;
use crate::output::{put, put_json};
use crate::paint::Paint;
use crate::table::Table;
use crate::trajectories::{Text, Whose, name, parse, witness};
use robust_proto::v1;
use robust_shared::printable::one_line;
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
        ..Default::default()
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

async fn show(endpoint: &Endpoint, id: &str, json: bool) -> Result<(), CliError> {
    let wanted = parse(id).ok_or_else(|| {
        CliError::Usage(format!(
            "`{id}` names no trajectory; write BATCH.GROUP.MEMBER, as `ls` does"
        ))
    })?;
    let request = v1::TrajectoriesRequest {
        content: true,
        trajectory: Some(wanted.key()),
        // Whoever reads JSON has the tokens.
        text: !json,
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
    if let Some(records) = &t.witness {
        text += &witness::text(records, &time_of_day);
    }
    if let Some(reward) = t.reward {
        text += &format!("reward      {reward:.2}, answer {:?}\n", t.answer);
    }
    if let Some(step) = t.consumed_by {
        let stale = t.staleness.unwrap_or(0);
        text += &format!("trained     in step {step}, {stale} versions after its oldest weights\n");
    }
    if !t.no_text.is_empty() {
        text += &format!("text        none: {}\n", one_line(&t.no_text));
    }
    text += &format!(
        "prompt      {} tokens {:?}\n",
        t.prompt_ids.len(),
        t.prompt_ids
    );
    let words = Text::of(t, t.pieces.clone());
    text += &said(&words, Whose::Prompt);
    for turn in &t.turns {
        text += &format!("turn {}\n{}", turn.index, spans(&turn.spans));
        text += &said(&words, Whose::Model(turn.index));
        if !turn.tool_call.is_empty() {
            text += &format!("  tool    {:?} = {:?}\n", turn.tool_call, turn.tool_result);
        }
        text += &said(&words, Whose::Tool(turn.index));
    }
    if !t.running.is_empty() {
        let turn = t.turns.last().map_or(0, |turn| turn.index + 1);
        text += &format!("turn {turn}, under way\n{}", spans(&t.running));
        text += &said(&words, Whose::Model(turn));
    }
    text
}

/// A line for each, with the weights that generated it.
fn spans(all: &[v1::Span]) -> String {
    let line = |span: &v1::Span| {
        let mean = span.logprobs.iter().map(|&l| f64::from(l)).sum::<f64>();
        let mean = mean / span.logprobs.len().max(1) as f64;
        format!(
            "  v{:<6} {} tokens {:?}, mean logprob {mean:.3}\n",
            span.version,
            span.ids.len(),
            span.ids
        )
    };
    all.iter().map(line).collect()
}

/// What somebody wrote, in one line; nothing where the text is not known.
fn said(words: &Text, whose: Whose) -> String {
    let words = words.words(whose).filter(|words| !words.is_empty());
    words.map_or_else(String::new, |words| format!("  text    {words:?}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_is_shown_and_text_orders_nothing() {
        let span = |ids: &[u32], version| v1::Span {
            ids: ids.to_vec(),
            logprobs: vec![-0.5; ids.len()],
            version,
        };
        let turn = v1::Turn {
            spans: vec![span(&[3], 8)],
            tool_ids: vec![4],
            ..Default::default()
        };
        let mut t = v1::Trajectory {
            batch: 7,
            state: "running".into(),
            prompt_ids: vec![1, 2],
            turns: vec![turn],
            running: vec![span(&[5], 9)],
            pieces: ["<bos>", "3+\n", "\u{1b}[2J", "five", "\u{202e}"]
                .map(str::to_owned)
                .into(),
            ..Default::default()
        };
        let shown = text(&t);
        for line in [
            "prompt      2 tokens [1, 2]\n  text    \"<bos>3+\\n\"\n",
            "  v8      1 tokens [3], mean logprob -0.500\n  text    \"\\u{1b}[2J\"\n",
            "  text    \"five\"\nturn 1, under way\n",
        ] {
            assert!(shown.contains(line), "{line} is not in\n{shown}");
        }
        assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown:?}");
        t.pieces.clear();
        t.no_text = "the job names no tokenizer".into();
        let shown = text(&t);
        assert!(shown.contains("text        none: the job names no tokenizer\n"));
        assert!(!shown.contains("  text    "), "{shown}");
    }
}
