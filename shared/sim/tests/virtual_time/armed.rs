//! Faults that wait for their moment, those that the role does to itself, and those of nodes.
use super::*;
use robust_shared::fault::{At, Fault};
use robust_shared::phase::Phase;

pub(super) const LONG: Duration = Duration::from_secs(120);

pub(super) fn started(mode: Mode, steps: u64) -> World {
    let mut w = World::new(small(mode, steps), 1);
    w.until("the first step", LONG, |w| w.committed() >= 1);
    w
}

pub(super) fn at(text: &str) -> Option<At> {
    Some(text.parse().unwrap())
}

pub(super) fn rollout(index: u32) -> InstanceId {
    id(Role::Rollout, index)
}

/// Asks the core itself; what it wants done is acted on by nobody, its answer comes back.
pub(super) fn ask(w: &mut World, request: Request) -> (Result<Reply, Refusal>, Vec<Output>) {
    w.core.handle(w.now, Input::Operator(TICKET, request));
    let mut outputs: Vec<Output> = std::iter::from_fn(|| w.core.poll_output()).collect();
    let reply = outputs
        .iter()
        .position(|o| matches!(o, Output::Reply { .. }));
    match outputs.remove(reply.unwrap()) {
        Output::Reply { result, .. } => (result, outputs),
        other => panic!("{other:?}"),
    }
}

pub(super) fn inject(fault: &str, whom: InstanceId, at: Option<At>) -> Request {
    Request::Inject {
        fault: fault.parse().unwrap(),
        role: whom.role,
        index: Some(whom.index),
        incarnation: None,
        at,
    }
}

pub(super) fn refusal(w: &mut World, fault: &str, whom: InstanceId, at: Option<At>) -> String {
    ask(w, inject(fault, whom, at)).0.unwrap_err().to_string()
}

pub(super) fn armed(w: &World) -> usize {
    w.core.view(w.now).armed.len()
}

fn phase_of(w: &World, who: InstanceId) -> Phase {
    let all = w.core.view(w.now).instances;
    all.iter().find(|i| i.id == who).unwrap().phase
}

#[test]
fn a_fault_armed_for_a_phase_strikes_when_the_instance_enters_it_and_only_once() {
    let mut w = started(Mode::Sync, 6);
    w.until("it waits", LONG, |w| phase_of(w, T0) == Phase::AwaitBatch);
    w.inject_at(Fault::Kill, Role::Trainer, 0, at("update"));
    assert_eq!((armed(&w), w.incidents().len()), (1, 0));
    w.until("it is struck", LONG, |w| !w.incidents().is_empty());
    assert_eq!((armed(&w), w.incidents()[0].rule.as_str()), (0, "exit"));
    w.run_to_end();
    assert_eq!(
        (w.outcome.clone(), w.incidents().len()),
        (Some(Outcome::Completed), 1)
    );
}

#[test]
fn a_fault_armed_for_one_life_never_strikes_the_next() {
    let mut w = started(Mode::Sync, 6);
    w.until("it waits", LONG, |w| phase_of(w, T0) == Phase::AwaitBatch);
    w.inject_at(Fault::Kill, Role::Trainer, 0, at("update"));
    assert_eq!(armed(&w), 1);
    w.kill(T0);
    w.until("found", LONG, |w| !w.incidents().is_empty());
    assert_eq!(armed(&w), 0, "the life it was for is over");
    // The next life does come to an update.
    w.run_to_end();
    assert_eq!(
        (w.outcome.clone(), w.incidents().len()),
        (Some(Outcome::Completed), 1)
    );
}

#[test]
fn a_fault_stays_armed_when_the_daemon_is_restarted_and_strikes_once() {
    let mut w = started(Mode::Async, 12);
    w.inject_at(Fault::Kill, Role::Rollout, 1, at("pull:50%"));
    assert_eq!(armed(&w), 1);
    w.crash_daemon();
    w.until("the daemon is back", LONG, |w| armed(w) == 1);
    w.until("it is struck", LONG, |w| !w.incidents().is_empty());
    let incident = w.incidents().pop().unwrap();
    assert_eq!((incident.who, armed(&w)), (rollout(1), 0));
    w.run_to_end();
    assert_eq!(w.incidents().len(), 1);
}

