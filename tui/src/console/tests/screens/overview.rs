//! The first screen.
use super::{check, check_at, lost};
use crate::console::event::Event;
use crate::console::tests::fixtures::{NOW, console, healthy, recovering, showing, starting};

#[test]
fn a_starting_job() {
    check("starting", &showing(starting()));
}

#[test]
fn a_healthy_job() {
    check("healthy", &showing(healthy()));
}

#[test]
fn a_recovering_trainer() {
    check("recovering", &showing(recovering()));
}

#[test]
fn a_lost_daemon_leaves_its_last_data_on_the_screen() {
    check("lost", &lost());
}

#[test]
fn no_daemon_yet() {
    let mut state = console();
    let reason = "there is no such socket".to_owned();
    let _ = state.handle(NOW, Event::Lost { link: 1, reason });
    check("empty", &state);
}

#[test]
fn a_job_that_is_over_is_summed_up_in_one_line() {
    let mut status = healthy();
    (status.state, status.step) = ("completed".into(), 400);
    check_at("completed", &showing(status), 80, 24);
}
