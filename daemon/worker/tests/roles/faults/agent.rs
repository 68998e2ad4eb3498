//! A tool that does not answer.

use robust_proto::v1::RoleFault;
use robust_proto::v1::role_message::Body as Up;

use super::super::agent::{AGENT, FakeRollout, Fate, Scene, WHOLE, scene_with};
use host_fake::faults::{arm, fault, struck};

/// Other than the test model's answer: what follows the call when the tool says nothing.
const UNANSWERED: &str = "<bos>12+34=<call>12+34</call><res></res>46<eos>";

fn hang(at: &str, seconds: f64) -> RoleFault {
    RoleFault {
        seconds,
        ..fault(1, "hang-tool", at)
    }
}

fn waits_for_its_tool(scene: &Scene) {
    scene.host.wait("awaiting_tool", |_, up| match up {
        Up::Phase(phase) if phase.phase == "awaiting_tool" => Some(()),
        _ => None,
    });
}

#[test]
fn a_tool_that_hangs_is_given_up_after_its_timeout_and_the_conversation_goes_on() {
    for at in ["", "awaiting_tool", "generating"] {
        let rollout = FakeRollout::start(UNANSWERED, 3, Fate::Ends);
        let scene = scene_with(&[&rollout], 60_000);
        arm(&scene.host, AGENT, &hang(at, 600.0));
        if at.is_empty() {
            struck(&scene.host, AGENT, 1);
        }
        scene.resume(Vec::new(), Vec::new());
        if !at.is_empty() {
            struck(&scene.host, AGENT, 1);
        }
        waits_for_its_tool(&scene);
        let finished = scene.finished();
        assert_eq!(finished.turns, 2, "at {at:?}");
        let first = scene.turns()[0].turn.clone().unwrap();
        assert_eq!(first.tool_result, "error: no result after 2s", "at {at:?}");
        scene.end();
    }
}

#[test]
fn a_tool_that_hangs_for_less_only_answers_later() {
    let rollout = FakeRollout::start(WHOLE, 3, Fate::Ends);
    let scene = scene_with(&[&rollout], 60_000);
    arm(&scene.host, AGENT, &hang("awaiting_tool", 0.4));
    scene.resume(Vec::new(), Vec::new());
    waits_for_its_tool(&scene);
    assert_eq!(scene.finished().reward, 1.0);
    scene.end();
}
