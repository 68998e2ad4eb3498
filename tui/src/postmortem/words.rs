//! What is said of an incident in words, wherever it is told.
use super::seen_before;
use crate::cascade;
use crate::format::{self, who};
use chrono::{TimeZone as _, Utc};
use robust_proto::v1::{Incident, Status};
use robust_shared::ids::Role;
use robust_shared::job::Policy;

/// Incidents that are named one by one where they are many.
const NAMED: usize = 8;

/// What it cost.
pub fn lost(status: &Status, i: &Incident) -> String {
    let discarded = status.trajectories_discarded;
    match (status.policy(), i.role()) {
        (Some(Policy::Task), _) => {
            format!("all in flight: {discarded} trajectories in this run so far")
        }
        (_, Some(Role::Trainer)) => format!("what step {} had come to, done again", i.step + 1),
        _ => "no turn that was acknowledged".to_owned(),
    }
}

/// Who was restarted along with it.
pub fn with_it(i: &Incident) -> String {
    let swept: Vec<String> = i.swept.iter().map(u64::to_string).collect();
    match swept.as_slice() {
        [] => "no other instance".to_owned(),
        [one] => format!("incarnation {one}"),
        all => format!("incarnations {}", all.join(", ")),
    }
}

/// What it died of; empty where that is not known.
pub fn cause(i: &Incident) -> String {
    i.cause.as_ref().map(format::cause).unwrap_or_default()
}

/// Whose doing it was; empty where nobody looked.
pub fn root(i: &Incident) -> String {
    match i.judged.as_str() {
        "" => i.root.clone(),
        judged => format!("{} (the rule had named {judged})", i.root),
    }
}

/// What it follows from; empty where it stands for itself.
pub fn under(i: &Incident) -> String {
    match i.under {
        0 => String::new(),
        first => format!("follows from incident {first}, and counts against no budget"),
    }
}

/// What followed from it, one by one.
pub fn led_to(all: &[Incident], i: &Incident) -> Vec<String> {
    let below = cascade::under(all, i.id);
    below
        .map(|f| format!("{} {} ({})", f.id, who(&f.role, f.index), f.outcome))
        .collect()
}

/// Earlier ones of its kind, the last of them by number; empty where it is the first.
pub fn before(all: &[Incident], i: &Incident) -> String {
    let seen = seen_before(all, i);
    let named: Vec<String> = seen
        .iter()
        .skip(seen.len().saturating_sub(NAMED))
        .map(|e| e.id.to_string())
        .collect();
    match (seen.len(), named.len()) {
        (0, _) => String::new(),
        (1, _) => format!("once: incident {}", named.concat()),
        (times, all) if times == all => format!("{times} times: incidents {}", named.join(", ")),
        (times, _) => format!("{times} times: last incidents {}", named.join(", ")),
    }
}

/// Date and time of UTC.
pub fn moment(unix_ms: u64) -> String {
    let ms = i64::try_from(unix_ms).ok();
    let at = ms.and_then(|ms| Utc.timestamp_millis_opt(ms).single());
    at.map_or_else(
        || "-".to_owned(),
        |at| at.format("%F %T%.3f UTC").to_string(),
    )
}
