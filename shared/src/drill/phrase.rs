//! What can be expected of one run, and how it is held against what the run left.
use super::facts::{End, Facts, Recovery};
use crate::core::RULES;
use crate::nearest::nearest;
use std::time::Duration;

/// What must be so.
#[derive(Clone, Debug, PartialEq)]
pub enum Phrase {
    /// Faults restarted roles, never the task.
    RoleRestart,
    /// A fault restarted the task.
    TaskRestart,
    /// No incident at all.
    NoRestart,
    /// So many incidents.
    Restarts(u64),
    /// Every recovery took at most so long.
    RecoveredWithin(Duration),
    /// Every verdict took at most so long.
    DetectedWithin(Duration),
    /// Mean ETTR.
    Ettr(f64),
    /// Mean goodput.
    Goodput(f64),
    /// Nothing is missing and nothing is there twice.
    NothingLost,
    /// Steps after the last fault.
    TrainingGoesOn,
    /// A rule fired.
    Rule(String),
    /// An event of this kind with these words.
    Event(String, String),
    /// The job failed.
    JobFails,
}

/// Whether it is so, and what was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Whether it is.
    pub held: bool,
    /// What was found, in words.
    pub words: String,
}

impl Phrase {
    /// Holds it against what a run left.
    pub fn check(&self, facts: &Facts) -> Found {
        let incidents = &facts.incidents;
        match self {
            Self::RoleRestart => {
                let all = !incidents.is_empty() && incidents.iter().all(Recovery::restarted_role);
                found(all, plans(incidents))
            }
            Self::TaskRestart => found(
                incidents.iter().any(Recovery::restarted_task),
                plans(incidents),
            ),
            Self::NoRestart => found(incidents.is_empty(), plans(incidents)),
            Self::Restarts(n) => {
                let count = incidents.len();
                found(count as u64 == *n, format!("{count} restarts"))
            }
            Self::RecoveredWithin(bound) => {
                let back = !incidents.is_empty() && incidents.iter().all(|i| i.recovered);
                within(
                    back,
                    incidents.iter().map(|i| i.total),
                    *bound,
                    "not all recovered",
                )
            }
            Self::DetectedWithin(bound) => {
                let any = !incidents.is_empty();
                within(
                    any,
                    incidents.iter().map(|i| i.detect),
                    *bound,
                    "nothing was found",
                )
            }
            Self::Ettr(least) => at_least(facts.ettr, *least),
            Self::Goodput(least) => at_least(facts.goodput, *least),
            Self::NothingLost => found(facts.lost.is_empty(), listed(&facts.lost, "nothing lost")),
            Self::TrainingGoesOn => goes_on(facts),
            Self::Rule(name) => rule_found(facts, name),
            Self::Event(kind, words) => saw(facts, kind, words),
            Self::JobFails => match &facts.end {
                End::Failed(why) => found(true, why.clone()),
                End::Completed => found(false, "it completed".to_owned()),
                End::GoesOn => found(false, "it goes on".to_owned()),
            },
        }
    }
}

fn found(held: bool, words: String) -> Found {
    Found { held, words }
}

fn plans(incidents: &[Recovery]) -> String {
    let plans: Vec<String> = incidents.iter().map(|i| i.plan.clone()).collect();
    listed(&plans, "no restart")
}

/// The first few of them.
fn listed(texts: &[String], none: &str) -> String {
    const SHOWN: usize = 3;
    match texts.len() {
        0 => none.to_owned(),
        n if n <= SHOWN => texts.join("; "),
        n => format!("{}; and {} more", texts[..SHOWN].join("; "), n - SHOWN),
    }
}

fn within(
    all: bool,
    times: impl Iterator<Item = Duration>,
    bound: Duration,
    missing: &str,
) -> Found {
    let longest = times.max().unwrap_or_default();
    match all {
        true => found(
            longest <= bound,
            format!("{:.3} s at most", longest.as_secs_f64()),
        ),
        false => found(false, missing.to_owned()),
    }
}

fn at_least(value: f64, least: f64) -> Found {
    found(value >= least, format!("{value:.3}"))
}

fn goes_on(facts: &Facts) -> Found {
    let steps = facts.steps_after;
    match &facts.end {
        End::Failed(why) => found(false, why.clone()),
        _ => found(steps > 0, format!("{steps} steps after the last fault")),
    }
}

fn saw(facts: &Facts, kind: &str, words: &str) -> Found {
    let of_kind = || facts.events.iter().filter(|(k, _)| k == kind);
    let fits = of_kind().find(|(_, text)| text.contains(words));
    match (fits, of_kind().next_back()) {
        (Some((_, text)), _) => found(true, text.clone()),
        (None, Some((_, text))) => found(false, format!("another: {text}")),
        (None, None) => found(false, "none of that kind".to_owned()),
    }
}

/// A rule's verdicts are incidents; of one without any, its events are looked for.
fn rule_found(facts: &Facts, name: &str) -> Found {
    let said = RULES.iter().find(|r| r.name == name).and_then(|r| r.event);
    if let Some(kind) = said {
        return saw(facts, kind, "");
    }
    let rules: Vec<String> = facts.incidents.iter().map(|i| i.rule.clone()).collect();
    found(
        rules.iter().any(|r| r == name),
        listed(&rules, "no rule fired"),
    )
}

/// A share; the error says what to write.
pub(super) fn share(value: f64) -> Result<f64, String> {
    match (0.0..=1.0).contains(&value) {
        true => Ok(value),
        false => Err(format!("{value} is no share; write a number from 0 to 1")),
    }
}

/// The name of a rule; the error has the nearest.
pub(super) fn rule(name: &str) -> Result<String, String> {
    let known = || RULES.iter().map(|r| r.name);
    if known().any(|k| k == name) {
        return Ok(name.to_owned());
    }
    Err(match nearest(name, known()) {
        Some(near) => format!("there is no rule `{name}`; did you mean `{near}`?"),
        None => {
            let all: Vec<&str> = known().collect();
            format!("there is no rule `{name}`; rules are {}", all.join(", "))
        }
    })
}

/// A time as people write it: `500ms`, `20 s`, `2min`, `1h`, `7d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let text: String = text.split_whitespace().collect();
    let unit = text.find(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = text.split_at(unit.unwrap_or(text.len()));
    let scale = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        "d" => 24.0 * 3600.0,
        _ => {
            return Err(format!(
                "`{text}` is no time; write it as in `500ms`, `20s`, `2min`, `1h`"
            ));
        }
    };
    let seconds = number.parse().ok().map(|n: f64| n * scale);
    let seconds = seconds.filter(|s| (0.0..1e7).contains(s));
    let seconds = seconds.ok_or_else(|| format!("`{text}` is no time from 0 on"))?;
    Ok(Duration::from_secs_f64(seconds))
}
