//! Whole screens at the sizes operators use. `INSTA_UPDATE=always cargo test -p robustctl` writes
//! them anew; look at them before checking them in.
use super::super::drills::DrillEnd;
use super::super::event::{Action, Event, Playback};
use super::super::help::help;
use super::super::screen::TableId;
use super::super::state::{Link, State};
use super::super::ui::{self, look::Look};
use super::fixtures::*;
use super::reducer;
use crate::cli::ThemeName;
use crossterm::event::KeyCode;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use robust_proto::v1;

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

fn drawn(state: &State, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let draw = |frame: &mut ratatui::Frame| drop(ui::draw(state, frame));
    terminal.draw(draw).unwrap();
    terminal.backend().buffer().clone()
}

fn screen(state: &State, width: u16, height: u16) -> String {
    let buffer = drawn(state, width, height);
    let line = |y| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    (0..height).map(line).collect()
}

fn check(name: &str, state: &State) {
    for (width, height) in SIZES {
        insta::assert_snapshot!(
            format!("{name}-{width}x{height}"),
            screen(state, width, height)
        );
    }
}

/// One screen in all the situations a console can be in.
fn check_screen(name: &str, key: char) {
    let mut unreached = console();
    let reason = "there is no such socket".to_owned();
    let _ = unreached.handle(NOW, Event::Lost { link: 1, reason });
    let situations = [
        ("starting", showing(starting())),
        ("healthy", showing(on_two_nodes())),
        ("recovering", showing(recovering())),
        ("task-restart", showing(task_restart())),
        ("lost", lost()),
        ("empty", unreached),
    ];
    for (situation, mut state) in situations {
        let _ = state.handle(state.now, press(key));
        fill(&mut state);
        check(&format!("{name}-{situation}"), &state);
    }
}

/// What is asked for beside the status.
fn fill(state: &mut State) {
    if state.job.status().is_none() {
        return;
    }
    let who = state.chosen_name(TableId::Roles).unwrap_or_default();
    let lines = Ok(log_lines());
    let now = state.now;
    let _ = state.handle(now, Event::LogRead { who, lines });
    let _ = state.handle(now, Event::StoreRead(Box::new(stored(now - 400))));
    let _ = state.handle(now, Event::DrillsRead(Ok(drill_files())));
}

#[test]
fn the_roles_screen() {
    check_screen("roles", '2');
}

#[test]
fn the_timeline_screen() {
    check_screen("timeline", '3');
}

#[test]
fn the_weights_screen() {
    check_screen("weights", '4');
}

#[test]
fn the_store_screen() {
    check_screen("store", '5');
}

#[test]
fn the_incidents_screen() {
    check_screen("incidents", '6');
}

