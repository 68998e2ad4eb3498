//! The cells of the roles screen.
use super::{check_at, drawn, screen};
use crate::cli::ThemeName;
use crate::console::act::Act;
use crate::console::event::{Action, Event};
use crate::console::names::{ScreenId, TableId};
use crate::console::state::{Settings, State};
use crate::console::tests::fixtures::{
    NOW, console, console_of, healthy, key, over, press, settings,
};
use crate::console::tests::reducer::{chosen, click, draw, play, typed, wheel};
use crate::console::ui::Spot;
use crate::console::ui::look::Look;
use crossterm::event::KeyCode;
use robust_proto::v1;

const OUTLIERS: TableId = TableId("outliers");

/// A job of so many instances on nodes of eight; an eighth are agent workers, and some are in trouble.
fn fleet(instances: u32) -> v1::Status {
    let mut s = healthy();
    let (ranks, agents) = (if instances < 100 { 2 } else { 8 }, instances / 8);
    let like = |role: &str| s.roles.iter().find(|r| r.role == role).cloned().unwrap();
    let models = [like("trainer"), like("rollout"), like("agent")];
    let place = |n: u32| match n {
        n if n < ranks => (&models[0], n),
        n if n < instances - agents => (&models[1], n - ranks),
        n => (&models[2], n - (instances - agents)),
    };
    let one = |n: u32| {
        let (model, index) = place(n);
        let mut r = v1::RoleStatus {
            index,
            incarnation: u64::from(n) + 1,
            node: format!("node-{}", n / 8),
            slot: format!("gpu {}", n % 8),
            phase_ms: 8_000 + u64::from(index),
            ..model.clone()
        };
        if r.role == "rollout" {
            r.tokens_per_s = 800.0 + f64::from(index % 13);
            r.phase = if index % 11 == 10 {
                "pull_weights"
            } else {
                "generating"
            }
            .into();
        }
        r.step_ms = (r.role == "trainer").then_some(1_210);
        r
    };
    s.roles = (0..instances).map(one).collect();
    let engine = |index: u32| (ranks + index) as usize;
    s.roles[engine(1)].tokens_per_s = 95.0;
    if instances >= 300 {
        let troubles = [
            (7, "down"),
            (20, "suspect"),
            (33, "recovering"),
            (55, "waiting"),
        ];
        for (index, state) in troubles {
            let r = &mut s.roles[engine(index)];
            (r.state, r.phase, r.admitted) = (state.into(), "init".into(), false);
        }
        let last = v1::Restarted {
            at_ms: NOW - 9_000,
            why: "exit: killed by SIGKILL".into(),
            incident: 4,
        };
        s.roles[engine(7)].restarted = vec![last];
        s.roles[engine(40)].quarantined = true;
        s.roles[engine(60)].weight_version = 112;
        let homeless = &mut s.roles[engine(55)];
        (homeless.node, homeless.slot) = (String::new(), String::new());
    }
    s
}

/// The roles screen of such a job, of which a frame was drawn.
fn showing(instances: u32) -> State {
    let mut state = console();
    let events = [over(1, fleet(instances)), press('2')];
    assert_eq!(
        play(&mut state, events).len(),
        if instances > 200 { 0 } else { 2 }
    );
    draw(&mut state, 120, 40);
    state
}

/// Where the mouse is on this.
fn place_of(state: &State, spot: Spot) -> (u16, u16) {
    let mut all = (0..40).flat_map(|y| (0..120).map(move |x| (x, y)));
    let found = all.find(|&(x, y)| state.common().drawn.at(x, y) == Some(spot));
    found.unwrap_or_else(|| panic!("no {spot:?}"))
}

#[test]
fn a_fleet_of_any_size_on_one_screen() {
    for instances in [12, 300, 10_000] {
        let mut state = showing(instances);
        if instances == 12 {
            let _ = play(&mut state, [press('v')]);
        }
        for (width, height) in [(80, 24), (120, 40)] {
            check_at(&format!("fleet-{instances}"), &state, width, height);
        }
        let _ = play(&mut state, [press('b')]);
        for (width, height) in [(80, 24), (120, 40)] {
            check_at(&format!("fleet-{instances}-by-node"), &state, width, height);
        }
    }
}

#[test]
fn many_instances_begin_as_cells_and_few_as_a_table_and_v_turns_it() {
    for (instances, begins_as_cells) in [(12, false), (200, false), (201, true)] {
        let mut state = showing(instances);
        let is_fleet = |state: &State| screen(state, 120, 40).contains("FLEET BY ROLE");
        assert_eq!(is_fleet(&state), begins_as_cells, "{instances}");
        let _ = play(&mut state, [press('v')]);
        assert_eq!(is_fleet(&state), !begins_as_cells, "{instances}");
        // It stays as it was left.
        let _ = play(&mut state, typed("12"));
        assert_eq!(is_fleet(&state), !begins_as_cells, "{instances}");
    }
}

#[test]
fn a_job_that_grows_does_not_turn_the_screen_that_is_looked_at() {
    let mut state = showing(12);
    let _ = play(&mut state, [over(1, fleet(300)), Event::Tick]);
    assert!(!screen(&state, 120, 40).contains("FLEET"));
}

