//! Where the time went.
#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;

const SEC: u64 = 1_000_000;
/// The job begins at no multiple of a cell.
const BEGIN: u64 = 1_003 * SEC;

fn at(seconds: u64) -> Time {
    Time(BEGIN + seconds * SEC)
}

/// Seconds of a slice in a window; the whole job has the last.
fn seconds(spent: &TimeSpent, window: &str, slice: Slice) -> f64 {
    let found = spent
        .windows
        .iter()
        .find(|w| w.name.word() == window)
        .unwrap();
    let of = |(known, time): &(Slice, Duration)| (*known == slice).then_some(time.as_secs_f64());
    found.slices.iter().find_map(of).unwrap_or_default()
}

fn whole(spent: &TimeSpent) -> Duration {
    let job = spent.windows.last().unwrap();
    job.slices.iter().map(|(_, time)| *time).sum()
}

#[test]
fn the_slices_of_a_job_add_up_to_its_time_and_the_present_one_counts() {
    let mut spent = Spent::default();
    spent.turn(at(0), Slice::Start);
    spent.turn(at(10), Slice::WaitsForData);
    spent.turn(at(14), Slice::Useful);
    let seen = spent.at(at(0), at(20));
    let names: Vec<&str> = seen.windows.iter().map(|w| w.name.word()).collect();
    assert_eq!(names, ["job"], "it is not five minutes old");
    assert_eq!(whole(&seen), Duration::from_secs(20));
    assert_eq!(seconds(&seen, "job", Slice::WaitsForData), 4.0);
    assert_eq!(seconds(&seen, "job", Slice::Useful), 6.0);
    assert_eq!(spent.at(at(0), at(20)), seen, "looking changes nothing");
}

#[test]
fn a_window_has_what_was_within_it_and_says_when_it_begins() {
    let mut spent = Spent::default();
    spent.turn(at(0), Slice::Start);
    spent.turn(at(400), Slice::Useful);
    spent.turn(at(650), Slice::Paused);
    let seen = spent.at(at(0), at(700));
    let five = &seen.windows[0];
    // 400 s after a begin at 1003 s is no multiple of 5 s.
    assert_eq!((five.name.word(), five.from), ("5m", Time(1_400 * SEC)));
    assert_eq!(seconds(&seen, "5m", Slice::Start), 3.0);
    assert_eq!(seconds(&seen, "5m", Slice::Useful), 250.0);
    assert_eq!(seconds(&seen, "5m", Slice::Paused), 50.0);
    assert_eq!(seen.windows.len(), 3, "5m, 10m and the job");
}

#[test]
fn what_is_thrown_away_comes_out_of_the_work_that_it_was() {
    let mut spent = Spent::default();
    spent.turn(at(0), Slice::Useful);
    spent.turn(at(10), Slice::Paused);
    spent.turn(at(20), Slice::Useful);
    spent.settle(at(30));
    // Of the twenty seconds of work within thirty, twelve.
    spent.lay_over(at(0), at(30), 0.4, Slice::Replayed);
    let seen = spent.at(at(0), at(30));
    assert_eq!(seconds(&seen, "job", Slice::Replayed), 12.0);
    assert_eq!(seconds(&seen, "job", Slice::Useful), 8.0);
    assert_eq!(seconds(&seen, "job", Slice::Paused), 10.0);
    let over = seen.stretches.iter().find(|s| s.over).unwrap();
    assert_eq!((over.slice, over.from), (Slice::Replayed, at(0)));
}

#[test]
fn what_was_laid_over_once_is_not_taken_again_nor_from_work_of_another_time() {
    let mut spent = Spent::default();
    spent.turn(at(0), Slice::Useful);
    spent.settle(at(70));
    spent.lay_over(at(60), at(70), 0.8, Slice::Replayed);
    spent.lay_over(at(65), at(70), 1.0, Slice::Detect);
    let seen = spent.at(at(0), at(70));
    assert_eq!(whole(&seen), Duration::from_secs(70));
    assert_eq!(seconds(&seen, "job", Slice::Replayed), 8.0);
    assert_eq!(seconds(&seen, "job", Slice::Detect), 1.0);
    assert_eq!(seconds(&seen, "job", Slice::Useful), 61.0);
    // The same again finds nothing to take.
    spent.lay_over(at(60), at(70), 1.0, Slice::Detect);
    spent.lay_over(at(60), at(70), 1.0, Slice::Detect);
    let again = spent.at(at(0), at(70));
    assert_eq!(seconds(&again, "job", Slice::Detect), 2.0);
    assert_eq!(seconds(&again, "job", Slice::Useful), 60.0);
    let useful = again.stretches.iter().filter(|s| s.slice == Slice::Useful);
    let useful: Vec<_> = useful.map(|s| (s.from, s.to)).collect();
    assert_eq!(useful, [(at(0), at(70))], "shown as the one that it was");
}

#[test]
fn a_recovery_goes_from_restart_to_reconnect_when_the_processes_are_there() {
    let seen = |attached| Seen {
        attached,
        ..Seen::default()
    };
    for cause in [Cause::Recovery, Cause::TrainerRecovers, Cause::TaskRestart] {
        assert_eq!(Slice::of(cause, seen(false)), Slice::Restart);
        assert_eq!(Slice::of(cause, seen(true)), Slice::Reconnect);
    }
}

#[test]
fn a_trainer_that_is_called_and_does_not_compute_does_not_wait_for_data() {
    let idle = Seen {
        idle: true,
        ..Seen::default()
    };
    assert_eq!(Slice::of(Cause::Generation, idle), Slice::WaitsForData);
    assert_eq!(
        Slice::of(Cause::Generation, Seen::default()),
        Slice::Between
    );
    let held = Seen {
        paused: true,
        ..idle
    };
    assert_eq!(Slice::of(Cause::Generation, held), Slice::Paused);
    let pulls = Seen {
        pulls: true,
        ..idle
    };
    assert_eq!(Slice::of(Cause::Blocked, pulls), Slice::WaitsForWeights);
    assert_eq!(Slice::of(Cause::Generation, pulls), Slice::WaitsForData);
}

#[test]
fn names_are_those_that_are_written_down() {
    for (number, slice) in Slice::ALL.into_iter().enumerate() {
        let written = serde_json::to_value(slice).unwrap();
        assert_eq!(written, slice.name());
        assert_eq!(slice as usize, number);
    }
}

proptest! {
    /// Whatever is laid over whatever: nothing is lost, and nothing is counted twice.
    #[test]
    fn every_window_adds_up_to_the_time_that_was_counted_in_it(
        steps in prop::collection::vec((0_usize..10, 1_u64..40_000_000, 0.0..1.0_f64, 0_u8..4), 1..80),
    ) {
        let mut spent = Spent::default();
        let mut now = at(0);
        for (slice, length, value, kind) in steps {
            spent.turn(now, Slice::ALL[slice]);
            let begin = now;
            now = Time(now.0 + length);
            spent.settle(now);
            match kind {
                0 => spent.lay_over(begin, now, value, Slice::Replayed),
                1 => spent.lay_over(Time(begin.0.saturating_sub(length * 3)), now, 1.0, Slice::Detect),
                _ => {}
            }
        }
        let seen = spent.at(at(0), now);
        for window in &seen.windows {
            let sum: Duration = window.slices.iter().map(|(_, time)| *time).sum();
            prop_assert_eq!(sum, window.to.since(window.from), "{}", window.name);
        }
    }
}
