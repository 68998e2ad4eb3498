//! Requests of the router's clients: they have no lease, and count like those of agents.
use super::*;

const CLIENT: u64 = 1 << 63;

/// A core whose rollouts all serve, cut off from its world: nobody answers what it asks for.
fn serving(config: CoreConfig) -> (Core, Time) {
    let mut w = World::new(config, 5);
    let all_admitted = |w: &World| {
        let view = w.core.view(w.now);
        let mut rollouts = view.instances.iter();
        w.committed() > 0 && rollouts.all(|i| i.id.role != Role::Rollout || i.admitted)
    };
    w.until("all admitted", Duration::from_secs(60), all_admitted);
    let mut core = w.core.clone();
    while core.poll_output().is_some() {}
    (core, w.now)
}

fn ask(core: &mut Core, now: Time, ticket: u64, avoid: Option<Incarnation>) -> Option<Incarnation> {
    core.handle(now, Input::ClientRouteRequested { ticket, avoid });
    answer(core, ticket)
}

fn answer(core: &mut Core, wanted: u64) -> Option<Incarnation> {
    let outputs: Vec<Output> = std::iter::from_fn(|| core.poll_output()).collect();
    core.check().unwrap();
    outputs.into_iter().find_map(|output| match output {
        Output::Route { ticket, rollout } if ticket == wanted => Some(rollout),
        _ => None,
    })
}

fn release(core: &mut Core, now: Time, ticket: u64) {
    core.handle(
        now,
        Input::RouteReleased {
            ticket,
            broken: false,
        },
    );
    core.check().unwrap();
}

fn rollouts(core: &Core) -> Vec<(u32, Incarnation)> {
    let lives = core.inspect().lives(Role::Rollout).into_iter();
    lives
        .map(|life| (core.inspect().requests_at(life), life))
        .collect()
}

fn total(core: &Core) -> u32 {
    rollouts(core).iter().map(|(load, _)| load).sum()
}

fn exited(incarnation: Incarnation, at: Time) -> Input {
    Input::Role(
        incarnation,
        RoleEvent::Exited {
            at: Some(at),
            exit: Exit::Signal(9),
            detail: String::new(),
        },
    )
}

#[test]
fn a_clients_request_goes_to_the_idlest_rollout_and_counts_there_until_it_is_released() {
    let (mut core, now) = serving(small(Mode::Async, 6));
    let agents = total(&core);
    for n in 0..7 {
        let least = rollouts(&core).iter().map(|(load, _)| *load).min();
        let before = rollouts(&core);
        let chosen = ask(&mut core, now, CLIENT | n, None).unwrap();
        let load = before.iter().find(|(_, life)| *life == chosen);
        assert_eq!(load.map(|(load, _)| *load), least, "{before:?}");
    }
    assert_eq!(total(&core), agents + 7);
    for n in 0..7 {
        release(&mut core, now, CLIENT | n);
        release(&mut core, now, CLIENT | n);
    }
    assert_eq!(
        total(&core),
        agents,
        "a release that comes twice counts once"
    );
}

#[test]
fn a_request_that_comes_twice_is_answered_twice_and_counts_once() {
    let (mut core, now) = serving(small(Mode::Async, 6));
    let before = total(&core);
    let first = ask(&mut core, now, CLIENT, None);
    assert_eq!(ask(&mut core, now, CLIENT, None), first);
    assert_eq!(total(&core), before + 1);
}

#[test]
fn the_rollout_that_failed_a_request_gets_it_again_only_when_no_other_is_there() {
    let (mut core, now) = serving(small(Mode::Async, 6));
    let mut rest: Vec<Incarnation> = rollouts(&core).iter().map(|(_, life)| *life).collect();
    let failed = ask(&mut core, now, CLIENT, None).unwrap();
    release(&mut core, now, CLIENT);
    let other = ask(&mut core, now, CLIENT | 1, Some(failed)).unwrap();
    assert_ne!(other, failed);
    release(&mut core, now, CLIENT | 1);
    rest.retain(|life| *life != failed);
    for life in rest {
        core.handle(now, exited(life, now));
    }
    assert_eq!(ask(&mut core, now, CLIENT | 2, Some(failed)), Some(failed));
}

