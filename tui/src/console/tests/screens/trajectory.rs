//! A trajectory that is read.
use super::{check_at, drawn, fill, screen};
use crate::cli::ThemeName;
use crate::console::event::{Action, Event};
use crate::console::reading::{GroupRead, TrajectoryRead};
use crate::console::state::{Settings, State};
use crate::console::tests::fixtures::{NOW, healthy, key, press, settings, showing, showing_of};
use crate::console::tests::reducer::{draw, play, typed, wheel};
use crate::console::ui::look::Look;
use crate::trajectories;
use crossterm::event::KeyCode;
use ratatui::style::{Color, Modifier};
use robust_proto::v1;
use robust_shared::ids::TrajectoryId;

/// Tokens with these pieces of text, which are added to those that there are.
fn tokens(pieces: &mut Vec<String>, words: &[&str]) -> Vec<u32> {
    let first = pieces.len() as u32;
    pieces.extend(words.iter().map(|&word| word.to_owned()));
    (first..pieces.len() as u32).collect()
}

fn generated(pieces: &mut Vec<String>, words: &[&str], version: u64) -> v1::Span {
    let ids = tokens(pieces, words);
    let logprobs = (0..ids.len()).map(|n| [-0.02, -0.9, -0.3, -4.6][n % 4]);
    v1::Span {
        logprobs: logprobs.collect(),
        ids,
        version,
    }
}

fn witness(state: &str, attempts: u32) -> v1::Witness {
    v1::Witness {
        state: state.into(),
        why: "agent-1 generates it".into(),
        attempts: Some(attempts),
        agent: "agent-1".into(),
        incarnation: 4,
        since_ms: NOW - 12_000,
        kept: true,
        newest_version: 118,
        ..Default::default()
    }
}

/// One with a call, whose turn under way was begun by one version and is gone on with by the next.
fn conversation() -> v1::Trajectory {
    let mut pieces = Vec::new();
    let prompt = ["<bos>", "(", "3", "+", "4", ")", "*", "2", "="];
    let prompt_ids = tokens(&mut pieces, &prompt);
    let words = [
        "I",
        " begin",
        " with",
        " what",
        " is",
        " in",
        " brackets",
        ",",
        " and",
        " leave",
        " the",
        " rest",
        " of",
        " the",
        " task",
        " for",
        " later",
        ".",
        "\n",
        "<call>",
        "3",
        "+",
        "4",
        "</call>",
    ];
    let first = generated(&mut pieces, &words, 117);
    let turn = v1::Turn {
        spans: vec![first],
        tool_call: "3+4".into(),
        tool_result: "7".into(),
        tool_ids: tokens(&mut pieces, &["<res>", "7", "</res>"]),
        ..Default::default()
    };
    let before = generated(&mut pieces, &["Seven", " times", " two", " is"], 117);
    let after = generated(&mut pieces, &[" four", "teen", "\u{1b}[2J", "."], 118);
    v1::Trajectory {
        batch: 119,
        member: 3,
        state: "running".into(),
        turn_count: 1,
        tokens: 32,
        oldest_version: 117,
        staleness: Some(2),
        prompt_ids,
        turns: vec![turn],
        running: vec![before, after],
        witness: Some(witness("generating", 2)),
        pieces,
        ..Default::default()
    }
}

/// The same at its end.
fn ended() -> v1::Trajectory {
    let mut t = conversation();
    let spans = std::mem::take(&mut t.running);
    t.turns.push(v1::Turn {
        index: 1,
        spans,
        ..Default::default()
    });
    t.witness = Some(v1::Witness {
        why: "step 119 was trained on it".into(),
        step: Some(119),
        committed_ms: NOW - 4_000,
        generation: 2,
        attempt: Some(2),
        agent: String::new(),
        ..witness("consumed", 2)
    });
    (t.state, t.turn_count) = ("consumed".into(), 2);
    (t.reward, t.answer, t.consumed_by) = (Some(1.0), "14".into(), Some(119));
    t
}

