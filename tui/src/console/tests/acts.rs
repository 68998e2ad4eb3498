//! What changes the job: asked first, typed where it is dangerous, done once.
use super::super::act::{Act, Strike, Whole};
use super::super::event::{Action, Event, Quit};
use super::super::session::Session;
use super::super::state::{Settings, State};
use super::fixtures::*;
use super::reducer::{play, typed};
use super::screens::screen;
use crate::endpoint::Endpoint;
use crossterm::event::KeyCode;
use robust_proto::v1;
use robust_shared::fault::Fault;
use robust_shared::verbs;

#[test]
fn what_stops_the_whole_gang_wants_its_name_typed() {
    let mut state = showing(healthy());
    let _ = play(&mut state, [press('K')]);
    assert_eq!(play(&mut state, [press('y'), key(KeyCode::Enter)]), []);
    assert!(
        state.dialog().is_some(),
        "a yes is not enough for a trainer"
    );
    let _ = play(&mut state, [key(KeyCode::Backspace)]);
    let mut events = typed("trainer");
    events.push(key(KeyCode::Enter));
    let actions = play(&mut state, events);
    let [Action::Do(Act::Strike(strike))] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(strike.whom(), "trainer-0");
    assert!(state.dialog().is_none());
}

#[test]
fn under_policy_task_any_kill_wants_the_name_typed() {
    let mut status = healthy();
    status.policy = "task".into();
    let mut state = showing(status);
    assert_eq!(play(&mut state, ['G', 'K', 'y'].map(press)), []);
    wants_typed(&state, "agent");
}

#[test]
fn what_the_table_says_that_the_console_asks_is_asked_with_all_words_in_their_places() {
    let (role, node) = (|| "rollout".to_owned(), || "node-a".to_owned());
    let traffic = |out| Act::Traffic {
        role: role(),
        index: 0,
        out,
    };
    let cordon = |out| Act::Cordon { node: node(), out };
    let scale = |from, to| Act::Scale {
        role: role(),
        from,
        to,
    };
    let acts = [
        Act::Strike(Strike {
            fault: Fault::LeaderCrash,
            at: None,
            life: None,
            i_know: false,
        }),
        Act::Disarm(v1::ArmedFault::default()),
        Act::Restart(Whole::Task),
        Act::Pause,
        Act::Resume,
        traffic(true),
        traffic(false),
        cordon(true),
        cordon(false),
        Act::Restore(v1::Slot::default()),
        scale(1, 2),
        scale(2, 1),
        Act::Update {
            role: role(),
            change: "rollout.batch=8".to_owned(),
        },
        Act::Note {
            incident: 3,
            text: "the switch".to_owned(),
        },
        Act::Stop,
    ];
    let state = showing(healthy());
    let questions: Vec<String> = acts.iter().map(Act::question).collect();
    for verb in verbs::ALL {
        let begins = verb.asks.and_then(|asks| asks.split('{').next());
        let asked = |begins: &str| questions.iter().any(|asks| asks.starts_with(begins));
        assert!(begins.is_none_or(asked), "{}", verb.command);
    }
    for act in &acts {
        let said = act.consequences(&state.common().job).join(" ");
        let open = act.question().contains('{') || said.contains('{');
        assert!(!open && !said.is_empty(), "{}: {said}", act.question());
    }
}

#[test]
fn a_console_that_only_reads_asks_for_nothing() {
    let read_only = true;
    let mut state = showing_of(
        Settings {
            read_only,
            ..settings()
        },
        on_two_nodes(),
    );
    for keys in [
        "7C", "7D", "7I", "7R", "8", "1K", "H", "L", "I", "D", "R", "Q", "S", "U", "P", "T", "s",
    ] {
        let actions = play(&mut state, typed(keys));
        let changes = |a: &Action| matches!(a, Action::Do(_) | Action::RunDrill(_));
        assert!(!actions.iter().any(changes), "{keys}: {actions:?}");
        assert!(state.dialog().is_none(), "{keys}");
    }
    assert!(state.notice().unwrap().text.contains("only reads"));
}

