//! A drill's result as text.
use super::outcome::{DrillOutcome, RunOutcome, SeriesOutcome};
use crate::format::{millis, ratio};
use crate::machine::cores;
use crate::paint::Paint;
use crate::table::Table;
use robust_shared::drill::Verdict;
use robust_shared::job::Policy;

/// The paper's task restart (over 300 s) against its steps of roughly two minutes.
const PAPERS_RESTART_OVER_STEP: f64 = 2.5;

/// Every series' table, what a restart costs in steps, and each expectation's verdict.
pub fn text(drill: &DrillOutcome, paint: Paint) -> String {
    let mut text = paint.bold(&format!("drill {}", drill.name)) + "\n";
    for series in &drill.series {
        text += &format!("\n{}", one(series, paint));
    }
    let [before, after] = [drill.load_before, drill.load_after].map(|l| format!("{:.1}", l[0]));
    text += &format!(
        "\nevery process, kill and restart above was real; load {before} before and {after} \
         after, on {} cores\n",
        cores()
    );
    text
}

fn one(series: &SeriesOutcome, paint: Paint) -> String {
    let mut text = format!(
        "{}  mode {}, {} steps, {} faults a run\n",
        paint.bold(&series.name),
        series.mode.name(),
        series.steps,
        series.strikes.len()
    );
    let Some(first) = series.runs.first() else {
        return text;
    };
    text += &runs(&series.runs, first).render(paint);
    let step_s = first.median_step_s();
    for run in series
        .runs
        .iter()
        .filter(|r| !r.report.incidents.is_empty() && series.runs.len() > 1)
    {
        text += &format!(
            "a restart with policy {} took {} = {:.1} fault-free steps of {}\n",
            run.report.policy,
            millis(run.restart_s() * 1000.0),
            run.restart_s() / step_s,
            millis(step_s * 1000.0)
        );
    }
    if series
        .runs
        .iter()
        .any(|r| r.report.policy() == Some(Policy::Task))
    {
        text += &format!("(a task restart in the paper: {PAPERS_RESTART_OVER_STEP} steps)\n");
    }
    for (expectation, verdict) in &series.verdicts {
        text += &line(&expectation.text, verdict, paint);
    }
    text
}

fn runs(runs: &[RunOutcome], first: &RunOutcome) -> Table {
    let mut table = Table::new(&[
        "RUN",
        ">TIME",
        ">OVERHEAD",
        ">ETTR",
        ">GOODPUT",
        ">RESTARTS",
        ">REPEATED",
        ">DETECT",
        ">RESTART",
        ">RECONNECT",
        "WEIGHTS",
    ]);
    for run in runs {
        let (r, free) = (&run.report, first.report.duration_s);
        table.row([
            run.name.clone(),
            format!("{:.1} s", r.duration_s),
            match runs.len() {
                1 => "-".to_owned(),
                _ => format!("{:+.1}%", (r.duration_s / free - 1.0) * 100.0),
            },
            ratio(r.ettr),
            ratio(r.goodput),
            r.incidents.len().to_string(),
            run.steps_repeated.to_string(),
            millis(run.of_incidents(|i| i.detect_ms)),
            millis(run.of_incidents(|i| i.restart_ms)),
            millis(run.of_incidents(|i| i.reconnect_ms)),
            run.weights
                .iter()
                .flat_map(|w| w.chars().take(12))
                .collect(),
        ]);
    }
    table
}

fn line(text: &str, verdict: &Verdict, paint: Paint) -> String {
    let word = match verdict.held {
        true => paint.word("done"),
        false => paint.word("failed"),
    };
    format!("{word:<6}  {text}  ({})\n", verdict.found)
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::drill;
    use super::*;

    #[test]
    fn the_table_shows_costs_in_steps_and_every_verdict() {
        let mut drill = drill("aa");
        drill.series[0].runs[1].report.policy = "task".to_owned();
        let text = text(&drill, Paint::plain());
        for words in [
            "task  65.0 s    +30.0%  0.750",
            "policy task took 1.25 s = 2.5 fault-free steps of 500 ms",
            "done    ettr_role >= 0.85  (0.920 against 0.850)",
            "failed  overhead_role <= overhead_task / 6  (3.000 against 2.500)",
        ] {
            assert!(text.contains(words), "{words:?} is not in:\n{text}");
        }
    }
}
