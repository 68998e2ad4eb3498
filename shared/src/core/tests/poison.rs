//! Trajectories that take engines along: who is blamed, and what becomes of the batch, the budgets and
//! what is on record.
use super::script::{AGENT, Script, finished, t};
use super::*;

const ENGINE: InstanceId = InstanceId {
    role: Role::Rollout,
    index: 0,
};
const WORDS: &str = "error: vLLM::Worker exited: SIGKILL";

/// One engine, one agent worker that holds the whole batch of two prompts with two responses.
fn config(engines: u32) -> CoreConfig {
    let budget = Budget {
        max: 1,
        ..Budget::default()
    };
    CoreConfig {
        rollouts: 1,
        agents: 1,
        ranks: 1,
        responses: 2,
        budgets: Budgets {
            general: budget,
            ..Budgets::default()
        },
        rules: quick_rules().with(|r| r.poison.engines.set(engines)),
        ..small(Mode::Sync, 3)
    }
}

fn dies(s: &mut Script) {
    s.exits(ENGINE, Exit::Code(6), WORDS);
}

/// The engine dies with these in flight.
fn dies_with(s: &mut Script, ids: &[TrajectoryId]) {
    s.flight(ENGINE, ids);
    dies(s);
}

fn set_aside(s: &Script) -> Vec<(TrajectoryId, Vec<Incarnation>)> {
    let records = s.records().into_iter().filter_map(|r| match r {
        Record::SetAside {
            trajectory,
            engines,
        } => Some((*trajectory, engines.iter().map(|e| e.incarnation).collect())),
        _ => None,
    });
    records.collect()
}

fn trained(s: &Script) -> Vec<TrajectoryId> {
    let mut steps = s.said.iter().filter_map(|o| match o {
        Output::TrainStep { trajectories, .. } => Some(trajectories.clone()),
        _ => None,
    });
    steps.next_back().unwrap_or_default()
}

fn step_done(s: &mut Script, step: u64) {
    let generation = s.core.s.gang.generation();
    let (step, metrics) = (Step(step), StepMetrics::default());
    s.feed(Input::Gang(
        generation,
        GangEvent::StepDone { step, metrics },
    ));
}

/// Which plans cost more than a role restart.
fn dear(s: &Script) -> Vec<String> {
    let plans = s.incidents().into_iter().map(|i| i.plan);
    plans
        .filter(|p| !p.starts_with("restart rollout-"))
        .collect()
}

#[test]
fn the_only_one_in_flight_on_two_engines_that_died_is_set_aside_with_the_evidence() {
    let mut s = Script::new(config(2));
    let (poison, agent) = (t(1, 0, 1), s.life(AGENT));
    let first = s.life(ENGINE);
    dies_with(&mut s, &[t(1, 0, 0), poison]);
    assert_eq!(set_aside(&s), []);
    let faults = s.core.view(s.now).nodes[0].faults;
    assert_eq!(faults, 1, "until another is to blame");
    let second = s.life(ENGINE);
    dies_with(&mut s, &[poison, t(1, 1, 0)]);
    assert_eq!(set_aside(&s), [(poison, vec![first, second])]);
    let revoke = Output::Revoke {
        agent,
        trajectory: poison,
    };
    assert!(s.said.contains(&revoke) && !s.core.holds_lease(agent, poison));
    let how = "exit code 6: error: vLLM::Worker exited: SIGKILL";
    let before = format!("in flight, as it was when these died: rollout-0 {first} ({how})");
    assert_eq!(
        s.events("poison"),
        [format!(
            "rollout-0 {second} died with trajectory 1.0.1 {before}, and no other was on all of \
             them: it is set aside, step 1 trains without it, and the deaths count against no engine"
        )]
    );
    let reason = s.incidents().pop().unwrap().reason;
    assert_eq!(reason, format!("{how}; trajectory 1.0.1 was {before}"));
    let evidence = s.records().into_iter().find_map(|r| match r {
        Record::SetAside { engines, .. } => Some(engines.clone()),
        _ => None,
    });
    let incidents: Vec<_> = s.incidents().iter().map(|i| i.id).collect();
    let told: Vec<_> = evidence.unwrap().iter().map(|e| e.incident).collect();
    assert_eq!(told, incidents);
    assert_eq!(s.core.view(s.now).set_aside, 1);
    let innocent: Vec<_> = s.incidents().iter().map(|i| i.innocent).collect();
    assert_eq!(innocent, [true, true]);
    let node = &s.core.view(s.now).nodes[0];
    assert_eq!(node.faults, 0, "nor against the machine: {node:?}");
    // Nobody is given it, or an engine for it, any more.
    s.said.clear();
    assert_eq!(s.ask(poison), None);
    dies_with(&mut s, &[t(1, 1, 0)]);
    let handed =
        |o: &Output| matches!(o, Output::Dispatch { trajectory, .. } if *trajectory == poison);
    assert!(!s.said.iter().any(handed));
}

