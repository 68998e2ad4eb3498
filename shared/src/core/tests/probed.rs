//! A rollout that is suspected and answers.
use super::script::{Script, t};
use super::*;

#[test]
fn a_rollout_that_answers_its_probe_gets_traffic_again() {
    let mut s = Script::new(CoreConfig {
        rollouts: 1,
        agents: 1,
        ..small(Mode::Async, 6)
    });
    let who = id(Role::Rollout, 0);
    let (life, until) = (s.life(who), s.now + ms(500));
    let i = s.core.s.roster.life_mut(life).unwrap();
    i.suspect_until(until);
    assert_eq!(s.ask(t(1, 0, 0)), None, "nobody knows whether it lives");
    s.feed(Input::Role(life, RoleEvent::Probed { ok: true }));
    assert_eq!(
        s.core.s.roster.instances().get(who).unwrap().suspect(),
        None
    );
    assert_eq!(s.ask(t(1, 0, 1)), Some(life));
    assert!(s.incidents().is_empty());
}
