//! The health probe's rule, from both sides, and operators' quarantine.
use super::*;
use robust_shared::phase::Phase;

const LONG: Duration = Duration::from_secs(60);

/// First wait 4 s, then every 2 s, 1 s each, 3 failures.
fn probing(mode: Mode, steps: u64) -> World {
    let mut config = small(mode, steps);
    let probe = &mut config.rules.health_probe;
    probe.first_wait.set(ms(4000));
    probe.interval.set(ms(2000));
    probe.timeout.set(ms(1000));
    World::journaled(config, Timing::default(), 1)
}

fn rollout(n: u32) -> InstanceId {
    id(Role::Rollout, n)
}

fn all_admitted(w: &World) -> bool {
    let all = w.core.view(w.now).instances;
    all.iter().all(|i| i.id.role != Role::Rollout || i.admitted)
}

/// A world in which nobody asks for anything: tools take an hour.
fn idle_world() -> World {
    let mut w = probing(Mode::Async, 3);
    w.until("all admitted", LONG, all_admitted);
    w.timing.tool = Span::always(Duration::from_secs(3600));
    w
}

fn is_suspect(w: &World, n: u32) -> bool {
    w.instance(rollout(n)).state == InstanceState::Suspect
}

#[test]
fn an_engine_is_probed_as_often_as_the_job_file_says_for_its_role() {
    let text = "[data]\nprompts='p'\ntokenizer='t'\n[detect.health_probe]\nfirst_wait_s=4\n\
                interval_s=60\nrollout={interval_s=2}\n";
    let job = robust_shared::job::Job::parse(text, std::path::Path::new("job.toml")).unwrap();
    let mut config = small(Mode::Async, 3);
    config.rules.health_probe = CoreConfig::from(&job).rules.health_probe;
    let mut w = World::journaled(config, Timing::default(), 1);
    w.until("all admitted", LONG, all_admitted);
    w.timing.tool = Span::always(Duration::from_secs(3600));
    w.run_for(Duration::from_secs(30));
    w.stop(rollout(1));
    let stopped = w.now;
    w.until("suspect", LONG, |w| is_suspect(w, 1));
    // Its interval, and a timeout of 5 s.
    assert!(w.now.since(stopped) <= Duration::from_secs(7));
}

#[test]
fn an_idle_engine_that_does_not_generate_is_suspect_then_quarantined_and_restarted() {
    let mut w = idle_world();
    w.run_for(Duration::from_secs(20));
    assert!(w.incidents().is_empty());
    w.stop(rollout(1));
    let stopped = w.now;
    w.until("suspect", LONG, |w| is_suspect(w, 1));
    // Up to an interval, and a timeout.
    assert!(w.now.since(stopped) <= Duration::from_secs(4));
    w.until("found", LONG, |w| !w.incidents().is_empty());
    // Three timeouts, an interval before each, and a second.
    assert!(w.now.since(stopped) <= Duration::from_secs(3 * 3 + 1));
    let incident = w.incidents().pop().unwrap();
    assert_eq!(
        (incident.rule.as_str(), incident.who),
        ("health probe", rollout(1))
    );
    let (before, after) = incident.reason.split_once(" in a row failed in ").unwrap();
    let (_, last) = after.split_once(", ").unwrap();
    assert_eq!(
        (before, last),
        (
            "3 probes",
            "the last one: no answer in time; it is quarantined"
        )
    );
    w.until("admitted again", LONG, |w| {
        w.incidents().iter().all(|i| i.resumed.is_some())
    });
    assert_eq!(
        w.instance(rollout(1)).version,
        w.core.view(w.now).version,
        "verified before it is admitted"
    );
    let budget = w.core.inspect().strikes(rollout(1)).unwrap();
    assert_ne!(*budget, Strikes::default());
}

#[test]
fn one_success_restores_a_suspect_before_the_threshold() {
    let mut w = idle_world();
    w.run_for(Duration::from_secs(10));
    w.pause(rollout(0), Duration::from_millis(3500));
    w.until("suspect", LONG, |w| is_suspect(w, 0));
    w.until("trusted", LONG, |w| !is_suspect(w, 0));
    w.run_for(Duration::from_secs(60));
    assert!(w.incidents().is_empty());
    assert_eq!(w.core.inspect().failed_probes(rollout(0)), 0);
}

#[test]
fn nobody_is_probed_before_the_first_wait_is_over() {
    let config = small(Mode::Async, 3);
    let mut w = World::journaled(config, Timing::default(), 1);
    w.timing.tool = Span::always(Duration::from_secs(3600));
    w.run_for(Duration::from_secs(290));
    let probes = |w: &World| {
        w.journal
            .lines()
            .iter()
            .filter(|l| l.contains("> Probe"))
            .count()
    };
    assert_eq!(probes(&w), 0);
    w.run_for(Duration::from_secs(30));
    assert!(probes(&w) >= 3);
}

