//! What every screen has: banner, last line, sizes, glyphs and colours.
use super::{SIZES, check, check_at, drawn, fill, lost, lost_of, screen};
use crate::cli::ThemeName;
use crate::console::event::{Event, Playback};
use crate::console::names::ScreenId;
use crate::console::state::Settings;
use crate::console::tests::fixtures::{
    NOW, console, healthy, key, logged, on_two_nodes, press, recovering, settings, showing,
    showing_of, starting,
};
use crate::console::ui::look::Look;
use crossterm::event::KeyCode;
use robust_proto::v1;

#[test]
fn a_recording_says_where_it_is() {
    let mut state = showing(healthy());
    let playback = Playback {
        from: NOW - 60_000,
        to: NOW + 30_000,
        at: NOW,
        speed: 2.0,
        paused: false,
    };
    let _ = state.handle(NOW, Event::Played(playback));
    let text = screen(&state, 120, 40);
    assert!(text.contains("recording 1m00s of 1m30s, 2x"), "{text}");
    let _ = state.handle(NOW, press('K'));
    assert!(
        state.dialog().is_none(),
        "nothing can be struck in the past"
    );
}

#[test]
fn an_alarm_is_on_every_screen_for_as_long_as_it_holds() {
    let mut s = healthy();
    s.alarms.push(v1::Alarm {
        kind: "database full".into(),
        text: "the database's disk is full (3 MiB left): the job waits".into(),
        since_ms: NOW - 5_000,
    });
    let banner = |s: &v1::Status, width, key| {
        let mut state = showing(s.clone());
        let _ = state.handle(NOW, press(key));
        let screen = screen(&state, width, 24);
        screen.lines().nth(3).unwrap().to_owned()
    };
    for (width, _) in SIZES {
        for key in ScreenId::ALL.map(ScreenId::key) {
            let line = banner(&s, width, key);
            let text = "the database's disk is full (3 MiB left)";
            assert!(line.contains(text), "{line}");
        }
    }
    s.alarms.clear();
    assert!(!banner(&s, 80, '1').contains("full"));
}

#[test]
fn what_an_operator_left_behind_is_on_every_screen_and_with_its_instance() {
    let mut s = on_two_nodes();
    (s.state, s.protected) = ("paused".into(), true);
    s.pause = Some(v1::Pause {
        state: "paused".into(),
        after_step: 118,
        since_ms: NOW - 61_000,
    });
    s.armed.push(v1::ArmedFault {
        id: 4,
        fault: "slow 20% 10s".into(),
        role: "rollout".into(),
        index: 1,
        incarnation: 4,
        at: "pull:50%".into(),
        since_ms: NOW - 9_000,
    });
    for r in s.roles.iter_mut().take(5) {
        (r.gpu_percent, r.gpu_celsius) = (Some(87.0), Some(61));
        (r.gpu_memory_bytes, r.gpu_memory_total_bytes) = (Some(71 << 30), Some(140 << 30));
    }
    let gone = v1::Restarted {
        at_ms: NOW - 40_000,
        why: "an operator wanted it".into(),
        incident: 0,
    };
    (s.roles[3].restarts_planned, s.roles[3].restarted) = (1, vec![gone]);
    let mut state = showing(s);
    for key in "jjj".chars() {
        let _ = state.handle(NOW, press(key));
    }
    check("left-behind", &state);
    let _ = state.handle(NOW, press('2'));
    fill(&mut state);
    check("roles-left-behind", &state);
}

#[test]
fn an_ascii_terminal_gets_ascii_only() {
    for status in [starting(), healthy(), recovering()] {
        let look = Look::new(ThemeName::Light, false, true);
        let mut state = showing_of(Settings { look, ..settings() }, status);
        let mut event = logged(8, "info", "note", "agent", "größer\n\x1b[31m");
        event.index = 1;
        let _ = state.handle(
            NOW,
            Event::Logged {
                link: 1,
                event: Box::new(event),
            },
        );
        fill(&mut state);
        for screen_key in ScreenId::ALL.map(ScreenId::key) {
            let _ = state.handle(NOW, press(screen_key));
            let _ = state.handle(NOW, press('H'));
            for (width, height) in SIZES {
                let text = screen(&state, width, height);
                assert!(
                    text.chars().all(|c| c == '\n' || (' '..='~').contains(&c)),
                    "{text}"
                );
            }
            let _ = state.handle(NOW, key(KeyCode::Esc));
        }
    }
    let look = Look::new(ThemeName::Dark, false, true);
    let state = showing_of(Settings { look, ..settings() }, recovering());
    check_at("ascii", &state, 80, 24);
}

#[test]
fn without_colour_no_cell_has_one() {
    use ratatui::style::Color;
    let look = Look::new(ThemeName::Dark, false, false);
    let mut state = lost_of(Settings { look, ..settings() });
    fill(&mut state);
    for screen_key in ScreenId::ALL.map(ScreenId::key) {
        let _ = state.handle(NOW, press(screen_key));
        let buffer = drawn(&state, 120, 40);
        let plain = |c: &ratatui::buffer::Cell| c.fg == Color::Reset && c.bg == Color::Reset;
        assert!(buffer.content.iter().all(plain), "screen {screen_key}");
    }
}

#[test]
fn every_size_can_be_drawn_and_small_ones_say_so() {
    for mut state in [
        showing(on_two_nodes()),
        showing(recovering()),
        lost(),
        console(),
    ] {
        fill(&mut state);
        for (digit, help) in ScreenId::ALL
            .map(ScreenId::key)
            .into_iter()
            .zip([true, false].into_iter().cycle())
        {
            let _ = state.handle(NOW, press(digit));
            if help {
                let _ = state.handle(NOW, press('?'));
            }
            for width in (1..=240).step_by(47) {
                for height in (1..=70).step_by(17) {
                    let _ = screen(&state, width, height);
                }
            }
            let _ = state.handle(NOW, key(KeyCode::Esc));
        }
    }
    assert!(screen(&showing(healthy()), 59, 20).starts_with("robustctl: 59x20 is too small"));
    let smallest = screen(&showing(healthy()), 60, 16);
    for word in ["arith-grpo", "trainer-0", "WEIGHTS v118", "TOTAL", "quit"] {
        assert!(smallest.contains(word), "{word} is missing:\n{smallest}");
    }
}
