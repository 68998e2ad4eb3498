//! Trajectories that agent workers give back: an infrastructure failure is never a sample, and a worker
//! that gives back everything is not asked for ever.
use super::script::{AGENT, Script, t};
use super::*;

/// One agent worker that holds the whole batch of two prompts with two responses; it is unable when it
/// gave back three in a row for two seconds.
fn config() -> CoreConfig {
    CoreConfig {
        rollouts: 1,
        agents: 1,
        ranks: 1,
        responses: 2,
        rules: quick_rules().with(|r| {
            r.agent_unable.times.set(3);
            r.agent_unable.lasting.set(ms(2000));
        }),
        ..small(Mode::Sync, 3)
    }
}

const BATCH: [TrajectoryId; 4] = [t(1, 0, 0), t(1, 0, 1), t(1, 1, 0), t(1, 1, 1)];
const WHY: &str = "its tool failed 3 times in a row: the tool was killed by SIGKILL";

fn give_back_by(s: &mut Script, trajectory: TrajectoryId, by: ReturnedBy) {
    let incarnation = s.life(AGENT);
    let reason = WHY.to_owned();
    s.feed(Input::Role(
        incarnation,
        RoleEvent::TrajectoryReturned {
            trajectory,
            reason,
            by,
            lease: 0,
        },
    ));
}

fn give_back(s: &mut Script, trajectory: TrajectoryId) {
    give_back_by(s, trajectory, ReturnedBy::Worker);
}

fn wait(s: &mut Script, seconds: u64) {
    s.now = s.now + Duration::from_secs(seconds);
    s.feed(Input::Timeout);
}

/// What was handed out since it was last asked.
fn handed(s: &mut Script) -> Vec<TrajectoryId> {
    let said = std::mem::take(&mut s.said);
    let handed = |o: Output| match o {
        Output::Dispatch { trajectory, .. } => Some(trajectory),
        _ => None,
    };
    said.into_iter().filter_map(handed).collect()
}

/// What the gang is told to train on.
fn trained(s: &Script) -> Vec<Vec<TrajectoryId>> {
    let trained = |o: &Output| match o {
        Output::TrainStep { trajectories, .. } => Some(trajectories.clone()),
        _ => None,
    };
    s.said.iter().filter_map(trained).collect()
}

#[test]
fn what_cannot_be_gone_on_from_is_thrown_away_and_generated_from_its_prompt() {
    let mut s = Script::new(config());
    let back = BATCH[1];
    handed(&mut s);
    let incarnation = s.life(AGENT);
    s.feed(Input::Role(
        incarnation,
        RoleEvent::TrajectoryReturned {
            trajectory: back,
            reason: "it went another way".to_owned(),
            by: ReturnedBy::Diverged,
            lease: 0,
        },
    ));
    let discarded = Record::Discarded {
        trajectories: vec![back],
    };
    assert!(s.records().contains(&&discarded));
    wait(&mut s, 1);
    assert_eq!(handed(&mut s), [back]);
}

#[test]
fn what_is_given_back_is_no_sample_and_its_step_waits_until_its_group_is_full() {
    let mut s = Script::new(config());
    assert_eq!(handed(&mut s), BATCH);
    let back = BATCH[1];
    give_back(&mut s, back);
    assert!(!s.core.holds_lease(s.life(AGENT), back));
    let said = format!("trajectory {back} given back, no sample: {WHY}");
    assert_eq!(s.events("returned"), [said]);
    for id in BATCH {
        if id != back {
            s.finish(id);
        }
    }
    assert_eq!(trained(&s), Vec::<Vec<TrajectoryId>>::new());
    assert_eq!(s.core.view(s.now).finished, 3);
    wait(&mut s, 1);
    assert_eq!(
        handed(&mut s),
        [back],
        "it is generated on, by the same number"
    );
    s.finish(back);
    assert_eq!(trained(&s), [BATCH]);
    let view = s.core.view(s.now);
    assert_eq!((view.given_back, view.set_aside, view.discarded), (1, 0, 0));
    assert_eq!(s.incidents(), []);
}

#[test]
fn a_worker_that_gives_back_everything_for_long_enough_is_restarted_and_says_why() {
    let mut s = Script::new(config());
    for id in BATCH {
        give_back(&mut s, id);
    }
    assert_eq!(
        s.incidents(),
        [],
        "a moment without memory gives back as many"
    );
    wait(&mut s, 3);
    let before = s.life(AGENT);
    give_back(&mut s, BATCH[0]);
    let [incident] = s.incidents().try_into().unwrap();
    assert_eq!(
        (incident.rule.as_str(), incident.who),
        ("agent unable", AGENT)
    );
    let reason = format!("gave back 5 trajectories in a row and finished none: {WHY}");
    assert_eq!(incident.reason, reason);
    assert!(
        incident.plan.starts_with("restart agent-0 only"),
        "{}",
        incident.plan
    );
    assert_ne!(s.life(AGENT), before);
    assert_eq!(s.core.view(s.now).given_back, 5);
}

#[test]
fn one_that_finishes_between_is_not_unable_and_what_the_daemon_gives_back_is_not_its_fault() {
    let mut s = Script::new(config());
    for id in &BATCH[..2] {
        give_back(&mut s, *id);
    }
    wait(&mut s, 3);
    s.finish(BATCH[3]);
    give_back(&mut s, BATCH[0]);
    give_back(&mut s, BATCH[1]);
    assert_eq!(s.incidents(), []);

    let mut s = Script::new(config());
    for _ in 0..3 {
        for id in BATCH {
            give_back_by(&mut s, id, ReturnedBy::Daemon);
        }
        wait(&mut s, 10);
    }
    assert_eq!(s.incidents(), []);
    assert_eq!(s.core.view(s.now).given_back, 12);
}

#[test]
fn a_tool_that_is_broken_for_good_fails_the_job_within_its_budgets() {
    let mut s = Script::new(config());
    for _ in 0..10_000 {
        let over = matches!(s.core.s.job, JobState::Over(_));
        if over {
            break;
        }
        wait(&mut s, 1);
        for (id, _) in s.core.leases() {
            give_back(&mut s, id);
        }
    }
    let view = s.core.view(s.now);
    assert_eq!(view.state, wire::JobState::Failed, "it goes round for ever");
    assert!(view.reason.contains("agent-0"), "{}", view.reason);
    assert_eq!(view.step, Step(0));
    let unable = |i: &Incident| i.rule == "agent unable";
    assert!(s.incidents().iter().all(unable) && s.incidents().len() <= 16);
    assert!(trained(&s).is_empty());
}

#[test]
fn how_often_was_given_back_is_known_after_a_restart_of_the_daemon() {
    let mut s = Script::new(config());
    give_back(&mut s, BATCH[0]);
    s.restart_daemon(&[]);
    assert_eq!(s.core.view(s.now).given_back, 1);
}
