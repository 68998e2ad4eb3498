//! The ends of processes that linked: what a code says, and of whom.
use super::script::{AGENT, Script, t};
use super::*;

const FIRST: InstanceId = InstanceId {
    role: Role::Rollout,
    index: 0,
};
const COULD_NOT_START: Exit = Exit::Code(4);
const WORDS: &str = "error: the engine never came up: no such model";

fn config() -> CoreConfig {
    CoreConfig {
        rollouts: 2,
        agents: 1,
        ranks: 1,
        // The budgets by kind are looked at.
        same_cause: 0,
        ..small(Mode::Sync, 3)
    }
}

fn plan(s: &Script) -> String {
    s.incidents().pop().unwrap().plan
}

/// Engines that link and never serve.
fn unserved() -> Script {
    let mut s = Script::silent(config());
    s.feed(Input::Start);
    s
}

#[test]
fn an_engine_that_linked_and_cannot_start_fails_the_job_where_none_ever_served() {
    let mut s = unserved();
    s.exits(FIRST, COULD_NOT_START, WORDS);
    let outcome = s.core.state().outcome();
    let Some(Outcome::Failed { reason }) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(
        reason.contains("no rollout ever ran") && reason.contains("no such model"),
        "{reason}"
    );
}

#[test]
fn where_another_one_serves_or_it_did_itself_it_is_restarted_within_its_budget() {
    let mut s = Script::new(config());
    let max = config().budgets.general.max;
    for time in 0..=max {
        assert!(s.core.state().outcome().is_none());
        s.exits(FIRST, COULD_NOT_START, WORDS);
        assert_eq!(s.incidents().len() as u32, time + 1);
        let dear = plan(&s).starts_with("restart the whole task");
        assert_eq!(dear, time == max, "{}", plan(&s));
        s.now = s.now + Duration::from_secs(5);
        s.feed(Input::Timeout);
    }
    // Alone, after a life that generated.
    let mut alone = Script::new(CoreConfig {
        rollouts: 1,
        ..config()
    });
    let incarnation = alone.life(FIRST);
    let sample = Sample {
        tokens_total: 5,
        ..Sample::default()
    };
    alone.feed(Input::Role(incarnation, RoleEvent::Sampled { sample }));
    alone.mute = true;
    for exit in [Exit::Signal(9), COULD_NOT_START] {
        alone.exits(FIRST, exit, WORDS);
        assert!(
            plan(&alone).starts_with("restart rollout-0 only"),
            "{}",
            plan(&alone)
        );
    }
}

#[test]
fn a_rank_that_linked_and_whose_program_cannot_start_fails_the_job_where_no_gang_was_ever_restored()
{
    let mut s = Script::silent(config());
    s.idle = true;
    s.feed(Input::Start);
    s.exits(
        T0,
        COULD_NOT_START,
        "error: the program never came up: no torch",
    );
    let Some(Outcome::Failed { reason }) = s.core.state().outcome() else {
        panic!("{:?}", s.core.state().outcome());
    };
    assert!(
        reason.contains("no trainer ever ran") && reason.contains("no torch"),
        "{reason}"
    );
}

#[test]
fn an_agent_worker_or_a_rank_that_linked_is_restarted_whatever_its_code() {
    let mut s = Script::new(config());
    s.exits(AGENT, COULD_NOT_START, "error: no tool");
    assert!(plan(&s).starts_with("restart agent-0 only"), "{}", plan(&s));
    s.exits(T0, COULD_NOT_START, "error: no memory");
    let plan = plan(&s);
    assert!(
        plan.contains("ended its start-up with an error: exit code 4"),
        "{plan}"
    );
    assert_eq!(s.core.state().outcome(), None);
}

#[test]
fn an_engine_that_ends_unasked_has_failed_though_its_code_is_zero() {
    let mut s = Script::new(config());
    s.ask(t(1, 0, 0));
    let before = s.life(FIRST);
    s.exits(FIRST, Exit::Code(0), "");
    let incident = s.incidents().pop().unwrap();
    assert_eq!(
        (incident.who, incident.reason.as_str()),
        (FIRST, "exit code 0")
    );
    assert!(s.life(FIRST) > before);
}

/// A job of which an engine was started and has not linked, as far as is on record; with the engine's number.
fn started() -> (Core, Incarnation) {
    let mut core = Core::new(config());
    let now = Time(1_000_000);
    core.handle(now, Input::Start);
    let mut life = None;
    while let Some(output) = core.poll_output() {
        if let Output::Spawn {
            id, incarnation, ..
        } = output
        {
            let pid = 7;
            core.handle(now, Input::Role(incarnation, RoleEvent::Spawned { pid }));
            life = life.or((id == FIRST).then_some(incarnation));
        }
    }
    (core, life.unwrap())
}

fn ends(core: &mut Core, life: Incarnation) {
    let event = RoleEvent::Exited {
        at: None,
        exit: Exit::Code(6),
        detail: "error: a worker ended".to_owned(),
    };
    core.handle(Time(2_000_000), Input::Role(life, event));
}

#[test]
fn an_engine_of_an_earlier_daemon_may_have_served_after_the_last_record_and_does_not_fail_the_job()
{
    let (mut core, life) = started();
    ends(&mut core, life);
    assert!(core.state().outcome().is_some());
    let (core, life) = started();
    let mut core = Core::restore(config(), core.state().clone());
    core.handle(Time(1_500_000), Input::Start);
    ends(&mut core, life);
    assert!(
        core.state().outcome().is_none(),
        "{:?}",
        core.state().outcome()
    );
}
