//! Faults of each role, late and repeated messages, and restarts of the daemon.
use super::*;
use robust_shared::ettr::Slice;
use robust_shared::phase::Phase;

const LONG: Duration = Duration::from_secs(60);

fn started(mode: Mode, steps: u64) -> World {
    let mut w = World::journaled(small(mode, steps), Timing::default(), 3);
    w.until("two steps", LONG, |w| w.committed() == 2);
    w
}

fn recovered(w: &World) -> bool {
    let incidents = w.core.view(w.now).incidents;
    !incidents.is_empty() && incidents.iter().all(|i| i.resumed.is_some())
}

fn lives(w: &World) -> Vec<Incarnation> {
    let all = w.core.view(w.now).instances.into_iter();
    all.map(|i| i.incarnation).collect()
}

fn in_phase(w: &World, phase: Phase) -> bool {
    w.instance(T0).phase == phase
}

#[test]
fn the_trainers_death_restarts_only_the_gang_and_trains_the_same_batch_again() {
    let mut w = started(Mode::Async, 6);
    w.until("training", LONG, |w| in_phase(w, Phase::Update));
    let (_, step, batch) = w.trained.last().cloned().unwrap();
    let others = w.core.view(w.now).instances.into_iter();
    let others: Vec<_> = others.map(|i| (i.id, i.incarnation)).collect();
    w.inject(Fault::Kill, Role::Trainer, 1);
    let struck = w.now;
    w.until("recovered", LONG, recovered);
    for (who, before) in others {
        assert_eq!(w.life(who) == before, who.role != Role::Trainer, "{who}");
    }
    let (generation, again, same) = w.trained.last().cloned().unwrap();
    assert_eq!((generation, again, same), (Generation(2), step, batch));
    let incidents = w.incidents();
    let incident = incidents.last().unwrap();
    assert_eq!((incident.rule.as_str(), incident.struck), ("exit", struck));
    assert_eq!(incident.reason, "killed by SIGKILL");
    assert_eq!(incident.outcome, IncidentOutcome::Recovered);
    let stages: Vec<_> = incident
        .marks
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(
        stages,
        [
            "exited",
            "seen",
            "spawned",
            "attached",
            "restored",
            "published",
            "compute"
        ]
    );
    assert!(incident.detect() <= ms(100) && incident.total() < Some(ms(1500)));
    w.run_to_end();
    assert_eq!(w.outcome, Some(Outcome::Completed));
}

#[test]
fn detection_counts_from_the_exit_itself_unless_an_injection_struck_before() {
    let mut w = started(Mode::Async, 6);
    let (teardown, told) = (w.timing.teardown.least, w.timing.told.least);
    let killed = w.now;
    w.kill(id(Role::Agent, 1));
    w.until("recovered", LONG, recovered);
    let incident = w.incidents().pop().unwrap();
    assert_eq!(incident.struck, killed + teardown);
    assert_eq!(incident.detect(), told);
    let seen = |i: &Incident| (i.marks[0].clone(), i.marks[1].clone());
    let (exited, verdict) = (("exited".to_owned(), killed + teardown), incident.verdict);
    assert_eq!(seen(&incident), (exited, ("seen".to_owned(), verdict)));

    let struck = w.now;
    w.inject(Fault::Kill, Role::Agent, 0);
    w.until("recovered again", LONG, |w| {
        w.incidents().len() == 2 && recovered(w)
    });
    let incident = w.incidents().pop().unwrap();
    assert_eq!(incident.struck, struck);
    assert_eq!(incident.detect(), teardown + told);
    let exited = ("exited".to_owned(), struck + teardown);
    assert_eq!(
        seen(&incident),
        (exited, ("seen".to_owned(), incident.verdict))
    );
}

#[test]
fn a_rank_swept_away_with_its_gang_is_named_by_the_incident_that_took_it() {
    let mut w = started(Mode::Async, 6);
    let ranks = [w.life(T0), w.life(id(Role::Trainer, 1))];
    w.inject(Fault::Kill, Role::Trainer, 1);
    w.inject(Fault::Kill, Role::Trainer, 0);
    w.until("recovered", LONG, recovered);
    let incident = w.incidents().pop().unwrap();
    assert_eq!(w.incidents().len(), 1);
    assert_eq!(
        (incident.incarnation, incident.swept),
        (ranks[1], vec![ranks[0]])
    );
}

