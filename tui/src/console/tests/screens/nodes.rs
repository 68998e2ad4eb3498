//! The nodes screen.
use super::{check_screen, screen};
use crate::console::event::Event;
use crate::console::state::Link;
use crate::console::tests::fixtures::{NOW, on_two_nodes, press, showing};
use robust_proto::v1;

#[test]
fn the_nodes_screen() {
    check_screen("nodes", '7');
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
    assert!(matches!(state.common().link, Link::Lost { .. }));
}
