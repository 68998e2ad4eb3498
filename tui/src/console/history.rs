//! Which phase each instance was in when, from two sources. While the console follows them (the timeline
//! and the roles are shown, or it records) the daemon *tells* each phase that ended, and this counts.
//! Otherwise, in old recordings and for what goes on, it is *seen*: by its status an instance is in its
//! phase since then. What is told afterwards takes the place of what was seen.
use robust_proto::v1;
use robust_shared::phase::Phase;
use robust_shared::wire::InstanceState;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Older than this is forgotten.
pub const KEPT_MS: u64 = 15 * 60_000;
/// Spans kept of one instance, some 100 KiB. Where there are more, the older half is kept coarser: a trainer of short steps
/// has more phases in two minutes than an engine in fifteen, and its row is to reach as far back.
const SPANS: usize = 2_400;
/// The older half is divided into about so many stretches at least.
const STRETCHES: u64 = SPANS as u64 / 8;

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
    /// By the daemon, not pieced together here.
    told: bool,
}

impl Span {
    /// The same phase of the same life.
    fn is_like(&self, other: &Span) -> bool {
        (self.phase, self.incarnation) == (other.phase, other.incarnation)
    }
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
                told: true,
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
    let starts = role.phase.is_empty() || role.phase() == Some(Phase::Init);
    match role.state() {
        Some(InstanceState::Down | InstanceState::Done) => &role.state,
        Some(InstanceState::Recovering) if starts => &role.state,
        _ => &role.phase,
    }
}

/// Takes in what an instance is at now.
fn add(spans: &mut VecDeque<Span>, phase: u16, began: Option<u64>, now: u64, incarnation: u64) {
    let mut seen = Span {
        phase,
        from: began.unwrap_or(now),
        to: now,
        incarnation,
        told: false,
    };
    if let Some(last) = spans.back_mut() {
        // A status may be older than what was told since.
        if now < last.to {
            return;
        }
        if !last.told {
            if last.is_like(&seen) && began.is_none_or(|began| began <= last.to) {
                last.to = now;
                return;
            }
            last.to = last.to.max(seen.from.min(now));
        }
        seen.from = seen.from.max(last.to);
    }
    seen.to = now.max(seen.from);
    spans.push_back(seen);
    forget_old(spans, now);
}

fn forget_old(spans: &mut VecDeque<Span>, now: u64) {
    while spans.front().is_some_and(|s| s.to + KEPT_MS < now) {
        spans.pop_front();
    }
    if spans.len() > SPANS {
        coarsen(spans);
    }
    // Of a process that dies again and again each life is a span of its own.
    while spans.len() > SPANS {
        spans.pop_front();
    }
}

/// Joins neighbours of the older half to stretches, each of which is in the phase that took most of it.
fn coarsen(spans: &mut VecDeque<Span>) {
    let newer = spans.split_off(spans.len() / 2);
    let covered = match (spans.front(), newer.front()) {
        (Some(first), Some(next)) => next.from.saturating_sub(first.from),
        _ => 0,
    };
    let stretch = covered / STRETCHES;
    let mut shares: Vec<(u16, u64)> = Vec::new();
    let mut coarse: VecDeque<Span> = VecDeque::new();
    for span in spans.drain(..) {
        let share = (span.phase, span.to.saturating_sub(span.from));
        match coarse.back_mut() {
            Some(last) if joins(last, &span, stretch) => {
                match shares.iter_mut().find(|(phase, _)| *phase == span.phase) {
                    Some((_, ms)) => *ms += share.1,
                    None => shares.push(share),
                }
                let most = shares.iter().max_by_key(|(_, ms)| *ms);
                last.phase = most.map_or(last.phase, |(phase, _)| *phase);
                (last.to, last.told) = (span.to, last.told && span.told);
            }
            _ => {
                shares = vec![share];
                coarse.push_back(span);
            }
        }
    }
    coarse.extend(newer);
    *spans = coarse;
}

/// Whether two neighbours are one stretch: of one life, with nothing unknown between them to speak of.
fn joins(last: &Span, next: &Span, stretch: u64) -> bool {
    let gap = next.from.saturating_sub(last.to);
    last.incarnation == next.incarnation
        && gap <= stretch / 4
        && next.to.saturating_sub(last.from) <= stretch
}

