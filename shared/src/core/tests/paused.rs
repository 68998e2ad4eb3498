//! Engines that somebody else paused, and the word for those that are up and have nothing to serve.
use super::script::Script;
use super::*;
use crate::phase::Phase;
use crate::wire::InstanceState;

const ENGINE: InstanceId = InstanceId {
    role: Role::Rollout,
    index: 0,
};

fn config() -> CoreConfig {
    CoreConfig {
        rollouts: 1,
        agents: 1,
        ranks: 1,
        ..small(Mode::Sync, 3)
    }
}

fn enters(s: &mut Script, phase: Phase) {
    let (incarnation, step) = (s.life(ENGINE), Step(0));
    s.feed(Input::Role(
        incarnation,
        RoleEvent::PhaseChanged { phase, step },
    ));
}

fn waits(s: &mut Script, seconds: u64) {
    s.now = s.now + Duration::from_secs(seconds);
    s.feed(Input::Timeout);
}

fn operator(s: &mut Script, pause: bool) {
    s.feed(Input::Operator(
        TICKET,
        match pause {
            true => Request::Pause,
            false => Request::Resume,
        },
    ));
}

#[test]
fn an_engine_that_stays_paused_is_named_once_a_pause_and_left_alone() {
    let mut s = Script::new(config());
    enters(&mut s, Phase::Paused);
    waits(&mut s, 590);
    assert_eq!(s.events("paused"), [""; 0]);
    waits(&mut s, 11);
    waits(&mut s, 700);
    let told = s.events("paused");
    assert!(
        told.len() == 1 && told[0].starts_with("rollout-0 is paused for 601."),
        "{told:?}"
    );
    enters(&mut s, Phase::Idle);
    enters(&mut s, Phase::Paused);
    waits(&mut s, 700);
    assert_eq!((s.events("paused").len(), s.incidents().len()), (2, 0));
}

#[test]
fn while_the_job_is_paused_nothing_is_said_and_the_time_counts_from_its_end() {
    let mut s = Script::new(config());
    // Nothing can be left to do before it is paused.
    let batch: Vec<_> = s.core.leases();
    operator(&mut s, true);
    for (id, _) in batch {
        s.finish(id);
    }
    let generation = s.core.s.gang.generation();
    let (step, metrics) = (Step(1), StepMetrics::default());
    s.feed(Input::Gang(
        generation,
        GangEvent::StepDone { step, metrics },
    ));
    assert_eq!(s.core.view(s.now).state, wire::JobState::Paused);
    enters(&mut s, Phase::Paused);
    waits(&mut s, 5000);
    operator(&mut s, false);
    waits(&mut s, 500);
    assert_eq!(s.events("paused"), [""; 0]);
    waits(&mut s, 200);
    assert_eq!(s.events("paused").len(), 1);
}

#[test]
fn an_engine_is_stale_from_its_link_until_it_verified_weights_also_after_a_fault() {
    let word = |s: &Script| {
        let all = s.core.view(s.now).instances;
        let of = |i: &InstanceView| i.id == ENGINE;
        all.into_iter().find(of).map(|i| (i.state, i.admitted))
    };
    let mut s = Script::silent(config());
    s.feed(Input::Start);
    assert_eq!(word(&s), Some((InstanceState::Stale, false)));
    let mut s = Script::new(config());
    assert_eq!(word(&s), Some((InstanceState::Running, true)));
    s.mute = true;
    s.exits(ENGINE, Exit::Signal(9), "");
    assert_eq!(word(&s), Some((InstanceState::Stale, false)));
    let (incarnation, version) = (s.life(ENGINE), WeightVersion(0));
    let result = Ok(());
    s.feed(Input::Role(
        incarnation,
        RoleEvent::Pulled {
            version,
            order: 1,
            result,
        },
    ));
    assert_eq!(word(&s), Some((InstanceState::Running, true)));
}
