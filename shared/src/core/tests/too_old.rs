//! What an end that is too old says of whoever brought it.
use super::script::{AGENT, Script, finished, t};
use super::*;

#[test]
fn a_worker_that_brings_one_to_its_end_does_useful_work_however_old_that_is() {
    let mut s = Script::new(CoreConfig {
        max_staleness: Some(1),
        ranks: 1,
        rollouts: 1,
        agents: 1,
        prompts: 1,
        responses: 1,
        ..small(Mode::Async, 6)
    });
    s.finish(t(1, 0, 0));
    let generation = s.core.s.gang.generation();
    let (step, metrics) = (Step(1), StepMetrics::default());
    s.feed(Input::Gang(
        generation,
        GangEvent::StepDone { step, metrics },
    ));
    let (id, agent) = (t(3, 0, 0), s.life(AGENT));
    assert!(s.core.holds_lease(agent, id));
    let (window, now) = (Duration::from_secs(600), s.now);
    let i = s.core.s.roster.get_mut(AGENT).unwrap();
    assert_eq!(i.strikes_mut().strike(FaultKind::Exit, window, now), 1);
    s.feed(finished(agent, id));
    assert!(!s.core.holds_lease(agent, id), "it was too old");
    let strikes = &s.core.s.roster.instances().get(AGENT).unwrap().strikes();
    assert_eq!(strikes.in_a_row(FaultKind::Exit, window, s.now), 0);
}