#[test]
fn of_two_that_were_on_both_engines_the_third_death_tells() {
    let mut s = Script::new(config(2));
    let (poison, other) = (t(1, 0, 1), t(1, 1, 0));
    s.core.config.budgets.general.max = 9;
    for _ in 0..2 {
        dies_with(&mut s, &[poison, other]);
        s.feed(Input::Timeout);
    }
    assert_eq!(set_aside(&s), []);
    // Restarts in a row wait.
    s.now = s.now + Duration::from_secs(1);
    s.feed(Input::Timeout);
    dies_with(&mut s, &[poison]);
    let (blamed, engines) = set_aside(&s).pop().unwrap();
    assert_eq!((blamed, engines.len()), (poison, 3));
    assert!(s.core.holds_lease(s.life(AGENT), other));
}

#[test]
fn two_that_were_on_two_engines_that_died_are_on_none_together_before_a_request_ends_well() {
    let mut s = Script::new(config(2));
    let (poison, other, later) = (t(1, 0, 1), t(1, 1, 0), t(1, 1, 1));
    s.core.config.budgets.general.max = 9;
    for _ in 0..2 {
        dies_with(&mut s, &[poison, other]);
    }
    s.now = s.now + Duration::from_secs(1);
    s.feed(Input::Timeout);
    let running = |s: &Script| s.core.s.work.rollouts.running(s.life(ENGINE));
    s.flight(ENGINE, &[poison]);
    assert_eq!(s.ask(other), None);
    assert_eq!(s.ask(later), None, "one of its prompt was on both");
    s.release(poison, false);
    assert_eq!(running(&s), 1, "the other has its turn");
    assert_eq!(s.ask(poison), None, "it was on both, too");
    s.release(other, false);
    assert_eq!(running(&s), 2, "no suspect is left");
    s.flight(ENGINE, &[other]);
}

#[test]
fn who_asks_before_the_verdict_on_an_engine_that_broke_a_suspect_off_is_given_to_none() {
    let mut s = Script::new(config(2));
    let (poison, other) = (t(1, 0, 1), t(1, 1, 0));
    s.core.config.budgets.general.max = 9;
    for _ in 0..2 {
        dies_with(&mut s, &[poison, other]);
    }
    s.now = s.now + Duration::from_secs(1);
    s.feed(Input::Timeout);
    s.flight(ENGINE, &[poison]);
    // The stream is broken, the engine has the fewest requests, and nobody said yet that it is dead.
    s.release(poison, true);
    assert_eq!(s.ask(other), None);
    assert_eq!(s.ask(poison), None);
    // It explains the deaths as well as the other of its prompt.
    assert_eq!(s.ask(t(1, 1, 1)), None);
    dies(&mut s);
    let (blamed, engines) = set_aside(&s).pop().unwrap();
    assert_eq!((blamed, engines.len()), (poison, 3));

    // One that lives gets it again when nothing was heard of its death for a while.
    let mut s = Script::new(config(2));
    s.core.config.budgets.general.max = 9;
    dies_with(&mut s, &[poison, other]);
    s.flight(ENGINE, &[poison]);
    s.release(poison, true);
    assert_eq!(s.ask(poison), None);
    s.now = s.now + Duration::from_secs(6);
    s.feed(Input::Timeout);
    assert_eq!(s.core.s.work.rollouts.running(s.life(ENGINE)), 1);
}

