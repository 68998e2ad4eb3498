//! A run as its reports show it.
use crate::format::{clock, who};
use robust_proto::v1;
use robust_shared::core::IncidentOutcome;
use robust_shared::ettr::Cause;
use robust_shared::printable::one_line as printable;

/// A report with its history.
pub struct Run<'a> {
    /// Figures, incidents, steps.
    pub report: &'a v1::Report,
    /// Curves, lanes, transfers.
    pub history: &'a v1::History,
}

static NOTHING: std::sync::LazyLock<v1::History> = std::sync::LazyLock::new(v1::History::default);

impl<'a> Run<'a> {
    /// Of a report that has its history, or of one without.
    pub fn of(report: &'a v1::Report) -> Self {
        let history = report.history.as_ref().unwrap_or(&NOTHING);
        Self { report, history }
    }

    /// Seconds it lasted; at least one, as charts want.
    pub fn seconds(&self) -> f64 {
        let ms = self.history.to_ms.saturating_sub(self.history.from_ms);
        (ms as f64 / 1e3).max(1.0)
    }

    /// Seconds from its begin to an instant.
    pub fn since_begin(&self, at_ms: u64) -> f64 {
        at_ms.saturating_sub(self.history.from_ms) as f64 / 1e3
    }

    /// The same in words.
    pub fn elapsed(&self, at_ms: u64) -> String {
        clock(self.since_begin(at_ms))
    }

    /// When each fault struck, in seconds from the begin, with its incident's number.
    pub fn faults(&self) -> Vec<(u64, f64)> {
        let fault = |i: &v1::Incident| {
            (
                i.id,
                (self.since_begin(i.at_ms) - i.detect_ms / 1e3).max(0.0),
            )
        };
        self.report.incidents.iter().map(fault).collect()
    }

    /// What the time went to, longest first: in words, its seconds, its share of the run, whether it
    /// lies over the others.
    pub fn causes(&self) -> Vec<(&'a str, f64, f64, bool)> {
        let whole: f64 = self
            .history
            .causes
            .iter()
            .filter(|c| !c.waste)
            .map(|c| c.seconds)
            .sum();
        let row =
            |c: &'a v1::CauseTime| (cause(c), c.seconds, c.seconds / whole.max(1e-9), c.waste);
        let mut rows: Vec<_> = self.history.causes.iter().map(row).collect();
        rows.sort_by(|a, b| a.3.cmp(&b.3).then(b.1.total_cmp(&a.1)));
        rows
    }

    /// Phases of each role by their share of its time, largest first.
    pub fn phases(&self) -> Vec<(&'a str, Vec<(&'a str, f64)>)> {
        let mut roles: Vec<(&str, Vec<(&str, f64)>)> = Vec::new();
        for lane in &self.history.lanes {
            let known = roles.iter().position(|(role, _)| *role == lane.role);
            let at = known.unwrap_or_else(|| {
                roles.push((&lane.role, Vec::new()));
                roles.len() - 1
            });
            for spent in &lane.spent {
                let sums = &mut roles[at].1;
                match sums.iter_mut().find(|(phase, _)| *phase == spent.phase) {
                    Some((_, sum)) => *sum += spent.ms as f64,
                    None => sums.push((&spent.phase, spent.ms as f64)),
                }
            }
        }
        for (_, sums) in &mut roles {
            let whole: f64 = sums.iter().map(|(_, ms)| ms).sum();
            sums.iter_mut().for_each(|(_, ms)| *ms /= whole.max(1.0));
            sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        }
        roles
    }

    /// Mean time from fault to work of those that recovered, with their number.
    pub fn recovered(&self) -> (usize, f64) {
        let over = |i: &&v1::Incident| i.outcome() == Some(IncidentOutcome::Recovered);
        let times = self
            .report
            .incidents
            .iter()
            .filter(over)
            .map(|i| i.total_ms);
        let times: Vec<f64> = times.collect();
        (
            times.len(),
            times.iter().sum::<f64>() / times.len().max(1) as f64,
        )
    }

    /// Incidents of the whole run, told one by one or not.
    pub fn incidents_total(&self) -> u64 {
        self.report
            .incidents_total
            .max(self.report.incidents.len() as u64)
    }

    /// ` (2 of them follow from another)`, or nothing.
    pub fn incidents_folded(&self) -> String {
        let all = &self.report.incidents;
        match all.iter().filter(|i| i.under != 0).count() {
            0 => String::new(),
            1 => " (1 of them follows from another)".to_owned(),
            more => format!(" ({more} of them follow from another)"),
        }
    }

    /// A note on what is too short to be seen, if anything is.
    pub fn lanes_note(&self) -> Option<String> {
        let s = self.history.lane_resolution_s;
        (s > 0.0).then(|| {
            format!("Where a lane changed often, phases shorter than {s:.1} s are not told apart.")
        })
    }
}

/// The name of an incident's instance.
pub fn whom(i: &v1::Incident) -> String {
    who(&i.role, i.index)
}

/// A cause of the ledger in words.
fn cause(time: &v1::CauseTime) -> &str {
    let Some(cause) = time.cause() else {
        return &time.cause;
    };
    match cause {
        Cause::Initialisation => "start",
        Cause::Both => "training and generation",
        Cause::Training => "training alone",
        Cause::Generation => "generation alone",
        Cause::TrainerRecovers => "trainer recovers, generation goes on",
        Cause::Recovery => "recovery, nothing else runs",
        Cause::TaskRestart => "task restart",
        Cause::ContextSwitch => "slots change hands",
        Cause::Paused => cause.name(),
        Cause::Blocked => "weight sync, snapshot, waiting",
        Cause::StepRepeated => "of it: steps done again",
        Cause::GenerationRepeated => "of it: generated again",
    }
}

/// How pulls of one kind came, where anything is known of it.
pub struct Came {
    /// `12 by shm, 3 by tls`.
    pub roads: String,
    /// Bytes that did not have to come, of all that the versions have.
    pub saved: u64,
    /// Part of the words that changed in the chunks that patches made, 0 to 1; none if there was none.
    pub changed: Option<f64>,
}

impl Came {
    /// None for what is not pulled, and for pulls of which no daemon kept it.
    pub fn of(sum: &v1::TransferSum) -> Option<Self> {
        let road = |by: &v1::PullsByRoad| format!("{} by {}", by.pulls, printable(&by.road));
        let roads: Vec<String> = sum.roads.iter().map(road).collect();
        (!roads.is_empty()).then(|| Self {
            roads: roads.join(", "),
            saved: sum.pulled.saturating_sub(sum.sent),
            changed: changed(sum.changed_words, sum.patched),
        })
    }
}

/// Part of a version's bytes that words of two bytes have, 0 to 1; none of no bytes.
pub fn changed(words: u64, bytes: u64) -> Option<f64> {
    (bytes > 0).then(|| (words * 2) as f64 / bytes as f64)
}
