//! What an export tells of a run, asked of its daemon.
use super::super::report::{history, keys};
use super::series::Point;
use crate::ending::is_over;
use crate::endpoint::{Client, Endpoint};
use crate::error::CliError;
use robust_proto::v1;
use robust_shared::core::IncidentOutcome;

/// Points of the curve of ETTR that steps find theirs among, the most that a daemon tells.
const CELLS: u32 = 5_000;

/// A run, or what came of it since an earlier look.
pub struct Told {
    /// The job's name.
    pub job: String,
    /// How it is, or how it ended.
    pub state: String,
    /// Unix time of its begin, in milliseconds.
    pub begun_ms: u64,
    /// Unix time of the last that is known, in milliseconds.
    pub until_ms: u64,
    /// Keys of the job file in force with their values as JSON; of the whole run only.
    pub config: Vec<(String, String)>,
    /// Committed steps, in order.
    pub points: Vec<Point>,
    /// Those that are over, in order.
    pub incidents: Vec<v1::Incident>,
    /// Share of the run that each cause took; of the whole run only.
    pub shares: Vec<(String, f64)>,
}

/// All of a run.
pub async fn whole(endpoint: &Endpoint, client: &mut Client) -> Result<Told, CliError> {
    let mut report = report(endpoint, client).await?;
    let newest = std::mem::take(&mut report.step_lines);
    let lines = every_line(endpoint, client, newest).await?;
    let history = history(client, endpoint, CELLS).await?;
    Ok(told(report, lines, &history))
}

/// The lines of all steps of a run, of whose report these are.
pub async fn every_line(
    endpoint: &Endpoint,
    client: &mut Client,
    newest: Vec<v1::StepLine>,
) -> Result<Vec<v1::StepLine>, CliError> {
    // What a daemon of an earlier build has: the newest ones.
    let mut lines = newest;
    let mut last = 0;
    while let Some(next) = page(endpoint, client, last).await? {
        if last == 0 {
            lines.clear();
        }
        let Some(line) = next.last() else { break };
        last = line.step;
        lines.extend(next);
    }
    Ok(lines)
}

async fn report(endpoint: &Endpoint, client: &mut Client) -> Result<v1::Report, CliError> {
    endpoint
        .ask(client.get_report(v1::GetReportRequest {}))
        .await
}

/// Lines of the first steps after one; none: the daemon is of an earlier build, which cannot be asked for them.
async fn page(
    endpoint: &Endpoint,
    client: &mut Client,
    after: u64,
) -> Result<Option<Vec<v1::StepLine>>, CliError> {
    let asked = client.get_steps(v1::GetStepsRequest { after: Some(after) });
    match asked.await {
        Ok(reply) => Ok(Some(reply.into_inner().lines)),
        Err(status) if status.code() == tonic::Code::Unimplemented => Ok(None),
        Err(status) => Err(CliError::from_status(&status, &endpoint.place())),
    }
}

/// Puts together what the daemon told.
pub(super) fn told(report: v1::Report, lines: Vec<v1::StepLine>, history: &v1::History) -> Told {
    let point = |line: v1::StepLine| {
        let curve = at(&history.curve, line.at_ms);
        Point { line, curve }
    };
    let lasted = history.causes.iter().filter(|cause| !cause.waste);
    let lasted: f64 = lasted.map(|cause| cause.seconds).sum();
    let share = |cause: &v1::CauseTime| (cause.cause.clone(), cause.seconds / lasted);
    let over = is_over(&report.state);
    Told {
        begun_ms: history.from_ms,
        until_ms: history.to_ms,
        config: keys(&history.config).unwrap_or_default(),
        points: lines.into_iter().map(point).collect(),
        incidents: closed(report.incidents, 0, over),
        shares: match lasted > 0.0 {
            true => history.causes.iter().map(share).collect(),
            false => Vec::new(),
        },
        job: report.job,
        state: report.state,
    }
}

/// The curve where a step was committed: its first point that is not before that.
fn at(curve: &[v1::CurvePoint], at_ms: u64) -> Option<v1::CurvePoint> {
    let next = curve.partition_point(|point| point.at_ms < at_ms);
    curve.get(next).or(curve.last()).copied()
}

fn is_closed(incident: &v1::Incident) -> bool {
    incident.outcome() != Some(IncidentOutcome::Recovering)
}