#[test]
fn a_life_that_is_over_is_not_struck_in_the_one_after_it() {
    let mut w = started(Mode::Async, 6);
    let first = w.life(T0);
    let strike = |index, incarnation| Request::Inject {
        fault: Fault::Kill,
        role: Role::Trainer,
        index,
        incarnation: Some(incarnation),
        at: None,
    };
    let answer = |w: &mut World, request| {
        w.core.handle(w.now, Input::Operator(TICKET, request));
        let outputs: Vec<Output> = std::iter::from_fn(|| w.core.poll_output()).collect();
        let reply = outputs.into_iter().find_map(|o| match o {
            Output::Reply { result, .. } => Some(result),
            _ => None,
        });
        reply.unwrap()
    };
    w.kill(T0);
    w.until("recovered", LONG, recovered);
    let now = w.life(T0);
    let refusal = answer(&mut w, strike(Some(0), first)).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        format!(
            "trainer-0 was restarted since you looked (life {now}, you named {first}); nothing was struck. Name \
             `--incarnation {}`, or leave it out",
            now.0
        )
    );
    // Without an index the life says whom.
    let other = w.life(id(Role::Trainer, 1));
    let struck = answer(&mut w, strike(None, other)).unwrap();
    let whom = id(Role::Trainer, 1);
    assert!(
        matches!(struck, Reply::Struck { id, incarnation, .. } if (id, incarnation) == (whom, other)),
        "{struck:?}"
    );
}

#[test]
fn an_exit_that_nobody_was_there_to_hear_counts_from_the_last_sign_of_life() {
    let mut w = started(Mode::Async, 6);
    let before = w.now;
    w.crash_daemon();
    let agent = w.life(id(Role::Agent, 0));
    w.procs.get_mut(&agent).unwrap().alive = false;
    w.until("the daemon is back", LONG, |w| !w.incidents().is_empty());
    let incident = w.incidents().pop().unwrap();
    assert!(
        incident.struck <= before && incident.detect() >= ms(300),
        "{incident:?}"
    );
    assert_eq!(incident.marks[0].0, "seen", "{incident:?}");
}

#[test]
fn replacements_are_spawned_in_the_moment_of_the_verdict() {
    let mut w = started(Mode::Async, 6);
    w.kill(T0);
    w.until("verdict", LONG, |w| !w.incidents().is_empty());
    let word = w.now.to_string();
    let spawns = w
        .journal
        .lines()
        .iter()
        .filter(|l| l.starts_with(&word) && l.contains(" > Spawn {"));
    assert_eq!(spawns.count(), 2);
}

#[test]
fn rollouts_keep_being_routed_to_while_the_trainer_recovers() {
    let mut w = started(Mode::Async, 8);
    w.timing.turn = Span::always(ms(400));
    w.until("training", LONG, |w| in_phase(w, Phase::OldLogprob));
    w.kill(T0);
    w.until("recovered", LONG, recovered);
    let incident = w.incidents().pop().unwrap();
    let during = |at: Time| incident.verdict <= at && at <= incident.resumed.unwrap();
    assert!(w.routed_at.iter().any(|(at, _)| during(*at)));
}

#[test]
fn ettr_counts_the_rollouts_share_while_the_trainer_recovers_and_goodput_less() {
    let mut w = started(Mode::Async, 8);
    w.until("training", LONG, |w| in_phase(w, Phase::Update));
    w.kill(T0);
    w.run_to_end();
    let figures = w.core.view(w.now).ettr;
    assert!(figures.goodput < figures.total, "{figures:?}");
    assert!(
        w.journal
            .lines()
            .iter()
            .any(|l| l.contains("TrainerRecovers") && l.contains("value: 0.6"))
    );
}

