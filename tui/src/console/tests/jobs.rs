//! The jobs of several contexts side by side.
use super::super::event::{Action, Event};
use super::super::jobs::{self, Jobs, News, Wish};
use super::super::state::{Settings, State};
use super::fixtures::*;
use super::reducer::{play, typed};
use super::screens::screen;
use crate::cli::ThemeName;
use crate::console::ui::look::Look;
use crossterm::event::KeyCode;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use robust_proto::v1;

const FILE: &str = "/home/ann/.config/robust/contexts.toml";

fn beside(names: &[String]) -> Jobs {
    beside_of(settings(), names)
}

/// Of a console that is started like this; everybody is being asked.
fn beside_of(settings: Settings, names: &[String]) -> Jobs {
    let places = names
        .iter()
        .map(|name| (name.clone(), format!("{name}.example:7070")));
    let mut jobs = Jobs::new(settings, FILE.to_owned(), places.collect());
    let asked = jobs.on(NOW, &Event::Tick);
    assert_eq!(asked.len(), names.len(), "each is asked at once");
    jobs
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn says(context: &str, link: u64, status: v1::Status) -> News {
    News {
        context: context.to_owned(),
        link,
        told: Ok(Box::new(status)),
    }
}

fn refuses(context: &str, link: u64, why: &str) -> News {
    News {
        context: context.to_owned(),
        link,
        told: Err(why.to_owned()),
    }
}

fn press_all(jobs: &mut Jobs, events: impl IntoIterator<Item = Event>) -> Vec<Wish> {
    let events = events.into_iter();
    events.flat_map(|event| jobs.on(NOW, &event)).collect()
}

/// A frame, as the runner draws it before it hands on the next key.
fn drawn(jobs: &mut Jobs, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let mut drawn = None;
    let draw = |frame: &mut ratatui::Frame| drawn = Some(jobs::draw(jobs, frame));
    terminal.draw(draw).unwrap();
    jobs.set_drawn(drawn.unwrap());
    let buffer = terminal.backend().buffer().clone();
    let line = |y| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    (0..height).map(line).collect()
}

fn check(name: &str, jobs: &mut Jobs) {
    for (width, height) in [(80, 24), (120, 40)] {
        let text = drawn(jobs, width, height);
        insta::assert_snapshot!(format!("{name}-{width}x{height}"), text);
    }
}

fn alarmed() -> v1::Status {
    let alarm = |kind: &str, text: &str| v1::Alarm {
        kind: kind.to_owned(),
        text: text.to_owned(),
        since_ms: NOW - 5_000,
    };
    let mut status = healthy();
    status.alarms = vec![
        alarm(
            "database full",
            "the database's disk is full (3 MiB left): the job waits",
        ),
        alarm("no follower", "no other controller follows"),
    ];
    status.controllers = Some(v1::Controllers {
        leader: "b".to_owned(),
        epoch: 7,
        ..Default::default()
    });
    status
}

/// Five in several situations.
fn five() -> Jobs {
    let all = ["exp-7", "fresh", "gone", "nightly", "prod"];
    let mut jobs = beside(&names(&all));
    let mut failed = healthy();
    (failed.state, failed.reason) = ("failed".into(), "no budget is left".into());
    for news in [
        says("prod", 1, healthy()),
        says("nightly", 1, alarmed()),
        says("exp-7", 1, failed),
        refuses("gone", 1, "nobody listens there any more"),
    ] {
        assert_eq!(jobs.hear(NOW, news), []);
    }
    jobs
}

/// The names in the table, as a frame shows them.
fn shown(text: &str, all: &[String]) -> Vec<String> {
    let first = |line: &str| {
        let line = line.trim_start_matches(['▶', ' ']);
        line.split(' ').next().unwrap_or_default().to_owned()
    };
    let lines = text.lines().skip(2).map(first);
    lines.filter(|name| all.contains(name)).collect()
}

#[test]
fn the_jobs_of_several_contexts_side_by_side() {
    let mut jobs = five();
    check("jobs-five", &mut jobs);
    let _ = press_all(&mut jobs, typed("jj"));
    check("jobs-five-alarmed", &mut jobs);
}

#[test]
fn no_context_says_how_one_is_written_down_and_one_is_shown_alone() {
    let mut none = beside(&[]);
    check("jobs-none", &mut none);
    assert_eq!(press_all(&mut none, [key(KeyCode::Enter)]), []);
    let mut one = beside(&names(&["prod"]));
    let _ = one.hear(NOW, says("prod", 1, on_two_nodes()));
    check("jobs-one", &mut one);
}

#[test]
fn fifty_contexts_scroll_with_the_selection() {
    let all: Vec<String> = (0..50).map(|n| format!("run-{n:02}")).collect();
    let mut jobs = beside(&all);
    for name in &all {
        let _ = jobs.hear(NOW, says(name, 1, healthy()));
    }
    check("jobs-fifty", &mut jobs);
    assert!(!drawn(&mut jobs, 80, 24).contains("run-49"));
    let _ = press_all(&mut jobs, [press('G')]);
    let text = drawn(&mut jobs, 80, 24);
    assert!(
        text.contains("▶ run-49") && text.contains("CONTEXT run-49"),
        "{text}"
    );
    let wishes = press_all(&mut jobs, [key(KeyCode::Enter)]);
    assert_eq!(wishes, [Wish::Open("run-49".to_owned())]);
}

#[test]
fn the_worst_comes_first_or_all_by_name_and_the_selection_goes_with_its_context() {
    let all = names(&["exp-7", "fresh", "gone", "nightly", "prod"]);
    let mut jobs = five();
    let worst = shown(&drawn(&mut jobs, 120, 40), &all);
    assert_eq!(worst, ["exp-7", "gone", "nightly", "fresh", "prod"]);
    let _ = press_all(&mut jobs, typed("jw"));
    let text = drawn(&mut jobs, 120, 40);
    assert_eq!(shown(&text, &all), all);
    assert!(text.contains("▶ gone"), "{text}");
    let _ = press_all(&mut jobs, typed("w"));
    let _ = jobs.hear(NOW, says("exp-7", 1, healthy()));
    let text = drawn(&mut jobs, 120, 40);
    assert_eq!(shown(&text, &all)[0], "gone");
    assert!(text.contains("▶ gone"), "{text}");
}

#[test]
fn one_that_hangs_or_refuses_delays_no_other() {
    let mut jobs = beside(&names(&["hangs", "refuses", "runs"]));
    let _ = jobs.hear(NOW, refuses("refuses", 1, "it knows no such token"));
    let _ = jobs.hear(NOW, says("runs", 1, healthy()));
    let watch = |context: &str, link| Wish::Watch {
        context: context.to_owned(),
        link,
    };
    assert_eq!(jobs.on(NOW + 500, &Event::Tick), []);
    assert_eq!(jobs.on(NOW + 1_000, &Event::Tick), [watch("refuses", 2)]);
    let _ = jobs.hear(NOW + 14_000, says("runs", 1, healthy()));
    let _ = jobs.hear(
        NOW + 14_000,
        refuses("refuses", 2, "it knows no such token"),
    );
    // The one that accepted and said nothing is given up alone.
    let later = jobs.on(NOW + 15_001, &Event::Tick);
    assert_eq!(later, []);
    let text = drawn(&mut jobs, 120, 40);
    assert!(text.contains("it said nothing for 15 s"), "{text}");
    assert!(text.contains("3 contexts, 2 not reachable"), "{text}");
    // What its first connection still says is no news.
    assert_eq!(jobs.hear(NOW + 15_500, says("hangs", 1, alarmed())), []);
    assert!(!drawn(&mut jobs, 120, 40).contains("disk is full"));
    let again = jobs.on(NOW + 16_001, &Event::Tick);
    assert_eq!(again, [watch("hangs", 2), watch("refuses", 3)]);
}

#[test]
fn a_context_that_is_lost_says_since_when_and_keeps_what_was_known() {
    let mut jobs = beside(&names(&["prod"]));
    let _ = jobs.hear(NOW, says("prod", 1, healthy()));
    let _ = jobs.hear(NOW + 1_000, refuses("prod", 1, "the connection broke"));
    let _ = jobs.on(NOW + 2_000, &Event::Tick);
    let _ = jobs.hear(NOW + 2_100, refuses("prod", 2, "there is no such socket"));
    let _ = jobs.on(NOW + 31_000, &Event::Tick);
    let text = drawn(&mut jobs, 120, 40);
    let said = "not reachable since 03:04:06 (there is no such socket), for 30s";
    assert!(text.contains(said), "{text}");
    assert!(text.contains("118/400"), "{text}");
    let _ = jobs.hear(NOW + 31_500, says("prod", 3, healthy()));
    assert!(!drawn(&mut jobs, 120, 40).contains("not reachable"));
}

#[test]
fn a_key_tries_those_that_are_lost_at_once() {
    let mut jobs = beside(&names(&["a", "b"]));
    let _ = jobs.hear(NOW, refuses("a", 1, "nobody listens there any more"));
    let wishes = press_all(&mut jobs, [press('r')]);
    let again = Wish::Watch {
        context: "a".to_owned(),
        link: 2,
    };
    assert_eq!(wishes, [again]);
}

#[test]
fn a_new_alarm_rings_with_its_context_but_not_that_of_the_console_below() {
    let bell = true;
    let all = names(&["nightly", "prod"]);
    let mut jobs = beside_of(Settings { bell, ..settings() }, &all);
    jobs.lies_over(Some("prod".to_owned()));
    for context in ["nightly", "prod"] {
        assert_eq!(jobs.hear(NOW, says(context, 1, healthy())), []);
    }
    let rung = jobs.hear(NOW, says("nightly", 1, alarmed()));
    let [Wish::Ring(text)] = &rung[..] else {
        panic!("{rung:?}")
    };
    assert!(
        text.starts_with("nightly: arith-grpo: the database's disk is full"),
        "{text}"
    );
    assert_eq!(jobs.hear(NOW, says("nightly", 1, alarmed())), [], "once");
    assert_eq!(
        jobs.hear(NOW, says("prod", 1, alarmed())),
        [],
        "its console rings"
    );
}

#[test]
fn escape_ends_a_filter_and_then_goes_back_where_there_is_a_console_below() {
    let mut jobs = five();
    let _ = press_all(&mut jobs, typed("/prod"));
    let _ = press_all(&mut jobs, [key(KeyCode::Enter)]);
    let all = names(&["exp-7", "fresh", "gone", "nightly", "prod"]);
    assert_eq!(shown(&drawn(&mut jobs, 80, 24), &all), ["prod"]);
    assert_eq!(
        press_all(&mut jobs, [key(KeyCode::Esc), key(KeyCode::Esc)]),
        []
    );
    assert_eq!(shown(&drawn(&mut jobs, 80, 24), &all).len(), 5);
    jobs.lies_over(None);
    assert_eq!(press_all(&mut jobs, [key(KeyCode::Esc)]), [Wish::Back]);
    assert_eq!(press_all(&mut jobs, [press('J')]), [Wish::Back]);
    assert_eq!(press_all(&mut jobs, [press('q')]), [Wish::Leave]);
    let ends = press_all(&mut jobs, [Event::Terminate]);
    assert_eq!(ends, [Wish::Quit], "whatever is under way");
}

#[test]
fn every_size_of_it_can_be_drawn_and_in_ascii_without_colour() {
    let look = Look::new(ThemeName::Light, false, true);
    let all = names(&["gone", "nightly"]);
    let mut jobs = beside_of(Settings { look, ..settings() }, &all);
    let _ = jobs.hear(NOW, says("nightly", 1, alarmed()));
    let _ = jobs.hear(NOW, refuses("gone", 1, "größer\n\x1b[31m"));
    for width in (1..=240).step_by(47) {
        for height in (1..=70).step_by(17) {
            let text = drawn(&mut jobs, width, height);
            let plain = |c: char| c == '\n' || (' '..='~').contains(&c);
            assert!(text.chars().all(plain), "{text}");
        }
    }
    assert!(drawn(&mut jobs, 59, 20).starts_with("robustctl: 59x20 is too small"));
}

#[test]
fn a_key_and_the_palette_of_an_ordinary_console_show_all_jobs() {
    let mut state = showing(healthy());
    assert_eq!(play(&mut state, [press('J')]), [Action::ShowJobs]);
    let _ = play(&mut state, typed(":all jobs"));
    assert_eq!(play(&mut state, [key(KeyCode::Enter)]), [Action::ShowJobs]);
}

#[test]
fn escape_leads_from_a_console_to_all_jobs_where_it_ends_nothing_else() {
    let mut state = showing(healthy());
    let escape = || [key(KeyCode::Esc)];
    assert_eq!(play(&mut state, escape()), [], "it was opened by itself");
    state.lies_beside();
    let _ = play(&mut state, typed("/roll"));
    let _ = play(&mut state, [key(KeyCode::Enter)]);
    assert_eq!(play(&mut state, escape()), [], "it ends the filter");
    let _ = play(&mut state, [press(' ')]);
    assert_eq!(play(&mut state, escape()), [], "it ends the marks");
    let _ = play(&mut state, typed("K"));
    assert_eq!(play(&mut state, escape()), [], "it closes the dialog");
    assert_eq!(play(&mut state, escape()), [Action::ShowJobs]);
}

#[test]
fn a_console_says_of_which_context_it_is_also_where_it_asks() {
    let of = |context: &str| {
        let context = Some(context.to_owned());
        showing_of(
            Settings {
                context,
                ..settings()
            },
            healthy(),
        )
    };
    let header = |state: &State| {
        screen(state, 80, 24)
            .lines()
            .nth(1)
            .unwrap_or("")
            .to_owned()
    };
    let (prod, mut staging) = (of("prod"), of("staging"));
    assert!(
        header(&prod).starts_with(" prod: arith-grpo "),
        "{}",
        header(&prod)
    );
    assert!(header(&prod).contains("data 0s old"), "{}", header(&prod));
    assert!(header(&staging).starts_with(" staging: arith-grpo "));
    let _ = play(&mut staging, [press('P')]);
    let asked = screen(&staging, 80, 24);
    assert!(asked.contains(" staging: Pause the job? "), "{asked}");
    let long = header(&of("a-name-that-is-longer-than-any-context-has"));
    assert!(
        long.starts_with(" a-name-that-is-longer-t…: arith-grpo "),
        "{long}"
    );
}

#[test]
fn enter_opens_the_context_that_the_frame_showed_whatever_was_heard_since() {
    let mut jobs = beside(&names(&["nightly", "prod"]));
    for context in ["nightly", "prod"] {
        let _ = jobs.hear(NOW, says(context, 1, healthy()));
    }
    assert!(drawn(&mut jobs, 80, 24).contains("▶ nightly"));
    let _ = jobs.hear(NOW, says("prod", 1, alarmed()));
    let wishes = press_all(&mut jobs, [key(KeyCode::Enter)]);
    assert_eq!(wishes, [Wish::Open("nightly".to_owned())]);
    let text = drawn(&mut jobs, 80, 24);
    assert!(
        text.contains("▶ nightly") && text.contains("  prod"),
        "{text}"
    );
}
