//! How training goes.
use super::{check_at, check_screen, drawn, fill, screen};
use crate::console::event::Action;
use crate::console::event::Event;
use crate::console::state::State;
use crate::console::tests::fixtures::{NOW, healthy, over, press, recovering, showing, steps_read};
use ratatui::style::Modifier;

#[test]
fn the_training_screen() {
    check_screen("training", '9');
}

fn shown(status: robust_proto::v1::Status) -> State {
    let mut state = showing(status);
    let _ = state.handle(NOW, press('9'));
    let _ = state.handle(NOW, steps_read());
    state
}

fn pressed(state: &mut State, keys: &str) {
    for key in keys.chars() {
        let _ = state.handle(NOW, press(key));
    }
}

#[test]
fn one_cursor_goes_through_all_figures_and_a_fault_is_marked_at_its_step() {
    let mut state = shown(recovering());
    pressed(&mut state, "jj-");
    pressed(&mut state, &"h".repeat(56));
    check_at("training-cursor", &state, 80, 24);
    let text = screen(&state, 80, 24);
    assert!(text.contains("at step 62, committed"), "{text}");
    let norm = text.lines().find(|line| line.contains("grad norm"));
    assert!(norm.is_some_and(|line| line.contains("41.5")), "{text}");
    let buffer = drawn(&state, 80, 24);
    let mark = |y: u16| (0..80).find(|x| buffer[(*x, y)].symbol() == "✖");
    let faults = (0..24).find(|y| mark(*y).is_some()).unwrap();
    let x = mark(faults).unwrap();
    for y in faults..faults + 9 {
        let reversed = buffer[(x, y)].modifier.contains(Modifier::REVERSED);
        assert!(reversed, "the cursor stands where the fault is: {x} {y}");
    }
    pressed(&mut state, "n");
    assert!(!screen(&state, 80, 24).contains("at step"));
}

#[test]
fn the_smallest_screen_shows_the_selected_figure() {
    let mut state = shown(healthy());
    pressed(&mut state, "G");
    let text = screen(&state, 60, 16);
    assert!(text.contains("▶ seconds"), "{text}");
}

#[test]
fn the_past_is_asked_for_when_the_screen_is_shown_and_not_again_once_it_is_told() {
    let mut state = showing(healthy());
    let asked = |actions: &[Action]| {
        actions.iter().find_map(|action| match action {
            Action::ReadSteps { after, .. } => Some(*after),
            _ => None,
        })
    };
    let actions = state.handle(NOW, press('9'));
    assert_eq!(asked(&actions), Some(0));
    let _ = state.handle(NOW, steps_read());
    assert_eq!(asked(&state.handle(NOW + 2_000, Event::Tick)), None);
    // Two steps were committed between two statuses.
    let mut later = healthy();
    later.last_step = Some(robust_proto::v1::StepLine {
        step: 121,
        ..Default::default()
    });
    let link = state.link_no();
    let _ = state.handle(NOW + 3_000, over(link, later));
    assert_eq!(asked(&state.handle(NOW + 4_000, Event::Tick)), Some(118));
}

#[test]
fn steps_of_another_job_are_not_drawn_into_this_one() {
    let mut state = showing(healthy());
    let _ = state.handle(NOW, press('9'));
    let Event::StepsRead { lines, .. } = steps_read() else {
        return;
    };
    let other = Event::StepsRead {
        started_ms: 1,
        lines,
    };
    let _ = state.handle(NOW, other);
    let text = screen(&state, 80, 24);
    assert!(text.contains("The daemon does not say it"), "{text}");
    fill(&mut state);
    assert!(screen(&state, 80, 24).contains("TRAINING, steps"));
}