#[test]
fn another_response_to_the_prompt_of_one_that_was_set_aside_is_set_aside_after_one_death() {
    let mut s = Script::new(config(2));
    let (first, second, other) = (t(1, 0, 0), t(1, 0, 1), t(1, 1, 0));
    dies_with(&mut s, &[first]);
    dies_with(&mut s, &[first]);
    let life = s.life(ENGINE);
    dies_with(&mut s, &[second, other]);
    assert_eq!(set_aside(&s).pop(), Some((second, vec![life])));
    assert_eq!(
        s.events("poison").pop().unwrap(),
        format!(
            "rollout-0 {life} died with trajectory 1.0.1 in flight, and another of its prompt was set \
             aside before: it is set aside, step 1 trains without it, and the deaths count against no \
             engine"
        )
    );
    assert_eq!(dear(&s), [""; 0], "a limit of one, and three deaths");
    // Of another prompt nothing is known.
    dies_with(&mut s, &[other]);
    assert_eq!(set_aside(&s).len(), 2);
}

#[test]
fn deaths_without_requests_by_injection_or_where_the_rule_is_off_say_nothing() {
    let mut idle = Script::new(config(2));
    idle.core.config.budgets.general.max = 9;
    dies(&mut idle);
    dies_with(&mut idle, &[t(1, 0, 0)]);
    assert_eq!(set_aside(&idle), []);

    let mut off = Script::new(config(0));
    dies_with(&mut off, &[t(1, 0, 0)]);
    dies_with(&mut off, &[t(1, 0, 0)]);
    assert_eq!(set_aside(&off), []);
    assert_eq!(dear(&off).len(), 1, "the budget is spent");

    let mut struck = Script::new(config(2));
    struck.core.config.budgets.general.max = 9;
    for _ in 0..2 {
        struck.flight(ENGINE, &[t(1, 0, 0)]);
        struck.feed(Input::Operator(
            TICKET,
            Request::Inject {
                fault: Fault::Kill,
                role: Role::Rollout,
                index: Some(0),
                incarnation: None,
                at: None,
            },
        ));
        dies(&mut struck);
    }
    assert_eq!(set_aside(&struck), []);
}

#[test]
fn what_an_engine_broke_off_just_before_it_was_seen_to_end_was_in_flight_and_a_turn_that_ended_was_not()
 {
    for broken in [true, false] {
        let mut s = Script::new(config(2));
        let poison = t(1, 0, 1);
        s.core.config.budgets.general.max = 9;
        for _ in 0..2 {
            s.flight(ENGINE, &[poison]);
            s.release(poison, broken);
            dies(&mut s);
        }
        assert_eq!(!set_aside(&s).is_empty(), broken);
    }
    // Long before: another engine has it, or had.
    let mut s = Script::new(config(1));
    s.flight(ENGINE, &[t(1, 0, 1)]);
    s.release(t(1, 0, 1), true);
    s.now = s.now + Duration::from_secs(6);
    dies(&mut s);
    assert_eq!(set_aside(&s), []);
}

