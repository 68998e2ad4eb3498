//! A drill's result as a document: what was rehearsed, what was expected and found, what struck and how
//! the job recovered. Markdown, or the same as plain text.
use super::outcome::{DrillOutcome, SeriesOutcome};
use super::table;
use crate::format::{millis, who};
use crate::machine::cores;
use crate::paint::Paint;
use robust_proto::v1;
use std::fmt::Write as _;

/// The whole document.
pub fn text(drill: &DrillOutcome, about: &str, markdown: bool) -> String {
    match markdown {
        true => in_markdown(drill, about),
        false => plain(drill, about),
    }
}

fn result(drill: &DrillOutcome) -> String {
    match drill.missed() {
        0 => "passed: every expectation was met".to_owned(),
        n => format!("failed: {n} of the expectations were not met"),
    }
}

fn plain(drill: &DrillOutcome, about: &str) -> String {
    let mut text = table::text(drill, Paint::plain());
    let _ = write!(text, "\n{}\n\n{about}\n", result(drill));
    for series in &drill.series {
        for line in struck(series).into_iter().chain(recoveries(series)) {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}

fn in_markdown(drill: &DrillOutcome, about: &str) -> String {
    let mut text = format!(
        "# Drill {}\n\n**{}**\n\n{about}\n",
        drill.name,
        result(drill)
    );
    for series in &drill.series {
        let (name, mode, steps) = (&series.name, series.mode.name(), series.steps);
        let _ = write!(text, "\n## {name}: mode {mode}, {steps} steps\n\n");
        text += "| expected | result | found |\n| --- | --- | --- |\n";
        for (expectation, verdict) in &series.verdicts {
            let word = if verdict.held { "met" } else { "**not met**" };
            let (expected, found) = (cell(&expectation.text), cell(&verdict.found));
            let _ = writeln!(text, "| {expected} | {word} | {found} |");
        }
        text += "\n| run | time | ETTR | goodput | incidents |\n| --- | --- | --- | --- | --- |\n";
        for run in &series.runs {
            let r = &run.report;
            let _ = writeln!(
                text,
                "| {} | {:.1} s | {:.3} | {:.3} | {} |",
                cell(&run.name),
                r.duration_s,
                r.ettr,
                r.goodput,
                r.incidents.len()
            );
        }
        text += "\n";
        for line in struck(series).into_iter().chain(recoveries(series)) {
            let _ = writeln!(text, "- {}", cell(&line));
        }
    }
    let (before, after) = (drill.load_before[0], drill.load_after[0]);
    let _ = write!(
        text,
        "\nEvery process, kill and restart above was real; load {before:.1} before and {after:.1} \
         after, on {} cores.\n",
        cores()
    );
    text
}

/// What was done to the runs with faults.
fn struck(series: &SeriesOutcome) -> Vec<String> {
    let faults = series.strikes.iter();
    faults.map(|strike| format!("fault: {strike}")).collect()
}

/// How each run recovered.
fn recoveries(series: &SeriesOutcome) -> Vec<String> {
    let of_run = |run: &super::outcome::RunOutcome| {
        let name = run.name.clone();
        let incidents = run.report.incidents.iter();
        incidents
            .map(|i| format!("run {name}: {}", incident(i)))
            .collect::<Vec<_>>()
    };
    series.runs.iter().flat_map(of_run).collect()
}

fn incident(i: &v1::Incident) -> String {
    format!(
        "{} by rule {}: {} (detect {}, restart {}, reconnect {}, total {}): {}",
        who(&i.role, i.index),
        i.rule,
        i.plan,
        millis(i.detect_ms),
        millis(i.restart_ms),
        millis(i.reconnect_ms),
        millis(i.total_ms),
        i.outcome
    )
}

/// Text that is neither a column nor a line of its own.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::drill;
    use super::*;

    #[test]
    fn both_forms_tell_the_result_each_verdict_and_each_recovery() {
        let mut drill = drill("aa");
        drill.series[0].runs[2].report.incidents[0].plan = "restart a|b only".to_owned();
        for markdown in [true, false] {
            let text = text(&drill, "One dies.", markdown);
            for words in [
                "failed: 1 of the expectations",
                "One dies.",
                "overhead_role <= overhead_task / 6",
                "3.000 against 2.500",
                "(detect 50 ms, restart 300 ms",
            ] {
                assert!(text.contains(words), "{words:?} is not in:\n{text}");
            }
        }
        let markdown = text(&drill, "", true);
        assert!(markdown.contains("restart a\\|b only"), "{markdown}");
        assert!(markdown.contains("| ettr_role >= 0.85 | met | 0.920 against 0.850 |"));
    }
}