#[test]
fn every_instant_of_a_run_with_a_fault_is_in_one_slice() {
    let mut w = started(Mode::Async, 8);
    w.until("training", LONG, |w| in_phase(w, Phase::Update));
    w.kill(T0);
    w.run_to_end();
    let spent = w.core.view(w.now).spent;
    let job = spent.windows.last().unwrap();
    let sum: Duration = job.slices.iter().map(|(_, time)| *time).sum();
    assert_eq!(sum, job.to.since(job.from), "{job:?}");
    let of = |slice| {
        let found = job.slices.iter().find(|(known, _)| *known == slice);
        found.map_or(Duration::ZERO, |(_, time)| *time)
    };
    for slice in [Slice::Useful, Slice::Restart, Slice::Replayed] {
        assert!(of(slice) > Duration::ZERO, "{slice:?}: {job:?}");
    }
    let incident = w.incidents().pop().unwrap();
    let took = incident.resumed.unwrap().since(incident.verdict);
    let unseen = incident.verdict.since(incident.struck);
    assert!(of(Slice::Detect) <= unseen, "{job:?}: {unseen:?}");
    let back = of(Slice::Restart) + of(Slice::Reconnect);
    assert!(back >= took, "{back:?} of {took:?}");
}

#[test]
fn a_rollout_gets_traffic_again_only_after_it_verified_the_published_weights() {
    let mut w = started(Mode::Async, 12);
    let who = id(Role::Rollout, 1);
    w.kill(who);
    w.until("verdict", LONG, |w| !w.incidents().is_empty());
    let verdict = w.now;
    w.until("recovered", LONG, recovered);
    let incident = w.incidents().pop().unwrap();
    let back = incident.resumed.unwrap();
    assert!(
        incident.attached.unwrap() + ms(80) <= back,
        "a pull takes 80 ms"
    );
    let early = |(at, to): &(Time, InstanceId)| *to == who && *at > verdict && *at < back;
    assert!(!w.routed_at.iter().any(early));
    let pulled = w.proc(who).unwrap().version;
    assert!(pulled.is_some());
    w.run_to_end();
    assert_eq!(w.committed(), 12);
}

#[test]
fn a_pull_continues_from_the_new_generation_when_the_trainer_dies_in_it() {
    let mut w = World::new(small(Mode::Async, 4), 5);
    w.until("a pull from the trainer", LONG, |w| {
        let mut all = (0..3).map(|n| id(Role::Rollout, n));
        all.any(|engine| w.core.inspect().pulls_from_trainer(engine))
    });
    w.kill(T0);
    w.run_to_end();
    assert_eq!(w.outcome, Some(Outcome::Completed));
}

#[test]
fn an_agents_death_hands_its_trajectories_to_others_at_once() {
    let mut w = started(Mode::Async, 6);
    w.timing.turn = Span::always(ms(500));
    let who = id(Role::Agent, 0);
    w.until("leases", LONG, |w| w.instance(who).running > 0);
    let (all, agent) = (w.core.leases().into_iter(), w.life(who));
    let held: Vec<_> = all.filter(|(_, of)| *of == agent).collect();
    w.kill(who);
    w.until("verdict", LONG, |w| !w.incidents().is_empty());
    let other = w.life(id(Role::Agent, 1));
    for (t, _) in held {
        assert!(w.core.holds_lease(other, t), "{t}");
    }
    w.run_to_end();
    assert_eq!(w.committed(), 6);
}

#[test]
fn a_second_fault_in_the_same_step_restarts_the_whole_task_and_the_job_still_ends() {
    let mut w = started(Mode::Async, 6);
    w.until("training", LONG, |w| in_phase(w, Phase::Update));
    w.kill(T0);
    w.until("recovered", LONG, recovered);
    w.kill(T0);
    w.until("task restart", LONG, |w| w.incidents().len() == 2);
    let plan = "restart the whole task from step 2: fault 2 of the trainer in step 3";
    let incident = w.incidents().pop().unwrap();
    assert_eq!(
        (incident.plan.as_str(), incident.outcome),
        (plan, IncidentOutcome::Recovering)
    );
    w.run_to_end();
    assert_eq!(w.committed(), 6);
    let recovered = |i: &Incident| i.outcome == IncidentOutcome::Recovered && i.resumed.is_some();
    assert!(w.incidents().iter().all(recovered));
}

