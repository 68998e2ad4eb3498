//! A tool that does not answer, and one that is killed: neither is ever a result.

use robust_proto::v1::role_message::Body as Up;
use robust_proto::v1::{AppendSpansRequest, RoleFault};
use robust_shared::job::Agent;

use super::super::agent::{AGENT, FakeRollout, Fate, Scene, TRAJECTORY, WHOLE, encode, scene_of};
use host_fake::Asked;
use host_fake::faults::{arm, fault, struck};

fn befalls(kind: &str, at: &str, seconds: f64) -> RoleFault {
    RoleFault {
        seconds,
        ..fault(1, kind, at)
    }
}

/// A tool that is soon given up, and asked three times.
fn impatient(agent: &mut Agent) {
    agent.durable_every_ms = 60_000;
    agent.tool.timeout_ms = 300;
    agent.tool.retry_ms = 1;
}

fn waits_for_its_tool(scene: &Scene) {
    scene.host.wait("awaiting_tool", |_, up| match up {
        Up::Phase(phase) if phase.phase == "awaiting_tool" => Some(()),
        _ => None,
    });
}

/// Why the trajectory is given back.
fn given_back(scene: &Scene) -> String {
    scene
        .host
        .wait("a trajectory given back", |_, up| match up {
            Up::Returned(returned) if returned.trajectory == TRAJECTORY => Some(returned.reason),
            _ => None,
        })
}

fn counts_tool_failures(scene: &Scene, failures: u64) {
    scene.host.wait("the count of failures", |_, up| match up {
        Up::Sample(sample) if sample.tool_failures == failures => Some(()),
        _ => None,
    });
}

fn stored_spans(scene: &Scene) -> Vec<AppendSpansRequest> {
    let spans = |asked| match asked {
        Asked::Spans(spans) => Some(spans),
        _ => None,
    };
    scene.host.asked().into_iter().filter_map(spans).collect()
}

/// Nothing was stored as a turn or an end: nothing can be trained on.
fn is_no_sample(scene: &Scene) {
    let end = |asked: &Asked| matches!(asked, Asked::Append(_) | Asked::Finish(_));
    assert!(!scene.host.asked().iter().any(end), "it has a reward");
}

#[test]
fn a_tool_that_hangs_is_asked_again_and_then_the_trajectory_is_given_back_without_a_reward() {
    for at in ["", "awaiting_tool", "generating"] {
        let rollout = FakeRollout::start(WHOLE, 3, Fate::Ends);
        let scene = scene_of(&[&rollout], impatient);
        arm(&scene.host, AGENT, &befalls("hang-tool", at, 600.0));
        if at.is_empty() {
            struck(&scene.host, AGENT, 1);
        }
        scene.resume(Vec::new(), Vec::new());
        if !at.is_empty() {
            struck(&scene.host, AGENT, 1);
        }
        waits_for_its_tool(&scene);
        let reason = given_back(&scene);
        let why = "its tool failed 3 times in a row: no answer after 300ms";
        assert!(reason.starts_with(why), "at {at:?}: {reason}");
        counts_tool_failures(&scene, 3);
        is_no_sample(&scene);
        scene.end();
    }
}

#[test]
fn whoever_gets_a_trajectory_that_was_given_back_makes_the_same_call_and_generates_nothing_again() {
    let rollout = FakeRollout::start(WHOLE, 3, Fate::Ends);
    let unable = scene_of(&[&rollout], impatient);
    arm(
        &unable.host,
        AGENT,
        &befalls("kill-tool", "awaiting_tool", 600.0),
    );
    unable.resume(Vec::new(), Vec::new());
    let reason = given_back(&unable);
    let why = "its tool failed 3 times in a row: the tool was killed by SIGKILL";
    assert_eq!(reason, why);
    is_no_sample(&unable);
    let stored = stored_spans(&unable).pop().unwrap();
    let turn = encode("<call>12+34</call>");
    assert_eq!((stored.turn, stored.offset), (0, 0));
    assert_eq!(stored.spans[0].ids, turn);
    unable.end();

    let generated = rollout.inputs().len();
    let able = scene_of(&[&rollout], impatient);
    able.resume(Vec::new(), stored.spans);
    assert_eq!(able.finished().reward, 1.0);
    let first = able.turns()[0].turn.clone().unwrap();
    assert_eq!(
        (first.tool_call.as_str(), first.tool_result.as_str()),
        ("12+34", "46")
    );
    assert_eq!(
        rollout.inputs().len(),
        generated + 1,
        "only the second turn"
    );
    able.end();
}

#[test]
fn a_tool_that_is_killed_for_a_moment_costs_the_trajectory_nothing_but_time() {
    let rollout = FakeRollout::start(WHOLE, 3, Fate::Ends);
    let scene = scene_of(&[&rollout], |agent| {
        // The third try comes 600 ms after the first.
        agent.tool.retry_ms = 200;
    });
    arm(
        &scene.host,
        AGENT,
        &befalls("kill-tool", "awaiting_tool", 0.1),
    );
    scene.resume(Vec::new(), Vec::new());
    let finished = scene.finished();
    assert_eq!((finished.reward, finished.turns), (1.0, 2));
    let first = scene.turns()[0].turn.clone().unwrap();
    assert_eq!(first.tool_result, "46");
    counts_tool_failures(&scene, 1);
    scene.end();
}

#[test]
fn a_tool_that_hangs_for_less_only_answers_later() {
    let rollout = FakeRollout::start(WHOLE, 3, Fate::Ends);
    let scene = scene_of(&[&rollout], |_| {});
    arm(
        &scene.host,
        AGENT,
        &befalls("hang-tool", "awaiting_tool", 0.4),
    );
    scene.resume(Vec::new(), Vec::new());
    waits_for_its_tool(&scene);
    assert_eq!(scene.finished().reward, 1.0);
    scene.end();
}
