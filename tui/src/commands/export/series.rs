//! The series of a run: a line here is a curve in every tool.
use robust_proto::v1;

/// A committed step.
pub struct Point {
    /// Its figures.
    pub line: v1::StepLine,
    /// How the run stood when it was committed, where that is known.
    pub curve: Option<v1::CurvePoint>,
}

/// A name, in which `/` parts a group of curves from the curve, and its value; none where nobody told one.
pub type Series<T> = (&'static str, fn(&T) -> Option<f64>);

/// By committed step.
pub const STEPS: &[Series<Point>] = &[
    ("train/reward", |p| told(p).map(|line| line.reward)),
    ("train/loss", |p| told(p).map(|line| line.loss)),
    ("train/grad_norm", |p| told(p).map(|line| line.grad_norm)),
    ("train/tokens", |p| told(p).map(|line| line.tokens as f64)),
    ("train/staleness", |p| {
        told(p).map(|line| line.staleness as f64)
    }),
    ("train/entropy", |p| p.line.entropy),
    ("train/kl", |p| p.line.kl),
    ("train/clip_fraction", |p| p.line.clip_fraction),
    ("train/flat_groups", flat_groups),
    ("train/length", |p| p.line.mean_length),
    ("train/longest", |p| {
        p.line.longest.map(|tokens| tokens as f64)
    }),
    ("train/tokens_per_s", tokens_per_s),
    ("train/step_seconds", |p| Some(p.line.seconds)),
    // The version that a step publishes has the step's number.
    ("train/weight_version", |p| Some(p.line.step as f64)),
    ("run/ettr_sliding", |p| p.curve.map(|at| at.ettr_sliding)),
    ("run/goodput_sliding", |p| {
        p.curve.map(|at| at.goodput_sliding)
    }),
    ("run/ettr", |p| p.curve.map(|at| at.ettr)),
    ("run/goodput", |p| p.curve.map(|at| at.goodput)),
];

/// By the number of the incident: several may befall one step.
pub const INCIDENTS: &[Series<v1::Incident>] = &[
    ("incidents/detect_s", |i| Some(i.detect_ms / 1e3)),
    ("incidents/restart_s", |i| Some(i.restart_ms / 1e3)),
    ("incidents/reconnect_s", |i| Some(i.reconnect_ms / 1e3)),
    ("incidents/total_s", |i| Some(i.total_ms / 1e3)),
    ("incidents/step", |i| Some(i.step as f64)),
];

/// The group of the shares of the run that each cause took, at its last step.
pub const SHARES: &str = "time";

/// The figures of a step whose trainer tells any: one with a loop of its own need not.
fn told(point: &Point) -> Option<&v1::StepLine> {
    let line = &point.line;
    let any = line.tokens > 0 || [line.reward, line.loss, line.grad_norm] != [0.0; 3];
    any.then_some(line)
}

/// Share of groups whose rewards are all the same.
fn flat_groups(point: &Point) -> Option<f64> {
    let (flat, groups) = point.line.flat_groups.zip(point.line.groups)?;
    (groups > 0).then(|| f64::from(flat) / f64::from(groups))
}

fn tokens_per_s(point: &Point) -> Option<f64> {
    let line = told(point).filter(|line| line.seconds > 0.0)?;
    Some(line.tokens as f64 / line.seconds)
}
