//! The report of a run, from the store alone, so that it can be made after the fact.
mod history;

pub use history::{HistoryError, history};

use crate::driver::{self, incident};
use crate::store::{Store, StoreError, StoredStep};
use robust_proto::v1;
use robust_shared::ids::Step;
use robust_shared::wire::{JobState, Window};

/// Steps over which the first and the last reward are averaged.
const WINDOW: usize = 20;
/// Incidents and steps that are told one by one, and incidents with their evidence, the newest of
/// each: a report of a long run must fit into one message.
const INCIDENTS: usize = 1_000;
const LINES: usize = 10_000;
const EVIDENCE: usize = 20;
/// Steps that are told at once where only they are asked for.
const SOME: u64 = 2_000;

/// The report as of now; what is not in the store comes from the status.
pub fn report(
    store: &Store,
    status: &v1::Status,
    samples_per_step: u64,
) -> Result<v1::Report, StoreError> {
    let steps = store.steps()?;
    let incidents = store.incidents()?;
    let total = incidents.len() as u64;
    let incidents = newest(&incidents, INCIDENTS).iter().map(incident).collect();
    let mut report = assemble(&steps, incidents, status, samples_per_step);
    report.incidents_total = total;
    for old in report.incidents.iter_mut().rev().skip(EVIDENCE) {
        old.evidence.clear();
    }
    Ok(report)
}

fn newest<T>(all: &[T], count: usize) -> &[T] {
    all.get(all.len().saturating_sub(count)..).unwrap_or(all)
}

fn assemble(
    steps: &[StoredStep],
    incidents: Vec<v1::Incident>,
    status: &v1::Status,
    samples_per_step: u64,
) -> v1::Report {
    let rewards: Vec<f64> = steps.iter().map(|s| s.metrics.reward).collect();
    let (reward_first, reward_last) = first_and_last(&rewards);
    let last_ms = steps.last().map_or(0, |s| s.at.millis());
    let over = status.state().is_some_and(JobState::is_over);
    // A run that is over took until its last step, however long the daemon lingers.
    let until = if over && last_ms > 0 {
        last_ms
    } else {
        status.now_ms
    };
    v1::Report {
        job: status.job.clone(),
        mode: status.mode.clone(),
        policy: status.policy.clone(),
        state: status.state.clone(),
        steps: steps.last().map_or(0, |s| s.step.0),
        duration_s: until.saturating_sub(status.started_ms) as f64 / 1e3,
        reward_first,
        reward_last,
        ettr: status.ettr,
        goodput: status.goodput,
        tokens: steps.iter().map(|s| s.metrics.tokens).sum(),
        incidents,
        step_lines: newest(&lines(steps, status.started_ms), LINES).to_vec(),
        // Each committed step consumed exactly one batch (I-3).
        trajectories: steps.len() as u64 * samples_per_step,
        trajectories_stale: status.trajectories_stale,
        trajectories_given_back: status.trajectories_given_back,
        reason: status.reason.clone(),
        hosted: status.hosted.clone(),
        promises: status.promises.clone(),
        time_spent: status.time_spent.clone().map(whole_job),
        trajectories_set_aside: Some(status.trajectories_set_aside),
        trajectories_discarded: Some(status.trajectories_discarded),
        steps_repeated: Some(status.steps_repeated),
        restarts_planned: restarts_planned(&status.roles),
        ..Default::default()
    }
}

/// Of the account of the time what is of the whole job: shorter windows end now, not with the run.
fn whole_job(mut spent: v1::TimeSpent) -> v1::TimeSpent {
    spent
        .windows
        .retain(|window| window.name() == Some(Window::Job));
    spent.stretches.clear();
    spent
}

/// Restarts without a fault; none where nothing is known of the instances, as of a job that is not begun again.
fn restarts_planned(roles: &[v1::RoleStatus]) -> Option<u64> {
    let planned = roles.iter().map(|role| u64::from(role.restarts_planned));
    (!roles.is_empty()).then(|| planned.sum())
}

/// The lines of the first steps after this one, or of the newest, in order, of a job that began then (Unix ms).
pub fn some_lines(
    store: &Store,
    started_ms: u64,
    after: Option<Step>,
) -> Result<Vec<v1::StepLine>, StoreError> {
    let Some((_, last)) = store.extent()? else {
        return Ok(Vec::new());
    };
    let (before, until) = part(after, last);
    // The one before tells how long the first took.
    let steps = store.steps_between(before, until)?;
    let lines = lines(&steps, started_ms).into_iter();
    Ok(lines.filter(|line| line.step > before.0).collect())
}

/// The step before the first one that is told, and the last one.
fn part(after: Option<Step>, last: Step) -> (Step, Step) {
    let before = after.map_or(last.0.saturating_sub(SOME), |step| step.0);
    (Step(before), Step(before.saturating_add(SOME).min(last.0)))
}

fn lines(steps: &[StoredStep], started_ms: u64) -> Vec<v1::StepLine> {
    let before = std::iter::once(started_ms).chain(steps.iter().map(|s| s.at.millis()));
    steps
        .iter()
        .zip(before)
        .map(|(step, before)| line(step, before))
        .collect()
}

