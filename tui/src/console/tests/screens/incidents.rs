//! The incidents screen.
use super::{check_at, check_screen, screen};
use crate::console::act::Act;
use crate::console::event::Action;
use crate::console::state::Settings;
use crate::console::tests::fixtures::{
    NOW, key, press, recovering, settings, showing, showing_of, starting,
};
use crate::console::tests::reducer::{play, typed};
use crate::postmortem;
use crossterm::event::KeyCode;
use robust_proto::v1;

#[test]
fn the_incidents_screen() {
    check_screen("incidents", '6');
}

#[test]
fn an_incident_shows_what_it_came_of_in_a_line() {
    let mut status = recovering();
    let incident = status.incidents.last_mut().unwrap();
    incident.cause = Some(v1::Cause {
        fingerprint: "91b2a947f85fabd6".into(),
        words: "exit code 1: KeyError: 'prompt'".into(),
        count: 3,
    });
    let mut state = showing(status);
    let _ = state.handle(state.common().now, press('6'));
    let shown = screen(&state, 120, 40);
    let cause = shown.lines().find(|line| line.contains("cause ")).unwrap();
    let words = "cause    exit code 1: KeyError: 'prompt', 3 times in a row (91b2a947f85fabd6)";
    assert!(cause.contains(words), "{cause}");
}

#[test]
fn an_incident_says_what_it_comes_from_and_what_followed_from_it() {
    let mut status = recovering();
    let last = status.incidents.last_mut().unwrap();
    last.root = "trainer-1 is stopped, while trainer-0 is in all_reduce".into();
    last.judged = "trainer-0".into();
    let first = last.id;
    status.incidents.push(v1::Incident {
        id: first + 1,
        role: "rollout".into(),
        rule: "node lost".into(),
        outcome: "recovering".into(),
        under: first,
        ..Default::default()
    });
    let mut state = showing(status);
    let _ = state.handle(NOW, press('6'));
    let shown = screen(&state, 120, 60);
    for part in [
        "└rollout-0",
        &format!("follows from incident {first}, and counts against no budget"),
    ] {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }
    let _ = state.handle(NOW, key(KeyCode::Down));
    let shown = screen(&state, 120, 60);
    for part in [
        "trainer-1 is stopped, while trainer-0 is in all_reduce (the rule had named",
        &format!("led to   {} rollout-0 (recovering)", first + 1),
    ] {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }
}

#[test]
fn a_note_is_typed_asked_about_and_kept_and_stands_in_the_row_and_below() {
    let mut state = showing(recovering());
    let _ = play(&mut state, typed("6N"));
    let _ = play(&mut state, [key(KeyCode::Enter)]);
    let shown = screen(&state, 100, 30);
    assert!(shown.contains("a note without words"), "{shown}");
    let long = format!("{}rack 4", "the switch ".repeat(12));
    let _ = play(&mut state, typed(&long));
    let _ = play(&mut state, [key(KeyCode::Enter)]);
    let shown = screen(&state, 100, 30);
    for part in ["Note this on incident 2?", "cannot be taken back"] {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }
    let wanted = Act::Note {
        incident: 2,
        text: long.clone(),
    };
    assert_eq!(play(&mut state, typed("y")), [Action::Do(wanted)]);

    let mut status = recovering();
    status.incidents.last_mut().unwrap().notes = vec![v1::IncidentNote {
        at_ms: 1_767_323_045_000,
        who: "uid 7 (ann), pid 9".into(),
        text: long,
    }];
    let mut state = showing(status);
    let _ = play(&mut state, typed("6"));
    let shown = screen(&state, 120, 60);
    for part in ["[1 note] ", "notes of operators", "uid 7 (ann), pid 9"] {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }
    let words = shown.matches("switch").count();
    assert_eq!(words, 12, "all of it is shown\n{shown}");
}

#[test]
fn a_note_is_written_after_the_end_of_the_job_as_well() {
    let mut status = recovering();
    status.state = "failed".into();
    let mut state = showing(status);
    let _ = play(&mut state, typed("6Nx"));
    let _ = play(&mut state, [key(KeyCode::Enter)]);
    let wanted = Act::Note {
        incident: 2,
        text: "x".into(),
    };
    assert_eq!(play(&mut state, typed("y")), [Action::Do(wanted)]);
}

#[test]
fn a_console_that_only_reads_notes_nothing() {
    let read_only = true;
    let of = Settings {
        read_only,
        ..settings()
    };
    let mut state = showing_of(of, recovering());
    assert_eq!(play(&mut state, typed("6N")), []);
    assert!(state.dialog().is_none());
    assert!(state.notice().unwrap().text.contains("only reads"));
}

#[test]
fn one_key_copies_the_selected_incident_as_the_report_prints_it() {
    let status = recovering();
    let mut state = showing(status.clone());
    let actions = play(&mut state, typed("6y"));
    let newest = status.incidents.last().unwrap();
    let text = postmortem::markdown(&status, newest);
    assert_eq!(actions, [Action::Copy(text)]);
    let notice = state.notice().unwrap();
    assert!(notice.good && notice.text.starts_with("incident 2 copied ("));
    assert!(notice.text.ends_with("tmux: set -g set-clipboard on"));
    check_at("incident-copied", &state, 80, 24);
}

#[test]
fn a_console_that_only_reads_copies_too_and_one_without_incidents_says_so() {
    let read_only = true;
    let of = Settings {
        read_only,
        ..settings()
    };
    let mut state = showing_of(of, recovering());
    let actions = play(&mut state, typed("6y"));
    assert!(matches!(&actions[..], [Action::Copy(_)]), "{actions:?}");
    let mut state = showing(starting());
    assert_eq!(play(&mut state, typed("6y")), []);
    let notice = state.notice().unwrap();
    assert_eq!(notice.text, "there is no incident selected");
    assert!(!notice.good);
}

#[test]
fn an_incident_names_those_of_its_kind_before_it() {
    let mut state = showing(recovering());
    let _ = play(&mut state, typed("6"));
    let shown = screen(&state, 120, 40);
    assert!(shown.contains("before   once: incident 1"), "{shown}");
    let _ = play(&mut state, [key(KeyCode::Down)]);
    let shown = screen(&state, 120, 40);
    assert!(
        !shown.contains("before   "),
        "the first of its kind\n{shown}"
    );
}
