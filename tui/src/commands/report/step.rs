//! `robustctl report --step N`: what entered a committed step, and how it came there.
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format::{ratio, time_of_day};
use crate::output::{put, put_json};
use crate::paint::Paint;
use crate::table::Table;
use crate::trajectories::witness::sentence;
use robust_proto::v1;
use robust_shared::ids::TrajectoryId;
use robust_shared::printable::one_line as printable;
use robust_shared::wire::TrajectoryState;
use tokio_stream::StreamExt as _;

/// Prints it; an error where records contradict each other.
pub async fn run(endpoint: &Endpoint, step: u64, json: bool) -> Result<(), CliError> {
    let mut client = endpoint.connect().await?;
    let mut parts = endpoint
        .ask(client.get_step(v1::GetStepRequest { step }))
        .await?;
    let mut whole = v1::StepAccount::default();
    while let Some(part) = parts.next().await {
        join(
            &mut whole,
            part.map_err(|status| CliError::from_status(&status, &endpoint.place()))?,
        );
    }
    match json {
        true => put_json(&whole)?,
        false => put(&text(&whole, Paint::stdout()))?,
    }
    match whole.disagreements.len() {
        0 => Ok(()),
        n => Err(CliError::Failed(format!(
            "{n} records of step {step} contradict each other"
        ))),
    }
}

/// The head comes first; lists of later parts follow it.
fn join(whole: &mut v1::StepAccount, part: v1::StepAccount) {
    if part.line.is_some() {
        *whole = part;
        return;
    }
    whole.trajectories.extend(part.trajectories);
    whole.disagreements.extend(part.disagreements);
}

fn id(t: &v1::StepTrajectory) -> TrajectoryId {
    TrajectoryId {
        batch: t.batch,
        group: t.group,
        member: t.member,
    }
}

fn text(s: &v1::StepAccount, paint: Paint) -> String {
    let trained = s
        .trajectories
        .iter()
        .filter(|t| t.state() == Some(TrajectoryState::Consumed));
    let mut text = format!(
        "step {}, committed at {} by gang {}{}\n{} trajectories, {} trained on\n",
        s.step,
        time_of_day(s.at_ms),
        s.generation,
        s.record
            .map_or_else(String::new, |n| format!(", record {n}")),
        s.trajectories.len(),
        trained.count(),
    );
    if !s.counted {
        text += "a former build committed it: attempts and setbacks are not on record\n";
    }
    if let Some(step) = s.not_kept_since {
        text += &format!("the turns of its trajectories are no longer kept since step {step}\n");
    }
    text += &format!("\n{}", rows(s).render(paint));
    let befell: Vec<_> = s
        .trajectories
        .iter()
        .filter(|t| !t.setbacks.is_empty())
        .collect();
    if !befell.is_empty() {
        text += &format!("\n{}\n", paint.bold("ON THE WAY"));
    }
    for t in befell {
        let name = id(t).to_string();
        if t.setbacks_left_out > 0 {
            text += &format!("{name:<10} {} setbacks before these\n", t.setbacks_left_out);
        }
        for setback in &t.setbacks {
            text += &format!("{name:<10} {}\n", sentence(setback, &time_of_day));
        }
    }
    for disagreement in &s.disagreements {
        text += &format!("disagrees: {}\n", printable(disagreement));
    }
    if s.disagreements.is_empty() {
        text += "\nthe step's record and the records of its trajectories agree\n";
    }
    text
}

fn rows(s: &v1::StepAccount) -> Table {
    let mut table = Table::new(&[
        "TRAJECTORY",
        ">GROUP",
        "STATE",
        ">REWARD",
        ">OLDEST",
        ">NEWEST",
        ">STALE",
        ">ATTEMPT",
        ">TURNS",
        ">TOKENS",
    ]);
    let dash = || "-".to_owned();
    let version = |v: Option<u64>| v.map_or_else(dash, |v| format!("v{v}"));
    for t in &s.trajectories {
        let attempt = match (t.attempt, t.attempts) {
            (Some(attempt), Some(of)) => format!("{attempt}/{of}"),
            (None, Some(of)) => format!("-/{of}"),
            (_, None) => dash(),
        };
        let kept = |n: String| if t.kept { n } else { dash() };
        table.row([
            id(t).to_string(),
            t.group.to_string(),
            t.state.replace('_', " "),
            t.reward.map_or_else(dash, ratio),
            version(t.oldest_version),
            version(t.newest_version),
            t.staleness.map_or_else(dash, |n| n.to_string()),
            attempt,
            kept(t.turn_count.to_string()),
            kept(t.tokens.to_string()),
        ]);
    }
    table
}
