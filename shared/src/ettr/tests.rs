#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const SEC: u64 = 1_000_000;

fn at(seconds: u64) -> Time {
    Time(1_000 * SEC + seconds * SEC)
}

/// The sliding ETTR and goodput straight from their definition, instant by instant of the journal.
fn recomputed(intervals: &[Interval], end: Time, origin: Time) -> (f64, f64) {
    let begin = Time(end.0.saturating_sub(300 * SEC)).max(origin);
    let overlap = |i: &Interval| i.to.min(end).since(i.from.max(begin)).as_secs_f64();
    let sum = |waste: bool| -> f64 {
        let those = intervals.iter().filter(|i| i.waste == waste);
        those.map(|i| i.value * overlap(i)).sum()
    };
    let span = end.since(begin).as_secs_f64();
    (
        sum(false) / span,
        ((sum(false) - sum(true)) / span).max(0.0),
    )
}

#[test]
fn the_trainers_recovery_counts_the_rollouts_share() {
    let mut ledger = Ledger::default();
    ledger.turn(at(0), 1.0, Cause::Both);
    ledger.turn(at(60), 0.6, Cause::TrainerRecovers);
    ledger.turn(at(80), 1.0, Cause::Both);
    let figures = ledger.figures(at(100));
    assert!((figures.total - 0.92).abs() < 1e-9, "{figures:?}");
    assert!((figures.sliding - 0.92).abs() < 1e-9);
    assert_eq!(figures.total, figures.goodput);
}

#[test]
fn what_comes_after_the_end_counts_for_nothing() {
    let mut ledger = Ledger::default();
    ledger.turn(at(0), 1.0, Cause::Both);
    ledger.turn(at(60), 0.0, Cause::TaskRestart);
    ledger.close(at(80));
    assert_eq!(ledger.figures(at(500)), ledger.figures(at(80)));
    assert_eq!(ledger.figures(at(500)).total, 0.75);
    ledger.turn(at(90), 1.0, Cause::Both);
    assert_eq!(
        ledger.figures(at(100)).total,
        0.7,
        "it goes on: the gap counts nothing"
    );
}

#[test]
fn a_lost_step_costs_goodput_the_trainers_share_but_not_ettr() {
    let mut ledger = Ledger::default();
    ledger.turn(at(0), 1.0, Cause::Generation);
    ledger.step_begins(at(10));
    ledger.turn(at(10), 1.0, Cause::Both);
    ledger.turn(at(20), 1.0, Cause::Training);
    let waste = ledger.step_lost(at(25), 0.4);
    assert_eq!(waste.len(), 2);
    assert!(
        waste
            .iter()
            .all(|i| i.waste && i.cause == Cause::StepRepeated)
    );
    let figures = ledger.figures(at(100));
    assert!((figures.total - 1.0).abs() < 1e-9);
    // 10 s at 0.4 and 5 s whole of 100 s.
    assert!((figures.goodput - 0.91).abs() < 1e-9, "{figures:?}");
}

#[test]
fn a_committed_step_can_no_longer_be_lost() {
    let mut ledger = Ledger::default();
    ledger.step_begins(at(0));
    ledger.turn(at(0), 1.0, Cause::Training);
    ledger.turn(at(5), 0.0, Cause::Blocked);
    ledger.step_kept(at(20), 0.0);
    assert!(ledger.step_lost(at(9), 0.5).is_empty());
}

#[test]
fn the_history_has_a_value_a_second_and_at_most_three_hundred() {
    let mut ledger = Ledger::default();
    ledger.turn(at(0), 1.0, Cause::Both);
    assert_eq!(ledger.figures(at(10)).history.len(), 10);
    assert_eq!(ledger.figures(at(5000)).history.len(), 300);
    assert_eq!(Ledger::default().figures(at(10)), Figures::default());
}

#[test]
fn equal_turns_make_one_interval() {
    let mut ledger = Ledger::default();
    assert_eq!(ledger.turn(at(0), 1.0, Cause::Both), None);
    assert_eq!(ledger.turn(at(1), 1.0, Cause::Both), None);
    let closed = ledger.turn(at(2), 0.0, Cause::Blocked).unwrap();
    assert_eq!((closed.from, closed.to), (at(0), at(2)));
}