#[test]
fn a_fault_can_be_taken_back_until_it_strikes() {
    let mut w = started(Mode::Async, 6);
    let (armed_as, _) = ask(&mut w, inject("kill", T0, at("publish")));
    let Ok(Reply::Armed { number, .. }) = armed_as else {
        panic!("{armed_as:?}");
    };
    let disarm = |number| Request::Disarm { number };
    let (done, _) = ask(&mut w, disarm(Some(number)));
    assert!(matches!(done, Ok(Reply::Disarmed { faults }) if faults.len() == 1));
    assert_eq!(armed(&w), 0);
    let (again, _) = ask(&mut w, disarm(Some(number)));
    assert_eq!(
        again.unwrap_err().to_string(),
        format!("no fault {number} is armed; `robustctl status` shows those that are")
    );
    // All of none is nothing, and no error: a script that cleans up may say it always.
    let (all, _) = ask(&mut w, disarm(None));
    assert_eq!(all, Ok(Reply::Disarmed { faults: vec![] }));
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let mut w = started(Mode::Async, 6);
    let agent = id(Role::Agent, 0);
    assert_eq!(
        refusal(&mut w, "nan", rollout(0), None),
        "`nan` does not befall a rollout; it befalls trainer"
    );
    assert_eq!(
        refusal(&mut w, "kill", agent, at("update")),
        "no agent comes into phase `update`; it comes into init, idle, generating, awaiting_tool"
    );
    assert_eq!(
        refusal(&mut w, "leader-crash", agent, None),
        "`leader-crash` strikes the leader; name no role"
    );
    assert_eq!(
        refusal(&mut w, "cut-network rollout-0", rollout(0), None),
        "there is no connection between rollout-0 and rollout-0 to disturb: it is the same instance"
    );
    assert_eq!(
        refusal(&mut w, "stall-network rollout-9 1s", rollout(0), None),
        "there is no connection between rollout-0 and rollout-9 to disturb: there is no such instance"
    );
    ask(&mut w, inject("kill", T0, at("publish"))).0.unwrap();
    assert_eq!(
        refusal(&mut w, "kill", T0, at("publish")),
        "nothing to do: `kill` is armed for trainer-0 already: 1"
    );
    assert_eq!(armed(&w), 1);
}

#[test]
fn a_phase_that_nobody_enters_in_this_job_is_refused_with_those_that_there_are() {
    let text = "[data]\nprompts = \"p\"\ntokenizer = \"t\"\n";
    let job = robust_shared::job::Job::parse(text, std::path::Path::new("job.toml")).unwrap();
    let config = CoreConfig {
        moments: CoreConfig::from(&job).moments,
        ..small(Mode::Async, 6)
    };
    let mut w = World::new(config, 1);
    w.until("a step", Duration::from_secs(60), |w| w.committed() > 0);
    assert_eq!(
        refusal(&mut w, "kill", T0, at("reshard")),
        "no trainer of this job comes into phase `reshard`; it comes into init, load_checkpoint, \
         await_batch, old_logprob, update, snapshot, publish"
    );
    let why = refusal(&mut w, "exit 1", T0, at("ref_logprob"));
    assert!(why.contains(", as `train.kl_coef` is 0; "), "{why}");
    let why = refusal(&mut w, "kill", rollout(0), at("awaiting_tool"));
    assert!(why.contains("no rollout of this job"), "{why}");
}

pub(super) fn carried(outputs: &[Output]) -> Vec<(u64, String)> {
    let told = |o: &Output| match o {
        Output::Carry { number, fault, .. } => Some((*number, fault.to_string())),
        _ => None,
    };
    outputs.iter().filter_map(told).collect()
}

