//! Tokens of a turn under way: stored while it is generated, and gone on from by who comes next.

use std::path::Path;
use std::time::{Duration, Instant};

use robust_proto::v1::host_message::Body as Down;
use robust_proto::v1::role_message::Body as Up;
use robust_proto::v1::{AppendSpansRequest, Dispatch, Span, Turn};
use robust_worker::rollout;

use super::agent::{FakeRollout, Fate, Scene, TRAJECTORY, WHOLE, encode, scene_with};
use super::fixture::{Running, args};
use super::process::{self, Process};
use super::rollout::source;
use host_fake::{Asked, FakeHost, PATIENCE};

fn stored(host: &FakeHost) -> Vec<AppendSpansRequest> {
    let spans = |asked| match asked {
        Asked::Spans(spans) => Some(spans),
        _ => None,
    };
    host.asked().into_iter().filter_map(spans).collect()
}

/// What the store has of a turn under way, which has no gap.
fn running(host: &FakeHost, turn: u32) -> Vec<Span> {
    let mut all: Vec<Span> = Vec::new();
    let mut end = 0;
    for part in stored(host).into_iter().filter(|part| part.turn == turn) {
        assert_eq!(part.offset, end);
        for span in part.spans {
            end += span.ids.len() as u32;
            match all.last_mut().filter(|last| last.version == span.version) {
                Some(last) => {
                    last.ids.extend(span.ids);
                    last.logprobs.extend(span.logprobs);
                }
                None => all.push(span),
            }
        }
    }
    all
}

fn count(spans: &[Span]) -> usize {
    spans.iter().map(|span| span.ids.len()).sum()
}

fn wait_stored(host: &FakeHost, turn: u32, tokens: usize) -> Vec<Span> {
    let deadline = Instant::now() + PATIENCE;
    while count(&running(host, turn)) < tokens {
        assert!(Instant::now() < deadline, "{:?}", host.asked());
        std::thread::sleep(Duration::from_millis(2));
    }
    running(host, turn)
}

fn turns(scene: &Scene) -> Vec<Turn> {
    let turns = scene.turns();
    turns.into_iter().filter_map(|append| append.turn).collect()
}

#[test]
fn who_comes_next_goes_on_after_the_last_stored_token_wherever_the_worker_died() {
    let (prompt, first) = (encode("<bos>12+34=").len(), encode("<call>12+34</call>"));
    let undisturbed = {
        let rollout = FakeRollout::start(WHOLE, 3, Fate::Ends);
        let scene = scene_with(&[&rollout], 60_000);
        scene.resume(Vec::new(), Vec::new());
        scene.finished();
        assert!(
            stored(&scene.host).is_empty(),
            "a short turn needs no spans"
        );
        let turns = turns(&scene);
        scene.end();
        turns
    };
    for tokens in 1..first.len() {
        let hanging = FakeRollout::start(WHOLE, 3, Fate::Hangs(tokens));
        let dies = scene_with(&[&hanging], 0);
        dies.resume(Vec::new(), Vec::new());
        let kept = wait_stored(&dies.host, 0, tokens);
        assert_eq!(count(&kept), tokens);
        let parts = stored(&dies.host);
        assert_eq!(parts[0].prompt_ids, encode("<bos>12+34="));
        assert!(parts[1..].iter().all(|part| part.prompt_ids.is_empty()));
        assert!(dies.turns().is_empty());
        dies.end();
        let living = FakeRollout::start(WHOLE, 3, Fate::Ends);
        let next = scene_with(&[&living], 0);
        next.resume(Vec::new(), kept);
        assert_eq!(next.finished().reward, 1.0);
        assert_eq!(turns(&next), undisturbed, "died after {tokens}");
        let sent = living.inputs()[0]["input_ids"].as_array().unwrap().len();
        assert_eq!(sent, prompt + tokens);
        let later = stored(&next.host).into_iter().find(|part| part.turn == 0);
        assert!(later.is_none_or(|part| part.offset >= tokens as u32));
        next.end();
    }
}

