//! What is advised, and when nothing is.
use super::fixtures::{NOW, healthy, on_two_nodes, over, press, showing, time_window};
use super::screens::screen;
use crate::console::advice::{Kind, advise};
use robust_proto::v1::{self, Status};

/// A job whose last ten minutes went there; the rest of them was useful.
fn spent(slices: &[(&str, f64)]) -> Status {
    let sum: f64 = slices.iter().map(|(_, seconds)| seconds).sum();
    let mut all = slices.to_vec();
    all.push(("useful", 600.0 - sum));
    let mut s = healthy();
    let windows = vec![time_window("10m", 600_000, &all)];
    s.time_spent = Some(v1::TimeSpent {
        windows,
        ..Default::default()
    });
    s
}

fn said(s: &Status) -> Option<String> {
    advise(s, None).map(|advice| advice.line(77))
}

/// A job with a node that failed so often, the last time so long ago.
fn failing(faults: u32, ago_ms: u64) -> Status {
    let mut s = on_two_nodes();
    let node = &mut s.nodes[1];
    (node.cordoned, node.cordoned_for_faults) = (false, false);
    (node.faults, node.last_fault_ms) = (faults, NOW - ago_ms);
    s
}

fn restarted(index: usize, ago_ms: &[u64]) -> Status {
    let mut s = healthy();
    let restart = |ago: &u64| v1::Restarted {
        at_ms: NOW - ago,
        why: "killed by SIGKILL".into(),
        incident: 7,
    };
    s.roles[index].restarted = ago_ms.iter().map(restart).collect();
    s
}

#[test]
fn a_trainer_that_waits_for_data_wants_a_rollout_more() {
    let s = spent(&[("waits_for_data", 258.0)]);
    let text = "the trainer waited 43% of 10 minutes for data: `S` on a rollout adds one";
    assert_eq!(said(&s).as_deref(), Some(text));
    assert_eq!(said(&spent(&[("waits_for_data", 149.0)])), None);
}

#[test]
fn in_mode_sync_and_without_rollouts_waiting_is_how_the_job_works() {
    let mut s = spent(&[("waits_for_data", 400.0)]);
    s.mode = "sync".into();
    assert_eq!(said(&s), None);
    let mut s = spent(&[("waits_for_data", 400.0)]);
    s.roles.retain(|r| r.role != "rollout");
    assert_eq!(said(&s), None);
}

#[test]
fn what_is_said_stays_until_it_is_clearly_over() {
    let s = spent(&[("waits_for_data", 130.0)]);
    assert_eq!(advise(&s, None), None);
    assert!(advise(&s, Some(Kind::Data)).is_some());
    assert_eq!(advise(&s, Some(Kind::Weights)), None);
    let s = spent(&[("waits_for_data", 100.0)]);
    assert_eq!(advise(&s, Some(Kind::Data)), None);
}

#[test]
fn a_job_of_few_minutes_and_a_daemon_that_has_just_come_say_nothing() {
    assert_eq!(said(&healthy()), None);
    let mut s = spent(&[("waits_for_data", 258.0)]);
    let slices = &mut s.time_spent.as_mut().unwrap().windows[0].slices;
    slices.retain(|slice| slice.name != "useful");
    assert_eq!(said(&s), None, "most of the window was not counted");
    let mut s = spent(&[("waits_for_data", 258.0)]);
    s.state = "completed".into();
    assert_eq!(said(&s), None, "nobody can do anything any more");
    s.state = "running".into();
    s.time_spent = None;
    assert_eq!(said(&s), None, "an older daemon does not say it");
}

#[test]
fn rollouts_that_wait_for_weights_are_shown_where_the_pulls_are() {
    let text = said(&spent(&[("waits_for_weights", 72.0)])).unwrap();
    let expected = "rollouts waited 12% of the last 10 minutes for weights: `4` shows why";
    assert_eq!(text, expected);
}

#[test]
fn faults_that_cost_much_come_before_what_could_be_tuned() {
    let slices = [
        ("waits_for_data", 258.0),
        ("detect", 9.0),
        ("restart", 30.0),
        ("replayed", 33.0),
    ];
    let text = said(&spent(&slices)).unwrap();
    let expected = "faults cost 12% of the last 10 minutes: `6` shows them";
    assert_eq!(text, expected);
}

