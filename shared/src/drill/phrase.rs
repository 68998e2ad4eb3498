//! Expectations in an operator's words: `role restart`, `recovered within 20 s`, `nothing lost`.
//!
//! ```text
//!  [RUN ": "] phrase        without RUN: every run that was struck
//! ```
use super::facts::{End, Facts, Recovery};
use crate::core::RULES;
use crate::nearest::nearest;
use std::time::Duration;

/// Each form with what it means, for help and for messages.
pub const PHRASES: [(&str, &str); 14] = [
    (
        "role restart",
        "faults restarted roles, never the whole task",
    ),
    ("task restart", "a fault restarted the whole task"),
    ("no restart", "nothing was restarted"),
    ("N restarts", "so many incidents"),
    (
        "recovered within T",
        "every recovery was over so soon after its fault",
    ),
    ("detected within T", "every fault was found so soon"),
    ("ETTR at least X", "of the whole run"),
    ("goodput at least X", "of the whole run"),
    (
        "nothing lost",
        "the store is whole, no trajectory was lost or consumed twice",
    ),
    (
        "training goes on",
        "steps were committed after the last fault",
    ),
    (
        "rule NAME",
        "that rule found something: a fault, or what it only says",
    ),
    (
        "event KIND: WORDS",
        "an event of that kind with those words (the words may be left out)",
    ),
    (
        "weights identical",
        "all runs ended with the same weights (mode sync)",
    ),
    ("job fails", "the job ends with a failure"),
];

/// What must be so.
#[derive(Clone, Debug, PartialEq)]
pub enum Phrase {
    /// See [`PHRASES`].
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
    /// Reads one; none when the text does not begin like one.
    pub fn parse(text: &str) -> Option<Result<Self, String>> {
        let words: Vec<&str> = text.split_whitespace().collect();
        Some(match words.as_slice() {
            ["role", "restart"] => Ok(Self::RoleRestart),
            ["task", "restart"] => Ok(Self::TaskRestart),
            ["no", "restart"] => Ok(Self::NoRestart),
            ["nothing", "lost"] => Ok(Self::NothingLost),
            ["training", "goes", "on"] => Ok(Self::TrainingGoesOn),
            ["job", "fails"] => Ok(Self::JobFails),
            [n, "restart" | "restarts"] => whole(n).map(Self::Restarts),
            ["recovered", "within", time @ ..] => {
                duration(&time.concat()).map(Self::RecoveredWithin)
            }
            ["detected", "within", time @ ..] => duration(&time.concat()).map(Self::DetectedWithin),
            ["ETTR", "at", "least", x] => share(x).map(Self::Ettr),
            ["goodput", "at", "least", x] => share(x).map(Self::Goodput),
            ["rule", name @ ..] => rule(&name.join(" ")).map(Self::Rule),
            ["event", _, ..] => event(text),
            _ => return None,
        })
    }

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

fn whole(text: &str) -> Result<u64, String> {
    let why = || format!("`{text}` is no number of restarts; write `2 restarts`");
    let near = || hint(&format!("{text} restart"));
    text.parse().map_err(|_| near().unwrap_or_else(why))
}

fn share(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|x| (0.0..=1.0).contains(x));
    value.ok_or_else(|| format!("`{text}` is no share; write a number from 0 to 1"))
}

fn rule(name: &str) -> Result<String, String> {
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

fn event(text: &str) -> Result<Phrase, String> {
    let rest = text.trim_start().strip_prefix("event").unwrap_or(text);
    let (kind, words) = rest.split_once(':').unwrap_or((rest, ""));
    let (kind, words) = (kind.trim(), words.trim());
    match kind.contains(' ') {
        true => Err(format!(
            "`{kind}` is no kind of event; write `event KIND: WORDS`"
        )),
        false => Ok(Phrase::Event(kind.to_owned(), words.to_owned())),
    }
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

/// What to write instead of a text that is neither a phrase nor a comparison.
pub fn hint(text: &str) -> Option<String> {
    let near = nearest(text.trim(), PHRASES.iter().map(|(form, _)| *form))?;
    Some(format!("did you mean `{near}`?"))
}
