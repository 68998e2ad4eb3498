//! A look inside of an instance, and who answers.
use super::{check_at, lost, screen};
use crate::console::event::{Action, Asked, Event};
use crate::console::state::{Settings, State};
use crate::console::tests::fixtures::{NOW, healthy, key, press, settings, showing, showing_of};
use crate::console::tests::reducer::{draw, play};
use crossterm::event::KeyCode;

fn of_the_first() -> Asked {
    let role = "trainer".to_owned();
    Asked::Inside { role, index: 0 }
}

fn told(state: &mut State, asked: Asked, found: Result<Vec<String>, String>) {
    let actions = state.handle(NOW, Event::LookedInside { asked, found });
    assert_eq!(actions, []);
    draw(state, 80, 24);
}

#[test]
fn a_look_inside_shows_what_was_found_of_the_selected_instance_and_scrolls() {
    let mut state = showing(healthy());
    let actions = play(&mut state, [press('i')]);
    assert_eq!(actions, [Action::LookInside(of_the_first())]);
    assert!(screen(&state, 80, 24).contains("asked; an answer comes"));
    // What somebody asked before.
    told(&mut state, Asked::Answers, Ok(vec!["of others".to_owned()]));
    assert!(!screen(&state, 80, 24).contains("of others"));
    let mut lines = vec![
        "trainer-0  running  in update for 12.3 s  incarnation 7".to_owned(),
        "  pid 41001 robust-worker  S (sleeps)  nothing of it ran within 1.00 s  1.2 GiB  12 threads".to_owned(),
    ];
    lines.extend((0..60).map(|n| format!("        frame {n} (train.py:{n})")));
    told(&mut state, of_the_first(), Ok(lines));
    check_at("inside", &state, 80, 24);
    let _ = play(&mut state, [press('G')]);
    draw(&mut state, 80, 24);
    let text = screen(&state, 80, 24);
    assert!(text.contains("frame 59 (train.py:59)"), "{text}");
    assert!(!text.contains(" more, j k scroll"), "{text}");
    let _ = play(&mut state, [press('g')]);
    assert!(screen(&state, 80, 24).contains("trainer-0  running"));
    let actions = play(&mut state, [press('i')]);
    assert_eq!(actions, [Action::LookInside(of_the_first())]);
    let actions = play(&mut state, [press('p')]);
    assert_eq!(actions, [Action::LookInside(Asked::Answers)]);
    let _ = play(&mut state, [key(KeyCode::Esc)]);
    assert!(state.dialog().is_none());
}

#[test]
fn who_answers_is_asked_also_by_a_console_that_only_reads() {
    let read_only = true;
    let of = Settings {
        read_only,
        ..settings()
    };
    let mut state = showing_of(of, healthy());
    let actions = play(&mut state, [press('p')]);
    assert_eq!(actions, [Action::LookInside(Asked::Answers)]);
    let lines = [
        "ROLE       NODE  ASKED   ANSWERS    AFTER  WHAT IT SAYS",
        "trainer-0  a     link    yes      0.35 ms  it answers",
        "rollout-0  a     engine  no        5.00 s  it did not answer within 5s",
    ];
    told(
        &mut state,
        Asked::Answers,
        Ok(lines.map(str::to_owned).into()),
    );
    check_at("who-answers", &state, 80, 24);
    let why = "the daemon is of an earlier build".to_owned();
    told(&mut state, Asked::Answers, Err(why));
    assert!(screen(&state, 80, 24).contains("of an earlier build"));
}

#[test]
fn nobody_is_asked_while_the_daemon_is_away() {
    let mut state = lost();
    for letter in ['i', 'p'] {
        assert_eq!(play(&mut state, [press(letter)]), []);
        assert!(state.dialog().is_none());
        let said = &state.notice().unwrap().text;
        assert!(said.contains("the daemon is not reachable"), "{said}");
    }
}
