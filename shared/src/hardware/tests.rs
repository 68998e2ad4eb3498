//! The policy: the table, the trend and the watch.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::time::Time;
use proptest::prelude::*;
use std::time::Duration;

fn at(seconds: u64) -> Time {
    Time::default() + Duration::from_secs(seconds)
}

#[test]
fn the_xid_table_is_sorted_so_that_every_row_is_found() {
    assert!(xid::TABLE.is_sorted_by(|a, b| a.code < b.code));
    for row in xid::TABLE {
        assert_eq!(xid(row.code), *row);
    }
}

#[test]
fn an_applications_own_errors_are_notes_and_broken_hardware_is_a_fault() {
    for code in [13, 31, 32, 43, 45, 69] {
        assert_eq!(FindingKind::Xid(code).advice(), Advice::Note, "{code}");
    }
    for code in [48, 62, 64, 74, 79, 95, 119, 120] {
        assert_eq!(FindingKind::Xid(code).advice(), Advice::Fault, "{code}");
    }
    for code in [63, 92, 94] {
        assert_eq!(FindingKind::Xid(code).advice(), Advice::Drain, "{code}");
    }
    assert_eq!(Finding::xid(4711).advice(), Advice::Note);
    let text = "Xid 79: the GPU has fallen off the bus";
    assert_eq!(Finding::xid(79).text, text);
    assert!(Advice::Ignore < Advice::Note && Advice::Drain < Advice::Fault);
}

const SLOPE: Slope = Slope::per_minutes(10, 1);

#[test]
fn a_trend_fires_once_and_again_only_after_it_was_flat() {
    let mut trend = Trend::new(SLOPE);
    let mut fired = Vec::new();
    for second in 0..400 {
        // Rises by one a second, stands still from 100 to 300, rises again.
        let counter = second.min(100) + u64::saturating_sub(second, 300);
        fired.extend(trend.add(at(second), counter).map(|rise| (second, rise.by)));
    }
    assert_eq!(fired, [(11, 11), (311, 11)]);
}

#[test]
fn a_counter_that_was_reset_starts_anew() {
    let mut trend = Trend::new(SLOPE);
    assert_eq!(trend.add(at(0), 1_000), None);
    assert_eq!(trend.add(at(1), 0), None);
    assert_eq!(trend.add(at(2), 8), None);
    assert_eq!(trend.add(at(3), 16), None);
    assert_eq!(trend.add(at(4), 24).unwrap().by, 24);
}

proptest! {
    #[test]
    fn a_trend_never_fires_on_a_constant(
        value: u64, gaps in prop::collection::vec(0u64..100, 1..200), rise in 0u64..100,
    ) {
        let mut trend = Trend::new(Slope { rise, ..SLOPE });
        let mut now = 0;
        for gap in gaps {
            now += gap;
            prop_assert_eq!(trend.add(at(now), value), None);
        }
    }

    #[test]
    fn a_trend_never_fires_on_one_single_jump(
        from in 0u64..1_000_000, jump in 1u64..1_000_000_000, when in 0usize..100, rise in 0u64..100,
    ) {
        let mut trend = Trend::new(Slope { rise, ..SLOPE });
        for step in 0..100usize {
            let value = if step < when { from } else { from + jump };
            prop_assert_eq!(trend.add(at(step as u64), value), None);
        }
    }

    #[test]
    fn a_trend_fires_on_a_steady_rise_as_soon_as_it_is_steep_enough(
        from in 0u64..1_000_000, per_step in 1u64..50, gap in 1u64..5, rise in 1u64..40,
    ) {
        let slope = Slope { rise, window: Duration::from_secs(gap * (rise + 2)) };
        let mut trend = Trend::new(slope);
        let fired: Vec<u64> = (0..200u64)
            .filter(|step| trend.add(at(step * gap), from + step * per_step).is_some())
            .collect();
        // One step is left out, the others must make up the rise.
        prop_assert_eq!(fired, [rise.div_ceil(per_step) + 1]);
    }

    #[test]
    fn a_trend_never_fires_below_its_slope(
        from in 0u64..1_000_000, rise in 2u64..50, seconds in 1u64..1000,
    ) {
        // One a second for less than the slope's rise within any window.
        let mut trend = Trend::new(Slope { rise, window: Duration::from_secs(rise) });
        for second in 0..seconds {
            prop_assert_eq!(trend.add(at(second), from + second), None);
        }
    }
}

