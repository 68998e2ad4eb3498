//! The whole run as a report draws it, from the store alone: the ledger of intervals, the pages of the
//! history, the steps. Read in pieces and told in parts, so that neither side holds a week.
use super::line;
use crate::driver::{self, AdoptError, Past, SavedError};
use crate::state::StateDir;
use crate::store::{Store, StoreError, StoredStep};
use robust_proto::v1;
use robust_shared::core::{Health, Record};
use robust_shared::ettr::{Cause, Curve};
use robust_shared::history::{Overview, Road, Row};
use robust_shared::time::Time;
use robust_shared::wire::JobState;

/// Points of a curve and stretches of a lane where none are asked for.
const CELLS: usize = 600;
/// At most, whatever is asked for.
const MOST_CELLS: usize = 5_000;
/// How often the state is read until it fits together.
const READS: usize = 8;
/// Journal records read at a time.
const RECORDS: usize = 4_096;

/// Why it cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was in force.
    #[error(transparent)]
    Past(#[from] AdoptError),
    /// The job file.
    #[error("the job file of the state directory cannot be read: {0}")]
    Job(String),
}

/// Tells the parts in order, until there are no more or nobody wants one (`tell` is false).
pub fn history(
    store: &Store,
    state: &StateDir,
    status: &v1::Status,
    cells: u32,
    tell: &mut dyn FnMut(v1::History) -> bool,
) -> Result<(), HistoryError> {
    let cells = match cells {
        0 => CELLS,
        asked => (asked as usize).min(MOST_CELLS),
    };
    let curve = curve(store)?;
    let (from, to) = extent(store, status, &curve)?;
    let (config, revision) = config(store, state)?;
    let head = v1::History {
        from_ms: from.millis(),
        to_ms: to.millis(),
        config,
        revision,
        curve: points(&curve, cells),
        curve_resolution_s: curve.resolution().as_secs_f64(),
        causes: curve.causes().iter().map(cause).collect(),
        steps: steps(&store.steps()?, from.millis(), cells),
        ..Default::default()
    };
    if !tell(head) {
        return Ok(());
    }
    let mut overview = Overview::new(from, to, cells);
    store.pages(&mut |page| overview.add(page))?;
    if !tell(moved(&overview)) {
        return Ok(());
    }
    for row in overview.rows() {
        let lanes = vec![lane(&row)];
        let part = v1::History {
            lanes,
            ..Default::default()
        };
        if !tell(part) {
            return Ok(());
        }
    }
    Ok(())
}

fn curve(store: &Store) -> Result<Curve, StoreError> {
    let (mut curve, mut next) = (Curve::default(), 0);
    loop {
        let records = store.journal_since(next, RECORDS)?;
        let Some((last, _)) = records.last() else {
            return Ok(curve);
        };
        next = last + 1;
        for (_, record) in &records {
            if let Record::Interval(interval) = record {
                curve.add(interval);
            }
        }
    }
}

/// From the job's begin to now, or to the last that is known of one that is over.
fn extent(store: &Store, status: &v1::Status, curve: &Curve) -> Result<(Time, Time), StoreError> {
    let from = Time(status.started_ms.saturating_mul(1_000));
    let running = matches!(
        status.state(),
        Some(JobState::Running | JobState::Recovering)
    );
    if running {
        return Ok((from, Time(status.now_ms.saturating_mul(1_000)).max(from)));
    }
    let mut last = curve.points(1).last().map_or(from, |p| p.at);
    store.pages(&mut |page| last = last.max(page.to))?;
    Ok((from, last.max(from)))
}

