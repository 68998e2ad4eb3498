#![allow(clippy::unwrap_used)]
use super::marks::{Change, push, stretches, thin};
use super::*;
use crate::ids::{InstanceId, Role};
use crate::phase::Phase;
use crate::time::Time;
use proptest::prelude::*;
use std::collections::BTreeMap;

const SEC: u64 = 1_000_000;

fn rollout(index: u32) -> InstanceId {
    InstanceId {
        role: Role::Rollout,
        index,
    }
}

fn at(seconds: u64) -> Time {
    Time((1_000 + seconds) * SEC)
}

fn pull(seconds: u64, took_ms: u64) -> Transfer {
    Transfer {
        kind: TransferKind::PullFromRelay,
        at: at(seconds),
        number: seconds,
        who: Some(rollout(0)),
        bytes: 10,
        took_ms,
        sent: Sent::default(),
    }
}

/// Pages as the store keeps them: by level, oldest first.
#[derive(Default)]
struct Shelf(BTreeMap<u8, Vec<Page>>);

impl Shelf {
    fn add(&mut self, page: Page) {
        let mut next = Some(page);
        while let Some(page) = next.take() {
            let level = self.0.entry(page.level).or_default();
            level.push(page);
            if level.len() > PAGES {
                let (first, second) = (level.remove(0), level.remove(0));
                next = Some(merge(&first, &second));
            }
        }
    }

    fn overview(&self, from: Time, to: Time, cells: usize) -> Overview {
        let mut overview = Overview::new(from, to, cells);
        let pages = self.0.values().rev().flatten();
        pages.for_each(|page| overview.add(page));
        overview
    }
}

#[test]
fn a_page_tells_what_each_did_and_the_next_one_goes_on_from_there() {
    let mut tape = Tape::default();
    assert_eq!(tape.cut(at(0)), None);
    tape.phase(at(0), rollout(0), Some(Phase::Init));
    tape.phase(at(2), rollout(0), Some(Phase::Generating));
    tape.phase(at(3), rollout(0), Some(Phase::Generating));
    tape.phase(at(4), rollout(1), Some(Phase::Idle));
    tape.phase(at(6), rollout(1), None);
    assert!(!tape.is_due(at(9)) && tape.is_due(at(10)));
    let page = tape.cut(at(10)).unwrap();
    let marks: Vec<_> = page.lanes.iter().map(|l| l.marks.clone()).collect();
    let first = vec![
        Mark(0, Some(Phase::Init)),
        Mark(2_000, Some(Phase::Generating)),
    ];
    let second = vec![Mark(4_000, Some(Phase::Idle)), Mark(6_000, None)];
    assert_eq!(marks, [first, second]);
    let spent = [(Phase::Init, 2_000), (Phase::Generating, 8_000)];
    assert_eq!(page.lanes[0].spent, BTreeMap::from(spent));
    let next = tape.cut(at(20)).unwrap();
    let ids: Vec<_> = next.lanes.iter().map(|l| l.id).collect();
    assert_eq!(ids, [rollout(0)], "whose process ended is not in the next");
    assert_eq!(next.lanes[0].marks, [Mark(0, Some(Phase::Generating))]);
    assert_eq!((next.from, next.to), (at(10), at(20)));
}

#[test]
fn while_the_daemon_is_away_nothing_is_known_of_anyone() {
    let page = |from, to| Page {
        from: at(from),
        to: at(to),
        lanes: vec![Lane {
            id: rollout(0),
            marks: vec![Mark(0, Some(Phase::Idle))],
            spent: BTreeMap::from([(Phase::Idle, (to - from) * 1_000)]),
        }],
        ..Page::default()
    };
    let both = merge(&page(0, 10), &page(15, 25));
    let expected = [
        Mark(0, Some(Phase::Idle)),
        Mark(10_000, None),
        Mark(15_000, Some(Phase::Idle)),
    ];
    assert_eq!(both.lanes[0].marks, expected);
    assert_eq!((both.level, both.millis()), (1, 25_000));
    assert_eq!(both.lanes[0].spent, BTreeMap::from([(Phase::Idle, 20_000)]));
    let adjacent = merge(&page(0, 10), &page(10, 20));
    assert_eq!(adjacent.lanes[0].marks, [Mark(0, Some(Phase::Idle))]);
    let mut overview = Overview::new(at(0), at(25), 100);
    overview.add(&page(0, 10));
    overview.add(&page(15, 25));
    let spans = overview.rows().next().unwrap().spans;
    let times: Vec<_> = spans.iter().map(|s| (s.from, s.to)).collect();
    assert_eq!(times, [(at(0), at(10)), (at(15), at(25))]);
}

