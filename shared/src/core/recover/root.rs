//! Which process a hang comes from, by what was found of all who may be part of it.
//!
//! ```text
//!  ranks ──► one is stopped or dead ──────────────────────────► it
//!        ──► of one nothing came, of its peers it did ────────► it
//!        ──► one is not in the exchange that its peers wait in ► it
//!        ──► one is in another place than most of its peers ──► it
//!        ──► all are at the same place ──► one whom they wait for is stopped, dead or mute ──► it
//!                                      └─► nobody: it is said where they are
//! ```
//! Where two or more fit, all of them are named and none is accused; where nothing fits, that is said.
use super::testimony::{Answer, ProcessState, Testimony};
use crate::ids::{Incarnation, InstanceId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What a hang comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Root {
    /// One process.
    One {
        /// Whose.
        who: InstanceId,
        /// Which life of it.
        incarnation: Incarnation,
        /// What sets it apart, as a sentence.
        why: String,
    },
    /// One of several, and nothing tells which.
    Several {
        /// Who they are.
        who: Vec<InstanceId>,
        /// What sets them apart, as a sentence.
        why: String,
    },
    /// Nobody is set apart.
    Alike {
        /// Where all are.
        place: String,
    },
    /// What was found does not tell.
    Unknown {
        /// Why not.
        why: String,
    },
}

impl Root {
    /// The one process, if it is known.
    pub fn one(&self) -> Option<(InstanceId, Incarnation)> {
        match self {
            Root::One {
                who, incarnation, ..
            } => Some((*who, *incarnation)),
            Root::Several { .. } | Root::Alike { .. } | Root::Unknown { .. } => None,
        }
    }
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Root::One { why, .. } => f.write_str(why),
            Root::Several { why, .. } => write!(f, "{why}; nothing tells which of them it is"),
            Root::Alike { place } => write!(f, "nobody is set apart: all are in {place}"),
            Root::Unknown { why } => write!(f, "not known: {why}"),
        }
    }
}

/// The root of a hang of `ranks` (the gang's, or the one instance of another role), who wait for
/// `awaited` where they wait for anybody else.
pub fn root(ranks: &[Testimony], awaited: &[Testimony]) -> Root {
    let ranks: Vec<&Testimony> = ranks.iter().collect();
    let seen: Vec<&Testimony> = heard(&ranks);
    if let Some(root) = unwell(&ranks).or_else(|| mute(&ranks)) {
        return root;
    }
    if seen.is_empty() {
        let why = "no evidence of anybody came".to_owned();
        return Root::Unknown { why };
    }
    if let Some(root) = apart(&seen) {
        return root;
    }
    let awaited: Vec<&Testimony> = awaited.iter().collect();
    let place = seen[0].place();
    match unwell(&awaited).or_else(|| mute(&awaited)) {
        Some(Root::One {
            who,
            incarnation,
            why,
        }) => Root::One {
            who,
            incarnation,
            why: format!("{why}; whoever waits for it is in {place}"),
        },
        Some(root) => root,
        None => Root::Alike { place },
    }
}

fn heard<'a>(all: &[&'a Testimony]) -> Vec<&'a Testimony> {
    let seen = all.iter().filter(|t| t.seen().is_some());
    seen.copied().collect()
}

/// Those who cannot go on whatever their peers do.
fn unwell(all: &[&Testimony]) -> Option<Root> {
    let is = |wanted| move |t: &&Testimony| t.state() == Some(wanted);
    for (state, how) in [
        (ProcessState::Dead, "dead"),
        (ProcessState::Stopped, "stopped (by a signal or a debugger)"),
    ] {
        let found = of(all, is(state));
        if !found.is_empty() {
            return Some(named(&found, all, how));
        }
    }
    None
}

/// Those of whom nothing came in time though it did of others.
fn mute(all: &[&Testimony]) -> Option<Root> {
    let found = of(all, |t| t.answer == Answer::Late);
    let others = all.iter().any(|t| t.seen().is_some());
    (others && !found.is_empty()).then(|| named(&found, all, "without an answer"))
}