#[test]
fn the_deaths_count_against_no_budget_and_those_of_others_still_do() {
    let mut s = Script::new(config(2));
    let poison = t(1, 0, 1);
    dies_with(&mut s, &[poison]);
    dies_with(&mut s, &[poison]);
    assert_eq!(dear(&s), [""; 0], "a limit of one, and two deaths");
    let waits = s
        .incidents()
        .iter()
        .any(|i| i.plan.contains("after a wait"));
    assert!(!waits);
    dies_with(&mut s, &[t(1, 1, 0), t(1, 1, 1)]);
    assert_eq!(dear(&s), [""; 0], "the first of its own");
    s.now = s.now + Duration::from_secs(1);
    s.feed(Input::Timeout);
    dies_with(&mut s, &[t(1, 1, 0), t(1, 1, 1)]);
    let dear = dear(&s);
    assert!(
        dear[0].contains("rollout-0 failed 2 times in a row (exit)"),
        "{dear:?}"
    );
}

#[test]
fn the_batch_completes_and_trains_without_it_and_its_step_consumes_it_once() {
    let mut s = Script::new(config(2));
    let poison = t(1, 0, 1);
    dies_with(&mut s, &[poison]);
    dies_with(&mut s, &[poison]);
    let rest = [t(1, 0, 0), t(1, 1, 0), t(1, 1, 1)];
    rest.into_iter().for_each(|id| s.finish(id));
    assert_eq!(trained(&s), rest);
    step_done(&mut s, 1);
    let consumed = s.records().into_iter().find_map(|r| match r {
        Record::Committed {
            trajectories,
            provenance,
            ..
        } => Some((trajectories.clone(), provenance.clone().unwrap())),
        _ => None,
    });
    let (consumed, provenance) = consumed.unwrap();
    let [(of, past)] = provenance.befell.try_into().unwrap();
    let aside = past.setbacks().last().unwrap();
    assert_eq!(
        (of, aside.kind),
        (poison, crate::core::SetbackKind::SetAside)
    );
    assert_eq!(s.events("poison"), [aside.why.as_str()]);
    assert_eq!(consumed, [t(1, 0, 0), poison, t(1, 1, 0), t(1, 1, 1)]);
    assert_eq!(set_aside(&s).len(), 1);
    assert_eq!(s.core.s.recover.deaths, Default::default());
    let next =
        |o: &Output| matches!(o, Output::Dispatch { trajectory, .. } if trajectory.batch == 2);
    assert_eq!(s.said.iter().filter(|o| next(o)).count(), 4);
}

#[test]
fn a_group_of_which_nothing_is_left_is_left_out_and_a_batch_of_which_nothing_is_left_ends_the_job()
{
    let mut s = Script::new(config(2));
    let (gone, left) = ([t(1, 0, 0), t(1, 0, 1)], [t(1, 1, 0), t(1, 1, 1)]);
    let mut whole = Script::new(config(2));
    for s in [&mut s, &mut whole] {
        dies_with(s, &gone[..1]);
        dies_with(s, &gone[..1]);
        dies_with(s, &gone[1..]);
    }
    left.into_iter().for_each(|id| s.finish(id));
    assert_eq!(trained(&s), left);
    step_done(&mut s, 1);
    assert_eq!(s.core.view(s.now).step, Step(1));

    dies_with(&mut whole, &left[..1]);
    dies_with(&mut whole, &left[..1]);
    dies_with(&mut whole, &left[1..]);
    let outcome = whole.core.state().outcome();
    let Some(Outcome::Failed { reason }) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(reason.contains("every trajectory of step 1"), "{reason}");
}

#[test]
fn the_end_of_one_that_was_set_aside_comes_too_late_whenever_it_comes() {
    let mut s = Script::new(config(2));
    let (poison, agent) = (t(1, 0, 1), s.life(AGENT));
    dies_with(&mut s, &[poison]);
    dies_with(&mut s, &[poison]);
    s.said.clear();
    for _ in 0..2 {
        s.finish(poison);
    }
    assert_eq!((s.said.len(), s.core.view(s.now).finished), (0, 0));
    // Stored, and told by a daemon that starts; or the agent worker says that it holds it.
    s.restart_daemon(&[finished(Incarnation(0), poison)]);
    assert_eq!(s.core.view(s.now).finished, 0);
    s.feed(Input::Role(
        agent,
        RoleEvent::Attached {
            hello: Hello {
                leases: vec![poison],
                ..Hello::default()
            },
        },
    ));
    let revoke = Output::Revoke {
        agent,
        trajectory: poison,
    };
    assert!(s.said.contains(&revoke));
    let rest = [t(1, 0, 0), t(1, 1, 0), t(1, 1, 1)];
    rest.into_iter().for_each(|id| s.finish(id));
    assert_eq!(trained(&s), rest);
}

