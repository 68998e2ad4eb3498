//! Which phase each instance was in when. While the timeline is shown the daemon tells each phase that
//! ended; until then, and in old recordings, it is pieced together from since when, by its status, an
//! instance is in its phase. What is told afterwards is put where it belongs.
use robust_proto::v1;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Older than this is forgotten.
pub const KEPT_MS: u64 = 15 * 60_000;
/// Spans kept of one instance.
const SPANS: usize = 600;

/// Time that an instance was in one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    phase: u16,
    /// Unix ms.
    pub from: u64,
    /// Unix ms; where it was last seen.
    pub to: u64,
    /// The life.
    pub incarnation: u64,
}

/// Phases of every instance of a job.
#[derive(Debug, Default)]
pub struct History {
    names: Vec<String>,
    numbers: HashMap<String, u16>,
    spans: BTreeMap<(String, u32), VecDeque<Span>>,
    /// Unix ms; when the last phase ended that was told.
    told_until: u64,
}

impl History {
    /// Takes in a status.
    pub fn observe(&mut self, status: &v1::Status) {
        let now = status.now_ms;
        for role in &status.roles {
            let phase = self.number(phase_of(role));
            // Of a process that is gone the time in its phase says nothing.
            let began =
                (phase == self.number(&role.phase)).then(|| now.saturating_sub(role.phase_ms));
            let spans = match self.spans.get_mut(&(role.role.clone(), role.index)) {
                Some(spans) => spans,
                None => self
                    .spans
                    .entry((role.role.clone(), role.index))
                    .or_default(),
            };
            add(spans, phase, began, now, role.incarnation);
        }
    }

    /// Takes in phases that ended.
    pub fn told(&mut self, spans: &[v1::PhaseSpan]) {
        for told in spans {
            let span = Span {
                phase: self.number(&told.phase),
                from: told.started_ms,
                to: told.started_ms + told.ms,
                incarnation: told.incarnation,
            };
            self.told_until = self.told_until.max(span.to);
            let known = self.spans.entry((told.role.clone(), told.index));
            put(known.or_default(), span);
        }
    }

    /// Until when (Unix ms) all phases that ended were told.
    pub fn told_until(&self) -> u64 {
        self.told_until
    }

    /// The phases of an instance, oldest first.
    pub fn of(&self, role: &str, index: u32) -> impl DoubleEndedIterator<Item = &Span> {
        let found = self.spans.get(&(role.to_owned(), index));
        found.into_iter().flatten()
    }

    /// The phase at each of `cells` equal parts of the time from `from` to `to`; where several were,
    /// the one that took most of it.
    pub fn cells(
        &self,
        role: &str,
        index: u32,
        from: u64,
        to: u64,
        cells: usize,
    ) -> Vec<Option<u16>> {
        let mut shares = vec![(0_u64, None); cells];
        let whole = to.saturating_sub(from).max(1);
        let at = |t: u64| from + whole * t / cells as u64;
        for span in self.of(role, index).filter(|s| s.to >= from && s.from < to) {
            let first = span.from.saturating_sub(from) * cells as u64 / whole;
            let last = span.to.saturating_sub(from) * cells as u64 / whole;
            for cell in first..=last.min(cells as u64 - 1) {
                let part = span
                    .to
                    .min(at(cell + 1))
                    .saturating_sub(span.from.max(at(cell)));
                let share = &mut shares[cell as usize];
                if part > share.0 || share.1.is_none() {
                    *share = (part, Some(span.phase));
                }
            }
        }
        shares.into_iter().map(|(_, phase)| phase).collect()
    }

    /// The name of a span's phase.
    pub fn name(&self, span: &Span) -> &str {
        self.phase(span.phase)
    }

    /// The name of a phase.
    pub fn phase(&self, number: u16) -> &str {
        self.names
            .get(usize::from(number))
            .map_or("", String::as_str)
    }

    fn number(&mut self, name: &str) -> u16 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = u16::try_from(self.names.len()).unwrap_or(u16::MAX);
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }
}

/// A process that is gone is in no phase: its state says more.
fn phase_of(role: &v1::RoleStatus) -> &str {
    match role.state.as_str() {
        "down" => "down",
        "recovering" if role.phase == "init" || role.phase.is_empty() => "recovering",
        "done" => "done",
        _ => &role.phase,
    }
}

/// Takes in what an instance is at now.
fn add(spans: &mut VecDeque<Span>, phase: u16, began: Option<u64>, now: u64, incarnation: u64) {
    let mut from = began.unwrap_or(now);
    if let Some(last) = spans.back_mut() {
        let same = (last.phase, last.incarnation) == (phase, incarnation);
        if same && began.is_none_or(|began| began <= last.to) {
            last.to = now.max(last.to);
            return;
        }
        // What was seen stands: a later word about the past only fills the gap.
        last.to = last.to.max(from.min(now));
        from = from.max(last.to);
    }
    spans.push_back(Span {
        phase,
        from,
        to: now.max(from),
        incarnation,
    });
    forget_old(spans, now);
}

fn forget_old(spans: &mut VecDeque<Span>, now: u64) {
    while spans.len() > SPANS || spans.front().is_some_and(|s| s.to + KEPT_MS < now) {
        spans.pop_front();
    }
}