/// Those who are not where their peers are.
fn apart(seen: &[&Testimony]) -> Option<Root> {
    let waiting = |t: &&Testimony| t.collective().is_some();
    let busy = of(seen, |t| !waiting(t));
    if !busy.is_empty() && busy.len() < seen.len() {
        return Some(named(&busy, seen, "not in the exchange"));
    }
    // Once for each: a gang may have thousands of ranks.
    let mut places = BTreeMap::<String, usize>::new();
    for t in seen {
        *places.entry(t.place()).or_default() += 1;
    }
    let (most, count) = places.into_iter().max_by_key(|(_, count)| *count)?;
    if count == seen.len() {
        let stuck = of(seen, |t| t.state() == Some(ProcessState::InKernel));
        let some = !stuck.is_empty() && stuck.len() < seen.len();
        return some.then(|| named(&stuck, seen, "in the kernel, where no signal reaches it"));
    }
    if count * 2 > seen.len() {
        let odd = of(seen, |t| t.place() != most);
        return Some(named(&odd, seen, "in another place"));
    }
    Some(behind(seen).unwrap_or_else(|| Root::Unknown {
        why: format!("{} are in different places", names(seen)),
    }))
}

/// Whether all of them are in the same place.
fn are_together(all: &[&Testimony]) -> bool {
    let first = all.first().map(|t| t.place());
    all.iter().all(|t| Some(t.place()) == first)
}

/// The one who has not come as far as all of its peers.
fn behind(seen: &[&Testimony]) -> Option<Root> {
    let at = |t: &&Testimony| (t.step, t.phase);
    let first = seen.iter().map(at).min()?;
    let last = of(seen, |t| at(t) == first);
    (last.len() == 1).then(|| named(&last, seen, "behind"))
}

fn of<'a>(all: &[&'a Testimony], is: impl Fn(&&Testimony) -> bool) -> Vec<&'a Testimony> {
    all.iter().copied().filter(|t| is(t)).collect()
}

/// The root, if it is one of many, in words that say what its peers do.
fn named(found: &[&Testimony], all: &[&Testimony], how: &str) -> Root {
    let peers = of(all, |t| !found.iter().any(|f| f.who == t.who));
    let verb = if found.len() == 1 { "is" } else { "are" };
    let mut why = format!("{} {verb} {how}, in {}", names(found), found[0].place());
    if !are_together(found) {
        why = format!("{} {verb} {how}", names(found));
    }
    if let Some(node) = one_node(found, &peers) {
        why += &format!(", all of them on node {node}");
    }
    if let Some(first) = heard(&peers).first() {
        let same = are_together(&peers);
        let (who, place) = (names(&peers), first.place());
        why += &match (same, peers.len()) {
            (true, 1) => format!(", while {who} is in {place}"),
            (true, _) => format!(", while {who} are in {place}"),
            (false, _) => format!(", unlike {who}"),
        };
    }
    match found {
        [one] => Root::One {
            who: one.who,
            incarnation: one.incarnation,
            why,
        },
        _ => Root::Several {
            who: found.iter().map(|t| t.who).collect(),
            why,
        },
    }
}

/// The node of several of whom no peer is there: it is the machine's fault rather than theirs.
fn one_node<'a>(found: &[&'a Testimony], peers: &[&Testimony]) -> Option<&'a str> {
    let node = found.first()?.node.as_str();
    let all = found.len() > 1 && found.iter().all(|t| t.node == node);
    (all && !peers.is_empty() && peers.iter().all(|t| t.node != node)).then_some(node)
}

/// So many are named, and the rest counted.
const NAMED: usize = 4;

fn names(all: &[&Testimony]) -> String {
    let named: Vec<String> = all.iter().take(NAMED).map(|t| t.who.to_string()).collect();
    let named = named.join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
#[path = "root_tests.rs"]
mod tests;