/// Incidents after one, in order, that are over. While the job runs they end before the first that is not: a number is
/// not written after a higher one.
fn closed(all: Vec<v1::Incident>, after: u64, over: bool) -> Vec<v1::Incident> {
    let later = all.into_iter().filter(|incident| incident.id > after);
    match over {
        true => later.filter(is_closed).collect(),
        false => later.take_while(is_closed).collect(),
    }
}

/// The end of what is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    job: String,
    begun_ms: u64,
    /// The last step, and when it was committed; of none both are 0.
    step: u64,
    at_ms: u64,
    /// The number of the last incident.
    incident: u64,
    /// When the last step was committed, as the status said at the last look; none: it did not say it.
    shown_ms: Option<u64>,
}

impl Known {
    /// Of a run that was written whole.
    pub fn of(told: &Told) -> Self {
        let begin = Self {
            job: told.job.clone(),
            begun_ms: told.begun_ms,
            step: 0,
            at_ms: 0,
            incident: 0,
            shown_ms: None,
        };
        begin.and(told)
    }

    /// The same after a look at this status. A status is compared with a status: it takes the time of a step itself,
    /// and the store does.
    pub fn seen(mut self, status: &v1::Status) -> Self {
        self.shown_ms = status.last_step.map(|line| line.at_ms);
        self
    }

    /// The same with what was written behind it.
    pub fn and(mut self, told: &Told) -> Self {
        if let Some(Point { line, .. }) = told.points.last() {
            (self.step, self.at_ms) = (line.step, line.at_ms);
        }
        if let Some(incident) = told.incidents.last() {
            self.incident = incident.id;
        }
        self
    }

    /// Whether that run is the one that the daemon has.
    pub fn is_of(&self, status: &v1::Status) -> bool {
        (&self.job, self.begun_ms) == (&status.job, status.started_ms)
    }

    /// Whether nothing came since. A step of the same number may have been done again.
    pub fn has_all(&self, status: &v1::Status) -> bool {
        let shown_ms = status.last_step.map(|line| line.at_ms);
        // What is after one that is not over is not written yet either.
        let mut incidents = status.incidents.iter();
        let next = incidents.find(|incident| incident.id > self.incident);
        (self.step, self.shown_ms) == (status.step, shown_ms)
            && next.is_none_or(|incident| !is_closed(incident))
    }

    /// Whether no incident since is too old for the status, which has the last ones only.
    pub(super) fn reaches(&self, status: &v1::Status) -> bool {
        let oldest = status.incidents.first();
        oldest.is_none_or(|oldest| oldest.id <= self.incident + 1)
    }
}

/// What came since; none where it does not go on from what is known, as the last step was done again.
pub async fn since(
    endpoint: &Endpoint,
    client: &mut Client,
    known: &Known,
    status: &v1::Status,
) -> Result<Option<Told>, CliError> {
    // The last one too: that it is the same one shows that nothing before it was done again.
    let lines = page(endpoint, client, known.step.saturating_sub(1)).await?;
    let told = match lines {
        // A daemon reads every step of a run for its report.
        Some(lines) if known.reaches(status) => told_by(status, lines),
        Some(step_lines) => v1::Report {
            step_lines,
            ..report(endpoint, client).await?
        },
        None => report(endpoint, client).await?,
    };
    Ok(later(told, known, status))
}

/// What a look needs of a report, by the status and these lines.
pub(super) fn told_by(status: &v1::Status, step_lines: Vec<v1::StepLine>) -> v1::Report {
    v1::Report {
        job: status.job.clone(),
        state: status.state.clone(),
        incidents: status.incidents.clone(),
        step_lines,
        ..Default::default()
    }
}

/// What of a report comes after what is known.
pub(super) fn later(report: v1::Report, known: &Known, status: &v1::Status) -> Option<Told> {
    // Of an earlier build's daemon those before it are there too.
    let mut lines = report.step_lines.into_iter();
    if known.step > 0 {
        let last = lines.find(|line| line.step >= known.step)?;
        if (last.step, last.at_ms) != (known.step, known.at_ms) {
            return None;
        }
    }
    let now = v1::CurvePoint {
        at_ms: status.now_ms,
        ettr_sliding: status.ettr_sliding,
        goodput_sliding: status.goodput_sliding,
        ettr: status.ettr,
        goodput: status.goodput,
    };
    let point = |line| Point {
        line,
        curve: Some(now),
    };
    Some(Told {
        job: report.job,
        state: report.state,
        begun_ms: known.begun_ms,
        until_ms: status.now_ms,
        config: Vec::new(),
        points: lines.map(point).collect(),
        incidents: closed(report.incidents, known.incident, false),
        shares: Vec::new(),
    })
}