/// One committed step as operators see it; `before_ms` is when the one before was committed.
pub fn line(step: &StoredStep, before_ms: u64) -> v1::StepLine {
    let seconds = step.at.millis().saturating_sub(before_ms) as f64 / 1e3;
    driver::step_line(step.step, step.at, &step.metrics, seconds)
}

/// Mean reward of the first and of the last steps (20 each, fewer in a shorter run).
pub fn first_and_last(rewards: &[f64]) -> (f64, f64) {
    let window = WINDOW.min(rewards.len());
    (
        mean(&rewards[..window]),
        mean(&rewards[rewards.len() - window..]),
    )
}

fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        0.0
    } else {
        values.iter().sum::<f64>() / values.len() as f64
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::Remembered;
    use robust_shared::core::{Record, StepMetrics};
    use robust_shared::ids::Generation;
    use robust_shared::time::Time;

    fn step(number: u64, at_ms: u64, reward: f64) -> StoredStep {
        StoredStep {
            step: Step(number),
            at: Time(at_ms * 1000),
            generation: Generation(1),
            metrics: StepMetrics {
                reward,
                tokens: 10,
                ..Default::default()
            },
            record: None,
            kept_from: None,
        }
    }

    fn status(state: &str) -> v1::Status {
        let state = state.to_owned();
        v1::Status {
            state,
            started_ms: 1_000,
            now_ms: 60_000,
            ..Default::default()
        }
    }

    #[test]
    fn first_and_last_rewards_are_means_of_twenty_steps_or_of_what_there_is() {
        let climbing: Vec<f64> = (0..100).map(f64::from).collect();
        assert_eq!(first_and_last(&climbing), (9.5, 89.5));
        assert_eq!(first_and_last(&climbing[..4]), (1.5, 1.5));
        assert_eq!(first_and_last(&[]), (0.0, 0.0));
    }

    #[test]
    fn a_finished_run_took_until_its_last_step_and_a_running_one_until_now() {
        let steps = [step(1, 2_000, 0.5), step(2, 4_500, 1.0)];
        let done = assemble(&steps, Vec::new(), &status("completed"), 4);
        assert_eq!(
            (done.duration_s, done.tokens, done.trajectories),
            (3.5, 20, 8)
        );
        let seconds: Vec<f64> = done.step_lines.iter().map(|l| l.seconds).collect();
        assert_eq!(seconds, [1.0, 2.5]);
        assert_eq!(
            assemble(&steps, Vec::new(), &status("running"), 4).duration_s,
            59.0
        );
        assert_eq!(
            assemble(&[], Vec::new(), &status("failed"), 4).duration_s,
            59.0
        );
    }

    #[test]
    fn time_spent_is_told_of_the_whole_job_and_planned_restarts_where_instances_are_known() {
        let window = |name: &str| v1::TimeWindow {
            name: name.to_owned(),
            ..Default::default()
        };
        let role = |restarts_planned| v1::RoleStatus {
            restarts_planned,
            ..Default::default()
        };
        let known = v1::Status {
            time_spent: Some(v1::TimeSpent {
                windows: vec![window("5m"), window("job")],
                stretches: vec![v1::TimeStretch::default()],
            }),
            trajectories_set_aside: 2,
            roles: vec![role(1), role(3)],
            ..status("running")
        };
        let told = assemble(&[], Vec::new(), &known, 4);
        let spent = told.time_spent.unwrap();
        assert_eq!(spent.windows, [window("job")]);
        assert!(spent.stretches.is_empty());
        assert_eq!(told.trajectories_set_aside, Some(2));
        assert_eq!(told.restarts_planned, Some(4));
        let unknown = assemble(&[], Vec::new(), &status("starting"), 4);
        assert_eq!((unknown.time_spent, unknown.restarts_planned), (None, None));
    }

    #[test]
    fn as_many_steps_are_told_as_fit_the_newest_or_the_first_after_a_step() {
        let last = Step(SOME + 5);
        let told = |after: Option<u64>| {
            let (before, until) = part(after.map(Step), last);
            (before.0, until.0)
        };
        assert_eq!(told(None), (5, SOME + 5));
        assert_eq!(told(Some(0)), (0, SOME));
        assert_eq!(told(Some(SOME)), (SOME, SOME + 5));
        assert_eq!(part(None, Step(3)), (Step(0), Step(3)));
    }

    #[test]
    fn lines_of_steps_are_read_from_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path()).unwrap();
        let numbers = |after: Option<u64>| {
            let lines = some_lines(&store, 0, after.map(Step)).unwrap();
            lines.iter().map(|line| line.step).collect::<Vec<_>>()
        };
        assert_eq!(numbers(None), [0; 0]);
        let committed = |number| Record::Committed {
            step: Step(number),
            generation: Generation(1),
            trajectories: Vec::new(),
            metrics: StepMetrics::default(),
            provenance: None,
        };
        let records = (1..=3).map(committed).collect();
        store.record(records, Remembered::default()).wait().unwrap();
        assert_eq!(numbers(None), [1, 2, 3]);
        assert_eq!(numbers(Some(1)), [2, 3]);
        assert_eq!(numbers(Some(3)), [0; 0]);
        assert_eq!(numbers(Some(u64::MAX)), [0; 0]);
    }
}