#[test]
fn what_an_act_would_bring_is_asked_for_once_and_shown_when_it_comes() {
    let mut state = showing(healthy());
    assert_eq!(play(&mut state, typed("jjK")), []);
    let actions = play(&mut state, [over(1, healthy())]);
    let [Action::Foresee(act)] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(play(&mut state, [over(1, healthy())]), [], "once");
    let foreseen = |act: &Act| Event::Foreseen {
        act: Box::new(act.clone()),
        lines: vec!["new processes: rollout-0".to_owned()],
    };
    let _ = play(&mut state, [foreseen(&Act::Pause)]);
    assert!(!dialog(&state).contains("Forecast"), "it is of another act");
    let _ = play(&mut state, [foreseen(act)]);
    assert!(dialog(&state).contains("new processes: rollout-0"));
    let done = play(&mut state, [press('y')]);
    assert!(
        matches!(&done[..], [Action::Do(Act::Strike(_))]),
        "{done:?}"
    );
    let _ = play(&mut state, [foreseen(act)]);
    assert!(
        state.dialog().is_none(),
        "it comes too late, and opens nothing"
    );
}

#[test]
fn scaling_asks_how_many_then_shows_what_it_means() {
    let mut state = showing(healthy());
    let _ = play(&mut state, typed("jjS"));
    let _ = play(&mut state, [press('x'), key(KeyCode::Enter)]);
    assert!(dialog(&state).contains("a number is wanted"));
    let _ = play(
        &mut state,
        [key(KeyCode::Backspace), press('5'), key(KeyCode::Enter)],
    );
    let expected = Act::Scale {
        role: "rollout".into(),
        from: 3,
        to: 5,
    };
    assert_eq!(play(&mut state, [press('y')]), [Action::Do(expected)]);
}

#[test]
fn an_update_is_a_key_and_a_value() {
    let mut state = showing(healthy());
    let _ = play(&mut state, typed("jjUrollout.batch=8"));
    let _ = play(&mut state, [key(KeyCode::Enter)]);
    let actions = play(&mut state, [press('y')]);
    let expected = Act::Update {
        role: "rollout".into(),
        change: "rollout.batch=8".into(),
    };
    assert_eq!(actions, [Action::Do(expected)]);
}

#[test]
fn an_engine_goes_out_of_traffic_and_in_again() {
    let mut state = showing(healthy());
    let traffic = |out| {
        Action::Do(Act::Traffic {
            role: "rollout".into(),
            index: 0,
            out,
        })
    };
    assert_eq!(play(&mut state, typed("jjQy")), [traffic(true)]);
    let mut status = healthy();
    status.roles[2].quarantined = true;
    let _ = play(&mut state, [over(1, status)]);
    assert_eq!(play(&mut state, typed("Qy")), [traffic(false)]);
}

#[test]
fn nodes_are_cordoned_and_their_lost_slots_restored() {
    let mut state = showing(on_two_nodes());
    let cordon = |node: &str, out| {
        let node = node.to_owned();
        Action::Do(Act::Cordon { node, out })
    };
    assert_eq!(play(&mut state, typed("7Cy")), [cordon("node-a", true)]);
    assert_eq!(play(&mut state, typed("R")), [], "it has lost none");
    assert_eq!(play(&mut state, typed("jCy")), [cordon("node-b", false)]);
    let actions = play(&mut state, typed("Ry"));
    let [Action::Do(Act::Restore(slot))] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!((slot.node.as_str(), slot.index), ("node-b", 3));
}

/// Deletes what is in the line and types this.
fn retype(state: &mut State, words: &str) {
    let _ = play(state, std::iter::repeat_n(key(KeyCode::Backspace), 40));
    let _ = play(state, typed(words));
    let _ = play(state, [key(KeyCode::Enter)]);
}

/// The text of the dialog, its lines joined as they were before they were broken.
fn dialog(state: &State) -> String {
    assert!(state.dialog().is_some());
    let screen = screen(state, 80, 60);
    let inside = screen.lines().filter_map(|line| line.split('│').nth(1));
    inside.map(str::trim).collect::<Vec<_>>().join(" ")
}

fn wants_typed(state: &State, word: &str) {
    let asked = format!("Type `{word}` and Enter to ");
    assert!(dialog(state).contains(&asked), "{}", dialog(state));
}

#[test]
fn every_role_is_offered_the_faults_that_can_befall_it_and_no_others() {
    for (keys, has, has_not) in [
        ("gI", "nan", "hang-tool"),
        ("jjI", "stall-network", "nan"),
        ("GI", "hang-tool", "corrupt-weights"),
        ("7I", "leader-crash", "kill"),
    ] {
        let mut state = showing(on_two_nodes());
        let _ = play(&mut state, typed(keys));
        let text = dialog(&state);
        let offers = |name: &str| {
            text.contains(&format!("· {name} ")) || text.contains(&format!("▶ {name} "))
        };
        assert!(offers(has) && !offers(has_not), "{keys}: {text}");
    }
}

