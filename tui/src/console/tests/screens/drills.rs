//! The drills screen.
use super::{check_at, check_screen, fill};
use crate::console::drills::DrillEnd;
use crate::console::event::{Action, Event};
use crate::console::tests::fixtures::{NOW, healthy, key, press, showing};
use crossterm::event::KeyCode;

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
    check_at("drill-runs", &state, 80, 24);
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
    check_at("drill-over", &state, 80, 24);
}
