//! Conversations, with rollouts that die and a daemon that goes away.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use futures::StreamExt;
use robust_proto::v1::host_message::Body as Down;
use robust_proto::v1::role_message::Body as Up;
use robust_proto::v1::{
    AppendTurnRequest, Dispatch, FinishTrajectoryRequest, Revoke, Shutdown, Span, Turn,
};
use robust_role::LinkEnd;
use robust_shared::job::Agent;
use robust_worker::agent;
use robust_worker::model::tokenizer::Tokenizer;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::fixture::{Running, args, engines, runtime, tokenizer_path};

/// The engine that the played daemon names in every route.
const ROUTED: u64 = 1;
use host_fake::{Asked, FakeHost, PATIENCE};

pub const AGENT: u64 = 1;
pub const TRAJECTORY: u64 = 42;

pub fn encode(text: &str) -> Vec<u32> {
    let tokenizer = Tokenizer::load(&tokenizer_path()).unwrap();
    tokenizer
        .encode(text)
        .unwrap()
        .iter()
        .map(|&id| id as u32)
        .collect()
}

/// A rollout that knows the whole trajectory and says the token that follows what it is given, so
/// a token given twice or left out would show.
pub struct FakeRollout {
    addr: SocketAddr,
    inputs: Arc<Mutex<Vec<Value>>>,
    _runtime: Runtime,
}

/// How a stream ends.
#[derive(Clone, Copy, PartialEq)]
pub enum Fate {
    /// When the turn does.
    Ends,
    /// It breaks after so many tokens.
    Breaks(usize),
    /// Nothing comes after so many tokens.
    Hangs(usize),
    /// When the turn does, and nobody told the engine what its weights are called.
    Unnamed,
    /// When the turn does; the last chunk says that the first token was of the version before.
    Corrects,
}

#[derive(Clone)]
struct Script {
    whole: Vec<u32>,
    fate: Fate,
    version: u64,
    inputs: Arc<Mutex<Vec<Value>>>,
}

impl FakeRollout {
    pub fn start(whole: &str, version: u64, fate: Fate) -> Self {
        let (runtime, inputs) = (runtime(), Arc::default());
        let script = Script {
            whole: encode(whole),
            fate,
            version,
            inputs: Arc::clone(&inputs),
        };
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let addr = listener.local_addr().unwrap();
        let router = axum::Router::new()
            .route("/generate", post(generate))
            .route(
                "/abort_request",
                post(
                    async |State(script): State<Script>, headers: HeaderMap, body: Bytes| {
                        let body = read(&headers, &body);
                        script.inputs.lock().unwrap().push(body);
                    },
                ),
            )
            .with_state(script);
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self {
            addr,
            inputs,
            _runtime: runtime,
        }
    }

    pub fn addr(&self) -> String {
        self.addr.to_string()
    }

    pub fn inputs(&self) -> Vec<Value> {
        self.inputs.lock().unwrap().clone()
    }
}

/// A body with its content type, which real engines insist on, as they do on their key.
fn read(headers: &HeaderMap, body: &[u8]) -> Value {
    let shown = headers
        .get("authorization")
        .map(|key| key.to_str().unwrap());
    let key = engines().of_engine(ROUTED);
    assert!(
        shown.is_some_and(|shown| key.is_shown_by(shown)),
        "{shown:?}"
    );
    let mut body: Value = serde_json::from_slice(body).unwrap();
    let content_type = headers.get("content-type").map(|t| t.to_str().unwrap());
    body["content_type"] = content_type.into();
    body
}