#[test]
fn a_node_that_fails_again_and_again_is_to_be_cordoned() {
    let text = said(&failing(3, 200_000)).unwrap();
    let expected = "node-b had 3 faults, the last 3m20s ago: `C` on screen 7 cordons it";
    assert_eq!(text, expected);
    assert_eq!(said(&failing(2, 200_000)), None);
    assert_eq!(said(&failing(3, 4_000_000)), None, "long ago");
    assert_eq!(said(&on_two_nodes()), None, "it is cordoned already");
    let mut alone = failing(3, 200_000);
    alone.nodes.remove(0);
    assert_eq!(said(&alone), None, "there is no other node");
}

#[test]
fn an_engine_that_is_restarted_again_and_again_is_to_have_no_traffic() {
    let text = said(&restarted(3, &[1_000, 200_000, 500_000])).unwrap();
    let expected = "rollout-1 was restarted 3 times in 10 minutes: `Q` on it ends its traffic";
    assert_eq!(text, expected);
    assert_eq!(said(&restarted(3, &[1_000, 200_000, 700_000])), None);
    let text = said(&restarted(5, &[1_000, 2_000, 3_000])).unwrap();
    assert!(text.ends_with("agent-0 was restarted 3 times in 10 minutes: `2` has its log"));
    let mut planned = restarted(3, &[1_000, 2_000, 3_000]);
    planned.roles[3].restarted[0].incident = 0;
    assert_eq!(said(&planned), None, "an operator wanted one of them");
}

#[test]
fn checkpoints_that_do_not_get_away_are_a_matter_of_the_store() {
    let mut s = on_two_nodes();
    let remote = s.remote.as_mut().unwrap();
    remote.failed = 3;
    let expected = "no checkpoint got into the object store since step 100: `5` says why";
    assert_eq!(said(&s).as_deref(), Some(expected));
    s.remote.as_mut().unwrap().failing.clear();
    assert_eq!(said(&s), None, "the last one got there");
}

#[test]
fn every_line_fits_eighty_columns() {
    let mut long = failing(12, 3_599_000);
    long.nodes[1].name = "node-with-a-very-long-name.of.a.data-centre.example".into();
    let mut remote = on_two_nodes();
    let store = remote.remote.as_mut().unwrap();
    (store.failed, store.step) = (9, Some(1_000_000));
    let all = [
        long,
        remote,
        restarted(3, &[1_000; 8]),
        spent(&[("waits_for_data", 599.0)]),
        spent(&[("waits_for_weights", 599.0)]),
        spent(&[("restart", 599.0)]),
    ];
    for s in &all {
        // Beside it stand a sign and the spaces around it.
        let text = said(s).unwrap();
        assert!(text.len() <= 77, "{} of {text}", text.len());
        assert!(!text.starts_with('`'), "the key is at the end: {text}");
    }
}

#[test]
fn where_the_line_does_not_fit_the_key_stands_first() {
    let advice = advise(&spent(&[("waits_for_data", 258.0)]), None).unwrap();
    assert!(
        advice
            .line(57)
            .starts_with("`S` on a rollout adds one: the trainer waited 43%")
    );
}

#[test]
fn the_line_is_on_every_screen_below_the_header_and_an_alarm_takes_its_place() {
    let mut state = showing(spent(&[("waits_for_data", 258.0)]));
    for key in ['1', '7', '0'] {
        let _ = state.handle(NOW, press(key));
        let text = screen(&state, 80, 24);
        let line = text.lines().nth(3).unwrap();
        assert!(line.ends_with("`S` on a rollout adds one"), "{text}");
    }
    // It was said, and holds a little longer than it takes to be said.
    let _ = state.handle(NOW, over(1, spent(&[("waits_for_data", 130.0)])));
    assert!(screen(&state, 80, 24).contains("waited 22% of 10 minutes"));
    let mut alarmed = spent(&[("waits_for_data", 258.0)]);
    alarmed.alarms.push(v1::Alarm {
        kind: "database full".into(),
        text: "the database's disk is full".into(),
        since_ms: NOW,
    });
    let _ = state.handle(NOW, over(1, alarmed));
    let text = screen(&state, 80, 24);
    assert!(text.contains("disk is full") && !text.contains("a rollout adds one"));
    let _ = state.handle(NOW, over(1, spent(&[("waits_for_data", 10.0)])));
    let text = screen(&state, 80, 24);
    let fourth = text.lines().nth(3).unwrap();
    assert!(
        fourth.starts_with("WHERE THE TIME WENT"),
        "no line is kept free:\n{text}"
    );
}