/// A turn under way with so many lines, a token each.
fn long(lines: usize) -> v1::Trajectory {
    let words: Vec<String> = (0..lines).map(|n| format!("word{n}\n")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut pieces = Vec::new();
    let span = generated(&mut pieces, &words, 118);
    v1::Trajectory {
        batch: 119,
        member: 3,
        state: "running".into(),
        tokens: lines as u64,
        oldest_version: 118,
        running: vec![span],
        pieces,
        ..Default::default()
    }
}

fn read(t: v1::Trajectory, known: usize) -> Event {
    Event::TrajectoryRead(Box::new(TrajectoryRead {
        id: trajectories::id(&t),
        known: known as u64,
        told: Ok(Some(t)),
    }))
}

/// Eight answers to a prompt in all states.
fn group() -> Event {
    let member = |member: u32| {
        let state = ["consumed", "consumed", "finished", "generating", "waiting"];
        let state = state[(member as usize).min(4)];
        let over = member < 3;
        let mut witness = witness(state, 1 + member % 2);
        witness.attempt = over.then_some(1);
        v1::Trajectory {
            batch: 119,
            member,
            state: if over { "finished" } else { "running" }.into(),
            turn_count: 2 - u32::from(member == 3),
            tokens: if member > 3 {
                0
            } else {
                u64::from(24 + 70 * member)
            },
            oldest_version: 117 + u64::from(member == 1),
            reward: over.then_some(f64::from(member) / 2.0),
            witness: Some(witness),
            ..Default::default()
        }
    };
    Event::GroupRead(Box::new(GroupRead {
        batch: 119,
        group: 0,
        members: Ok((0..8).map(member).collect()),
    }))
}

fn id(member: u32) -> TrajectoryId {
    TrajectoryId {
        batch: 119,
        group: 0,
        member,
    }
}

/// What is asked for at this time of what is read.
fn asked(state: &mut State, at: u64) -> Vec<Action> {
    let of_reading = |action: &Action| {
        matches!(
            action,
            Action::ReadTrajectory { .. } | Action::ReadGroup { .. }
        )
    };
    let actions = state.handle(at, Event::Tick);
    actions.into_iter().filter(of_reading).collect()
}

fn wants(member: u32, known: usize) -> Action {
    Action::ReadTrajectory {
        id: id(member),
        known: known as u64,
    }
}

/// A console in which Enter was pressed on 119.0.3.
fn opened_in(mut state: State) -> State {
    let _ = state.handle(NOW, press('5'));
    fill(&mut state);
    let _ = play(&mut state, typed("ljjj"));
    let _ = play(&mut state, [key(KeyCode::Enter)]);
    state
}

/// The same where it was asked for and this came.
fn reading(t: v1::Trajectory) -> State {
    let mut state = opened_in(showing(healthy()));
    let _ = asked(&mut state, NOW);
    let _ = play(&mut state, [read(t, 0), group()]);
    state
}

#[test]
fn a_trajectory_is_read_beside_those_of_the_same_prompt() {
    let state = reading(conversation());
    check_at("trajectory-running", &state, 80, 24);
    check_at("trajectory-running", &state, 120, 40);
    let state = reading(ended());
    check_at("trajectory-consumed", &state, 80, 24);
    check_at("trajectory-consumed", &state, 120, 40);
}

#[test]
fn a_key_colours_by_likelihood_and_the_margin_has_the_least() {
    let mut state = reading(conversation());
    let _ = play(&mut state, [press('c')]);
    check_at("trajectory-likelihood", &state, 80, 24);
    check_at("trajectory-likelihood", &state, 120, 40);
    let text = screen(&state, 120, 40);
    assert!(
        text.contains("by likelihood") && text.contains("-4.60 "),
        "{text}"
    );
    let _ = play(&mut state, [press('c')]);
    assert!(screen(&state, 120, 40).contains("by weights"));
    let mut without = conversation();
    for turn in &mut without.turns {
        turn.spans.iter_mut().for_each(|span| span.logprobs.clear());
    }
    without
        .running
        .iter_mut()
        .for_each(|span| span.logprobs.clear());
    let mut state = reading(without);
    let _ = play(&mut state, [press('c')]);
    let notice = state.notice().unwrap();
    assert!(
        !notice.good && notice.text.contains("not kept"),
        "{notice:?}"
    );
}

#[test]
fn what_grows_is_asked_for_again_after_its_text_and_what_is_consumed_never() {
    let mut state = opened_in(showing(healthy()));
    let whole = Action::ReadGroup {
        batch: 119,
        group: 0,
    };
    assert_eq!(asked(&mut state, NOW), [wants(3, 0), whole]);
    assert_eq!(asked(&mut state, NOW + 250), [], "one answer at a time");
    let first = conversation();
    let known = first.pieces.len();
    let _ = state.handle(NOW + 20, read(first, 0));
    let _ = state.handle(NOW + 20, group());
    assert_eq!(asked(&mut state, NOW + 1_019), []);
    assert_eq!(asked(&mut state, NOW + 1_020), [wants(3, known)]);
    let mut more = conversation();
    let next = generated(&mut more.pieces, &[" That", " is", " all"], 118);
    more.running.push(next);
    more.pieces.drain(..known);
    let _ = state.handle(NOW + 1_020, read(more, known));
    let text = screen(&state, 80, 24);
    assert!(text.contains(". That is all"), "{text}");
    assert_eq!(asked(&mut state, NOW + 2_020), [wants(3, known + 3)]);
    let mut over = ended();
    over.turns[1].spans.push(v1::Span {
        ids: (known as u32..known as u32 + 3).collect(),
        version: 118,
        ..Default::default()
    });
    over.pieces.clear();
    let _ = state.handle(NOW + 2_020, read(over, known + 3));
    let text = screen(&state, 80, 24);
    assert!(
        text.contains("✔ consumed") && text.contains(". That is all"),
        "{text}"
    );
    let later = asked(&mut state, NOW + 9_000);
    assert!(
        !later
            .iter()
            .any(|a| matches!(a, Action::ReadTrajectory { .. }))
    );
    assert_eq!(later.len(), 1, "not all of its group are");
}

#[test]
fn one_that_was_generated_again_from_its_prompt_is_read_from_there() {
    let mut state = reading(conversation());
    let known = conversation().pieces.len();
    assert_eq!(asked(&mut state, NOW + 1_000), [wants(3, known)]);
    let mut again = conversation();
    again.turns[0].spans[0].ids[2] = 4_711;
    again.pieces.clear();
    let _ = state.handle(NOW + 1_000, read(again.clone(), known));
    assert!(!screen(&state, 80, 24).contains("brackets"));
    assert_eq!(asked(&mut state, NOW + 1_000), [wants(3, 0)]);
    again.pieces = conversation().pieces;
    again.pieces[11] = " without".into();
    let _ = state.handle(NOW + 1_000, read(again, 0));
    assert!(screen(&state, 120, 40).contains("I begin without what is in brackets"));
}

/// The last line of text that a frame shows.
fn last_word(state: &State) -> String {
    let text = screen(state, 80, 24);
    let mut words = text.lines().filter_map(|line| line.split("word").nth(1));
    words.next_back().unwrap_or_default().trim().to_owned()
}

#[test]
fn the_end_of_thirty_thousand_tokens_is_followed_until_the_operator_scrolls() {
    let (some, known) = (30_000, 30_000);
    let mut state = reading(long(some));
    assert_eq!(last_word(&state), "29999");
    draw(&mut state, 80, 24);
    let _ = play(&mut state, typed("kk"));
    assert_eq!(last_word(&state), "29997");
    let grown = |lines: usize| {
        let mut t = long(lines);
        t.pieces.drain(..known);
        read(t, known)
    };
    let _ = play(&mut state, [grown(some + 5)]);
    assert_eq!(last_word(&state), "29997", "it stays where it was read");
    let _ = play(&mut state, [press('G')]);
    assert_eq!(last_word(&state), "30004");
    let _ = play(&mut state, [grown(some + 9)]);
    assert_eq!(last_word(&state), "30008");
    let _ = play(&mut state, [key(KeyCode::PageUp), key(KeyCode::PageDown)]);
    let _ = play(&mut state, [grown(some + 12)]);
    assert_eq!(last_word(&state), "30011", "its end again");
    let _ = play(&mut state, [press('g')]);
    assert!(screen(&state, 80, 24).contains("word0"));
    let _ = play(&mut state, [wheel(40, 20)]);
    let text = screen(&state, 80, 24);
    assert!(
        !text.contains("word0\n") && text.contains("word3\n"),
        "{text}"
    );
}

#[test]
fn in_another_width_the_same_token_stays_on_top() {
    let mut state = reading(long(2_000));
    draw(&mut state, 80, 24);
    let _ = play(&mut state, typed("g"));
    for _ in 0..60 {
        let _ = play(&mut state, [press('j')]);
    }
    let first = |state: &State, width| {
        let text = screen(state, width, 24);
        let mut words = text.lines().filter_map(|line| line.split("word").nth(1));
        words.next().unwrap_or_default().trim().to_owned()
    };
    let before = first(&state, 80);
    draw(&mut state, 140, 24);
    let _ = state.handle(NOW, Event::Tick);
    assert_eq!(first(&state, 140), before);
}

#[test]
fn another_of_the_same_prompt_is_read_in_its_place_and_late_answers_are_dropped() {
    let mut state = reading(conversation());
    let _ = play(&mut state, [press('l')]);
    assert_eq!(asked(&mut state, NOW), [wants(4, 0)]);
    let _ = play(&mut state, [read(conversation(), 0)]);
    let text = screen(&state, 80, 24);
    assert!(text.contains("TRAJECTORY 119.0.4"), "{text}");
    assert!(
        !text.contains("brackets") && text.contains("looking ..."),
        "{text}"
    );
    let _ = play(&mut state, typed("hh"));
    assert_eq!(asked(&mut state, NOW), [wants(2, 0)]);
}

#[test]
fn escape_leads_back_and_another_screen_does_not_end_it() {
    let mut state = reading(conversation());
    let _ = play(&mut state, typed("15"));
    assert!(screen(&state, 80, 24).contains("TRAJECTORY 119.0.3"));
    let _ = play(&mut state, [key(KeyCode::Esc)]);
    let text = screen(&state, 80, 24);
    assert!(text.contains("▶ TRAJECTORIES"), "{text}");
    assert_eq!(asked(&mut state, NOW + 1_000), []);
}

#[test]
fn one_that_is_in_no_list_is_read_by_its_name() {
    let mut state = showing(healthy());
    let _ = play(&mut state, typed("5o7.0.x"));
    assert!(screen(&state, 80, 24).contains("trajectory, such as 119.0.3: 7.0.x"));
    let _ = play(&mut state, [key(KeyCode::Enter)]);
    assert!(state.notice().unwrap().text.contains("names no trajectory"));
    let _ = play(&mut state, typed("o7.0.1"));
    // A look goes on meanwhile and takes nothing of the name away.
    assert_eq!(asked(&mut state, NOW), []);
    let _ = play(&mut state, [key(KeyCode::Enter)]);
    let wanted = Action::ReadTrajectory {
        id: TrajectoryId {
            batch: 7,
            group: 0,
            member: 1,
        },
        known: 0,
    };
    assert_eq!(asked(&mut state, NOW)[0], wanted);
    let none = TrajectoryRead {
        id: TrajectoryId {
            batch: 7,
            group: 0,
            member: 1,
        },
        known: 0,
        told: Ok(None),
    };
    let _ = play(&mut state, [Event::TrajectoryRead(Box::new(none))]);
    assert!(screen(&state, 80, 24).contains("the job has no trajectory 7.0.1"));
}

#[test]
fn checkpoints_are_not_read() {
    let mut state = showing(healthy());
    let _ = state.handle(NOW, press('5'));
    fill(&mut state);
    let _ = play(&mut state, [key(KeyCode::Enter)]);
    assert!(
        state
            .notice()
            .unwrap()
            .text
            .contains("l goes to their list")
    );
    assert_eq!(asked(&mut state, NOW), []);
}

#[test]
fn nothing_that_a_model_says_is_an_order_to_the_terminal() {
    let mut evil = conversation();
    evil.answer = "\u{1b}]0;owned\u{7}\u{202e}".into();
    evil.turns[0].tool_call = "\u{9b}2J".into();
    evil.reward = Some(0.0);
    let state = reading(evil);
    for (width, height) in [(80, 24), (120, 40)] {
        let text = screen(&state, width, height);
        let obeyed = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(obeyed), "{text:?}");
        assert!(text.contains("fourteen\u{fffd}[2J."), "{text}");
    }
}