async fn generate(State(script): State<Script>, headers: HeaderMap, body: Bytes) -> Body {
    let body = read(&headers, &body);
    script.inputs.lock().unwrap().push(body.clone());
    let at = body["input_ids"].as_array().unwrap().len();
    let stops = body["sampling_params"]["stop_token_ids"].clone();
    let is_stop = |id: u32| stops.as_array().unwrap().contains(&json!(id));
    let rest = &script.whole[at..];
    let end = rest
        .iter()
        .position(|&id| is_stop(id))
        .map_or(rest.len(), |at| at + 1);
    let mut events = Vec::new();
    for (number, &id) in rest[..end].iter().enumerate() {
        match script.fate {
            Fate::Breaks(after) if after == number => {
                events.push(Err(std::io::Error::other("killed")));
                break;
            }
            Fate::Hangs(after) if after == number => {
                let said = futures::stream::iter(events);
                return Body::from_stream(said.chain(futures::stream::pending()));
            }
            _ => {}
        }
        let finish = if number + 1 == end {
            json!({"type": "stop"})
        } else {
            Value::Null
        };
        let version = match script.fate {
            Fate::Unnamed => "default".to_owned(),
            _ => script.version.to_string(),
        };
        let mut meta = json!({"finish_reason": finish, "weight_version": version,
            "output_token_logprobs": [[-0.5, id, null]]});
        if number + 1 == end && script.fate == Fate::Corrects {
            let before = (script.version - 1).to_string();
            meta["weight_versions"] = json!([{"version": before, "start": 0, "end": 1},
                {"version": version, "start": 1, "end": end}]);
        }
        let chunk = json!({"output_ids": [id], "meta_info": meta});
        events.push(Ok(format!("data: {chunk}\n\n")));
    }
    events.push(Ok("data: [DONE]\n\n".into()));
    let events = futures::stream::iter(events).then(async |event| {
        if event.is_err() {
            // Until the tokens before it are on their way: hyper flushes when it has to wait.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        event
    });
    Body::from_stream(events)
}

pub struct Scene {
    pub host: FakeHost,
    agent: Running,
    _folder: tempfile::TempDir,
}

fn scene(rollouts: &[&FakeRollout]) -> Scene {
    scene_with(rollouts, 60_000)
}

/// Tokens of a turn under way are stored so far apart.
pub fn scene_with(rollouts: &[&FakeRollout], durable_every_ms: u64) -> Scene {
    scene_of(rollouts, |agent| agent.durable_every_ms = durable_every_ms)
}

/// A worker of a job that says so of it.
pub fn scene_of(rollouts: &[&FakeRollout], says: impl FnOnce(&mut Agent)) -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    host.route_to(
        &rollouts
            .iter()
            .map(|rollout| rollout.addr())
            .collect::<Vec<_>>(),
    );
    let mut args = args(folder.path(), &host, 0, AGENT);
    says(&mut args.job.agent);
    let agent = Running::start(args, |args, runtime, started| {
        let calculator = env!("CARGO_BIN_EXE_robust-calc").into();
        agent::run_with_calculator(calculator, args, runtime, started)
    });
    assert_eq!(host.hello(AGENT).leases, [0; 0]);
    Scene {
        host,
        agent,
        _folder: folder,
    }
}

impl Scene {
    fn dispatch(&self, turns: Vec<Turn>) {
        self.resume(turns, Vec::new());
    }

    pub fn resume(&self, turns: Vec<Turn>, running: Vec<Span>) {
        self.resume_of(TRAJECTORY, turns, running);
    }

    pub fn resume_of(&self, trajectory: u64, turns: Vec<Turn>, running: Vec<Span>) {
        let dispatch = Dispatch {
            trajectory,
            prompt: "12+34=".into(),
            answer: "46".into(),
            seed: 7,
            turns,
            running,
        };
        self.host.send(AGENT, Down::Dispatch(dispatch));
    }

    pub fn turns(&self) -> Vec<AppendTurnRequest> {
        let append = |asked| match asked {
            Asked::Append(append) => Some(append),
            _ => None,
        };
        self.host.asked().into_iter().filter_map(append).collect()
    }

    pub fn finished(&self) -> FinishTrajectoryRequest {
        match self
            .host
            .wait_asked("the end", |asked| matches!(asked, Asked::Finish(_)))
        {
            Asked::Finish(finish) => finish,
            _ => unreachable!(),
        }
    }

    pub fn end(self) {
        self.host.send(AGENT, Down::Shutdown(Shutdown {}));
        assert_eq!(self.agent.end(), LinkEnd::Shutdown);
    }
}

pub const WHOLE: &str = "<bos>12+34=<call>12+34</call><res>46</res>46<eos>";

