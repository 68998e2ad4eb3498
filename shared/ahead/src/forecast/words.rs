//! A forecast in sentences.
use super::{Act, Figure, Forecast};
use robust_shared::core::{Incident, Reply};
use robust_shared::ids::InstanceId;
use std::time::Duration;

/// A sentence names so many places.
const NAMED: usize = 6;

/// What is done, in the words of the replies and of the incidents that follow.
pub(super) fn plan(act: &Act, replies: &[Reply], incidents: &[&Incident]) -> Vec<String> {
    let left = match act {
        Act::Leave(node) => Some(format!("whoever is on {node} moves when he can")),
        Act::Ask(_) => None,
    };
    let replied = replies.iter().filter_map(Reply::words);
    let decided = incidents.iter().map(|i| format!("{}: {}", i.who, i.plan));
    left.into_iter().chain(replied).chain(decided).collect()
}

/// "a, b and 3 more"
fn names(all: &[InstanceId]) -> String {
    let named = all.iter().take(NAMED).map(InstanceId::to_string);
    let named = named.collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// `0.3 s`, `42 s`, `3 min 20 s`
fn time(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    let whole = seconds.round();
    if seconds < 9.95 {
        format!("{seconds:.1} s")
    } else if whole < 120.0 {
        format!("{whole:.0} s")
    } else {
        format!("{:.0} min {:.0} s", (whole / 60.0).floor(), whole % 60.0)
    }
}

fn count(n: u64, one: &str, many: &str) -> Option<String> {
    match n {
        0 => None,
        1 => Some(format!("1 {one}")),
        n => Some(format!("{n} {many}")),
    }
}

impl Forecast {
    /// All of it, a few lines.
    pub fn lines(&self) -> Vec<String> {
        if let Some(why) = &self.refused {
            return vec![format!("it would be refused: {why}")];
        }
        if let Some(why) = &self.unknown {
            return vec![format!("there is no forecast: {why}")];
        }
        let mut lines = self.plan.clone();
        if !self.restarts.is_empty() {
            lines.push(format!("new processes: {}", names(&self.restarts)));
        }
        if !self.waiting.is_empty() {
            lines.push(format!("without a slot: {}", names(&self.waiting)));
        }
        lines.extend(self.times());
        lines.extend(self.costs());
        if let Some(reason) = &self.ends {
            lines.push(format!("the job ends: {reason}"));
        }
        if !self.assumed.is_empty() {
            let each = |(figure, takes): &(Figure, Duration)| format!("{figure} {}", time(*takes));
            let all = self.assumed.iter().map(each).collect::<Vec<_>>().join(", ");
            lines.push(format!("not measured yet, so assumed: {all}"));
        }
        lines
    }

    fn times(&self) -> Option<String> {
        let parts = [
            ("detect", self.detect),
            ("restart", self.restart),
            ("reconnect", self.reconnect),
        ];
        let parts = parts
            .into_iter()
            .filter_map(|(name, took)| Some((name, took?)));
        let mut parts: Vec<String> = parts
            .map(|(name, took)| format!("{name} {}", time(took)))
            .collect();
        match self.whole {
            Some(whole) if !whole.is_zero() => {
                parts.push(format!("all at work after {}", time(whole)));
            }
            Some(_) => {}
            None if self.ends.is_some() => {}
            None => parts.push(format!("not all at work within {}", time(self.looked))),
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    fn costs(&self) -> Option<String> {
        let stall = self
            .stall
            .filter(|stall| *stall >= Duration::from_millis(50));
        let ettr = self.ettr_lost.filter(|lost| *lost >= 0.0005);
        let costs = [
            stall.map(|stall| format!("the trainer stands still for {}", time(stall))),
            count(
                self.steps_again,
                "step is begun again",
                "steps are begun again",
            ),
            count(
                self.moved,
                "request goes on at another engine",
                "requests go on at other engines",
            ),
            count(
                self.again,
                "trajectory is handed out again",
                "trajectories are handed out again",
            ),
            count(
                self.thrown_away,
                "trajectory is thrown away",
                "trajectories are thrown away",
            ),
            count(
                self.set_aside,
                "trajectory is set aside",
                "trajectories are set aside",
            ),
            ettr.map(|lost| format!("ETTR of the next 5 min lower by {:.1} %", lost * 100.0)),
        ];
        let costs: Vec<String> = costs.into_iter().flatten().collect();
        (!costs.is_empty()).then(|| costs.join(", "))
    }
}
