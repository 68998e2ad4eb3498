//! `max_staleness`: what ended too old is generated again, in every mode, and never trained on (the
//! world's checker looks at every commit).
use super::modes::{hybrid, long_tail};
use super::*;

fn config(mode: Mode, most: Option<u64>) -> CoreConfig {
    let hybrids = if mode == Mode::Async { 0 } else { 2 };
    CoreConfig {
        hybrids,
        max_staleness: most,
        ..hybrid(mode, 6)
    }
}

/// Of a thousand turns so many come from older weights than the engine says.
fn late(stale_per_mille: u64) -> Timing {
    Timing {
        stale_per_mille,
        ..long_tail()
    }
}

#[test]
fn what_ended_too_old_is_generated_again_and_every_step_trains_once() {
    for mode in [Mode::Sync, Mode::SemiSync, Mode::Async] {
        for most in [0, 1] {
            let mut w = World::with(config(mode, Some(most)), late(200), 11);
            w.run_to_end();
            assert_eq!(w.committed(), 6, "{mode:?}, {most}");
            let view = w.core.view(w.now);
            assert!(view.stale > 0, "{mode:?}, {most}: nothing was too old");
            assert_eq!(view.discarded, 0);
        }
    }
}

#[test]
fn without_a_bound_or_within_it_nothing_is_thrown_away() {
    for mode in [Mode::Sync, Mode::SemiSync, Mode::Async] {
        let mut unbounded = World::with(config(mode, None), late(200), 11);
        unbounded.run_to_end();
        assert_eq!(unbounded.core.view(unbounded.now).stale, 0);
        let mut in_time = World::with(config(mode, Some(0)), late(0), 11);
        in_time.run_to_end();
        assert_eq!(in_time.core.view(in_time.now).stale, 0, "{mode:?}");
    }
}

fn ended(agent: Incarnation, trajectory: TrajectoryId, oldest: u64) -> Input {
    ended_under(0, agent, trajectory, oldest)
}

fn ended_under(lease: u64, agent: Incarnation, trajectory: TrajectoryId, oldest: u64) -> Input {
    Input::Role(
        agent,
        RoleEvent::TrajectoryFinished {
            trajectory,
            reward: 1.0,
            oldest_version: WeightVersion(oldest),
            lease,
        },
    )
}

/// A world in which an agent worker holds a trajectory of the third batch, and nobody is done.
fn held() -> (World, TrajectoryId, Incarnation) {
    let room = CoreConfig {
        agent_concurrency: 64,
        ..config(Mode::Async, Some(1))
    };
    let mut w = World::with(room, late(0), 5);
    let of_third = |w: &World| {
        let leases = w.core.leases();
        leases.into_iter().find(|(t, _)| t.batch == 3)
    };
    w.until("a lease of batch 3", Duration::from_secs(120), |w| {
        of_third(w).is_some()
    });
    let (trajectory, agent) = of_third(&w).unwrap();
    (w, trajectory, agent)
}

fn outputs(core: &mut Core) -> Vec<Output> {
    std::iter::from_fn(|| core.poll_output()).collect()
}

#[test]
fn an_end_that_is_too_old_is_told_once_recorded_and_handed_out_after_a_wait() {
    let (w, id, agent) = held();
    let mut core = w.core.clone();
    let before = core.view(w.now).stale;
    core.handle(w.now, ended(agent, id, 0));
    let said = outputs(&mut core);
    let text = format!(
        "trajectory {id} has tokens of v0, 2 versions before those its step trains, at most 1 are \
         allowed: it is generated again"
    );
    assert!(
        said.iter()
            .any(|o| matches!(o, Output::Event(e) if e.text == text)),
        "{said:?}"
    );
    let gone = Output::Record(Record::Discarded {
        trajectories: vec![id],
    });
    let revoke = Output::Revoke {
        agent,
        trajectory: id,
    };
    assert!(said.contains(&gone) && said.contains(&revoke), "{said:?}");
    assert!(!core.holds_lease(agent, id));
    // It comes twice: the same end, before and after.
    core.handle(w.now, ended(agent, id, 0));
    assert!(!outputs(&mut core).contains(&gone));
    assert_eq!(core.view(w.now).stale, before + 1);
    core.handle(w.now + ms(250), Input::Timeout);
    let again = outputs(&mut core);
    let handed = |o: &Output| matches!(o, Output::Dispatch { trajectory, .. } if *trajectory == id);
    assert!(again.iter().any(handed), "{again:?}");
}

#[test]
fn the_late_end_of_an_earlier_lease_throws_nobodys_work_away() {
    let (w, id, agent) = held();
    let mut core = w.core.clone();
    let before = core.lease_of(id);
    core.handle(w.now, ended_under(before, agent, id, 0));
    core.handle(w.now + ms(250), Input::Timeout);
    let holder = core.leases().into_iter().find(|(t, _)| *t == id);
    let (_, next) = holder.unwrap();
    drop(outputs(&mut core));
    // Whoever holds it by now, the same one again or another.
    core.handle(w.now + ms(251), ended_under(before, agent, id, 0));
    assert!(core.holds_lease(next, id));
    let given_back = RoleEvent::TrajectoryReturned {
        trajectory: id,
        reason: "late".to_owned(),
        by: ReturnedBy::Worker,
        lease: before,
    };
    core.handle(w.now + ms(252), Input::Role(agent, given_back));
    assert!(core.holds_lease(next, id));
    assert!(core.lease_of(id) > before);
    // Told at the start of a daemon, while nobody holds it: it waits for the next to hold it.
    let mut again = Core::restore(w.config.clone(), core.state().clone());
    again.handle(w.now + ms(300), ended(Incarnation(0), id, 0));
    again.handle(w.now + ms(300), Input::Start);
    assert_eq!(again.view(w.now).finished, core.view(w.now).finished);
}

#[test]
fn a_batch_for_which_no_weights_exist_yet_takes_no_agent_workers_room() {
    // Room for less than a batch, so that one that waits for weights would keep out those it waits
    // for.
    let narrow = CoreConfig {
        agents: 1,
        agent_concurrency: 1,
        ..config(Mode::Async, Some(0))
    };
    let mut w = World::with(narrow, late(300), 7);
    w.run_to_end();
    assert_eq!(w.committed(), 6);
    assert!(w.core.view(w.now).stale > 0);
}

#[test]
fn requests_go_only_to_weights_that_are_new_enough() {
    let bound = |most| config(Mode::Async, most).route_staleness();
    assert_eq!([bound(None), bound(Some(0)), bound(Some(5))], [2, 0, 5]);
}

#[test]
fn how_old_a_trajectory_is_follows_from_its_step_and_its_oldest_tokens() {
    let of = |batch, oldest| {
        let id = TrajectoryId {
            batch,
            group: 0,
            member: 0,
        };
        staleness(id, WeightVersion(oldest))
    };
    assert_eq!([of(1, 0), of(5, 4), of(5, 2), of(5, 9)], [0, 0, 2, 0]);
}