#[test]
fn a_rollouts_death_ends_its_clients_tickets() {
    let (mut core, now) = serving(small(Mode::Async, 6));
    let dead = ask(&mut core, now, CLIENT, None).unwrap();
    core.handle(now, exited(dead, now));
    assert!(!core.inspect().has_request(CLIENT));
    assert_eq!(core.inspect().requests_at(dead), 0);
    // The client's connection breaks, and it comes back: the end of the first request is late.
    let next = ask(&mut core, now, CLIENT | 1, Some(dead));
    assert!(next.is_some_and(|next| next != dead), "{next:?}");
    let before = total(&core);
    release(&mut core, now, CLIENT);
    assert_eq!(total(&core), before);
}

#[test]
fn a_client_waits_while_no_rollout_serves_and_leaves_nothing_when_it_goes() {
    let mut core = Core::new(small(Mode::Async, 6));
    core.handle(Time(1), Input::Start);
    assert_eq!(ask(&mut core, Time(1), CLIENT, None), None);
    release(&mut core, Time(2), CLIENT);
    assert!(!core.inspect().has_request(CLIENT));
    assert_eq!(answer(&mut core, CLIENT), None);
}

#[test]
fn a_paused_job_answers_nobody_and_those_who_wait_once_it_goes_on() {
    let mut w = World::new(small(Mode::Async, 12), 2);
    w.until("step 2", Duration::from_secs(60), |w| w.committed() == 2);
    w.feed(Input::Operator(TICKET, Request::Pause));
    let paused = |w: &World| w.core.view(w.now).state == JobState::Paused;
    w.until("the pause", Duration::from_secs(60), paused);
    let mut core = w.core.clone();
    assert_eq!(ask(&mut core, w.now, CLIENT, None), None);
    core.handle(w.now, Input::Operator(TICKET, Request::Resume));
    assert!(answer(&mut core, CLIENT).is_some());
}

#[test]
fn agents_that_wait_go_before_clients_that_waited_longer() {
    let config = CoreConfig {
        engine_requests: 1,
        responses: 8,
        agent_concurrency: 16,
        ..small(Mode::Async, 6)
    };
    let mut w = World::new(config, 4);
    let agent_waits = |w: &World| {
        let full = rollouts(&w.core).iter().all(|(load, _)| *load == 1);
        full && w.core.inspect().next_request().is_some()
    };
    w.until("a request that waits", Duration::from_secs(60), agent_waits);
    let (mut core, now) = (w.core.clone(), w.now);
    assert_eq!(ask(&mut core, now, CLIENT, None), None);
    assert_ne!(core.inspect().next_request().unwrap(), CLIENT);
    let (_, busy) = rollouts(&core)[0];
    let served = core.inspect().request_at(busy).unwrap();
    release(&mut core, now, served);
    assert_eq!(answer(&mut core, CLIENT), None, "the agent's came first");
    assert_eq!(core.inspect().requests_at(busy), 1);
}

#[test]
fn a_client_gets_the_newest_version_that_is_served_where_the_mode_demands_it() {
    let mut w = World::new(small(Mode::Sync, 6), 8);
    let mixed = |w: &World| {
        let versions = w.core.view(w.now).instances;
        let versions = versions
            .iter()
            .filter(|i| i.admitted && i.id.role == Role::Rollout);
        let versions: Vec<_> = versions.map(|i| i.version).collect();
        versions.iter().any(|v| *v != versions[0])
    };
    w.until("two versions", Duration::from_secs(120), mixed);
    let (mut core, now) = (w.core.clone(), w.now);
    let newest = core.inspect().newest_served();
    let chosen = ask(&mut core, now, CLIENT, None).unwrap();
    assert_eq!(core.version_of(chosen), newest);
}