#[test]
fn a_conversation_calls_its_tool_and_earns_its_reward() {
    let rollout = FakeRollout::start(WHOLE, 3, Fate::Ends);
    let scene = scene(&[&rollout]);
    scene.dispatch(Vec::new());
    let finished = scene.finished();
    assert_eq!(
        (finished.reward, finished.turns, finished.answer.as_str()),
        (1.0, 2, "46")
    );
    let turns = scene.turns();
    assert_eq!(turns[0].prompt_ids, encode("<bos>12+34="));
    let first = turns[0].turn.clone().unwrap();
    assert_eq!(first.spans[0].ids, encode("<call>12+34</call>"));
    assert_eq!(
        (first.tool_call.as_str(), first.tool_result.as_str()),
        ("12+34", "46")
    );
    assert_eq!(first.tool_ids, encode("<res>46</res>"));
    let second = turns[1].turn.clone().unwrap();
    assert_eq!(
        (second.index, &second.spans[0].ids),
        (1, &encode("46<eos>"))
    );
    assert_eq!(second.spans[0].version, 3);
    // Every place that was taken is given back.
    let routes = scene
        .host
        .asked()
        .iter()
        .filter(|a| matches!(a, Asked::Route(_)))
        .count();
    let deadline = Instant::now() + PATIENCE;
    let released = || {
        scene
            .host
            .asked()
            .iter()
            .filter(|a| matches!(a, Asked::Release(_)))
            .count()
    };
    while released() < routes {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    scene.end();
}

#[test]
fn a_turn_goes_on_elsewhere_when_its_rollout_dies_and_no_token_comes_twice() {
    let whole = encode(WHOLE);
    let prompt = encode("<bos>12+34=").len();
    for breaks_after in 0..6 {
        let dying = FakeRollout::start(WHOLE, 3, Fate::Breaks(breaks_after));
        let living = FakeRollout::start(WHOLE, 4, Fate::Ends);
        let scene = scene(&[&dying, &living]);
        scene.dispatch(Vec::new());
        assert_eq!(scene.finished().reward, 1.0, "broke after {breaks_after}");
        let turns = scene.turns();
        let mut ids = turns[0].prompt_ids.clone();
        for turn in turns.iter().filter_map(|append| append.turn.as_ref()) {
            ids.extend(turn.spans.iter().flat_map(|span| &span.ids));
            ids.extend(&turn.tool_ids);
        }
        assert_eq!(ids, whole, "broke after {breaks_after}");
        let first = turns[0].turn.as_ref().unwrap();
        let spans: Vec<_> = first
            .spans
            .iter()
            .map(|span| (span.version, span.ids.len()))
            .collect();
        let left = encode("<call>12+34</call>").len() - breaks_after;
        match breaks_after {
            0 => assert_eq!(spans, [(4, left)]),
            _ => assert_eq!(spans, [(3, breaks_after), (4, left)]),
        }
        let sent = living.inputs()[0]["input_ids"].as_array().unwrap().len();
        assert_eq!(sent, prompt + breaks_after);
        scene.end();
    }
}

#[test]
fn a_rollout_whose_weights_are_no_version_of_the_job_is_left_for_another() {
    let foreign = FakeRollout::start(WHOLE, 3, Fate::Unnamed);
    let ours = FakeRollout::start(WHOLE, 4, Fate::Ends);
    let scene = scene(&[&foreign, &ours]);
    scene.dispatch(Vec::new());
    assert_eq!(scene.finished().reward, 1.0);
    let turns = scene.turns();
    let turns = turns.iter().filter_map(|append| append.turn.as_ref());
    assert!(
        turns
            .flat_map(|turn| &turn.spans)
            .all(|span| span.version == 4)
    );
    scene.end();
}

#[test]
fn the_last_chunk_says_exactly_which_weights_made_which_tokens() {
    let rollout = FakeRollout::start(WHOLE, 4, Fate::Corrects);
    let scene = scene(&[&rollout]);
    scene.dispatch(Vec::new());
    assert_eq!(scene.finished().reward, 1.0);
    for append in scene.turns() {
        let spans = append.turn.unwrap().spans;
        let versions: Vec<_> = spans.iter().map(|s| (s.version, s.ids.len())).collect();
        let rest = versions[1].1;
        assert_eq!(versions, [(3, 1), (4, rest)]);
    }
    scene.end();
}

#[test]
fn a_conversation_resumes_after_the_stored_turns() {
    let rollout = FakeRollout::start(WHOLE, 3, Fate::Ends);
    let first = scene(&[&rollout]);
    first.dispatch(Vec::new());
    first.finished();
    let stored = first.turns()[0].turn.clone().unwrap();
    first.end();
    let second = scene(&[&rollout]);
    second.dispatch(vec![stored]);
    assert_eq!(second.finished().reward, 1.0);
    let turns = second.turns();
    assert_eq!(turns.len(), 1);
    assert_eq!(turns[0].turn.as_ref().unwrap().index, 1);
    assert!(turns[0].prompt_ids.is_empty());
    second.end();
}

#[test]
fn a_failing_tool_gives_an_empty_result_and_the_conversation_goes_on() {
    let whole = "<bos>12+34=<call>12+</call><res></res>46<eos>";
    let rollout = FakeRollout::start(whole, 3, Fate::Ends);
    let scene = scene(&[&rollout]);
    scene.dispatch(Vec::new());
    assert_eq!(scene.finished().reward, 1.0);
    let first = scene.turns()[0].turn.clone().unwrap();
    assert_eq!(first.tool_result, "error: syntax error at character 3");
    assert_eq!(first.tool_ids, encode("<res></res>"));
    scene.end();
}

#[test]
fn the_last_turn_allowed_calls_no_tool() {
    let calls = "<call>1</call><res>1</res>".repeat(2);
    let whole = format!("<bos>12+34={calls}<call>1</call>");
    let rollout = FakeRollout::start(&whole, 3, Fate::Ends);
    let scene = scene(&[&rollout]);
    scene.dispatch(Vec::new());
    let finished = scene.finished();
    assert_eq!((finished.reward, finished.turns), (0.0, 3));
    assert_eq!(scene.turns()[2].turn.as_ref().unwrap().tool_call, "");
    scene.end();
}

#[test]
fn a_turn_is_stored_by_the_daemon_that_comes_back() {
    let rollout = FakeRollout::start(WHOLE, 3, Fate::Ends);
    let hanging = FakeRollout::start(WHOLE, 3, Fate::Hangs(0));
    let mut scene = scene(&[&hanging]);
    scene.dispatch(Vec::new());
    let deadline = Instant::now() + PATIENCE;
    while hanging.inputs().is_empty() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    scene.host.die();
    drop(hanging);
    scene.host.route_to(&[rollout.addr()]);
    scene.host.live();
    let hello = scene.host.wait("a hello", |_, up| match up {
        Up::Hello(hello) => Some(hello),
        Up::Returned(returned) => panic!("{returned:?}"),
        _ => None,
    });
    assert_eq!(hello.leases, [TRAJECTORY]);
    // The daemon does not know what it had dispatched, and says it again: one conversation only.
    scene.dispatch(Vec::new());
    assert_eq!(scene.finished().reward, 1.0);
    let finishes = scene
        .host
        .asked()
        .iter()
        .filter(|a| matches!(a, Asked::Finish(_)))
        .count();
    assert_eq!((finishes, scene.turns().len()), (1, 2));
    scene.end();
}

#[test]
fn a_void_lease_drops_the_trajectory() {
    let rollout = FakeRollout::start(WHOLE, 3, Fate::Ends);
    let scene = scene(&[&rollout]);
    scene.host.void_leases();
    scene.dispatch(Vec::new());
    let mut was_running = false;
    scene.host.wait("the conversation's end", |_, up| match up {
        Up::Phase(phase) if phase.phase == "generating" => {
            was_running = true;
            None
        }
        Up::Phase(phase) if phase.phase == "idle" && was_running => Some(()),
        Up::Returned(returned) => panic!("{returned:?}"),
        _ => None,
    });
    assert!(scene.turns().is_empty());
    scene.end();
}

#[test]
fn a_revoked_trajectory_is_given_up_at_its_rollout_too() {
    let hanging = FakeRollout::start(WHOLE, 3, Fate::Hangs(0));
    let scene = scene(&[&hanging]);
    scene.dispatch(Vec::new());
    let deadline = Instant::now() + PATIENCE;
    let said = |key: &str| hanging.inputs().iter().any(|body| !body[key].is_null());
    while !said("input_ids") {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    scene.host.send(
        AGENT,
        Down::Revoke(Revoke {
            trajectory: TRAJECTORY,
        }),
    );
    scene
        .host
        .wait_asked("the release", |asked| matches!(asked, Asked::Release(_)));
    while hanging.inputs().len() < 2 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    let [generate, abort] = &hanging.inputs()[..] else {
        panic!()
    };
    assert_eq!(generate["rid"], abort["rid"]);
    for body in [generate, abort] {
        assert_eq!(body["content_type"], "application/json");
    }
    assert_eq!(generate["sampling_params"]["ignore_eos"], true);
    assert!(scene.turns().is_empty());
    scene.end();
}

#[test]
fn a_trajectory_that_cannot_be_generated_is_returned() {
    let rollout = FakeRollout::start(WHOLE, 3, Fate::Ends);
    let scene = scene(&[&rollout]);
    let dispatch = Dispatch {
        trajectory: 5,
        prompt: "what is love?".into(),
        ..Default::default()
    };
    scene.host.send(AGENT, Down::Dispatch(dispatch));
    let returned = scene.host.wait("its return", |_, up| match up {
        Up::Returned(returned) => Some(returned),
        _ => None,
    });
    assert_eq!(returned.trajectory, 5);
    assert!(returned.reason.contains("encoding"), "{}", returned.reason);
    scene.end();
}