/// The job in force, without what its environment may keep secret.
fn config(store: &Store, state: &StateDir) -> Result<(String, u32), HistoryError> {
    let past = whole_past(store)?;
    let path = state.job_revision(past.revision());
    let unreadable = |e: String| HistoryError::Job(format!("{}: {e}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|e| unreadable(e.to_string()))?;
    let mut job = serde_json::from_str(&text).map_err(|e| unreadable(e.to_string()))?;
    leave_out_secrets(&mut job);
    Ok((job.to_string(), past.revision()))
}

/// The state as it is stored. The daemon writes on while it is read, entry by entry, and a record that falls between two
/// of them makes them not fit: then it is read again.
fn whole_past(store: &Store) -> Result<Past, AdoptError> {
    let torn = |read: &Result<Past, AdoptError>| {
        matches!(read, Err(AdoptError::Saved(SavedError::Unreadable(_))))
    };
    let mut read = driver::past(store);
    for _ in 1..READS {
        if !torn(&read) {
            break;
        }
        read = driver::past(store);
    }
    read
}

/// Values of environments: tokens are handed to commands there, and reports are passed on.
fn leave_out_secrets(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                match value {
                    serde_json::Value::Object(env) if key == "env" => env
                        .values_mut()
                        .for_each(|secret| *secret = "(left out)".into()),
                    other => leave_out_secrets(other),
                }
            }
        }
        serde_json::Value::Array(all) => all.iter_mut().for_each(leave_out_secrets),
        _ => {}
    }
}

fn points(curve: &Curve, cells: usize) -> Vec<v1::CurvePoint> {
    let point = |p: &robust_shared::ettr::Point| v1::CurvePoint {
        at_ms: p.at.millis(),
        ettr_sliding: p.sliding,
        goodput_sliding: p.sliding_goodput,
        ettr: p.total,
        goodput: p.goodput,
    };
    curve.points(cells).iter().map(point).collect()
}

fn cause((cause, seconds): &(Cause, f64)) -> v1::CauseTime {
    v1::CauseTime {
        cause: cause.name().to_owned(),
        seconds: *seconds,
        waste: cause.is_waste(),
    }
}

/// At most so many lines, each of the steps since the one before: their mean, of groups the sum, of lengths the longest.
fn steps(all: &[StoredStep], began_ms: u64, most: usize) -> Vec<v1::StepLine> {
    let mut before = began_ms;
    let each = all.len().div_ceil(most).max(1);
    let mut mean_of = |group: &[StoredStep]| {
        let last = group.last()?;
        let mut mean = line(last, before);
        before = last.at.millis();
        let count = group.len() as f64;
        let sum = |of: fn(&StoredStep) -> f64| {
            group.iter().map(of).filter(|v| v.is_finite()).sum::<f64>()
        };
        mean.reward = sum(|s| s.metrics.reward) / count;
        mean.seconds /= count;
        for (told, of) in told(&mut mean) {
            let known = group.iter().filter_map(|s| of(&s.metrics.health));
            let known: Vec<f64> = known.filter(|v| v.is_finite()).collect();
            *told = (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64);
        }
        mean.groups = sum_of(group, |h| h.groups);
        mean.flat_groups = sum_of(group, |h| h.flat_groups);
        mean.longest = group.iter().filter_map(|s| s.metrics.health.longest).max();
        mean.tokens = group.iter().map(|s| s.metrics.tokens).sum::<u64>() / group.len() as u64;
        Some(mean)
    };
    all.chunks(each).filter_map(&mut mean_of).collect()
}

/// The sum of a count over those steps that say it; none: nobody does.
fn sum_of(group: &[StoredStep], of: fn(&Health) -> Option<u32>) -> Option<u32> {
    let known = group.iter().filter_map(|s| of(&s.metrics.health));
    known.reduce(u32::saturating_add)
}

type Told<'a> = (&'a mut Option<f64>, fn(&Health) -> Option<f64>);

/// The figures of a line that are means of those that are known, each with where it is known from.
fn told(line: &mut v1::StepLine) -> [Told<'_>; 4] {
    [
        (&mut line.clip_fraction, |h| h.clip_fraction),
        (&mut line.entropy, |h| h.entropy),
        (&mut line.kl, |h| h.kl),
        (&mut line.mean_length, |h| h.mean_length),
    ]
}