#[test]
fn cells_ask_for_no_log_and_no_phases_and_the_table_does() {
    let mut state = showing(300);
    assert_eq!(state.handle(NOW + 1_000, Event::Tick), []);
    assert_eq!(play(&mut state, [press('o'), key(KeyCode::Enter)]), []);
    let actions = state.handle(NOW + 1_250, Event::Tick);
    let [
        Action::FollowPhases { .. },
        Action::ReadLog { who, on_leader },
    ] = &actions[..]
    else {
        panic!("{actions:?}")
    };
    assert_eq!((who.as_str(), *on_leader), ("rollout-7", false));
    let _ = play(&mut state, [press('v')]);
    assert_eq!(
        state.handle(NOW + 1_500, Event::Tick),
        [Action::LeavePhases]
    );
}

#[test]
fn the_cursor_moves_over_the_cells_and_selects_as_in_the_table() {
    let mut state = showing(300);
    assert_eq!(chosen(&state), "trainer-0");
    for (keys, expected) in [
        ("k", "trainer-0"),
        ("h", "trainer-0"),
        ("l", "trainer-1"),
        ("hj", "rollout-0"),
        ("j", "rollout-110"),
        ("h", "rollout-109"),
        ("l", "rollout-110"),
        ("G", "agent-36"),
        ("l", "agent-36"),
        ("k", "rollout-254"),
        ("g", "trainer-0"),
    ] {
        let _ = play(&mut state, typed(keys));
        assert_eq!(chosen(&state), expected, "after {keys}");
        let text = screen(&state, 120, 40);
        let line = text
            .lines()
            .find(|l| l.starts_with(&format!(" {expected}  ")));
        assert!(line.is_some(), "no line on {expected}:\n{text}");
    }
    let _ = play(&mut state, [key(KeyCode::PageDown)]);
    assert_eq!(chosen(&state), "agent-0");
    let _ = play(&mut state, [key(KeyCode::Right), press('v')]);
    let table = screen(&state, 120, 40);
    let row = table.lines().find(|l| l.starts_with('▶')).unwrap();
    assert!(row.contains("agent-1 "), "{table}");
}

#[test]
fn an_instance_keeps_its_cell_whatever_becomes_of_it() {
    let mut troubled = fleet(10_000);
    for r in &mut troubled.roles {
        (r.state, r.phase) = ("recovering".into(), "init".into());
    }
    troubled.roles.reverse();
    let walked = |mut state: State| {
        let mut lines = Vec::new();
        for step in "jjlljlkhh".chars() {
            let _ = play(&mut state, [press(step)]);
            let text = screen(&state, 120, 40);
            lines.push(text.lines().position(|l| l.starts_with('▶')).unwrap());
        }
        let (x, y) = place_of(&state, Spot::Cell { x: 30, y: 3 });
        let _ = play(&mut state, [click(x, y)]);
        (lines, chosen(&state))
    };
    let [mut before, mut after] = [(); 2].map(|()| showing(10_000));
    // Somebody is selected by name, wherever that stands in the status.
    let _ = play(&mut before, typed("lh"));
    let _ = play(&mut after, typed("lh"));
    let _ = play(&mut after, [over(1, troubled)]);
    assert_eq!(walked(after), walked(before));
}

#[test]
fn the_mouse_is_on_cells_and_on_those_that_stand_out() {
    let mut state = showing(300);
    let (x, y) = place_of(&state, Spot::Cell { x: 13, y: 1 });
    let _ = play(&mut state, [click(x, y)]);
    assert_eq!(chosen(&state), "rollout-5");
    let _ = play(&mut state, [wheel(x, y)]);
    assert_eq!(chosen(&state), "rollout-115");
    let (x, y) = place_of(&state, Spot::Row(OUTLIERS, 1));
    let _ = play(&mut state, [click(x, y)]);
    assert_eq!(chosen(&state), "rollout-20");
    let _ = play(&mut state, [wheel(x, y)]);
    assert_eq!(chosen(&state), "rollout-33");
    // A name of a group is nobody's cell.
    let (x, y) = place_of(&state, Spot::Cell { x: 0, y: 1 });
    let _ = play(&mut state, [click(x, y)]);
    assert_eq!(chosen(&state), "rollout-33");
}

#[test]
fn the_next_outlier_is_less_bad_and_after_the_last_comes_the_worst() {
    let mut state = showing(300);
    let mut seen = Vec::new();
    for _ in 0..8 {
        let _ = play(&mut state, [press('o')]);
        seen.push(chosen(&state));
    }
    let expected = [7, 20, 33, 40, 55, 60, 1, 7].map(|n| format!("rollout-{n}"));
    assert_eq!(seen, expected);
    let text = screen(&state, 120, 40);
    for words in [
        "OUTLIERS 1 to 7 of 7, worst first",
        "init for 8.01s; last restart: exit: killed by SIGKILL",
        "serves version 112, the median is 118",
        "95 tokens/s where the median is 806",
    ] {
        assert!(text.contains(words), "no `{words}`:\n{text}");
    }
}

