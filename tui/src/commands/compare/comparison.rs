//! All that is said of two runs; a program reads it as JSON.
use super::incidents::{self, Group};
use super::job::{self, Key};
use super::row::Section;
use super::training::{self, Common};
use super::{Side, run};
use robust_proto::v1;
use serde::Serialize;

/// Two runs side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The first run.
    pub a: Head,
    /// The second run.
    pub b: Head,
    /// Figures of both.
    pub sections: Vec<Section>,
    /// Incidents by role, rule and cause.
    pub incidents: Vec<Group>,
    /// The steps at which training is compared; none: they have no step that both tell.
    pub common_steps: Option<Common>,
    /// Keys of the job files that differ; none: one of the files is not known.
    pub job_file: Option<Vec<Key>>,
    /// What has to be known to read it: a sentence each.
    pub notes: Vec<String>,
}

/// Which run it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Head {
    /// What the operator called it.
    pub name: String,
    /// The job's name.
    pub job: String,
    /// How it is, or how it ended.
    pub state: String,
    /// Its mode.
    pub mode: String,
    /// Its policy.
    pub policy: String,
    /// Why it failed, or empty.
    pub reason: String,
}

impl Head {
    fn of(side: &Side) -> Self {
        let report = &side.report;
        Self {
            name: side.name.clone(),
            job: report.job.clone(),
            state: report.state.clone(),
            mode: report.mode.clone(),
            policy: report.policy.clone(),
            reason: report.reason.clone(),
        }
    }
}

impl Comparison {
    /// Of these two; means of the training over so many of the last steps that both have.
    pub fn of(a: &Side, b: &Side, last: u32) -> Self {
        let (common_steps, training) = training::sections(a, b, last).unzip();
        let mut sections = run::sections(a, b);
        sections.extend(incidents::sections(a, b));
        sections.extend(training.unwrap_or_default());
        let mut notes: Vec<String> = [("A", a), ("B", b)]
            .into_iter()
            .flat_map(|(letter, side)| notes(letter, &side.report))
            .collect();
        if common_steps.is_none() {
            notes.push(format!(
                "Training is not compared: they have no step that both tell. A has {}, B has {}.",
                extent(&a.report),
                extent(&b.report)
            ));
        }
        Self {
            a: Head::of(a),
            b: Head::of(b),
            sections,
            incidents: incidents::groups(a, b),
            common_steps,
            job_file: job::differences(a, b),
            notes,
        }
    }
}

/// What one of them does not tell, and why.
fn notes(letter: &str, report: &v1::Report) -> Vec<String> {
    let mut notes = Vec::new();
    if report.time_spent.is_none() {
        notes.push(format!(
            "{letter} does not say what its time went to: its report is of an earlier build, or it never ran."
        ));
    }
    let (told, total) = (report.incidents.len() as u64, incidents::total(report));
    if told < total {
        notes.push(format!(
            "{letter} had {total} incidents: outcomes, times, restarts and incidents by role are those of the last {told}."
        ));
    }
    let is_astray = |line: &&v1::StepLine| {
        let figures = [line.reward, line.loss, line.grad_norm];
        !figures.into_iter().all(f64::is_finite)
    };
    match report.step_lines.iter().filter(is_astray).count() {
        0 => {}
        steps => notes.push(format!(
            "Steps of {letter} whose reward, loss or gradient norm is no number: {steps}; that figure is left out of means."
        )),
    }
    let told = report.step_lines.len() as u64;
    if told < report.steps {
        notes.push(match told {
            0 => format!(
                "{letter} tells none of its {} steps one by one.",
                report.steps
            ),
            _ => format!(
                "{letter} tells the last {told} of its {} steps one by one.",
                report.steps
            ),
        });
    }
    if job::of(report).is_none() {
        notes.push(format!("{letter} does not say its job file."));
    }
    notes
}

/// Its first and last step.
fn extent(report: &v1::Report) -> String {
    match (report.step_lines.first(), report.step_lines.last()) {
        (Some(first), Some(last)) => format!("steps {} to {}", first.step, last.step),
        _ => "none".to_owned(),
    }
}
