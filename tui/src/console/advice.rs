//! What an operator could do now, in one line that names the key: from a status to at most one advice.
//!
//! Alarms, a lost daemon and what an operator left behind have the line first. Of what is left troubles come before
//! tuning, and the first that holds is said. Shares are of the ledger's window of ten minutes, so nothing is said of a
//! younger job; one that was said stays until it is clearly over, so the line does not come and go with each status.
use crate::ending::is_over;
use crate::format::{clock, is_engine, who};
use robust_proto::v1::{NodeStatus, RoleStatus, Status, TimeWindow};
use robust_shared::core::NodeState;
use robust_shared::ettr::Slice;
use robust_shared::ids::Role;
use robust_shared::job::Mode;
use robust_shared::wire::JobState;

/// The window that shares are of, as the daemon calls it.
const WINDOW: &str = "10m";
const WINDOW_MS: u64 = 600_000;
/// So much of the window must have been counted.
const KNOWN: f64 = 0.9;
/// What was said holds down to this part of its bound.
const STAYS: f64 = 0.8;

/// The trainer waits for data for so much of the time.
const DATA: f64 = 0.25;
/// Nobody generates, for want of weights.
const WEIGHTS: f64 = 0.10;
/// Faults: found, recovered from, and what was done again.
const FAULTS: f64 = 0.10;
/// Faults of a node's own, of which older ones count less.
const NODE_FAULTS: u32 = 3;
/// The last of them is no older.
const NODE_FAULT_MS: u64 = 3_600_000;
/// Restarts of one instance for faults within the window.
const RESTARTS: usize = 3;
/// Uploads that failed, the last of them too.
const UPLOADS: u64 = 3;
/// Characters of a name: the key at the end of the line must be seen.
const NAME: usize = 14;

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A node has faults again and again.
    Node,
    /// An instance is restarted again and again.
    Restarts,
    /// Checkpoints do not get into the object store.
    Uploads,
    /// Faults cost much time.
    Faults,
    /// The trainer waits for data.
    Data,
    /// Rollouts wait for weights.
    Weights,
}

/// One line for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What it is about.
    pub kind: Kind,
    /// What was seen.
    seen: String,
    /// What to do about it, with the key.
    remedy: &'static str,
}

impl Advice {
    /// Both, in a line of at most `width` cells where that is enough; else the remedy is what stands first.
    pub fn line(&self, width: usize) -> String {
        let Advice { seen, remedy, .. } = self;
        match seen.chars().count() + 2 + remedy.len() <= width {
            true => format!("{seen}: {remedy}"),
            false => format!("{remedy}: {seen}"),
        }
    }
}

/// What was seen, and what to do about it.
type Said = Option<(String, &'static str)>;

/// What is to be said of this status, where the advice of this kind is on the screen.
pub fn advise(s: &Status, shown: Option<Kind>) -> Option<Advice> {
    if is_over(&s.state) || s.state() == Some(JobState::Starting) {
        return None;
    }
    let known = Known { s, shown };
    let all = [
        (Kind::Node, known.node()),
        (Kind::Restarts, known.restarts()),
        (Kind::Uploads, known.uploads()),
        (Kind::Faults, known.faults()),
        (Kind::Data, known.data()),
        (Kind::Weights, known.weights()),
    ];
    let mut all = all.into_iter();
    all.find_map(|(kind, said)| said.map(|(seen, remedy)| Advice { kind, seen, remedy }))
}

/// What an advice is made of.
struct Known<'a> {
    s: &'a Status,
    shown: Option<Kind>,
}

