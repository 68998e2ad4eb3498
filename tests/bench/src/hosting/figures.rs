//! From what was seen to figures.

use super::scene::Part;
use crate::machine::load;
use serde_json::{Map, Value, json};
use std::path::Path;

/// What came of striking an engine.
pub struct Blow {
    /// Whose engine.
    pub whom: String,
    /// What of it.
    pub part: Part,
    /// The title of the process that was struck, or of the first.
    pub process: String,
    /// From the signal to the verdict.
    pub detect_ms: f64,
    /// From the end of the process to the verdict: a signal ends one only when the kernel has taken its
    /// memory back, which for gigabytes on busy cores takes longer than all that follows.
    pub seen_ms: Option<f64>,
    /// From the signal until the rollout has traffic again.
    pub total_ms: f64,
    /// The next engine's own start, where it was seen.
    pub start_ms: Option<f64>,
    /// Which rule found it.
    pub rule: String,
    /// Whether the instance alone was restarted, and came back.
    pub role_restart: bool,
    /// What was decided.
    pub plan: String,
}

impl Blow {
    /// A line of it.
    pub fn text(&self) -> String {
        let Self { whom, part, .. } = self;
        let ms = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.0}"));
        let (seen, start) = (ms(self.seen_ms), ms(self.start_ms));
        format!(
            "{whom} {part:?}: {} after {:.0} ms ({seen} ms after its end), back after {:.0} ms, of which {start} ms are its start",
            self.rule, self.detect_ms, self.total_ms
        )
    }

    /// All of it.
    pub fn json(&self) -> Value {
        json!({
            "whom": self.whom, "part": format!("{:?}", self.part).to_lowercase(),
            "process": self.process, "detect_ms": self.detect_ms, "seen_ms": self.seen_ms,
            "total_ms": self.total_ms,
            "engine_start_ms": self.start_ms, "rule": self.rule, "plan": self.plan,
            "role_restart": self.role_restart,
        })
    }
}

/// Processor time of a rollout while it was watched.
pub struct Usage {
    /// Of the shim.
    pub shim_ticks: u64,
    /// Of all processes of its engine.
    pub engine_ticks: u64,
    /// Tokens that went out through the shim.
    pub tokens_per_s: f64,
}

/// How long a version took to come into an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timed {
    /// Pausing it, and letting it go on.
    pub pause_ms: f64,
    /// Loading.
    pub load_ms: f64,
    /// Having it prove what it serves.
    pub verify_ms: f64,
}

/// Median, smallest, largest and all of them, with the load.
pub fn figure(values: &[f64]) -> Value {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let [first, .., last] = sorted.as_slice() else {
        let only = sorted.first().copied();
        return json!({"median": only, "min": only, "max": only, "all": values, "load": load()});
    };
    let (below, above) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    let median = (below + above) / 2.0;
    json!({"median": median, "min": first, "max": last, "all": values, "load": load()})
}

/// The figures of kills, stops, processor times and losses; what was not seen is left out.
pub fn all(
    kills: &[Blow],
    stops: &[Blow],
    usage: &[Usage],
    (problems, discarded): &(Vec<String>, u64),
) -> Map<String, Value> {
    let of = |blows: &[Blow], value: fn(&Blow) -> Option<f64>| -> Vec<f64> {
        blows.iter().filter_map(value).collect()
    };
    let restarts = kills.iter().filter(|blow| blow.role_restart).count();
    let twice = problems.iter().filter(|p| p.starts_with("I-3")).count();
    let lost = (problems.len() - twice) as u64 + discarded;
    let shim: Vec<f64> = usage.iter().filter_map(share).collect();
    let tokens: Vec<f64> = usage.iter().map(|usage| usage.tokens_per_s).collect();
    let figures = [
        ("engine_kills", vec![kills.len() as f64]),
        ("engine_role_restarts", vec![restarts as f64]),
        ("engine_detect_ms", of(kills, |blow| Some(blow.detect_ms))),
        ("engine_exit_seen_ms", of(kills, |blow| blow.seen_ms)),
        ("engine_total_ms", of(kills, |blow| Some(blow.total_ms))),
        ("engine_start_ms", of(kills, |blow| blow.start_ms)),
        (
            "engine_stuck_detect_ms",
            of(stops, |blow| Some(blow.detect_ms)),
        ),
        ("shim_cpu_percent", shim),
        ("tokens_per_s", tokens),
        ("turns_lost", vec![lost as f64]),
        ("double_consumed", vec![twice as f64]),
    ];
    named(figures.map(|(name, values)| (name.to_owned(), values)))
}