#[test]
fn without_colours_the_margin_has_the_weights_and_unlikely_tokens_are_underlined() {
    let look = Look::new(ThemeName::Dark, false, false);
    let mut state = opened_in(showing_of(Settings { look, ..settings() }, healthy()));
    let _ = play(&mut state, [read(conversation(), 0), group()]);
    let text = screen(&state, 80, 24);
    for line in [
        " v117 I begin",
        " v117 Seven times two is",
        " v118  fourteen",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let _ = play(&mut state, [press('c')]);
    let buffer = drawn(&state, 80, 24);
    let plain = |c: &ratatui::buffer::Cell| c.fg == Color::Reset && c.bg == Color::Reset;
    assert!(buffer.content.iter().all(plain));
    let lines = screen(&state, 80, 24);
    let y = lines.lines().position(|line| line.contains("fourteen"));
    let marks = |x: u16| buffer[(x, y.unwrap() as u16)].modifier;
    let is = |x: &u16, symbol: &str| buffer[(*x, y.unwrap() as u16)].symbol() == symbol;
    let likely = (0..80).find(|x| is(x, "f")).unwrap();
    let rare = (0..80).rfind(|x| is(x, ".")).unwrap();
    assert!(!marks(likely).contains(Modifier::UNDERLINED));
    assert!(marks(rare).contains(Modifier::UNDERLINED | Modifier::BOLD));
}

#[test]
fn of_an_earlier_daemon_the_numbers_of_the_tokens_are_read() {
    let mut told = conversation();
    (told.pieces, told.witness) = (Vec::new(), None);
    let mut state = reading(told.clone());
    let text = screen(&state, 120, 40);
    assert!(text.contains("this robustd sends no text"), "{text}");
    assert!(
        text.contains("9 10 11 ") && text.contains("answer: 7"),
        "{text}"
    );
    assert_eq!(asked(&mut state, NOW + 1_000), [wants(3, 0)]);
    told.no_text = "the job names no tokenizer".into();
    let _ = play(&mut state, [read(told, 0)]);
    assert!(screen(&state, 120, 40).contains("no text: the job names no tokenizer"));
}

#[test]
fn a_daemon_that_cannot_read_it_is_asked_again_and_what_was_read_stays() {
    let mut state = reading(conversation());
    let _ = asked(&mut state, NOW + 1_000);
    let failed = TrajectoryRead {
        id: id(3),
        known: 0,
        told: Err("the store cannot be read: damaged".into()),
    };
    let _ = state.handle(NOW + 1_000, Event::TrajectoryRead(Box::new(failed)));
    let text = screen(&state, 120, 40);
    assert!(text.contains("as it was; the store cannot be"), "{text}");
    assert!(text.contains("brackets"), "{text}");
    assert!(!asked(&mut state, NOW + 5_999).contains(&wants(3, conversation().pieces.len())));
    let later = asked(&mut state, NOW + 6_000);
    assert!(
        later.contains(&wants(3, conversation().pieces.len())),
        "{later:?}"
    );
}

#[test]
fn every_size_of_it_can_be_drawn() {
    for t in [conversation(), ended(), long(300)] {
        let mut state = reading(t);
        for width in (60..=240).step_by(29) {
            for height in (16..=70).step_by(9) {
                draw(&mut state, width, height);
                let _ = play(&mut state, [press('k')]);
            }
        }
    }
}

#[test]
fn every_figure_of_it_is_seen_however_narrow_the_screen_is() {
    let mut told = ended();
    told.answer = "fourteen, as was to be expected".into();
    let state = reading(told);
    for (width, height) in [(60, 24), (80, 24), (200, 24)] {
        let text = screen(&state, width, height);
        for figure in [
            "reward 1.00",
            "length 32 tokens in 2 turns",
            "weights v117 to v118",
            "stale by 2",
            "answer fourteen, as was to be expected",
        ] {
            assert!(text.contains(figure), "no `{figure}` at {width}:\n{text}");
        }
    }
}

#[test]
fn a_group_without_any_says_so_once_that_is_known() {
    let mut state = opened_in(showing(healthy()));
    assert!(screen(&state, 80, 24).contains("looking ..."));
    let none = GroupRead {
        batch: 119,
        group: 0,
        members: Ok(Vec::new()),
    };
    let _ = play(
        &mut state,
        [read(conversation(), 0), Event::GroupRead(Box::new(none))],
    );
    let text = screen(&state, 80, 24);
    assert!(text.contains("the group is empty"), "{text}");
    assert!(!text.contains("looking ..."), "{text}");
}