proptest! {
    #[test]
    fn the_figures_can_be_recomputed_from_the_journal(
        turns in prop::collection::vec((1u64..90_000_000, 0u8..5), 1..120),
        origin in 0u64..SEC,
    ) {
        let (mut ledger, mut journal) = (Ledger::default(), Vec::new());
        let origin = Time(1_000 * SEC + origin);
        let mut now = origin;
        for (length, kind) in turns {
            let (value, cause) = match kind {
                0 => (1.0, Cause::Both),
                1 => (1.0, Cause::Generation),
                2 => (0.6, Cause::TrainerRecovers),
                3 => (0.0, Cause::TaskRestart),
                _ => (0.0, Cause::Blocked),
            };
            journal.extend(ledger.turn(now, value, cause));
            now = Time(now.0 + length);
            if kind == 3 {
                journal.extend(ledger.step_lost(now, 0.4));
                ledger.step_begins(now).into_iter().for_each(|i| journal.push(i));
            }
        }
        // The sliding window ends on a whole second, as the history's values do.
        let end = Time((now.0 / SEC + 1) * SEC);
        let figures = ledger.figures(end);
        journal.extend(ledger.close(end));
        let (total, goodput) = totals(&journal);
        prop_assert!((figures.total - total).abs() < 1e-6, "{figures:?} {total}");
        prop_assert!((figures.goodput - goodput).abs() < 1e-6, "{figures:?} {goodput}");
        let (sliding, useful) = recomputed(&journal, end, origin);
        prop_assert!((figures.sliding - sliding).abs() < 1e-6, "{} {sliding}", figures.sliding);
        let seen = figures.goodput_sliding;
        prop_assert!((seen - useful).abs() < 1e-6, "goodput {seen} {useful}");
        prop_assert_eq!(figures.history.last().copied(), Some(figures.sliding));
        prop_assert_eq!(figures.goodput_history.last().copied(), Some(seen));
        prop_assert_eq!(figures.goodput_history.len(), figures.history.len());
    }
}

#[test]
fn a_discarded_batch_wastes_its_generation_and_the_ahead_part_of_the_step_before() {
    let mut ledger = Ledger::default();
    let mut journal = Vec::new();
    journal.extend(ledger.turn(at(0), 1.0, Cause::Generation));
    journal.extend(ledger.turn(at(10), 1.0, Cause::Both));
    // Half of what finished until the commit was of the next batch.
    journal.extend(ledger.step_kept(at(20), 0.5));
    journal.extend(ledger.turn(at(25), 1.0, Cause::Generation));
    let lost = ledger.generation_lost(at(30), 0.4);
    let waste: Vec<_> = lost.iter().filter(|i| i.waste).collect();
    let seconds: Vec<f64> = waste.iter().map(|i| i.value * i.seconds()).collect();
    // Before: (10 alone + 10 beside x 0.6) / 2. Since: 5 beside x 0.6 + 5 alone.
    assert_eq!(seconds.len(), 2);
    assert!(
        (seconds[0] - 8.0).abs() < 1e-9 && (seconds[1] - 8.0).abs() < 1e-9,
        "{seconds:?}"
    );
    journal.extend(lost);
    journal.extend(ledger.turn(at(30), 0.0, Cause::TaskRestart));
    journal.extend(ledger.close(at(40)));
    let (total, goodput) = totals(&journal);
    assert!((total - 30.0 / 40.0).abs() < 1e-9 && (goodput - 14.0 / 40.0).abs() < 1e-9);
    assert!(ledger.generation_lost(at(40), 0.4).is_empty(), "lost once");
}

#[test]
fn waste_that_reaches_back_before_what_was_wasted_first_counts_whole() {
    let mut window = Window::default();
    window.add(at(50), at(60), 0.5);
    window.add(at(10), at(20), 1.0);
    assert_eq!(window.sum(at(0).0, at(100).0), 15.0 * SEC as f64);
    assert_eq!(window.sum(at(15).0, at(55).0), 7.5 * SEC as f64);
    // Older than the window keeps: nobody asks for it any more.
    window.add(at(2_000), at(2_001), 1.0);
    window.add(at(100), at(110), 1.0);
    assert_eq!(window.sum(at(0).0, at(3_000).0), SEC as f64);
}