#[test]
fn an_incident_shows_what_it_came_of_in_a_line() {
    let mut status = recovering();
    let incident = status.incidents.last_mut().unwrap();
    incident.cause = Some(robust_proto::v1::Cause {
        fingerprint: "91b2a947f85fabd6".into(),
        words: "exit code 1: KeyError: 'prompt'".into(),
        count: 3,
    });
    let mut state = showing(status);
    let _ = state.handle(state.now, press('6'));
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
fn the_nodes_screen() {
    check_screen("nodes", '7');
}

#[test]
fn the_drills_screen() {
    check_screen("drills", '8');
}

#[test]
fn a_drill_that_ran_shows_which_expectations_held() {
    let mut state = showing(healthy());
    let _ = state.handle(NOW, press('8'));
    fill(&mut state);
    let actions = state.handle(NOW, key(KeyCode::Enter));
    assert_eq!(
        actions,
        [Action::RunDrill("fixtures/drills/paper.toml".into())]
    );
    for line in [
        "sync/none: 6 steps, 0 faults",
        "sync/none: done in 9s, ETTR 0.912",
    ] {
        let _ = state.handle(NOW + 9_000, Event::DrillSaid(line.to_owned()));
    }
    insta::assert_snapshot!("drill-runs-80x24", screen(&state, 80, 24));
    let again = state.handle(NOW + 9_000, key(KeyCode::Enter));
    assert_eq!(again, [], "one at a time");
    let held = |text: &str, held: bool, left: f64| serde_json::json!({"text": text, "held": held, "left": left, "right": 0.9});
    let expectations = [
        held("ettr_role >= 0.9", true, 0.94),
        held("ettr_task >= 0.9", false, 0.7),
    ];
    let result = serde_json::json!({"series": [{"expectations": expectations}]});
    let end = DrillEnd {
        code: Some(1),
        result: Some(result),
    };
    let _ = state.handle(NOW + 20_000, Event::DrillEnded(end));
    insta::assert_snapshot!("drill-over-80x24", screen(&state, 80, 24));
}

#[test]
fn the_log_shows_only_lines_with_the_words_that_are_looked_for() {
    let mut state = showing(healthy());
    for key in "2fLOSS".chars() {
        let _ = state.handle(NOW, press(key));
    }
    fill(&mut state);
    let _ = state.handle(NOW, key(KeyCode::Enter));
    let text = screen(&state, 120, 40);
    assert!(text.contains("LOG, 2 lines with `LOSS`"), "{text}");
    assert!(
        text.contains("loss is 0.4") && !text.contains("listening"),
        "{text}"
    );
}

#[test]
fn the_timeline_shows_a_fault_where_it_was_and_follows_its_window() {
    let mut state = showing(recovering());
    let _ = state.handle(NOW, press('3'));
    let _ = state.handle(NOW, press('+'));
    insta::assert_snapshot!("timeline-minute-120x40", screen(&state, 120, 40));
    let _ = state.handle(NOW, press('h'));
    let text = screen(&state, 120, 40);
    let axis = text.lines().nth(4).unwrap();
    assert!(
        axis.ends_with("-15s"),
        "the present is out of sight:\n{text}"
    );
}

#[test]
fn every_screen_has_a_help_of_its_own() {
    for (digit, word) in [
        ('1', "kill"),
        ('3', "zoom"),
        ('5', "checkpoints"),
        ('7', "cordon"),
    ] {
        let mut state = showing(healthy());
        let _ = state.handle(NOW, press(digit));
        let _ = state.handle(NOW, press('?'));
        let text = screen(&state, 80, 24);
        let title = format!("Keys on {}", state.screen.title());
        assert!(text.contains(&title) && text.contains(word), "{text}");
    }
}

/// The help's text from its first line to its last, a line further with each key.
fn scrolled_through(state: &mut State, width: u16, height: u16) -> String {
    let mut all = String::new();
    for _ in 0..100 {
        reducer::draw(state, width, height);
        let text = screen(state, width, height);
        all += &text;
        let ends = text.contains("leave the console; the job goes on");
        let more = text.contains(" more, j k scroll ");
        assert!(
            ends != more,
            "the last key, or that there are more:\n{text}"
        );
        if ends {
            return all;
        }
        let _ = state.handle(NOW, press('j'));
    }
    panic!("it never ends:\n{all}");
}

#[test]
fn every_key_of_the_help_can_be_seen_where_not_all_fit() {
    for (width, height) in [(80, 24), (60, 16)] {
        for digit in '1'..='8' {
            let mut state = showing(healthy());
            let _ = state.handle(NOW, press(digit));
            let _ = state.handle(NOW, press('?'));
            let all = scrolled_through(&mut state, width, height);
            for (key, does) in help(state.screen, false) {
                let word = does.split(' ').next().unwrap();
                let line = format!("{key:<18} {word}");
                assert!(all.contains(&line), "no `{line}` at {width}x{height}");
            }
        }
    }
}

#[test]
fn the_help_scrolls_back_from_its_end_with_one_key() {
    let mut state = showing(healthy());
    let _ = state.handle(NOW, press('?'));
    let _ = scrolled_through(&mut state, 60, 16);
    let _ = state.handle(NOW, press('j'));
    assert!(screen(&state, 60, 16).contains(" k scrolls back "));
    let _ = state.handle(NOW, press('k'));
    assert!(screen(&state, 60, 16).contains(" 1 more, j k scroll "));
}

#[test]
fn what_must_be_typed_is_seen_however_much_a_drain_moves() {
    let mut status = on_two_nodes();
    let one = status.roles[2].clone();
    for index in 3..300 {
        status.roles.push(v1::RoleStatus {
            index,
            ..one.clone()
        });
    }
    let mut state = showing(status);
    for key in "7Dnod".chars() {
        let _ = state.handle(NOW, press(key));
    }
    for (width, height) in [(80, 24), (60, 16)] {
        let text = screen(&state, width, height);
        for words in [
            "Drain node-a?",
            "trainer-0, ",
            "more lines",
            "Type `node-a` and Enter to drain",
            "> nod",
        ] {
            assert!(text.contains(words), "no `{words}`:\n{text}");
        }
    }
}

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
    assert_eq!(state.overlay, None, "nothing can be struck in the past");
}