#[test]
fn one_that_finished_before_its_engine_was_seen_to_end_is_trained_on() {
    let mut s = Script::new(config(1));
    let done = t(1, 0, 1);
    s.flight(ENGINE, &[done]);
    s.finish(done);
    dies(&mut s);
    assert_eq!(set_aside(&s), []);
    assert_eq!(s.core.view(s.now).finished, 1);
}

fn seen_idle(s: &mut Script) {
    let incarnation = s.life(ENGINE);
    let sample = Sample::default();
    s.feed(Input::Role(incarnation, RoleEvent::Sampled { sample }));
}

#[test]
fn a_death_before_the_daemon_restarted_counts_and_one_of_which_it_knows_not_all_does_not() {
    for idle in [true, false] {
        let mut s = Script::new(config(2));
        let poison = t(1, 0, 1);
        dies_with(&mut s, &[poison]);
        s.restart_daemon(&[]);
        if idle {
            seen_idle(&mut s);
        }
        // What else it was given before nobody knows, unless it was once seen to serve nothing.
        dies_with(&mut s, &[poison]);
        assert_eq!(!set_aside(&s).is_empty(), idle);
    }
    // Once it is on record it stays so.
    let mut s = Script::new(config(2));
    dies_with(&mut s, &[t(1, 0, 1)]);
    dies_with(&mut s, &[t(1, 0, 1)]);
    let before = s.core.state().clone();
    s.restart_daemon(&[]);
    assert_eq!(s.core.s.work, before.work);
    assert_eq!(s.core.view(s.now).set_aside, 1);
}

#[test]
fn an_engine_that_does_not_generate_any_more_dies_with_what_is_in_flight_too() {
    let mut config = config(2);
    config.rules.health_probe.first_wait.set(ms(1000));
    config.rules.health_probe.threshold.set(1);
    let mut s = Script::new(config);
    let poison = t(1, 0, 1);
    for _ in 0..2 {
        s.flight(ENGINE, &[poison]);
        s.now = s.now + Duration::from_secs(1);
        s.feed(Input::Timeout);
        let incarnation = s.life(ENGINE);
        let ok = false;
        s.feed(Input::Role(incarnation, RoleEvent::Probed { ok }));
        let (text, seen) = ("stacks".to_owned(), Seen::default());
        s.feed(Input::Role(incarnation, RoleEvent::Evidence { text, seen }));
        s.feed(Input::Timeout);
    }
    assert_eq!(set_aside(&s).len(), 1);
    let rules: Vec<_> = s.incidents().into_iter().map(|i| i.rule).collect();
    assert_eq!(rules, ["health probe", "health probe"]);
}

#[test]
fn an_engine_that_was_given_up_over_its_weights_says_nothing_of_its_requests() {
    let mut s = Script::new(config(2));
    s.core.config.budgets.general.max = 9;
    let innocent = t(1, 0, 1);
    for _ in 0..3 {
        s.flight(ENGINE, &[innocent]);
        let words = "error: version 1 is not what the engine serves";
        s.exits(ENGINE, Exit::Code(7), words);
        s.feed(Input::Timeout);
        s.now = s.now + Duration::from_secs(1);
        s.feed(Input::Timeout);
    }
    assert_eq!((set_aside(&s), s.incidents().len()), (vec![], 3));
}
