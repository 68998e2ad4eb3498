//! `robustctl report`.
use super::{put, put_json, status};
use crate::cli::ReportArgs;
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format::{clock, millis, ratio, time_of_day};
use crate::paint::Paint;
use crate::table::Table;
use robust_proto::v1;

/// Prints the summary of the run so far.
pub async fn run(endpoint: &Endpoint, args: &ReportArgs, json: bool) -> Result<(), CliError> {
    let mut client = endpoint.connect().await?;
    let report = endpoint
        .ask(client.get_report(v1::GetReportRequest {}))
        .await?;
    if json {
        return put_json(&report);
    }
    let paint = Paint::stdout();
    let mut text = summary(&report, paint);
    if !report.incidents.is_empty() {
        text += &format!("\n{}", status::incidents(&report.incidents).render(paint));
    }
    if args.steps {
        text += &format!("\n{}", steps(&report).render(paint));
    }
    put(&text)
}

fn summary(r: &v1::Report, paint: Paint) -> String {
    let gain = if r.reward_first > 0.0 {
        format!(", {:.2} times", r.reward_last / r.reward_first)
    } else {
        String::new()
    };
    let recovered: Vec<f64> = r
        .incidents
        .iter()
        .filter(|i| i.outcome == "recovered")
        .map(|i| i.total_ms)
        .collect();
    let mean = if recovered.is_empty() {
        String::new()
    } else {
        let mean = recovered.iter().sum::<f64>() / recovered.len() as f64;
        format!(
            ", {} recovered in {} on average",
            recovered.len(),
            millis(mean)
        )
    };
    let mut text = format!(
        "{}  mode {}, policy {}, {}\n\
         steps      {} in {}\n\
         reward     {} first 20 steps, {} last 20 steps{gain}\n\
         ettr       {} overall, goodput {}\n\
         generated  {} tokens in {} trajectories{}\n\
         incidents  {}{mean}\n",
        paint.bold(&r.job),
        r.mode,
        r.policy,
        paint.word(&r.state),
        r.steps,
        clock(r.duration_s),
        ratio(r.reward_first),
        ratio(r.reward_last),
        ratio(r.ettr),
        ratio(r.goodput),
        r.tokens,
        r.trajectories,
        match r.trajectories_stale {
            0 => String::new(),
            stale => format!(", {stale} more were too old to train on"),
        },
        r.incidents.len(),
    );
    if !r.reason.is_empty() {
        text += &format!("reason     {}\n", r.reason);
    }
    text
}

fn steps(r: &v1::Report) -> Table {
    let mut table = Table::new(&[
        ">STEP",
        "AT",
        ">REWARD",
        ">LOSS",
        ">GRAD NORM",
        ">TOKENS",
        ">STALENESS",
        ">TIME",
    ]);
    for s in &r.step_lines {
        table.row([
            s.step.to_string(),
            time_of_day(s.at_ms),
            ratio(s.reward),
            format!("{:.4}", s.loss),
            format!("{:.3}", s.grad_norm),
            s.tokens.to_string(),
            s.staleness.to_string(),
            millis(s.seconds * 1000.0),
        ]);
    }
    table
}
