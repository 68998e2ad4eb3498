//! A drill against the job of a daemon that runs already: the same strikes, counted from now, and what
//! the job shows for them. The job goes on afterwards.
use super::Manner;
use super::facts::{Before, gather, incidents};
use super::follow::{Follower, Host, Until, protected};
use super::outcome::{DrillOutcome, RunOutcome, SeriesOutcome};
use super::progress::Progress;
use super::striker::Striker;
use crate::drills::usage;
use crate::ending::is_over;
use crate::endpoint::{Client, Endpoint};
use crate::error::CliError;
use crate::machine::load;
use robust_proto::v1;
use robust_shared::drill::{Drill, Expectation, Ground, SeriesPlan};
use robust_shared::ids::Role;
use robust_shared::job::{Mode, Moments};
use std::time::{Duration, Instant};

/// How long whoever watches over a daemon may take to start it again.
const STARTED_AGAIN_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Strikes the job and waits until it got over it.
pub async fn run(
    drill: &Drill,
    endpoint: &Endpoint,
    manner: Manner,
) -> Result<DrillOutcome, CliError> {
    let load_before = load();
    let mut client = endpoint.connect().await?;
    let begin = endpoint
        .ask(client.get_status(v1::GetStatusRequest {}))
        .await?;
    check(&begin, manner.i_know)?;
    let (run, strikes, expect) = drill.attach(&ground(&begin)).map_err(usage)?;
    let (job, steps) = (begin.job.clone(), begin.steps_total);
    let mut progress = Progress::start(job, steps, strikes.len(), manner.json);
    progress.skip_incidents(&begin);
    let before = Before::now(endpoint, &mut client, &begin).await?;
    let step = Duration::from_secs_f64(begin.step_seconds.clamp(0.0, 1e6));
    let follower = Follower {
        striker: Striker::attached(strikes.clone(), step),
        i_know: manner.i_know,
        until: Until::GotOver,
        hopeless: None,
        progress: &mut progress,
    };
    let mut host = Running(endpoint);
    let mut followed = follower.run(&mut host).await?;
    let report = endpoint
        .ask(followed.client.get_report(v1::GetReportRequest::default()))
        .await?;
    let check_store = expect.iter().any(Expectation::asks_the_store);
    let mut facts = gather(endpoint, &mut followed, &report, &before, check_store).await?;
    let report = during(report, &before, &begin, &followed.status);
    (facts.ettr, facts.goodput) = (report.ettr, report.goodput);
    let repeated = followed
        .status
        .steps_repeated
        .saturating_sub(begin.steps_repeated);
    let outcome = RunOutcome {
        name: run,
        report,
        facts,
        steps_repeated: repeated,
        weights: None,
        load_before,
        load_after: load(),
    };
    progress.finish(&outcome);
    let plan = SeriesPlan {
        name: begin.job.clone(),
        mode: mode(&begin.mode),
        runs: Vec::new(),
        expect,
    };
    let mut series = SeriesOutcome::new(&plan, vec![outcome]);
    (series.steps, series.strikes) = (
        followed.status.step - begin.step.min(followed.status.step),
        strikes,
    );
    Ok(DrillOutcome {
        name: drill.name.clone(),
        series: vec![series],
        load_before,
        load_after: load(),
    })
}

/// A job that may be struck.
fn check(status: &v1::Status, i_know: bool) -> Result<(), CliError> {
    let (job, state) = (&status.job, &status.state);
    if is_over(state) {
        let text = format!("job {job} is {state}; there is nothing to strike");
        return Err(CliError::Refused(text));
    }
    match status.protected && !i_know {
        true => Err(protected(job)),
        false => Ok(()),
    }
}

/// What is left of the job.
fn ground(status: &v1::Status) -> Ground {
    let of = |role: Role| {
        status
            .roles
            .iter()
            .filter(|r| r.role == role.name())
            .count() as u32
    };
    Ground {
        steps: match status.steps_total {
            // Its trainer says when it is over.
            0 => u32::MAX.into(),
            total => total.saturating_sub(status.step),
        },
        counts: Role::ALL.map(|role| (role, of(role))).to_vec(),
        nodes: status.nodes.iter().map(|n| n.name.clone()).collect(),
        // The daemon knows, and refuses what does not come.
        moments: Moments::default(),
    }
}

/// The report of the drill's time alone: its incidents, its steps, the means over it.
fn during(
    mut report: v1::Report,
    before: &Before,
    begin: &v1::Status,
    end: &v1::Status,
) -> v1::Report {
    let length = |s: &v1::Status| s.now_ms.saturating_sub(s.started_ms) as f64 / 1000.0;
    let (from, to) = (length(begin), length(end));
    let mean = |before: f64, after: f64| match to - from {
        span if span > 0.0 => ((after * to - before * from) / span).clamp(0.0, 1.0),
        _ => after,
    };
    report.ettr = mean(begin.ettr, end.ettr);
    report.goodput = mean(begin.goodput, end.goodput);
    report.duration_s = to - from;
    report.incidents = incidents(&report, before).cloned().collect();
    report.step_lines.retain(|line| line.step > begin.step);
    report
}

fn mode(name: &str) -> Mode {
    let all = [Mode::Sync, Mode::SemiSync, Mode::Async];
    let known = all.into_iter().find(|m| m.name() == name);
    known.unwrap_or(Mode::Async)
}

/// A daemon that somebody else runs.
struct Running<'a>(&'a Endpoint);

impl Host for Running<'_> {
    fn endpoint(&self) -> Endpoint {
        self.0.clone()
    }

    async fn connect(&mut self) -> Result<Client, CliError> {
        self.0.reach().await
    }

    /// Waits until somebody started it again.
    async fn revive(&mut self) -> Result<(), CliError> {
        let begin = Instant::now();
        loop {
            match self.0.reach().await {
                Ok(_) => return Ok(()),
                Err(e) if begin.elapsed() > STARTED_AGAIN_WITHIN => return Err(e),
                Err(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    fn last_words(&self) -> String {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_of_the_drills_time_alone() {
        let status = |now_s: u64, ettr: f64, step| v1::Status {
            started_ms: 1_000,
            now_ms: 1_000 + now_s * 1_000,
            ettr,
            goodput: ettr,
            step,
            ..Default::default()
        };
        let line = |step| v1::StepLine {
            step,
            ..Default::default()
        };
        let incident = |id| v1::Incident {
            id,
            ..Default::default()
        };
        let report = v1::Report {
            step_lines: vec![line(1), line(2), line(3)],
            incidents: vec![incident(4), incident(5)],
            ..Default::default()
        };
        let before = Before {
            incident: 4,
            ..Before::default()
        };
        // 100 s at 0.9, then 100 s of which half counts.
        let during = during(report, &before, &status(100, 0.9, 2), &status(200, 0.7, 3));
        assert!((during.ettr - 0.5).abs() < 1e-9 && during.duration_s == 100.0);
        assert_eq!(during.incidents, [incident(5)]);
        assert_eq!(during.step_lines, [line(3)]);
    }
}