fn lost() -> State {
    let mut state = showing(healthy());
    let reason = "nobody listens there any more".to_owned();
    let _ = state.handle(NOW + 1_000, Event::Lost { link: 1, reason });
    let _ = state.handle(NOW + 5_000, Event::Resize);
    state
}

#[test]
fn a_starting_job() {
    check("starting", &showing(starting()));
}

#[test]
fn a_healthy_job() {
    check("healthy", &showing(healthy()));
}

#[test]
fn with_several_nodes_each_role_shows_where_it_is() {
    let screen = screen(&showing(on_two_nodes()), 80, 24);
    let line = |who: &str| screen.lines().find(|l| l.contains(who)).unwrap().to_owned();
    assert!(line("ROLE").ends_with("NODE"), "{screen}");
    assert!(line("rollout-0").ends_with("node-a"), "{screen}");
    assert!(line("rollout-2").ends_with("node-b"), "{screen}");
}

#[test]
fn with_several_controllers_the_nodes_screen_says_who_leads_and_how_it_took_over() {
    let mut status = on_two_nodes();
    status.controllers = Some(v1::Controllers {
        leader: "b".into(),
        epoch: 41,
        led_ms: 61_000,
        followers: vec![v1::Follower {
            name: "c".into(),
            state: "follows".into(),
            ..v1::Follower::default()
        }],
        takeover: Some(v1::Takeover {
            from: "a".into(),
            total_ms: 964.0,
            stages: vec![
                v1::Stage {
                    name: "silence".into(),
                    ms: 702.0,
                },
                v1::Stage {
                    name: "start".into(),
                    ms: 262.0,
                },
            ],
            ..v1::Takeover::default()
        }),
        ..v1::Controllers::default()
    });
    let mut state = showing(status);
    let _ = state.handle(NOW, press('7'));
    let text = screen(&state, 80, 24);
    for words in [
        "b leads for 1m01s (epoch 41); c follows",
        "from a in 964 ms: silence 702 ms, start 262 ms",
        "node-b",
    ] {
        assert!(text.contains(words), "no `{words}`:\n{text}");
    }
    // It may be another one by now: silence is found out sooner.
    let _ = state.handle(NOW + 3_000, Event::Tick);
    assert!(matches!(state.link, Link::Lost { .. }));
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
        for key in '1'..='8' {
            let line = banner(&s, width, key);
            let text = "the database's disk is full (3 MiB left)";
            assert!(line.contains(text), "{line}");
        }
    }
    s.alarms.clear();
    assert!(!banner(&s, 80, '1').contains("full"));
}

#[test]
fn a_recovering_trainer() {
    check("recovering", &showing(recovering()));
}

#[test]
fn a_lost_daemon_leaves_its_last_data_on_the_screen() {
    check("lost", &lost());
}

#[test]
fn no_daemon_yet() {
    let mut state = console();
    let reason = "there is no such socket".to_owned();
    let _ = state.handle(NOW, Event::Lost { link: 1, reason });
    check("empty", &state);
}