#[test]
fn tokens_of_many_conversations_go_in_one_call() {
    let hanging = FakeRollout::start(WHOLE, 3, Fate::Hangs(3));
    let scene = scene_with(&[&hanging], 300);
    let all = TRAJECTORY..TRAJECTORY + 8;
    for trajectory in all.clone() {
        scene.resume_of(trajectory, Vec::new(), Vec::new());
    }
    let of = |trajectory| {
        let parts = stored(&scene.host).into_iter();
        let parts = parts.filter(|part| part.trajectory == trajectory);
        parts.map(|part| count(&part.spans)).sum::<usize>()
    };
    let deadline = Instant::now() + PATIENCE;
    while !all.clone().all(|trajectory| of(trajectory) == 3) {
        assert!(Instant::now() < deadline, "{:?}", scene.host.asked());
        std::thread::sleep(Duration::from_millis(2));
    }
    // They began at different times, and were due at the same ticks.
    let batches = scene.host.batches();
    assert!(batches.iter().any(|parts| *parts > 1), "{batches:?}");
    scene.end();
}

#[test]
fn a_turn_whose_last_token_is_stored_is_generated_no_further() {
    let rollout = FakeRollout::start(WHOLE, 3, Fate::Ends);
    let scene = scene_with(&[&rollout], 0);
    let ids = encode("<call>12+34</call>");
    let logprobs = vec![-0.5; ids.len()];
    let version = 3;
    let whole = Span {
        ids,
        logprobs,
        version,
    };
    scene.resume(Vec::new(), vec![whole.clone()]);
    assert_eq!(scene.finished().reward, 1.0);
    let turns = turns(&scene);
    assert_eq!((&turns[0].spans, turns.len()), (&vec![whole], 2));
    // Of the second turn only.
    let asked = rollout.inputs();
    let before = encode("<bos>12+34=<call>12+34</call><res>46</res>").len();
    let sent = |i: usize| asked[i]["input_ids"].as_array().unwrap().len();
    assert_eq!((asked.len(), sent(0)), (1, before));
    scene.end();
}

#[test]
fn what_a_dying_rollout_said_is_stored_before_the_next_is_waited_for() {
    let dying = FakeRollout::start(WHOLE, 3, Fate::Breaks(4));
    let living = FakeRollout::start(WHOLE, 4, Fate::Ends);
    // Not due for a minute, and yet stored.
    let scene = scene_with(&[&dying, &living], 60_000);
    scene.resume(Vec::new(), Vec::new());
    assert_eq!(scene.finished().reward, 1.0);
    let asked = scene.host.asked();
    let place = |fits: &dyn Fn(&Asked) -> bool| asked.iter().position(fits).unwrap();
    let spans = place(&|a| matches!(a, Asked::Spans(s) if s.spans[0].ids.len() == 4));
    let routes: Vec<_> = (0..asked.len())
        .filter(|&i| matches!(asked[i], Asked::Route(_)))
        .collect();
    assert!(routes[0] < spans && spans < routes[1], "{asked:?}");
    scene.end();
}

#[test]
fn a_void_lease_ends_the_turn_that_stores_its_tokens() {
    let hanging = FakeRollout::start(WHOLE, 3, Fate::Hangs(3));
    let scene = scene_with(&[&hanging], 0);
    scene.host.void_leases();
    scene.resume(Vec::new(), Vec::new());
    scene
        .host
        .wait_asked("its place given back", |a| matches!(a, Asked::Release(_)));
    let mut was_running = false;
    scene.host.wait("the end", |_, up| match up {
        Up::Phase(phase) if phase.phase == "generating" => {
            was_running = true;
            None
        }
        Up::Phase(phase) if phase.phase == "idle" && was_running => Some(()),
        Up::Returned(returned) => panic!("{returned:?}"),
        _ => None,
    });
    scene.end();
}

const AGENT_FIRST: u64 = 11;

