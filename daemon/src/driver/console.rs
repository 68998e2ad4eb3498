//! What the daemon prints on standard output: a line a step and, at the end, a summary.
use robust_proto::v1;
use robust_shared::core::{IncidentOutcome, StepMetrics, View};
use robust_shared::ids::Step;
use robust_shared::printable;
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{Sender, channel};
use tokio::task::JoinHandle;

/// Prints lines beside the loop: whoever reads them may be slow.
#[derive(Debug)]
pub(super) struct Printer {
    lines: Option<Sender<String>>,
    printing: JoinHandle<()>,
}

impl Printer {
    /// Begins.
    pub fn start() -> Self {
        let (lines, wanted) = channel::<String>();
        let printing = tokio::task::spawn_blocking(move || {
            while let Ok(line) = wanted.recv() {
                print(&line);
            }
        });
        Self {
            lines: Some(lines),
            printing,
        }
    }

    /// After all lines before it.
    pub fn print(&self, line: String) {
        if let Some(lines) = &self.lines {
            // When the printer is gone, so is whoever reads.
            let _ = lines.send(line);
        }
    }

    /// Everything is printed when this returns; nothing is any more.
    pub async fn end(&mut self) {
        if self.lines.take().is_some() {
            let _ = (&mut self.printing).await;
        }
    }
}

/// One committed step.
pub(super) fn step_line(step: Step, metrics: &StepMetrics, view: &View) -> String {
    let (width, of_total) = match view.steps_total {
        0 => (1, String::new()),
        total => (total.to_string().len(), format!("/{total}")),
    };
    let figures = match metrics.are_told() {
        true => format!(
            "reward {:.3}  loss {:+.4}  tokens {:>5}",
            metrics.reward, metrics.loss, metrics.tokens
        ),
        false => "reward     -  loss       -  tokens     -".to_owned(),
    };
    format!(
        "step {:>width$}{}  {figures}  {:>5.2} s  version {}  ETTR {:.3}",
        step.0,
        of_total,
        view.step_duration.as_secs_f64(),
        // The one before: this step's version is published from here on.
        view.version.map_or(0, |v| v.0),
        view.ettr.sliding,
    )
}

/// The end of a run.
pub fn summary(report: &v1::Report) -> String {
    let mut lines = vec![
        String::new(),
        format!(
            "job {} {} after {} steps in {:.1} s",
            report.job, report.state, report.steps, report.duration_s
        ),
    ];
    if !report.reason.is_empty() {
        lines.push(format!("reason: {}", report.reason));
    }
    lines.push(rewards(report));
    lines.push(format!(
        "ETTR {:.3}, goodput {:.3}, {} tokens trained on, {} trajectories consumed",
        report.ettr, report.goodput, report.tokens, report.trajectories
    ));
    lines.extend(incidents(&report.incidents));
    lines.join("\n")
}

fn rewards(report: &v1::Report) -> String {
    let (first, last) = (report.reward_first, report.reward_last);
    let window = report.step_lines.len().min(20);
    let ratio = if first > 0.0 {
        format!("{:.2}", last / first)
    } else {
        "-".to_owned()
    };
    format!(
        "mean reward: {first:.3} over the first {window} steps, {last:.3} over the last {window}, \
         ratio {ratio}"
    )
}

fn incidents(incidents: &[v1::Incident]) -> Vec<String> {
    if incidents.is_empty() {
        return vec!["no incidents".to_owned()];
    }
    // 80 columns hold a line of it.
    let heads = format!(
        "{:>3}  {:<10} {:<14} {:>5}  {:>6} {:>7} {:>6} {:>6}  outcome",
        "#", "who", "rule", "step", "detect", "restart", "reconn", "total"
    );
    let mut lines = vec!["incidents, times in ms:".to_owned(), heads];
    lines.extend(incidents.iter().map(|i| {
        // The job may end before an instance is back.
        let ms = |ms: f64| match i.outcome() {
            Some(IncidentOutcome::Recovering) if ms == 0.0 => "-".to_owned(),
            _ => format!("{ms:.0}"),
        };
        format!(
            "{:>3}  {:<10} {:<14} {:>5}  {:>6.0} {:>7} {:>6} {:>6}  {}",
            i.id,
            format!("{}-{}", i.role, i.index),
            i.rule,
            i.step,
            i.detect_ms,
            ms(i.restart_ms),
            ms(i.reconnect_ms),
            ms(i.total_ms),
            i.outcome
        )
    }));
    lines
}

/// Prints a line; a reader that left is no reason to stop a job.
pub fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = match out.is_terminal() {
        true => writeln!(out, "{}", printable::lines(line)),
        false => writeln!(out, "{line}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_says_how_the_reward_grew_and_what_each_incident_cost() {
        let incident = v1::Incident {
            id: 1,
            role: "trainer".into(),
            rule: "exit".into(),
            detect_ms: 12.4,
            restart_ms: 900.0,
            reconnect_ms: 80.0,
            total_ms: 992.4,
            outcome: "recovered".into(),
            ..Default::default()
        };
        let unfinished = v1::Incident {
            detect_ms: 7.0,
            outcome: "recovering".into(),
            total_ms: 0.0,
            reconnect_ms: 0.0,
            restart_ms: 0.0,
            ..incident.clone()
        };
        let report = v1::Report {
            job: "demo".into(),
            state: "completed".into(),
            steps: 2,
            reward_first: 0.2,
            reward_last: 0.5,
            step_lines: vec![v1::StepLine::default(); 2],
            incidents: vec![incident, unfinished],
            ..Default::default()
        };
        let text = summary(&report);
        assert!(text.contains("0.200 over the first 2 steps, 0.500 over the last 2, ratio 2.50"));
        assert!(text.contains("trainer-0") && text.contains("992"), "{text}");
        assert!(
            text.ends_with("7       -      -      -  recovering"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}