#[test]
fn a_dialog_says_what_will_happen_to_whom() {
    let mut state = showing(healthy());
    let _ = state.handle(NOW, press('j'));
    let _ = state.handle(NOW, press('K'));
    let _ = state.handle(NOW, press('t'));
    insta::assert_snapshot!("kill-trainer-dialog-80x24", screen(&state, 80, 24));
    let _ = state.handle(NOW, key(KeyCode::Esc));
    let _ = state.handle(NOW, press('j'));
    let _ = state.handle(NOW, press('K'));
    insta::assert_snapshot!("kill-dialog-80x24", screen(&state, 80, 24));
    let _ = state.handle(NOW, key(KeyCode::Esc));
    let _ = state.handle(NOW, press('?'));
    insta::assert_snapshot!("help-80x24", screen(&state, 80, 24));
}

#[test]
fn faults_are_chosen_from_a_list_and_typed_with_what_they_take() {
    let mut state = showing(healthy());
    for key in "jjIjjj".chars() {
        let _ = state.handle(NOW, press(key));
    }
    insta::assert_snapshot!("faults-80x24", screen(&state, 80, 24));
    let _ = state.handle(NOW, key(KeyCode::Enter));
    for key in " at updat".chars() {
        let _ = state.handle(NOW, press(key));
    }
    let _ = state.handle(NOW, key(KeyCode::Enter));
    insta::assert_snapshot!("fault-typed-80x24", screen(&state, 80, 24));
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
fn a_job_that_is_over_is_summed_up_in_one_line() {
    let mut status = healthy();
    (status.state, status.step) = ("completed".into(), 400);
    insta::assert_snapshot!("completed-80x24", screen(&showing(status), 80, 24));
}

#[test]
fn an_ascii_terminal_gets_ascii_only() {
    for status in [starting(), healthy(), recovering()] {
        let mut state = showing(status);
        state.look = Look::new(ThemeName::Light, false, true);
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
        for screen_key in '1'..='8' {
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
    let mut state = showing(recovering());
    state.look = Look::new(ThemeName::Dark, false, true);
    insta::assert_snapshot!("ascii-80x24", screen(&state, 80, 24));
}

#[test]
fn without_colour_no_cell_has_one() {
    use ratatui::style::Color;
    let mut state = lost();
    state.look = Look::new(ThemeName::Dark, false, false);
    fill(&mut state);
    for screen_key in '1'..='8' {
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
        for (key, help) in ('1'..='8').zip([true, false].into_iter().cycle()) {
            let _ = state.handle(NOW, press(key));
            if help {
                let _ = state.handle(NOW, press('?'));
            }
            for width in (1..=240).step_by(47) {
                for height in (1..=70).step_by(17) {
                    let _ = screen(&state, width, height);
                }
            }
            let _ = state.handle(NOW, super::fixtures::key(KeyCode::Esc));
        }
    }
    assert!(screen(&showing(healthy()), 59, 20).starts_with("robustctl: 59x20 is too small"));
    let smallest = screen(&showing(healthy()), 60, 16);
    for word in ["arith-grpo", "trainer-0", "WEIGHTS v118", "TOTAL", "quit"] {
        assert!(smallest.contains(word), "{word} is missing:\n{smallest}");
    }
}

#[test]
fn a_long_role_table_scrolls_with_the_selection() {
    let mut status = healthy();
    let one = status.roles[2].clone();
    for index in 3..90 {
        status.roles.push(robust_proto::v1::RoleStatus {
            index,
            ..one.clone()
        });
    }
    let mut state = showing(status);
    assert!(!screen(&state, 80, 24).contains("rollout-89"));
    let _ = state.handle(NOW, press('G'));
    let text = screen(&state, 80, 24);
    let row = text.lines().find(|l| l.contains("rollout-89")).unwrap();
    assert!(row.starts_with('▶'), "{text}");
}
