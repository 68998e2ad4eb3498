//! How far each run came, how fast, and where its time went.
use super::Side;
use super::row::{Row, Section, Unit, by_name};
use robust_proto::v1;
use robust_shared::ettr::Slice;

/// Seconds of an hour.
const HOUR: f64 = 3_600.0;
/// The account of the time that is of the whole job.
const WHOLE: &str = "job";

/// All of it.
pub fn sections(a: &Side, b: &Side) -> Vec<Section> {
    let (a, b) = (&a.report, &b.report);
    vec![
        Section::new("run", "run", run(a, b)),
        Section::new("trajectories", "trajectories", trajectories(a, b)),
        Section::new("efficiency", "efficiency", efficiency(a, b)),
        time("time", "time by what it went to", Unit::Seconds, a, b),
        time(
            "time_share",
            "the same as shares of the run",
            Unit::Share,
            a,
            b,
        ),
        counted(a, b),
    ]
}

fn run(a: &v1::Report, b: &v1::Report) -> Vec<Row> {
    let row =
        |name: &str, unit, of: fn(&v1::Report) -> Option<f64>| Row::new(name, unit, of(a), of(b));
    vec![
        Row::count("steps", Some(a.steps), Some(b.steps)),
        row("duration", Unit::Seconds, |r| Some(r.duration_s)),
        row("steps per hour", Unit::Rate, |r| {
            Some(r.steps as f64 * HOUR / lasted(r)?)
        }),
        row("generated tokens", Unit::Count, tokens),
        row("tokens per second", Unit::Rate, |r| {
            Some(tokens(r)? / lasted(r)?)
        }),
    ]
}

fn lasted(report: &v1::Report) -> Option<f64> {
    (report.duration_s > 0.0).then_some(report.duration_s)
}

/// None where steps were done and nobody told any, as a trainer with a loop of its own need not.
fn tokens(report: &v1::Report) -> Option<f64> {
    (report.tokens > 0 || report.steps == 0).then_some(report.tokens as f64)
}

fn trajectories(a: &v1::Report, b: &v1::Report) -> Vec<Row> {
    let row = |name: &str, of: fn(&v1::Report) -> Option<u64>| Row::count(name, of(a), of(b));
    vec![
        row("consumed", |r| Some(r.trajectories)),
        row("given back, times", |r| Some(r.trajectories_given_back)),
        row("set aside", |r| r.trajectories_set_aside),
        row("too old to train on", |r| Some(r.trajectories_stale)),
        row("thrown away", |r| r.trajectories_discarded),
    ]
}

fn efficiency(a: &v1::Report, b: &v1::Report) -> Vec<Row> {
    let share = |name: &str, of: fn(&v1::Report) -> f64| {
        let of = |r: &v1::Report| lasted(r).map(|_| of(r));
        Row::new(name, Unit::Share, of(a), of(b))
    };
    vec![
        share("ETTR", |r| r.ettr),
        share("goodput", |r| r.goodput),
        Row::count("steps done again", a.steps_repeated, b.steps_repeated),
    ]
}

/// By the slices of the ledger, as seconds or as shares.
fn time(name: &'static str, title: &str, unit: Unit, a: &v1::Report, b: &v1::Report) -> Section {
    let (a, b) = (slices(a, unit), slices(b, unit));
    let order = Slice::ALL.map(Slice::name);
    let rows = by_name(unit, &order, a.as_deref(), b.as_deref());
    Section::new(name, title, rows)
}

fn slices(report: &v1::Report, unit: Unit) -> Option<Vec<(String, f64)>> {
    let windows = &report.time_spent.as_ref()?.windows;
    let window = windows.iter().find(|window| window.name == WHOLE)?;
    let length = window.to_ms.saturating_sub(window.from_ms) as f64 / 1e3;
    let sum: f64 = window.slices.iter().map(|slice| slice.seconds).sum();
    let whole = match unit {
        Unit::Share => length.max(sum),
        _ => 1.0,
    };
    let slice = |slice: &v1::TimeSlice| (slice.name.clone(), slice.seconds / whole);
    Some(window.slices.iter().map(slice).collect())
}

/// By the causes that ETTR counts.
fn counted(a: &v1::Report, b: &v1::Report) -> Section {
    let causes = |report: &v1::Report| {
        let causes = &report.history.as_ref()?.causes;
        let cause = |cause: &v1::CauseTime| (cause.cause.clone(), cause.seconds);
        let causes: Vec<_> = causes.iter().map(cause).collect();
        (!causes.is_empty()).then_some(causes)
    };
    let (a, b) = (causes(a), causes(b));
    let rows = by_name(Unit::Seconds, &[], a.as_deref(), b.as_deref());
    Section::new("counted", "time by what ETTR counts", rows)
}