#[test]
fn under_the_task_policy_every_fault_restarts_everything() {
    let mut w = World::new(
        CoreConfig {
            policy: Policy::Task,
            ..small(Mode::Async, 5)
        },
        1,
    );
    w.until("a step", LONG, |w| w.committed() > 0);
    let before = lives(&w);
    w.kill(id(Role::Agent, 1));
    w.until("verdict", LONG, |w| !w.incidents().is_empty());
    assert!(lives(&w).iter().all(|life| !before.contains(life)));
    w.run_to_end();
    assert_eq!(w.committed(), 5);
}

#[test]
fn an_exception_in_start_up_before_anything_ran_fails_the_job_with_its_words() {
    let mut w = World::new(small(Mode::Async, 2), 1);
    w.run_for(ms(50));
    let (incarnation, exit) = (w.life(T0), Exit::Code(1));
    w.feed(Input::Role(
        incarnation,
        RoleEvent::Exited {
            at: Some(w.now),
            exit,
            detail: "no such model".to_owned(),
        },
    ));
    let reason = "trainer-0 failed in start-up and no trainer ever ran, so a restart cannot help: \
                  exit code 1: no such model";
    assert_eq!(
        w.outcome,
        Some(Outcome::Failed {
            reason: reason.to_owned()
        })
    );
}

#[test]
fn a_process_that_cannot_be_started_ends_the_job_after_a_bounded_number_of_attempts() {
    let mut core = Core::new(small(Mode::Async, 2));
    let (mut now, mut spawns) = (Time(1), 0);
    core.handle(now, Input::Start);
    while core.state().outcome().is_none() {
        let mut failed = Vec::new();
        while let Some(output) = core.poll_output() {
            if let Output::Spawn {
                id, incarnation, ..
            } = output
                && id == T0
            {
                failed.push(incarnation);
            }
        }
        for incarnation in failed {
            spawns += 1;
            core.handle(
                now,
                Input::Role(
                    incarnation,
                    RoleEvent::SpawnFailed {
                        reason: "no memory".to_owned(),
                    },
                ),
            );
        }
        if let Some(at) = core.next_timeout() {
            now = now.max(at);
            core.handle(now, Input::Timeout);
        }
        assert!(spawns < 50, "I-7");
    }
    assert!(matches!(
        core.state().outcome(),
        Some(Outcome::Failed { .. })
    ));
}

#[test]
fn twenty_five_kills_of_the_trainer_are_twenty_five_role_restarts() {
    let mut w = World::new(small(Mode::Async, 60), 1);
    for kill in 1..=25 {
        let at = w.committed() + 1;
        w.until("a step between", LONG, |w| w.committed() >= at);
        w.inject(Fault::Kill, Role::Trainer, kill % 2);
        w.until("recovered", LONG, |w| {
            w.incidents().len() == kill as usize && recovered(w)
        });
    }
    assert!(
        w.incidents()
            .iter()
            .all(|i| i.outcome == IncidentOutcome::Recovered)
    );
    assert!(
        w.incidents()
            .iter()
            .all(|i| i.plan.starts_with("restart the trainer gang"))
    );
}

#[test]
fn a_restart_of_the_daemon_at_any_output_of_a_run_loses_nothing() {
    let mut whole = World::new(small(Mode::Async, 3), 1);
    whole.run_to_end();
    for n in (1..whole.outputs).step_by(3) {
        let mut w = World::new(small(Mode::Async, 3), 1);
        w.crash_daemon_after(n);
        w.run_to_end();
        assert_eq!(
            w.outcome,
            Some(Outcome::Completed),
            "crash after output {n}"
        );
        assert_eq!(w.committed(), 3, "crash after output {n}");
    }
}

#[test]
fn a_restart_of_the_daemon_restarts_no_living_role() {
    let mut w = started(Mode::Async, 6);
    w.until("training", LONG, |w| in_phase(w, Phase::OldLogprob));
    let before = lives(&w);
    w.crash_daemon();
    w.run_to_end();
    assert_eq!(before, lives(&w));
    assert!(w.incidents().is_empty());
}

#[test]
fn the_trainer_may_die_while_the_daemon_is_away() {
    let mut w = started(Mode::Sync, 5);
    w.until("training", LONG, |w| in_phase(w, Phase::OldLogprob));
    w.crash_daemon();
    w.kill(T0);
    w.run_to_end();
    assert_eq!(w.committed(), 5);
    assert_eq!(w.incidents().len(), 1);
}