impl Known<'_> {
    fn node(&self) -> Said {
        let now = self.s.now_ms;
        let fails = |n: &&NodeStatus| {
            let lately = now.saturating_sub(n.last_fault_ms) <= NODE_FAULT_MS;
            n.state() == Some(NodeState::Here) && !n.cordoned && n.faults >= NODE_FAULTS && lately
        };
        // Where there is no other node, nobody gains by having none.
        let others = self.s.nodes.len() > 1;
        let nodes = self.s.nodes.iter().filter(|_| others);
        let worst = nodes.filter(fails).max_by_key(|n| n.faults)?;
        let ago = clock(now.saturating_sub(worst.last_fault_ms) as f64 / 1e3);
        let (name, faults) = (named(&worst.name), worst.faults);
        let seen = format!("{name} had {faults} faults, the last {ago} ago");
        Some((seen, "`C` on screen 7 cordons it"))
    }

    fn restarts(&self) -> Said {
        let now = self.s.now_ms;
        let count = |r: &RoleStatus| {
            let lately = r
                .restarted
                .iter()
                .filter(|one| one.incident != 0 && now.saturating_sub(one.at_ms) <= WINDOW_MS);
            lately.count()
        };
        let counted = self.s.roles.iter().map(|r| (count(r), r));
        let (times, worst) = counted
            .filter(|(times, _)| *times >= RESTARTS)
            .max_by_key(|(times, _)| *times)?;
        let remedy = match is_engine(&worst.role) && !worst.quarantined {
            true => "`Q` on it ends its traffic",
            false => "`2` has its log",
        };
        let name = who(&worst.role, worst.index);
        let seen = format!("{name} was restarted {times} times in 10 minutes");
        Some((seen, remedy))
    }

    fn uploads(&self) -> Said {
        let remote = self.s.remote.as_ref()?;
        let fails = !remote.failing.is_empty() && remote.failed >= UPLOADS;
        let last = match remote.step {
            Some(step) => format!("since step {step}"),
            None => "at all".to_owned(),
        };
        let seen = format!("no checkpoint got into the object store {last}");
        fails.then_some((seen, "`5` says why"))
    }

    fn faults(&self) -> Said {
        let of_faults = [
            Slice::Detect,
            Slice::Restart,
            Slice::Reconnect,
            Slice::Replayed,
        ];
        let share = self.share(&of_faults)?;
        let seen = format!("faults cost {} of the last 10 minutes", percent(share));
        let said = (seen, "`6` shows them");
        self.over(share, FAULTS, Kind::Faults).then_some(said)
    }

    /// In mode sync it is how the job works; without rollouts of their own there are none to add.
    fn data(&self) -> Said {
        let share = self.share(&[Slice::WaitsForData])?;
        let helps = self.s.mode() != Some(Mode::Sync)
            && self.s.roles.iter().any(|r| r.role() == Some(Role::Rollout));
        let percent = percent(share);
        let seen = format!("the trainer waited {percent} of 10 minutes for data");
        let said = (seen, "`S` on a rollout adds one");
        (helps && self.over(share, DATA, Kind::Data)).then_some(said)
    }

    fn weights(&self) -> Said {
        let share = self.share(&[Slice::WaitsForWeights])?;
        let percent = percent(share);
        let seen = format!("rollouts waited {percent} of the last 10 minutes for weights");
        let said = (seen, "`4` shows why");
        self.over(share, WEIGHTS, Kind::Weights).then_some(said)
    }

    /// Part of the window, where enough of it was counted.
    fn share(&self, slices: &[Slice]) -> Option<f64> {
        let windows = &self.s.time_spent.as_ref()?.windows;
        let window = windows.iter().find(|w| w.name == WINDOW)?;
        let length = window.to_ms.saturating_sub(window.from_ms) as f64 / 1e3;
        let all: f64 = window.slices.iter().map(|s| s.seconds).sum();
        (length > 0.0 && all >= length * KNOWN).then(|| seconds(window, slices) / length)
    }

    fn over(&self, share: f64, bound: f64, kind: Kind) -> bool {
        let bound = match self.shown == Some(kind) {
            true => bound * STAYS,
            false => bound,
        };
        share >= bound
    }
}

fn seconds(window: &TimeWindow, wanted: &[Slice]) -> f64 {
    let of = |name: &str| wanted.iter().any(|slice| slice.name() == name);
    let slices = window.slices.iter().filter(|s| of(&s.name));
    slices.map(|s| s.seconds).sum()
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

fn named(name: &str) -> String {
    name.chars().take(NAME).collect()
}