/// One thing that may happen to a ledger.
#[derive(Clone, Copy, Debug)]
enum Happens {
    Turns(f64, Cause),
    Closes,
    StepBegins,
    StepLost,
    StepKept,
    GenerationLost,
    /// What changed is written down.
    Taken,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop::sample::select(vec![
        Happens::Turns(1.0, Cause::Both),
        Happens::Turns(1.0, Cause::Training),
        Happens::Turns(0.6, Cause::Generation),
        Happens::Turns(0.0, Cause::Recovery),
        Happens::Closes,
        Happens::StepBegins,
        Happens::StepLost,
        Happens::StepKept,
        Happens::GenerationLost,
        Happens::Taken,
        Happens::Taken,
    ])
}

proptest! {
    /// Seconds up to far beyond the window, so that some of it is trimmed and all of it left alone.
    #[test]
    fn the_parts_that_changed_make_up_the_ledger_whenever_they_are_taken(
        steps in prop::collection::vec((happens(), prop_oneof![0u64..3_000, 0u64..1_000_000]), 1..120),
    ) {
        let (mut ledger, mut written) = (Ledger::default(), std::collections::BTreeMap::new());
        let mut now = at(0);
        for (happens, ms) in steps.into_iter().chain([(Happens::Taken, 0)]) {
            now = now + Duration::from_millis(ms);
            match happens {
                Happens::Turns(value, cause) => drop(ledger.turn(now, value, cause)),
                Happens::Closes => drop(ledger.close(now)),
                Happens::StepBegins => drop(ledger.step_begins(now)),
                Happens::StepLost => drop(ledger.step_lost(now, 0.4)),
                Happens::StepKept => drop(ledger.step_kept(now, 0.25)),
                Happens::GenerationLost => drop(ledger.generation_lost(now, 0.4)),
                Happens::Taken => {
                    for (key, part) in ledger.take_parts(false) {
                        match part {
                            Some(part) => drop(written.insert(key, part)),
                            None => drop(written.remove(&key)),
                        }
                    }
                    prop_assert_eq!(Ledger::from_parts(written.clone()), Some(ledger.clone()));
                    // A window of 601 s, and one of its waste, have no more parts than that.
                    prop_assert!(written.len() <= 2 * 39 + 1 + ledger.since_step.len());
                }
            }
        }
    }
}

/// A disk may give back anything: no memory is taken for what it says, and nothing is counted beyond it.
#[test]
fn a_ledger_of_seconds_that_no_window_had_is_none() {
    let mut ledger = Ledger::default();
    let _ = ledger.turn(at(1_000), 1.0, Cause::Training);
    let _ = ledger.close(at(9_000));
    let parts: BTreeMap<PartKey, Part> = ledger
        .take_parts(true)
        .into_iter()
        .filter_map(|(key, part)| Some((key, part?)))
        .collect();
    assert!(Ledger::from_parts(parts.clone()).is_some());
    let sums = |ends: [u64; 2]| {
        let mut sums = serde_json::to_value(&parts[&PartKey::Sums]).unwrap();
        sums["counted"] = serde_json::json!({"seconds": ends[0], "end": ends[1]});
        Part::Sums(serde_json::from_value(sums).unwrap())
    };
    for ends in [
        [9, 8],
        [602, 9_000],
        [u32::MAX.into(), u64::MAX],
        [1, u64::MAX],
    ] {
        let mut damaged = parts.clone();
        damaged.insert(PartKey::Sums, sums(ends));
        assert_eq!(Ledger::from_parts(damaged), None, "{ends:?}");
    }
    let mut damaged = parts.clone();
    damaged.insert(PartKey::Counted(u64::MAX), Part::Seconds([1.0; 16]));
    assert_eq!(Ledger::from_parts(damaged), Ledger::from_parts(parts));
}

#[test]
fn an_interval_costs_the_parts_it_falls_into_however_much_the_ledger_remembers() {
    let mut ledger = Ledger::default();
    for second in 0..600 {
        let cause = [Cause::Both, Cause::Generation][second as usize % 2];
        ledger.turn(at(second), 1.0, cause);
    }
    assert!(ledger.take_parts(false).len() > 300);
    ledger.turn(at(600), 0.0, Cause::Recovery);
    let keys: Vec<_> = ledger
        .take_parts(false)
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    assert_eq!(keys.len(), 2, "{keys:?}");
    assert_eq!(ledger.take_parts(false), []);
}