/// The figures of versions that came into engines of this make.
pub fn loads(kind: &str, loads: &[Timed]) -> Map<String, Value> {
    let of = |value: fn(&Timed) -> f64| loads.iter().map(value).collect::<Vec<f64>>();
    named([
        (
            format!("weights_to_{kind}_ms"),
            of(|l| l.load_ms + l.verify_ms),
        ),
        ("weights_pause_ms".to_owned(), of(|l| l.pause_ms)),
        ("weights_load_ms".to_owned(), of(|l| l.load_ms)),
        ("weights_verify_ms".to_owned(), of(|l| l.verify_ms)),
    ])
}

fn named<const N: usize>(figures: [(String, Vec<f64>); N]) -> Map<String, Value> {
    let there = figures.into_iter().filter(|(_, values)| !values.is_empty());
    there
        .map(|(name, values)| (name, figure(&values)))
        .collect()
}

/// The shim's processor time over its engine's, in percent.
fn share(usage: &Usage) -> Option<f64> {
    let engine = usage.engine_ticks as f64;
    (engine > 0.0).then(|| usage.shim_ticks as f64 * 100.0 / engine)
}

/// What shims wrote of versions that they loaded and verified.
pub fn times_of_loads(logs: &Path) -> Vec<Timed> {
    let files = std::fs::read_dir(logs).into_iter().flatten().flatten();
    let of_rollout =
        |file: &std::fs::DirEntry| file.file_name().to_string_lossy().starts_with("rollout-");
    let texts = files
        .filter(of_rollout)
        .map(|file| std::fs::read_to_string(file.path()));
    let read = |text: String| text.lines().filter_map(read_load).collect::<Vec<Timed>>();
    texts.flatten().flat_map(read).collect()
}

fn read_load(line: &str) -> Option<Timed> {
    let field = |name: &str| {
        let (_, rest) = line.split_once(&format!("{name}="))?;
        rest.split_whitespace().next()?.parse::<f64>().ok()
    };
    Some(Timed {
        pause_ms: field("pause_ms")?,
        load_ms: field("load_ms")?,
        verify_ms: field("verify_ms")?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_line_of_a_shim_tells_how_long_its_load_took() {
        let line = "INFO robust_shim: the engine serves a verified version version=3 attempt=1 \
                    pause_ms=0.0 load_ms=12.5 verify_ms=3.25";
        let timed = read_load(line).unwrap();
        assert_eq!((timed.load_ms, timed.verify_ms), (12.5, 3.25));
        assert_eq!(read_load("the engine is up"), None);
    }

    #[test]
    fn losses_and_what_was_consumed_twice_are_counted_apart() {
        let problems = [
            "I-3: 7 is consumed by 2 and 3",
            "trajectory 8: an end is missing",
        ];
        let lost = (problems.map(str::to_owned).to_vec(), 2);
        let figures = all(&[], &[], &[], &lost);
        assert_eq!(figures["double_consumed"]["median"], 1.0);
        assert_eq!(figures["turns_lost"]["median"], 3.0);
        assert!(
            !figures.contains_key("engine_detect_ms"),
            "nobody was killed"
        );
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_two() {
        let figure = figure(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!(
            (&figure["median"], &figure["max"]),
            (&json!(2.5), &json!(4.0))
        );
    }
}