fn moved(overview: &Overview) -> v1::History {
    let sums = overview.transfers().tallies();
    let sums = sums.map(|(kind, tally)| v1::TransferSum {
        kind: kind.name().to_owned(),
        done: tally.done,
        failed: tally.failed,
        bytes: tally.bytes,
        took_ms: tally.took_ms,
        slowest_ms: tally.slowest_ms,
        sent: tally.sent,
        roads: tally.roads.taken().map(pulls_by).collect(),
        pulled: tally.pulled,
        patched: tally.patched,
        changed_words: tally.changed_words,
    });
    let slowest = overview.transfers().slowest().iter();
    let slowest = slowest.map(|t| v1::Transfer {
        kind: t.kind.name().to_owned(),
        at_ms: t.at.millis(),
        number: t.number,
        who: t.who.map_or_else(String::new, |who| who.to_string()),
        bytes: t.bytes,
        took_ms: t.took_ms,
        sent: t.sent.bytes,
        road: t.sent.road.map_or("", Road::name).to_owned(),
        patched: t.sent.patched,
        changed_words: t.sent.changed_words,
    });
    v1::History {
        transfers: sums.collect(),
        slowest: slowest.collect(),
        lane_resolution_s: overview.resolution().as_secs_f64(),
        ..Default::default()
    }
}

fn pulls_by((road, pulls): (Road, u64)) -> v1::PullsByRoad {
    let road = road.name().to_owned();
    v1::PullsByRoad { road, pulls }
}

fn lane(row: &Row) -> v1::Lane {
    let span = |s: &robust_shared::history::Span| v1::LaneSpan {
        phase: s.phase.name().to_owned(),
        from_ms: s.from.millis(),
        ms: s.to.millis().saturating_sub(s.from.millis()),
    };
    let spent = row.spent.iter().map(|(phase, ms)| v1::PhaseTime {
        phase: phase.name().to_owned(),
        ms: *ms,
    });
    v1::Lane {
        role: row.id.role.name().to_owned(),
        index: row.id.index,
        spans: row.spans.iter().map(span).collect(),
        spent: spent.collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_shared::core::StepMetrics;
    use robust_shared::ids::{Generation, Step};

    #[test]
    fn the_environment_of_a_command_is_not_passed_on() {
        let mut job = serde_json::json!({
            "job": {"name": "j"},
            "roles": [{"command": ["x"], "env": {"HF_TOKEN": "hf_secret"}}],
        });
        leave_out_secrets(&mut job);
        let text = job.to_string();
        assert!(
            !text.contains("hf_secret") && text.contains("HF_TOKEN"),
            "{text}"
        );
        assert!(text.contains("\"name\":\"j\""), "{text}");
    }

    #[test]
    fn many_steps_are_told_in_means_and_the_last_line_is_the_last_step() {
        let step = |n: u64| StoredStep {
            step: Step(n),
            at: Time(n * 2_000_000),
            generation: Generation(1),
            metrics: StepMetrics {
                reward: n as f64,
                ..Default::default()
            },
            record: None,
            kept_from: None,
        };
        let all: Vec<_> = (1..=1_000).map(step).collect();
        let lines = steps(&all, 0, 100);
        assert_eq!((lines.len(), lines[99].step), (100, 1_000));
        assert_eq!((lines[0].reward, lines[0].seconds), (5.5, 2.0));
        assert_eq!((lines[0].groups, lines[0].longest), (None, None));
        let few = steps(&all[..3], 0, 100);
        assert_eq!(few.len(), 3);
        assert_eq!(steps(&[], 0, 100), []);
    }

    #[test]
    fn groups_of_several_steps_are_their_sum_and_the_longest_is_the_longest_of_all() {
        let step = |n: u64, groups: Option<u32>, flat_groups, longest| StoredStep {
            step: Step(n),
            at: Time(n * 2_000_000),
            generation: Generation(1),
            metrics: StepMetrics {
                health: Health {
                    groups,
                    flat_groups,
                    longest,
                    ..Default::default()
                },
                ..Default::default()
            },
            record: None,
            kept_from: None,
        };
        let all = [
            step(1, Some(8), Some(3), Some(90)),
            step(2, None, None, None),
            step(3, Some(8), Some(1), Some(40)),
        ];
        let lines = steps(&all, 0, 1);
        let told = (lines[0].groups, lines[0].flat_groups, lines[0].longest);
        assert_eq!(told, (Some(16), Some(4), Some(90)));
    }
}
