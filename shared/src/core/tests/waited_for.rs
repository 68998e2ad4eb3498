//! An agent worker that hangs on an engine: who is looked at, who is named, and what is folded under it.
use super::script::{AGENT, Script};
use super::*;

fn answer(core: &mut Core, now: Time, life: Incarnation, state: ProcessState) {
    let text = format!("stack of {life}");
    let seen = Seen {
        state,
        ..Seen::default()
    };
    core.handle(now, Input::Role(life, RoleEvent::Evidence { text, seen }));
}

/// An agent worker waits for an engine that is stopped: the engine is looked at without being stopped
/// itself, named, and its own incident is folded under the agent's.
#[test]
fn whoever_is_waited_for_is_looked_at_and_what_is_found_of_it_later_is_folded() {
    let config = CoreConfig {
        rollouts: 1,
        agents: 1,
        ..small(Mode::Async, 5)
    };
    let mut s = Script::new(config);
    let engine = s
        .core
        .s
        .roster
        .instances()
        .get(id(Role::Rollout, 0))
        .unwrap()
        .incarnation();
    let agent = s
        .core
        .s
        .roster
        .instances()
        .get(AGENT)
        .unwrap()
        .incarnation();
    let trajectory = s.core.leases()[0].0;
    s.feed(Input::Role(
        agent,
        RoleEvent::RouteRequested {
            ticket: 77,
            trajectory,
        },
    ));
    let verdict = crate::core::detect::Verdict::new(
        AGENT,
        &crate::core::detect::agent_silent::RULE,
        "no processor time",
    );
    s.core.fault(verdict.hanging());
    let asked: Vec<(Incarnation, bool)> = std::iter::from_fn(|| s.core.poll_output())
        .filter_map(|o| match o {
            Output::CollectEvidence {
                incarnation,
                gently,
                ..
            } => Some((incarnation, gently)),
            _ => None,
        })
        .collect();
    assert_eq!(asked, [(agent, false), (engine, true)]);
    let now = s.now + ms(1);
    answer(&mut s.core, now, agent, ProcessState::Lives);
    answer(&mut s.core, now, engine, ProcessState::Stopped);
    let incident = s.core.view(now).incidents.pop().unwrap();
    let root = incident.root.unwrap();
    assert_eq!(root.one(), Some((id(Role::Rollout, 0), engine)), "{root}");
    assert_eq!(incident.who, AGENT, "whose restart was decided");

    let exit = RoleEvent::Exited {
        at: Some(now),
        exit: Exit::Signal(9),
        detail: String::new(),
    };
    s.core.handle(now, Input::Role(engine, exit));
    let folded = s.core.view(now).incidents.pop().unwrap();
    assert_eq!(
        (folded.who.role, folded.under),
        (Role::Rollout, Some(incident.id))
    );
    let who = id(Role::Rollout, 0);
    assert_eq!(s.core.failures_in_a_row(who, FaultKind::Exit), 0);
    assert!(
        folded.plan.contains("restart rollout-0 only"),
        "{}",
        folded.plan
    );
}