/// Puts a span of the past where it belongs, unless it is there.
fn put(spans: &mut VecDeque<Span>, span: Span) {
    /// Times are rounded to milliseconds twice.
    const ROUNDED_MS: u64 = 2;
    let later = spans.iter().rev();
    let later = later
        .take_while(|s| s.from > span.from + ROUNDED_MS)
        .count();
    let at = spans.len() - later;
    let mut to = span.to;
    if let Some(next) = spans.get(at) {
        to = to.min(next.from);
    }
    if let Some(before) = at.checked_sub(1).and_then(|i| spans.get_mut(i)) {
        let same = (before.phase, before.incarnation) == (span.phase, span.incarnation);
        if same && before.from.abs_diff(span.from) <= ROUNDED_MS {
            before.to = to.max(before.from);
            return;
        }
        before.to = before.to.min(span.from).max(before.from);
    }
    let to = to.max(span.from);
    spans.insert(at, Span { to, ..span });
    forget_old(spans, 0);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn status(now_ms: u64, state: &str, phase: &str, phase_ms: u64) -> v1::Status {
        let role = v1::RoleStatus {
            role: "trainer".into(),
            state: state.into(),
            phase: phase.into(),
            phase_ms,
            ..Default::default()
        };
        v1::Status {
            now_ms,
            roles: vec![role],
            ..Default::default()
        }
    }

    fn seen(history: &History) -> Vec<(String, u64, u64)> {
        let spans = history.of("trainer", 0);
        spans
            .map(|s| (history.name(s).to_owned(), s.from, s.to))
            .collect()
    }

    #[test]
    fn a_phase_begins_when_the_daemon_says_and_ends_where_the_next_begins() {
        let mut history = History::default();
        history.observe(&status(10_000, "running", "update", 400));
        history.observe(&status(10_250, "running", "update", 650));
        history.observe(&status(10_500, "running", "snapshot", 100));
        let expected = [("update", 9_600, 10_400), ("snapshot", 10_400, 10_500)];
        let expected = expected.map(|(p, a, b)| (p.to_owned(), a, b));
        assert_eq!(seen(&history), expected);
    }

    fn told(phase: &str, started_ms: u64, ms: u64, incarnation: u64) -> v1::PhaseSpan {
        v1::PhaseSpan {
            role: "trainer".into(),
            phase: phase.into(),
            started_ms,
            ms,
            incarnation,
            ..Default::default()
        }
    }

    #[test]
    fn phases_between_two_statuses_are_put_in_once_as_the_daemon_tells_them() {
        let mut history = History::default();
        history.observe(&status(10_000, "running", "update", 400));
        history.observe(&status(12_000, "running", "await_batch", 499));
        let ended = [
            told("update", 9_600, 900, 0),
            told("snapshot", 10_500, 300, 0),
            told("publish", 10_800, 700, 0),
        ];
        let expected = [
            ("update", 9_600, 10_500),
            ("snapshot", 10_500, 10_800),
            ("publish", 10_800, 11_500),
            ("await_batch", 11_501, 12_000),
        ];
        let expected = expected.map(|(p, a, b)| (p.to_owned(), a, b));
        history.told(&ended);
        assert_eq!(seen(&history), expected);
        // A connection that was made anew may tell the last ones again.
        history.told(&ended);
        assert_eq!(seen(&history), expected);
        assert_eq!(history.told_until(), 11_500);
        history.observe(&status(12_500, "running", "update", 100));
        history.told(&[told("await_batch", 11_500, 900, 0)]);
        let names: Vec<String> = seen(&history).into_iter().map(|(name, ..)| name).collect();
        let all = ["update", "snapshot", "publish", "await_batch", "update"];
        assert_eq!(names, all);
    }

    #[test]
    fn what_is_told_of_a_life_does_not_paint_over_its_recovery() {
        let mut history = History::default();
        history.observe(&status(10_000, "running", "update", 400));
        history.observe(&status(10_250, "recovering", "init", 100));
        let mut again = status(12_000, "running", "await_batch", 100);
        again.roles[0].incarnation = 1;
        history.observe(&again);
        history.told(&[told("update", 9_600, 600, 0), told("init", 11_000, 900, 1)]);
        let names: Vec<String> = seen(&history).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["update", "recovering", "init", "await_batch"]);
        assert_eq!(
            seen(&history)[1].2,
            11_000,
            "until the new process was there"
        );
    }

    #[test]
    fn what_ended_before_the_first_status_is_shown_too_and_no_more_than_is_kept() {
        let mut history = History::default();
        let many = (0..SPANS as u64 + 50).map(|n| {
            let phase = ["update", "publish"][n as usize % 2];
            told(phase, n * 100, 100, 1)
        });
        history.told(&many.collect::<Vec<_>>());
        let spans = seen(&history);
        assert_eq!(spans.len(), SPANS);
        assert_eq!(spans[0].1, 5_000, "the oldest went");
    }

    #[test]
    fn the_same_phase_of_a_new_round_is_a_span_of_its_own() {
        let mut history = History::default();
        history.observe(&status(10_000, "running", "update", 100));
        history.observe(&status(10_400, "running", "update", 50));
        assert_eq!(seen(&history).len(), 2);
        assert_eq!(seen(&history)[1].1, 10_350);
    }

    #[test]
    fn a_cell_shows_what_took_most_of_it_and_the_unknown_is_empty() {
        let mut history = History::default();
        history.observe(&status(2_000, "running", "update", 1_000));
        history.observe(&status(4_000, "running", "snapshot", 900));
        let cells = history.cells("trainer", 0, 0, 4_000, 4);
        let names: Vec<_> = cells.iter().map(|c| c.map(|n| history.phase(n))).collect();
        assert_eq!(
            names,
            [None, Some("update"), Some("update"), Some("snapshot")]
        );
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let mut history = History::default();
        history.observe(&status(1_000, "running", "update", 0));
        history.observe(&status(1_500, "running", "snapshot", 0));
        history.observe(&status(2_000 + KEPT_MS, "running", "publish", 0));
        assert_eq!(seen(&history).last().unwrap().0, "publish");
        assert!(seen(&history).iter().all(|s| s.0 != "update"));
    }
}
