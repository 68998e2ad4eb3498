//! I-8: what takes long for good reasons is never a fault, however short the windows are.
use super::*;
use proptest::prelude::*;

const FORTY_MINUTES: Duration = Duration::from_secs(2400);
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn forty_minutes_of_compilation_at_start_are_no_fault_for_whoever_is_allowed_them() {
    let mut config = small(Mode::Async, 1);
    // As a job file says it: `[detect.attach_overdue] window_s = 3600`.
    config.rules.attach_overdue.window.set(HOUR);
    let mut w = World::new(config, 1);
    w.timing.start_trainer = Span::always(FORTY_MINUTES);
    w.timing.start_rollout = Span::always(FORTY_MINUTES);
    w.until("the end", HOUR * 3, |w| w.outcome.is_some());
    assert!(w.incidents().is_empty());
}

#[test]
fn a_weight_sync_of_forty_minutes_that_moves_is_no_fault() {
    let mut config = small(Mode::Sync, 1);
    config.rules.pull_stall.window.set(HOUR / 2);
    let mut w = World::new(config, 1);
    w.timing.pull = Span::always(FORTY_MINUTES);
    w.until("the end", HOUR * 12, |w| w.outcome.is_some());
    assert!(w.incidents().is_empty());
}

fn span(least_ms: u64, tail_s: u64) -> Span {
    Span::between(ms(least_ms), ms(least_ms * 3)).with_tail(20, Duration::from_secs(tail_s))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn nobody_healthy_is_ever_killed_however_long_anything_takes(
        seed in 1u64..1_000_000,
        sync: bool,
        turn_tail in 0u64..600,
        tool_tail in 0u64..2400,
        advantage_tail in 0u64..1200,
        update in 10u64..4000,
        probe_every in 1u64..20,
    ) {
        let mut config = small(if sync { Mode::Sync } else { Mode::Async }, 400);
        let probe = &mut config.rules.health_probe;
        probe.first_wait.set(ms(5000));
        probe.interval.set(Duration::from_secs(probe_every));
        probe.timeout.set(ms(1000));
        let mut w = World::new(config, seed);
        w.timing.turn = span(50, turn_tail);
        w.timing.tool = span(30, tool_tail);
        w.timing.advantage = span(10, advantage_tail);
        w.timing.update = span(update, 0);
        w.run_for(Duration::from_secs(1200));
        prop_assert!(w.violation().is_none(), "{:?}", w.violation());
        prop_assert!(w.incidents().is_empty(), "{:#?}", w.incidents());
    }
}