/// An agent worker's process that stores tokens as fast as it can.
fn agent(folder: &Path, host: &FakeHost, incarnation: u64) -> Process {
    let mut command = process::command(folder, host, "agent", incarnation - 10, 1);
    let job = folder.join("job.json");
    let text = std::fs::read_to_string(&job).unwrap();
    let mut whole: serde_json::Value = serde_json::from_str(&text).unwrap();
    whole["agent"]["durable_every_ms"] = 0.into();
    std::fs::write(&job, whole.to_string()).unwrap();
    let process = process::start(command.stderr(std::process::Stdio::null()));
    host.hello(incarnation);
    process
}

fn dispatch(host: &FakeHost, to: u64, turns: Vec<Turn>, running: Vec<Span>) {
    let dispatch = Dispatch {
        trajectory: TRAJECTORY,
        prompt: "12+34=".into(),
        answer: "46".into(),
        seed: 7,
        turns,
        running,
    };
    host.send(to, Down::Dispatch(dispatch));
}

fn stored_turns(host: &FakeHost) -> Vec<Turn> {
    let turn = |asked| match asked {
        Asked::Append(append) => append.turn,
        _ => None,
    };
    host.asked().into_iter().filter_map(turn).collect()
}

fn finished(host: &FakeHost) {
    host.wait_asked("the end", |asked| matches!(asked, Asked::Finish(_)));
}

/// The real rollout samples, the real worker is killed: the same conversation to the last bit.
#[test]
fn a_conversation_is_the_same_to_the_bit_wherever_its_worker_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let trainer = source(5, 1);
    let mut host = FakeHost::start(folder.path());
    let replica = Running::start(args(folder.path(), &host, 0, 1), rollout::run_rollout);
    let http = host.hello(1).http_addr;
    host.send(1, Down::Pull(trainer.pull_all()));
    host.pull_done(1);
    let whole = {
        host.route_to(std::slice::from_ref(&http));
        let _agent = agent(folder.path(), &host, AGENT_FIRST);
        dispatch(&host, AGENT_FIRST, Vec::new(), Vec::new());
        finished(&host);
        stored_turns(&host)
    };
    host.forget_asked();
    let tokens: usize = whole.iter().map(|turn| count(&turn.spans)).sum();
    assert!(tokens > 8, "{tokens} tokens leave no middle to die in");
    let mut in_the_middle = 0;
    for writes in 1..6 {
        let first = AGENT_FIRST + 2 * writes as u64;
        host.store_only(Some(writes));
        let mut dies = agent(folder.path(), &host, first);
        dispatch(&host, first, Vec::new(), Vec::new());
        let kept = |host: &FakeHost| stored(host).len() + stored_turns(host).len();
        let deadline = Instant::now() + PATIENCE;
        // Tokens that come in a burst are written at once: then there are fewer writes to die after.
        let over = |host: &FakeHost| {
            let finish = |asked: &Asked| matches!(asked, Asked::Finish(_));
            host.asked().iter().any(finish)
        };
        while kept(&host) < writes && !over(&host) {
            assert!(Instant::now() < deadline, "{:?}", host.asked());
            std::thread::sleep(Duration::from_millis(1));
        }
        dies.0.kill().unwrap();
        dies.0.wait().unwrap();
        if over(&host) {
            host.forget_asked();
            continue;
        }
        let turns = stored_turns(&host);
        let begun = running(&host, turns.len() as u32);
        in_the_middle += usize::from(!begun.is_empty());
        host.forget_asked();
        host.store_only(None);
        let _next = agent(folder.path(), &host, first + 1);
        dispatch(&host, first + 1, turns.clone(), begun.clone());
        finished(&host);
        let rest = stored_turns(&host);
        let resumed = [turns, rest].concat();
        let at = (resumed.len(), count(&begun));
        assert_eq!(resumed, whole, "killed after {writes} writes, {at:?}");
        host.forget_asked();
    }
    assert!(in_the_middle > 0, "no worker died in the middle of a turn");
    host.send(1, Down::Shutdown(Default::default()));
    replica.end();
    host.die();
}