#[test]
fn what_a_role_does_to_itself_is_told_again_on_every_link_until_it_says_that_it_struck() {
    let mut w = started(Mode::Async, 6);
    let (reply, outputs) = ask(&mut w, inject("exit 3", T0, None));
    assert!(
        matches!(
            reply,
            Ok(Reply::Armed {
                number: 1,
                at: None,
                ..
            })
        ),
        "{reply:?}"
    );
    assert_eq!(carried(&outputs), [(1, "exit 3".to_owned())]);
    let recorded = outputs
        .iter()
        .position(|o| matches!(o, Output::Record(Record::Armed { .. })));
    let told = outputs
        .iter()
        .position(|o| matches!(o, Output::Carry { .. }));
    assert!(recorded < told, "it is on record first");
    let incarnation = w.life(T0);
    let drain = |w: &mut World, input| {
        w.core.handle(w.now, input);
        std::iter::from_fn(|| w.core.poll_output()).collect::<Vec<_>>()
    };
    drain(&mut w, Input::Role(incarnation, RoleEvent::Detached));
    let hello = Hello {
        step: Some(Step(1)),
        ..Hello::default()
    };
    let outputs = drain(
        &mut w,
        Input::Role(incarnation, RoleEvent::Attached { hello }),
    );
    assert_eq!(carried(&outputs), [(1, "exit 3".to_owned())]);
    let struck = |incarnation| {
        Input::Role(
            incarnation,
            RoleEvent::FaultStruck {
                number: 1,
                refused: None,
            },
        )
    };
    // Of an older life, nothing is believed (I-1).
    drain(&mut w, struck(Incarnation(999)));
    assert_eq!(armed(&w), 1);
    drain(&mut w, struck(incarnation));
    assert_eq!(armed(&w), 0);
    let again = drain(&mut w, struck(incarnation));
    assert!(
        !again.iter().any(|o| matches!(o, Output::Event(_))),
        "{again:?}"
    );
}

#[test]
fn a_role_that_was_told_to_exit_is_one_incident_and_the_job_goes_on() {
    let mut w = started(Mode::Async, 6);
    w.inject("exit 3".parse().unwrap(), Role::Rollout, 0);
    w.until("recovered", LONG, |w| {
        w.incidents()
            .iter()
            .any(|i| i.outcome == IncidentOutcome::Recovered)
    });
    let incident = w.incidents().pop().unwrap();
    assert!(
        incident.reason.contains("exit code 3"),
        "{}",
        incident.reason
    );
    w.run_to_end();
    assert_eq!(w.incidents().len(), 1);
}

/// I-8: it is slow, and it works.
#[test]
fn a_slow_instance_is_no_hanging_one() {
    for (role, index) in [(Role::Trainer, 0), (Role::Rollout, 1)] {
        let mut w = started(Mode::Async, 8);
        w.inject("slow 20% 30s".parse().unwrap(), role, index);
        w.run_to_end();
        assert_eq!(w.outcome, Some(Outcome::Completed));
        assert!(w.incidents().is_empty(), "{role}: {:#?}", w.incidents());
    }
}

#[test]
fn a_node_that_is_to_be_lost_must_be_one_of_the_jobs() {
    let mut w = started(Mode::Async, 6);
    let lose = |node: &str| Request::Afflict {
        fault: Fault::LoseNode {
            node: node.to_owned(),
        },
    };
    let (refused, _) = ask(&mut w, lose("nowhere"));
    assert!(
        matches!(refused, Err(Refusal::UnknownNode { .. })),
        "{refused:?}"
    );
    let name = w.core.view(w.now).nodes[0].node.spec.name.clone();
    let (done, outputs) = ask(&mut w, lose(&name));
    assert_eq!(done, Ok(Reply::Afflicted { node: name }));
    let afflicts = |o: &&Output| matches!(o, Output::Afflict { .. });
    assert_eq!(outputs.iter().filter(afflicts).count(), 1);
}