#[test]
fn a_fault_from_the_list_can_be_changed_and_wrong_ones_are_explained_on_the_spot() {
    let mut state = showing(healthy());
    // The second line is `exit`; 1 is the code it is offered with.
    let _ = play(&mut state, typed("jjIj"));
    let _ = play(&mut state, [key(KeyCode::Enter)]);
    let text = dialog(&state);
    assert!(text.contains("> exit 1▏"), "{text}");
    assert!(
        text.contains("or pull:50%; at init"),
        "those of an engine: {text}"
    );
    for (words, why) in [
        ("exti", "did you mean `exit`?"),
        ("exit 300", "0 to 255"),
        ("nan", "`nan` does not befall rollout"),
        ("kill at update", "no rollout comes into phase `update`"),
        ("leader-crash", "`leader-crash` does not befall rollout"),
    ] {
        retype(&mut state, words);
        let text = dialog(&state);
        assert!(text.contains(why), "{words}: {text}");
    }
    retype(&mut state, "exit 3 at pull:50%");
    let actions = play(&mut state, [press('y')]);
    let [Action::Do(Act::Strike(strike))] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(strike.fault, Fault::Exit { code: 3 });
    let request = strike.request();
    assert_eq!((request.at.as_str(), request.code), ("pull:50%", Some(3)));
    assert_eq!((request.index, request.incarnation), (Some(0), Some(3)));
    let later = Strike {
        fault: Fault::Kill,
        at: Some("init".parse().unwrap()),
        ..strike.clone()
    };
    let said = Act::Strike(later).consequences(&state.common().job);
    assert_eq!(
        said[0],
        "What runs there is not struck: `kill` waits for the next process of rollout-0, and strikes \
         in its `init`; D takes it back."
    );
}

#[test]
fn a_list_of_faults_closes_when_its_instance_is_replaced() {
    for enter in [false, true] {
        let mut state = showing(healthy());
        let _ = play(&mut state, typed("jjI"));
        let _ = play(&mut state, enter.then(|| key(KeyCode::Enter)));
        let mut status = healthy();
        status.roles[2].incarnation += 10;
        let _ = play(&mut state, [over(1, status)]);
        assert!(state.dialog().is_none());
        assert!(
            state
                .notice()
                .unwrap()
                .text
                .contains("was replaced meanwhile")
        );
    }
}

#[test]
fn a_protected_job_wants_its_name_typed_before_any_fault() {
    let mut status = healthy();
    status.protected = true;
    let mut state = showing(status);
    assert_eq!(play(&mut state, typed("GKy")), []);
    let said = dialog(&state);
    assert!(said.contains("This job is protected"), "{said}");
    let _ = play(&mut state, [key(KeyCode::Backspace)]);
    let mut events = typed("arith-grpo");
    events.push(key(KeyCode::Enter));
    let actions = play(&mut state, events);
    let [Action::Do(Act::Strike(strike))] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert!(strike.request().i_know);
}

#[test]
fn a_fault_that_waits_is_shown_with_its_instance_and_can_be_taken_back() {
    let mut status = healthy();
    let mut state = showing(status.clone());
    assert_eq!(play(&mut state, typed("jjD")), []);
    assert!(
        state
            .notice()
            .unwrap()
            .text
            .contains("no fault waits for rollout-0")
    );
    let armed = v1::ArmedFault {
        id: 4,
        fault: "kill".into(),
        role: "rollout".into(),
        index: 0,
        incarnation: 3,
        at: "pull:50%".into(),
        since_ms: NOW,
    };
    status.armed.push(armed.clone());
    let actions = play(&mut state, [over(1, status), press('D'), press('y')]);
    assert_eq!(actions, [Action::Do(Act::Disarm(armed))]);
}

#[test]
fn a_restart_of_the_gang_or_of_all_wants_a_name_typed_and_one_of_a_replica_a_yes() {
    let whole = |role: &str, index| Whole::Instance {
        role: role.into(),
        index,
    };
    let mut state = showing(healthy());
    let actions = play(&mut state, typed("jjRy"));
    assert_eq!(actions, [Action::Do(Act::Restart(whole("rollout", 0)))]);
    let confirmed = |state: &mut _, keys: &str, word: &str| {
        let _ = play(state, typed(keys));
        let early = play(
            state,
            [press('y'), key(KeyCode::Enter), key(KeyCode::Backspace)],
        );
        assert_eq!(early, []);
        let mut events = typed(word);
        events.push(key(KeyCode::Enter));
        play(state, events)
    };
    let actions = confirmed(&mut state, "gR", "trainer");
    assert_eq!(actions, [Action::Do(Act::Restart(whole("trainer", 0)))]);
    let actions = confirmed(&mut state, "T", "arith-grpo");
    assert_eq!(actions, [Action::Do(Act::Restart(Whole::Task))]);
}