#[test]
fn where_nobody_stands_out_it_says_so_and_its_key_does_nothing() {
    let mut status = fleet(12);
    status.roles[3].tokens_per_s = 801.0;
    let mut state = console();
    let _ = play(&mut state, [over(1, status), press('2'), press('v')]);
    draw(&mut state, 120, 40);
    let _ = play(&mut state, typed("lo"));
    assert_eq!(chosen(&state), "trainer-1");
    assert!(screen(&state, 120, 40).contains("OUTLIERS: nobody stands out"));
}

#[test]
fn enter_opens_the_instance_in_the_table() {
    let mut state = showing(10_000);
    let _ = play(&mut state, [press('o'), key(KeyCode::Enter)]);
    let text = screen(&state, 80, 24);
    assert!(!text.contains("FLEET"), "{text}");
    assert!(text.contains("ROLLOUT-7 DOWN"), "{text}");
    let row = text.lines().find(|l| l.starts_with('▶')).unwrap();
    assert!(row.contains("rollout-7 "), "{text}");
}

#[test]
fn of_those_in_a_cell_the_worst_is_shown_and_the_line_counts_them() {
    let mut state = showing(10_000);
    let cells = |text: &str| text.lines().skip(6).take(8).collect::<String>();
    let text = screen(&state, 80, 24);
    assert!(text.contains("in a cell: the worst shows"), "{text}");
    for sign in ['✖', '◍', '⊘', '○'] {
        assert!(cells(&text).contains(sign), "no {sign}:\n{text}");
    }
    draw(&mut state, 80, 24);
    let _ = play(&mut state, typed("gj"));
    assert_eq!(
        chosen(&state),
        "rollout-7",
        "the worst of the first cell of engines"
    );
    let text = screen(&state, 80, 24);
    assert!(text.contains("in its cell 1 failed, "), "{text}");
}

#[test]
fn a_key_for_an_instance_is_for_the_one_under_the_cursor() {
    let mut state = showing(300);
    let actions = play(&mut state, typed("jlKy"));
    let [Action::Do(Act::Strike(strike))] = &actions[..] else {
        panic!("{actions:?}")
    };
    let life = strike.life.as_ref().unwrap();
    assert_eq!((life.role.as_str(), life.index), ("rollout", 1));
}

#[test]
fn a_filter_leaves_cells_too_and_its_letters_do_nothing_else() {
    let mut state = showing(300);
    let _ = play(&mut state, typed("/rollout-1"));
    let _ = play(&mut state, [key(KeyCode::Enter)]);
    let text = screen(&state, 120, 40);
    assert!(
        text.contains("FLEET BY ROLE, 111 of 300 instances"),
        "{text}"
    );
    assert!(text.contains("OUTLIERS 1 to 1 of 1"), "{text}");
    draw(&mut state, 120, 40);
    let _ = play(&mut state, typed("gl"));
    assert_eq!(chosen(&state), "rollout-10");
    let _ = play(&mut state, [key(KeyCode::Esc)]);
    let text = screen(&state, 120, 40);
    assert!(text.contains("FLEET BY ROLE, 300 instances"), "{text}");
}

#[test]
fn cells_are_drawn_at_every_size_and_in_ascii_without_colour() {
    use ratatui::style::Color;
    let look = Look::new(ThemeName::Dark, false, true);
    let mut state = console_of(Settings { look, ..settings() });
    let _ = play(&mut state, [over(1, fleet(1_000)), press('2')]);
    for _ in 0..2 {
        for width in (1..=240).step_by(47) {
            for height in (1..=70).step_by(17) {
                let text = screen(&state, width, height);
                let plain = |c: char| c == '\n' || (' '..='~').contains(&c);
                assert!(text.chars().all(plain), "{text}");
            }
        }
        let buffer = drawn(&state, 120, 40);
        let plain = |c: &ratatui::buffer::Cell| c.fg == Color::Reset && c.bg == Color::Reset;
        assert!(buffer.content.iter().all(plain));
        let _ = play(&mut state, [press('b')]);
    }
    assert_eq!(state.shown(), ScreenId::Roles);
}

#[test]
fn no_count_of_a_fleet_is_lost_at_any_width() {
    let mut status = fleet(10_000);
    let last = status.roles.len() - 1;
    (status.roles[last].state, status.roles[last].phase) = ("starting".into(), "init".into());
    let mut state = console();
    let _ = play(&mut state, [over(1, status), press('2')]);
    for width in [60, 80, 100, 120] {
        let text = screen(&state, width, 24);
        let line = text.lines().find(|l| l.contains('✖')).unwrap();
        for count in ["✖ 1", "◍ 1", "◐ 1", "⊘ 1", "○ 1", "▲ 2", "◌ 1", "9992 run"] {
            assert!(line.contains(count), "no `{count}` at {width}: {line}");
        }
    }
    let text = screen(&state, 120, 24);
    assert!(
        text.contains("1 quarantined  ") && text.contains("9992 running"),
        "{text}"
    );
}
