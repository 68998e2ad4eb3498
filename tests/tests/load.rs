//! The light nodes of `make bench-load`, few of them: they keep the protocol that the leader speaks today.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::PATIENCE;
use robust_tests::load::{Fleet, Shape};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[test]
fn light_nodes_join_store_turns_and_are_ordered_to_start_again_what_ended() {
    let mut fleet = Fleet::start(Shape {
        turns: 2,
        ..Shape::of(3, 4)
    });
    fleet.until_it_works(PATIENCE, |_| ());
    fleet.ledger().measure(true);
    let (start, mut verdicts) = (Instant::now(), 0);
    // Conversations came to their end, a step was made of them, and the end of an instance was answered.
    while verdicts == 0
        || fleet.ledger().finished.load(Ordering::Relaxed) == 0
        || fleet.ledger().steps.load(Ordering::Relaxed) == 0
    {
        if verdicts == 0 && fleet.ledger().unanswered().is_empty() {
            fleet.strike();
        }
        std::thread::sleep(Duration::from_millis(20));
        verdicts += fleet.ledger().verdicts.take().len();
        assert!(start.elapsed() < PATIENCE, "{}", fleet.words());
    }
    fleet.until_it_works(PATIENCE, |_| ());
    assert_eq!(fleet.ledger().let_go.load(Ordering::Relaxed), 0);
}