fn healthy() -> Reading {
    Reading {
        ecc_corrected: Some(3),
        ecc_uncorrected: Some(2),
        remap_pending: Some(false),
        remap_failed: Some(false),
        nvlink_replays: Some(0),
        nvlink_recoveries: Some(0),
        pcie_replays: Some(7),
        temperature_c: Some(60),
        ..Reading::default()
    }
}

fn kinds(found: &[Finding]) -> Vec<FindingKind> {
    found.iter().map(|f| f.kind).collect()
}

#[test]
fn a_healthy_device_is_not_worth_a_word_even_with_old_errors() {
    let mut watch = Watch::new(&WatchConfig::default());
    for second in 0..7200 {
        assert_eq!(watch.take(at(second), &healthy()), []);
    }
}

#[test]
fn what_a_device_shows_is_told_once_while_it_lasts() {
    let mut watch = Watch::new(&WatchConfig::default());
    watch.take(at(0), &healthy());
    let sick = Reading {
        ecc_uncorrected: Some(3),
        remap_pending: Some(true),
        remapped_rows: Some(4),
        ..healthy()
    };
    let found = watch.take(at(1), &sick);
    let expected = [FindingKind::EccUncorrected, FindingKind::RowRemapPending];
    assert_eq!(kinds(&found), expected);
    assert_eq!(
        found[1].text,
        "a memory row waits for a reset to be remapped (4 so far)"
    );
    assert_eq!(watch.take(at(2), &sick), []);
    let lost = Reading {
        lost: Some("gone".to_owned()),
        ..Reading::default()
    };
    assert_eq!(kinds(&watch.take(at(3), &lost)), [FindingKind::DeviceLost]);
    assert_eq!(watch.take(at(4), &lost), []);
    assert_eq!(watch.take(at(5), &sick), [], "back, with nothing new");
}

#[test]
fn one_slowdown_is_a_note_and_the_fourth_in_ten_minutes_drains() {
    let mut watch = Watch::new(&WatchConfig::default());
    let hot = Reading {
        slowdown: Some(Slowdown::HardwareThermal),
        temperature_c: Some(92),
        ..healthy()
    };
    let mut advice = Vec::new();
    for minute in 0..5 {
        let found = watch.take(at(minute * 60), &hot);
        assert_eq!(watch.take(at(minute * 60 + 1), &hot), [], "it lasts");
        watch.take(at(minute * 60 + 30), &healthy());
        advice.extend(found.iter().map(|f| (minute, f.advice())));
    }
    let notes = [0, 1, 2].map(|m| (m, Advice::Note));
    assert_eq!(advice[..3], notes);
    assert_eq!(advice[3..], [3, 4].map(|m| (m, Advice::Drain)));
}

#[test]
fn a_first_link_replay_is_a_note_and_a_steady_rise_drains() {
    let mut watch = Watch::new(&WatchConfig::default());
    let with = |replays| Reading {
        nvlink_replays: Some(replays),
        ..healthy()
    };
    watch.take(at(0), &with(0));
    let first = watch.take(at(1), &with(1));
    assert_eq!(kinds(&first), [FindingKind::LinkReplay { repeated: false }]);
    let later: Vec<_> = (2..60).flat_map(|n| watch.take(at(n), &with(n))).collect();
    assert_eq!(kinds(&later), [FindingKind::LinkReplay { repeated: true }]);
    assert_eq!(
        later[0].text,
        "NVLink replays: 21 more in 21 steps within 20 s"
    );
}