/// Puts in a span that was told, in place of what was seen then; told again, it is there already.
fn put(spans: &mut VecDeque<Span>, span: Span) {
    let mut late = spans.iter().rev().take_while(|s| s.to >= span.from);
    if late.any(|s| s.told && s.is_like(&span) && s.from == span.from) {
        return;
    }
    let mut after = Vec::new();
    while let Some(last) = spans.pop_back_if(|s| s.to > span.from) {
        if last.told {
            // Told in the order of their ends, so only what comes again can be before it.
            after.push(last);
            continue;
        }
        let rest = Span {
            from: last.from.max(span.to),
            ..last
        };
        // The same one by another clock is over, however long it was seen.
        let is_next = last.from >= span.to || !last.is_like(&span);
        if rest.from < rest.to && is_next {
            after.push(rest);
        }
        if last.from < span.from {
            let to = span.from;
            spans.push_back(Span { to, ..last });
            break;
        }
    }
    let later = after.iter().take_while(|s| s.from >= span.to).count();
    after.insert(later, span);
    spans.extend(after.into_iter().rev());
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
    fn short_phases_stand_where_they_were_though_the_next_was_seen_first() {
        let mut history = History::default();
        history.observe(&status(10_500, "running", "update", 398));
        history.told(&[
            told("old_logprob", 10_000, 101, 0),
            told("advantage", 10_101, 1, 0),
        ]);
        history.observe(&status(10_750, "running", "update", 648));
        let expected = [
            ("old_logprob", 10_000, 10_101),
            ("advantage", 10_101, 10_102),
            ("update", 10_102, 10_750),
        ];
        let expected = expected.map(|(p, a, b)| (p.to_owned(), a, b));
        assert_eq!(seen(&history), expected);
    }

    #[test]
    fn what_was_seen_by_another_clock_is_the_same_phase_as_what_is_told_of_it() {
        let mut history = History::default();
        history.observe(&status(10_000, "running", "init", 960));
        history.observe(&status(10_250, "running", "generating", 45));
        history.told(&[told("init", 9_000, 1_200, 0)]);
        history.observe(&status(10_500, "running", "generating", 295));
        let expected = [("init", 9_000, 10_200), ("generating", 10_205, 10_500)];
        let expected = expected.map(|(p, a, b)| (p.to_owned(), a, b));
        assert_eq!(seen(&history), expected);
    }

    #[test]
    fn a_status_older_than_what_was_told_adds_nothing() {
        let mut history = History::default();
        history.told(&[
            told("update", 10_000, 500, 0),
            told("publish", 10_500, 90, 0),
        ]);
        let before = seen(&history);
        history.observe(&status(10_400, "running", "update", 400));
        assert_eq!(seen(&history), before);
        history.observe(&status(10_700, "running", "await_batch", 100));
        assert_eq!(seen(&history).len(), 3);
    }

    #[test]
    fn a_round_that_goes_on_stays_when_the_one_before_is_told() {
        let mut history = History::default();
        history.observe(&status(10_000, "running", "generating", 100));
        history.observe(&status(10_250, "running", "generating", 60));
        history.told(&[told("generating", 9_900, 290, 0)]);
        let expected = [
            ("generating", 9_900, 10_190),
            ("generating", 10_190, 10_250),
        ];
        let expected = expected.map(|(p, a, b)| (p.to_owned(), a, b));
        assert_eq!(seen(&history), expected);
    }

    /// A trainer with eight phases a second, most of the time in `update`, until `until`.
    fn short_steps(until: u64) -> Vec<v1::PhaseSpan> {
        let phases = (0..until / 125).map(|n| {
            let phase = ["update", "publish"][n as usize % 2];
            let (from, ms) = match phase {
                "update" => (n * 125, 200),
                _ => (n * 125 + 75, 50),
            };
            told(phase, from, ms, 1)
        });
        phases.collect()
    }

    #[test]
    fn a_row_of_short_phases_reaches_as_far_back_as_one_of_long_ones_in_bounded_room() {
        let mut history = History::default();
        history.told(&short_steps(KEPT_MS));
        let spans = seen(&history);
        assert!(spans.len() <= SPANS, "{}", spans.len());
        assert_eq!(spans[0].1, 0, "the oldest is there");
        let gaps = spans.windows(2).filter(|pair| pair[0].2 != pair[1].1);
        assert_eq!(gaps.count(), 0, "nothing between was lost");
        let coarse = spans.iter().map(|(_, from, to)| to - from).max().unwrap();
        assert!(coarse <= KEPT_MS / STRETCHES, "{coarse} ms in one stretch");
        // Two minutes on 120 columns are exact, and the fifteen are what took most of each column.
        let exact = spans.iter().filter(|s| s.1 + 120_000 >= KEPT_MS);
        assert!(exact.clone().count() > 900, "{}", exact.count());
        let cells = history.cells("trainer", 0, 0, KEPT_MS, 120);
        let update = history.number("update");
        assert!(cells.iter().all(|cell| *cell == Some(update)), "{cells:?}");
    }

    #[test]
    fn lives_are_not_joined_and_the_oldest_of_too_many_goes() {
        let mut history = History::default();
        let many = (0..SPANS as u64 + 50).map(|n| told("init", n * 10, 10, n));
        history.told(&many.collect::<Vec<_>>());
        let spans = seen(&history);
        assert_eq!((spans.len(), spans[0].1), (SPANS, 500));
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
