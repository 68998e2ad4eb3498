//! The recording of format 1 that lies in the fixtures plays as it did when the format was made.
use super::super::event::{Event, Play};
use super::super::record::Recording;
use super::super::replay::{Due, Player};
use super::super::state::{Link, State};
use super::fixtures::console;
use std::path::Path;

fn player() -> Player {
    let file = "../fixtures/recordings/console-v1.jsonl";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    Player::new(Recording::open(&path).unwrap(), 0)
}

/// As the runner hands a recording's events on.
fn play(state: &mut State, due: Due) {
    if due.anew {
        state.forget();
    }
    for (at, said) in due.said {
        let link = state.link_no();
        let _ = state.handle(at, said.event(link));
    }
}

#[test]
fn a_recording_of_format_1_still_plays() {
    let (mut player, mut state) = (player(), console());
    play(&mut state, player.tick(1_300));
    let status = state.common().job.status().unwrap();
    assert_eq!((status.state.as_str(), status.step), ("recovering", 4));
    assert_eq!(state.common().job.events().len(), 2);
    play(&mut state, player.tick(10_000));
    let status = state.common().job.status().unwrap();
    assert_eq!((status.state.as_str(), status.step), ("running", 5));
    assert_eq!(status.incidents[0].stages[0].name, "process start");
    assert!(
        matches!(&state.common().link, Link::Lost { reason, .. } if reason.contains("listens"))
    );
    let phases = state.common().job.history().of("trainer", 0);
    let phases: Vec<&str> = phases
        .map(|span| state.common().job.history().name(span))
        .collect();
    assert_eq!(
        phases,
        [
            "update",
            "recovering",
            "load_checkpoint",
            "update",
            "await_batch"
        ]
    );
}

#[test]
fn a_recording_that_is_wound_back_shows_what_was_known_then_and_no_more() {
    let (mut player, mut state) = (player(), console());
    play(&mut state, player.tick(10_000));
    play(&mut state, player.steer(Play::Seek(-2_900), 10_000));
    assert_eq!(state.common().link, Link::Live);
    let status = state.common().job.status().unwrap();
    assert_eq!((status.state.as_str(), status.step), ("running", 4));
    assert_eq!(
        (state.common().job.events().len(), status.incidents.len()),
        (1, 0)
    );
    play(&mut state, player.tick(20_000));
    assert_eq!(state.common().job.status().unwrap().step, 5);
    assert_eq!(state.common().job.events().len(), 3);
    let _ = state.handle(0, Event::Tick);
}