#[test]
fn a_week_of_quick_changes_stays_small_and_its_sums_stay_exact() {
    let mut shelf = Shelf::default();
    let mut tape = Tape::default();
    let pages = 7 * 24 * 360;
    for second in 0..pages {
        // Ten seconds in one call would be a page each; five changes in each are enough to merge.
        for part in 0..5 {
            let phase = [Phase::Generating, Phase::AwaitingTool][part as usize % 2];
            tape.phase(at(second * 10 + part * 2), rollout(0), Some(phase));
        }
        tape.moved(at(second * 10), pull(second, second % 1_000));
        shelf.add(tape.cut(at(second * 10 + 10)).unwrap());
    }
    let kept: usize = shelf.0.values().map(Vec::len).sum();
    assert!(kept <= PAGES * 11, "{kept} pages");
    let marks = shelf.0.values().flatten().flat_map(|p| &p.lanes);
    assert!(marks.clone().all(|lane| lane.marks.len() <= LANE_MARKS));
    let overview = shelf.overview(at(0), at(pages * 10), 600);
    let transfers = overview.transfers().clone();
    let (kind, tally) = transfers.tallies().next().unwrap();
    assert_eq!(kind, TransferKind::PullFromRelay);
    assert_eq!((tally.done, tally.slowest_ms), (pages, 999));
    assert!(transfers.slowest().len() <= 16 && transfers.slowest()[0].took_ms == 999);
    let row = overview.rows().next().unwrap();
    assert!(row.spans.len() <= 600);
    assert_eq!(row.spent[&Phase::Generating], pages * 6_000);
    assert_eq!(row.spent[&Phase::AwaitingTool], pages * 4_000);
    assert_eq!(row.spans[0].from, at(0));
    assert_eq!(row.spans.last().unwrap().to, at(pages * 10));
}

#[test]
fn of_many_instances_each_has_fewer_changes() {
    let mut tape = Tape::default();
    for index in 0..1_000 {
        for change in 0..50 {
            let phase = [Phase::Generating, Phase::Idle][change % 2];
            let now = Time(at(0).0 + change as u64 * 100_000);
            tape.phase(now, rollout(index), Some(phase));
        }
    }
    let page = tape.cut(at(10)).unwrap();
    let all: usize = page.lanes.iter().map(|l| l.marks.len()).sum();
    assert!(all <= 16_384, "{all}");
}

#[test]
fn what_failed_is_counted_and_the_slowest_are_kept_by_name() {
    let mut transfers = Transfers::default();
    for second in 0..100 {
        transfers.done(pull(second, 100 - second));
    }
    transfers.failed(TransferKind::Checkpoint);
    let took: Vec<_> = transfers.slowest().iter().map(|t| t.took_ms).collect();
    assert_eq!(took, (85..=100).rev().collect::<Vec<_>>());
    let tallies: Vec<_> = transfers.tallies().collect();
    assert_eq!(tallies[0].1.took_ms, 5_050);
    assert_eq!((tallies[1].1.failed, tallies[1].1.done), (1, 0));
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let state = prop_oneof![
        Just(None),
        Just(Some(Phase::Idle)),
        Just(Some(Phase::Generating)),
        Just(Some(Phase::PullWeights)),
    ];
    prop::collection::vec((0_u64..50, state), 0..80).prop_map(|steps| {
        let (mut at, mut all) = (0, Vec::new());
        for (wait, state) in steps {
            at += wait;
            push(&mut all, (at, state));
        }
        all
    })
}

proptest! {
    #[test]
    fn changes_are_in_order_and_each_is_one(all in changes()) {
        prop_assert!(all.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 != w[1].1), "{all:?}");
    }

    #[test]
    fn fewer_changes_are_still_in_order_and_each_cell_shows_what_took_most_of_it(
        all in changes(), limit in 1_usize..20,
    ) {
        let end = all.last().map_or(1, |(at, _)| at + 10);
        let few = thin(all.clone(), 0, end, limit);
        prop_assert!(few.len() <= limit.max(all.len().min(limit)));
        prop_assert!(few.windows(2).all(|w| w[0].0 < w[1].0), "{few:?}");
        if all.len() <= limit {
            prop_assert_eq!(few, all);
            return Ok(());
        }
        let limit = limit as u64;
        for cell in 0..limit {
            let (from, to) = (end * cell / limit, end * (cell + 1) / limit);
            if from == to {
                continue;
            }
            let shown = few.iter().rev().find(|(at, _)| *at <= from).and_then(|(_, s)| *s);
            let time = |state: Option<Phase>| -> u64 {
                let known: u64 = stretches(&all, end)
                    .filter(|(.., s)| *s == state)
                    .map(|(a, b, _)| b.min(to).saturating_sub(a.max(from)))
                    .sum();
                // Before the first change there was no process.
                let before = all[0].0.min(to).saturating_sub(from);
                known + if state.is_none() { before } else { 0 }
            };
            let states = [None, Some(Phase::Idle), Some(Phase::Generating), Some(Phase::PullWeights)];
            let most = states.into_iter().map(time).max().unwrap();
            prop_assert_eq!(time(shown), most, "cell {} of {:?}: {:?}", cell, all, shown);
        }
    }
}

#[test]
fn pulls_written_before_roads_were_told_are_read_and_count_none() {
    let stored = r#"{"tallies":{"pull_from_relay":{"done":2,"failed":0,"bytes":20,"took_ms":9,"slowest_ms":5}},
        "slowest":[{"kind":"pull_from_relay","at":7,"number":1,"who":null,"bytes":10,"took_ms":5}]}"#;
    let mut all: Transfers = serde_json::from_str(stored).unwrap();
    let mut newer = pull(3, 4);
    newer.sent = Sent {
        road: Road::named("shm"),
        bytes: 6,
        patched: 4,
        changed_words: 1,
    };
    all.done(newer);
    let (_, tally) = all.tallies().next().unwrap();
    assert_eq!((tally.done, tally.bytes, tally.sent), (3, 30, 6));
    assert_eq!(
        (tally.pulled, tally.patched, tally.changed_words),
        (10, 4, 1)
    );
    assert_eq!(tally.roads.taken().collect::<Vec<_>>(), [(Road::Shm, 1)]);
}