#[test]
fn a_paused_engine_is_not_probed_and_what_was_said_of_it_before_is_void() {
    let mut w = idle_world();
    w.run_for(Duration::from_secs(10));
    w.stop(rollout(2));
    w.until("suspect", LONG, |w| is_suspect(w, 2));
    let incarnation = w.life(rollout(2));
    w.feed(Input::Role(
        incarnation,
        RoleEvent::PhaseChanged {
            phase: Phase::Paused,
            step: Step(0),
        },
    ));
    w.run_for(Duration::from_secs(3600));
    assert!(w.incidents().is_empty());
    assert!(!is_suspect(&w, 2));
}

#[test]
fn an_engine_that_gives_tokens_is_not_sick_however_long_a_probe_waits() {
    let mut w = idle_world();
    w.run_for(Duration::from_secs(10));
    let incarnation = w.life(rollout(0));
    // Nobody answers its probes, and tokens go on.
    w.stop(rollout(0));
    for n in 1..200 {
        let last = w.core.inspect().sample(rollout(0));
        let sample = Sample {
            tokens_total: last.tokens_total + n,
            running: 1,
            busy: last.busy + ms(200),
            ..last
        };
        w.feed(Input::Role(incarnation, RoleEvent::Sampled { sample }));
        w.run_for(ms(400));
    }
    assert!(w.incidents().is_empty());
}

fn ask(w: &mut World, out: bool, role: Role, index: u32) -> Result<Reply, Refusal> {
    // Else somebody would have to pull from elsewhere.
    let pulls = |w: &World| {
        let mut all = (0..3).map(rollout);
        all.any(|engine| w.core.inspect().pulls(engine))
    };
    w.until("nobody pulls", LONG, |w| !pulls(w));
    let request = match out {
        true => Request::Quarantine { role, index },
        false => Request::Readmit { role, index },
    };
    w.core.handle(w.now, Input::Operator(TICKET, request));
    let mut answer = None;
    let outputs: Vec<_> = std::iter::from_fn(|| w.core.poll_output()).collect();
    for output in outputs {
        match output {
            Output::Reply { result, .. } => answer = Some(result),
            Output::Event(_) | Output::Record(_) => {}
            other => panic!("{other:?}"),
        }
    }
    answer.unwrap()
}

#[test]
fn a_quarantined_engine_gets_no_requests_until_it_is_readmitted() {
    let mut w = probing(Mode::Async, 60);
    w.until("a step", LONG, |w| w.committed() > 0);
    assert!(ask(&mut w, true, Role::Rollout, 1).is_ok());
    let since = w.now;
    w.run_for(Duration::from_secs(5));
    let routed = |w: &World, since: Time| {
        let to = |(at, to): &&(Time, InstanceId)| *to == rollout(1) && *at > since;
        w.routed_at.iter().filter(to).count()
    };
    assert_eq!(routed(&w, since), 0);
    // It stays out across its restart, and the recovery is over all the same.
    w.kill(rollout(1));
    w.until("recovered", LONG, |w| {
        !w.incidents().is_empty() && w.incidents().iter().all(|i| i.resumed.is_some())
    });
    w.run_for(Duration::from_secs(3));
    assert_eq!(routed(&w, since), 0);
    let word = |w: &World| {
        let view = w.core.view(w.now);
        let of = view.instances.into_iter().find(|i| i.id == rollout(1));
        of.unwrap().state
    };
    assert_eq!(word(&w), InstanceState::Quarantined);
    assert!(ask(&mut w, false, Role::Rollout, 1).is_ok());
    let back = w.now;
    w.until("requests again", LONG, |w| routed(w, back) > 0);
    assert_eq!(word(&w), InstanceState::Running);
}

#[test]
fn what_cannot_be_quarantined_is_refused_with_what_to_do_instead() {
    let mut w = idle_world();
    let mut refusal = |out, role, index| ask(&mut w, out, role, index).unwrap_err().to_string();
    assert_eq!(
        refusal(true, Role::Trainer, 0),
        "a trainer gets no requests, so it cannot be quarantined; to give it a new process: \
         `robustctl restart trainer-0`"
    );
    assert_eq!(
        refusal(true, Role::Rollout, 9),
        "there is no rollout 9; the job has 3 (0 to 2)"
    );
    assert_eq!(
        refusal(false, Role::Rollout, 0),
        "nothing to do: rollout-0 is not quarantined"
    );
    let mut w = idle_world();
    assert!(ask(&mut w, true, Role::Rollout, 0).is_ok());
    assert!(ask(&mut w, true, Role::Rollout, 1).is_ok());
    let before = w.core.state().clone();
    let again = ask(&mut w, true, Role::Rollout, 1).unwrap_err().to_string();
    assert_eq!(
        again,
        "nothing to do: rollout-1 is quarantined; `robustctl readmit rollout 1` ends it"
    );
    let last = ask(&mut w, true, Role::Rollout, 2).unwrap_err();
    let only = Refusal::LastRollout {
        id: rollout(2),
        rollouts: 3,
    };
    assert_eq!(last, only);
    assert_eq!(
        last.to_string(),
        "rollout-2 is the only engine that serves now; quarantining it would stop all generation. Wait until another \
         one serves (`robustctl roles`), or add one with `robustctl scale rollout 4`"
    );
    assert_eq!(*w.core.state(), before, "the job is untouched");
}