#[test]
fn one_key_pauses_and_resumes() {
    let mut status = healthy();
    let mut state = showing(status.clone());
    assert_eq!(play(&mut state, typed("Py")), [Action::Do(Act::Pause)]);
    status.pause = Some(v1::Pause {
        state: "paused".into(),
        after_step: 118,
        since_ms: NOW - 61_000,
    });
    let actions = play(&mut state, [over(1, status), press('P'), press('y')]);
    assert_eq!(actions, [Action::Do(Act::Resume)]);
}

#[test]
fn draining_a_node_restarts_each_of_its_instances_and_a_gang_once() {
    let mut state = showing(on_two_nodes());
    let _ = play(&mut state, typed("7D"));
    // The gang stands still.
    wants_typed(&state, "node-a");
    let said = dialog(&state);
    assert!(said.contains("trainer-0, rollout-0, agent-0."), "{said}");
    let mut status = on_two_nodes();
    status.roles[1].node = "node-a".into();
    let mut state = showing(status);
    let _ = play(&mut state, typed("7D"));
    let said = dialog(&state);
    assert!(said.contains("trainer-0, rollout-0, agent-0."), "{said}");
    let mut keys = vec![key(KeyCode::Backspace)];
    keys.extend(typed("node-a"));
    keys.push(key(KeyCode::Enter));
    let actions = play(&mut state, keys);
    let [Action::Do(Act::Drain { whom, .. })] = &actions[..] else {
        panic!("{actions:?}")
    };
    let names: Vec<String> = whom.iter().map(Whole::name).collect();
    assert_eq!(names, ["trainer-0", "rollout-0", "agent-0"]);
}

#[test]
fn q_says_once_that_an_answer_is_awaited_and_then_leaves_all_the_same() {
    let mut state = showing(healthy());
    assert_eq!(play(&mut state, typed("Py")), [Action::Do(Act::Pause)]);
    assert_eq!(play(&mut state, [press('q')]), []);
    assert!(
        state
            .notice()
            .unwrap()
            .text
            .contains("answer of the daemon")
    );
    let leaves = [Action::Quit(Quit::Asked)];
    assert_eq!(play(&mut state, [press('q')]), leaves);
    // Another act, another warning; none once all of them are answered.
    let _ = play(&mut state, typed("Py"));
    assert_eq!(play(&mut state, [press('q')]), []);
    let answered = || Event::Answered(Ok("the job is paused".to_owned()));
    let _ = play(&mut state, [answered(), answered()]);
    assert_eq!(play(&mut state, [press('q')]), leaves);
}

#[test]
fn a_console_that_waits_for_answers_is_not_replaced() {
    let nowhere = Endpoint::Unix {
        state_dir: "/nowhere".into(),
    };
    let mut session = Session::new(nowhere, showing(healthy()), None);
    assert_eq!(session.holds(), None);
    for event in typed("Py") {
        let _ = session.take(event);
    }
    assert!(session.holds().unwrap().contains("waits for answers"));
    let _ = session.take(Event::Answered(Err(
        "refused: it is paused already".to_owned()
    )));
    assert_eq!(session.holds(), None);
}

#[test]
fn a_node_that_an_operator_cordoned_is_drained_without_another_cordon() {
    let mut status = on_two_nodes();
    status.nodes[0].cordoned = true;
    status.roles.retain(|r| r.role != "trainer");
    let mut state = showing(status.clone());
    let actions = play(&mut state, typed("7Dy"));
    let [Action::Do(drain @ Act::Drain { cordoned: true, .. })] = &actions[..] else {
        panic!("{actions:?}")
    };
    let whom: Vec<String> = drain.parts().iter().map(Act::whom).collect();
    assert_eq!(whom, ["rollout-0", "agent-0"]);
    status.roles.retain(|r| r.node != "node-a");
    let mut state = showing(status);
    assert_eq!(play(&mut state, typed("7Dy")), []);
    let notice = state.notice().unwrap();
    assert!(notice.text.contains("cordoned already"), "{notice:?}");
}
