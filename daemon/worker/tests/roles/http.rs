//! The rollout's HTTP API against nonsense.

use std::net::SocketAddr;
use std::sync::Arc;

use proptest::prelude::*;
use reqwest::StatusCode;
use robust_http::{Door, Wire};
use robust_identity::{EngineKey, EngineKeys};
use robust_shared::job::Swap;
use robust_worker::model::sampler::{Engine, EngineConfig, MAX_ROWS};
use robust_worker::rollout::{
    About, Command, EngineThread, MAX_BODY_BYTES, Served, SwapRequest, Weights, serve,
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use host_fake::PATIENCE;

use super::fixture::{Deaf, client, lying, model, runtime};

/// Requests for tokens that the server takes at a time.
const MOST: usize = 12;

fn key() -> EngineKey {
    EngineKeys::of(b"job").of_engine(1)
}

/// An engine behind HTTP, serving version 1.
pub struct Server {
    runtime: Runtime,
    addr: SocketAddr,
    client: reqwest::Client,
}

impl Server {
    fn start(serving: bool) -> Self {
        let nothing = Arc::new(|| None);
        Self::saying(About::default(), nothing, serving)
    }

    /// One that says this of itself and of its weights.
    pub fn saying(about: About, weights_digest: Weights, serving: bool) -> Self {
        let runtime = runtime();
        let model = model(3);
        let sizes = EngineConfig {
            max_seqs: 8,
            max_rows: MAX_ROWS,
            max_len: 64,
        };
        let engine = Engine::new(model.config(), sizes).unwrap();
        let weights = lying(&model);
        let commands = EngineThread::start(model, engine, Swap::Step, Box::new(Deaf))
            .unwrap()
            .commands();
        if serving {
            let (done, answer) = std::sync::mpsc::channel();
            let version = 1;
            let request = SwapRequest {
                version,
                weights,
                done,
            };
            commands.send(Command::Swap(request)).unwrap();
            answer.recv().unwrap().unwrap();
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap();
        let served = Served {
            commands,
            weights: weights_digest,
            about,
            wire: Wire::Plain,
            door: Door::new([key()], "the key of the tests"),
            most: MOST,
        };
        runtime.spawn(serve(listener, served));
        let client = client(&key());
        Self {
            runtime,
            addr,
            client,
        }
    }

    pub fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> (StatusCode, String) {
        let request = self
            .client
            .post(format!("http://{}{path}", self.addr))
            .header("content-type", "application/json")
            .body(body);
        self.runtime.block_on(async {
            let response = request.send().await.unwrap();
            (response.status(), response.text().await.unwrap())
        })
    }

    pub fn get(&self, path: &str) -> (StatusCode, String) {
        let request = self.client.get(format!("http://{}{path}", self.addr));
        self.runtime.block_on(async {
            let response = request.send().await.unwrap();
            (response.status(), response.text().await.unwrap())
        })
    }
}

/// A refusal is JSON that says why, in one of SGLang's three shapes.
fn reason(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("not JSON: {body}"));
    let said = [&body["error"]["message"], &body["error"], &body["message"]];
    let said = said.into_iter().find_map(Value::as_str);
    said.unwrap_or_else(|| panic!("{body}")).to_owned()
}

#[test]
fn without_weights_only_questions_about_the_server_are_answered() {
    let server = Server::start(false);
    for path in ["/model_info", "/server_info", "/metrics", "/v1/models"] {
        assert_eq!(server.get(path).0, StatusCode::OK, "{path}");
    }
    assert_eq!(
        server.get("/get_weight_version").1,
        r#"{"weight_version":null}"#
    );
    let info: Value = serde_json::from_str(&server.get("/model_info").1).unwrap();
    assert_eq!(info["weight_version"], "default");
    assert_eq!(server.get("/ready").0, StatusCode::SERVICE_UNAVAILABLE);
    for path in ["/health", "/health_generate"] {
        let (status, body) = server.get(path);
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(reason(&body), "no weight version is served yet");
    }
    let (status, _) = server.post("/generate", json!({"input_ids": [1]}).to_string());
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
}

#[test]
fn impossible_requests_are_refused_with_the_reason() {
    let server = Server::start(true);
    for (body, why) in [
        ("", "missing field `input_ids`"),
        ("{", "EOF while parsing"),
        (r#"{"input_ids": "a"}"#, "invalid type"),
        (r#"{"input_ids": []}"#, "0 input tokens"),
        (r#"{"input_ids": [99]}"#, "outside the vocabulary"),
        (r#"{"input_ids": [-1]}"#, "outside the vocabulary"),
        (
            r#"{"input_ids": [1], "sampling_params": {"max_new_tokens": 0}}"#,
            "max_new_tokens is 0",
        ),
        (
            r#"{"input_ids": [1], "sampling_params": {"temperature": -1}}"#,
            "temperature -1",
        ),
        (
            r#"{"input_ids": [1], "sampling_params": {"top_p": 0.5}}"#,
            "not supported",
        ),
        (r#"{"text": "a"}"#, "text is not supported"),
        (
            r#"{"input_ids": [1], "sampling_params": {"json_schema": "{}"}}"#,
            "json_schema is not supported",
        ),
        (
            r#"{"input_ids": [1], "sampling_params": {"seed": 1}}"#,
            "unknown field `seed`",
        ),
        (
            r#"{"input_ids": [1], "position": 18446744073709551615}"#,
            "too large",
        ),
    ] {
        let (status, reply) = server.post("/generate", body);
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {reply}");
        assert!(reason(&reply).contains(why), "{body}: {reply}");
    }
    let long = json!({"input_ids": vec![1; 64]}).to_string();
    assert_eq!(server.post("/generate", long).0, StatusCode::BAD_REQUEST);
    let (status, body) = server.post("/generate", vec![b' '; MAX_BODY_BYTES + 1]);
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{body}");
    let nothing = server.post("/abort_request", "{}");
    assert_eq!(nothing, (StatusCode::OK, String::new()));
    assert_eq!(
        server.post("/pause_generation", r#"{"mode": "x"}"#).0,
        StatusCode::BAD_REQUEST
    );
    assert_eq!(server.get("/health_generate").0, StatusCode::OK);
}

#[test]
fn a_reply_has_tokens_logprobs_and_the_version() {
    let server = Server::start(true);
    let body = json!({
        "input_ids": [1, 8, 17, 9, 22],
        "sampling_params": {"max_new_tokens": 6, "temperature": 1.0},
        "return_logprob": true, "rid": "r", "trajectory": 5, "seed": 1,
    });
    let (status, reply) = server.post("/generate", body.to_string());
    assert_eq!(status, StatusCode::OK, "{reply}");
    let reply: Value = serde_json::from_str(&reply).unwrap();
    let meta = &reply["meta_info"];
    assert_eq!(reply["output_ids"].as_array().unwrap().len(), 6);
    assert_eq!(meta["output_token_logprobs"].as_array().unwrap().len(), 6);
    assert_eq!(meta["output_token_logprobs"][2][1], reply["output_ids"][2]);
    assert_eq!(
        (&meta["id"], &meta["weight_version"]),
        (&json!("r"), &json!("1"))
    );
    assert_eq!(
        meta["finish_reason"],
        json!({"type": "length", "length": 6})
    );
    assert_eq!(
        meta["weight_versions"],
        json!([{"version": "1", "start": 0, "end": 6}])
    );
    assert_eq!(meta["weight_spans"], json!([["1", 6]]));
    for deltas in [false, true] {
        let mut stream = body.clone();
        (stream["stream"], stream["stream_deltas"]) = (true.into(), deltas.into());
        let (_, events) = server.post("/generate", stream.to_string());
        let chunks: Vec<&str> = events.split_terminator("\n\n").collect();
        assert_eq!(chunks.last(), Some(&"data: [DONE]"));
        let ids = chunks[..chunks.len() - 1].iter().map(|chunk| {
            let chunk: Value = serde_json::from_str(chunk.strip_prefix("data: ").unwrap()).unwrap();
            chunk["output_ids"].as_array().unwrap().clone()
        });
        let ids: Vec<Vec<Value>> = ids.collect();
        let whole = reply["output_ids"].as_array().unwrap();
        if deltas {
            assert_eq!(&ids.concat(), whole);
        } else {
            // Each chunk says everything so far, as SGLang's do.
            assert_eq!(ids.last(), Some(whole));
            assert!(ids.iter().all(|so_far| whole.starts_with(so_far)));
        }
    }
}

#[test]
fn a_paused_engine_keeps_its_requests_and_an_abort_ends_them() {
    let server = Server::start(true);
    let generate = |rid: &str| {
        let body = json!({"input_ids": [1, 2, 3], "rid": rid,
            "sampling_params": {"max_new_tokens": 4}});
        let request = server
            .client
            .post(format!("http://{}/generate", server.addr))
            .header("content-type", "application/json");
        server.runtime.spawn(async move {
            let response = request.body(body.to_string()).send().await.unwrap();
            serde_json::from_str::<Value>(&response.text().await.unwrap()).unwrap()
        })
    };
    assert_eq!(
        server
            .post("/pause_generation", r#"{"mode": "in_place"}"#)
            .0,
        StatusCode::OK
    );
    let aborted = generate("first");
    let kept = generate("second");
    // An abort that comes before its request does nothing: repeat it until it has struck.
    while !aborted.is_finished() {
        assert_eq!(
            server.post("/abort_request", r#"{"rid": "first"}"#).0,
            StatusCode::OK
        );
    }
    let aborted = server.runtime.block_on(aborted).unwrap();
    assert_eq!(aborted["meta_info"]["finish_reason"]["type"], "abort");
    assert!(!kept.is_finished());
    assert_eq!(server.post("/continue_generation", "").0, StatusCode::OK);
    let kept = server.runtime.block_on(kept).unwrap();
    assert_eq!(kept["output_ids"].as_array().unwrap().len(), 4);
}

#[test]
fn a_pause_that_aborts_returns_the_tokens_so_far_and_sends_later_requests_away() {
    let server = Server::start(true);
    let body = json!({"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 60}});
    let request = server
        .client
        .post(format!("http://{}/generate", server.addr))
        .header("content-type", "application/json")
        .body(body.to_string());
    let running = server
        .runtime
        .spawn(async move { request.send().await.unwrap().text().await.unwrap() });
    // A pause that comes before the request sends it away; one that comes after its end is late.
    let pause = || server.post("/pause_generation", r#"{"mode": "abort"}"#).0;
    assert_eq!(pause(), StatusCode::OK);
    assert_eq!(pause(), StatusCode::OK, "a second pause changes nothing");
    let reply = server.runtime.block_on(running).unwrap();
    let reply: Value = serde_json::from_str(&reply).unwrap();
    let sent_away = "generation is paused here; ask another engine";
    match reply["output_ids"].as_array() {
        Some(ids) if ids.len() < 60 => {
            assert_eq!(reply["meta_info"]["finish_reason"]["type"], "abort");
        }
        Some(ids) => assert_eq!(ids.len(), 60),
        None => assert_eq!(reply["error"]["message"], sent_away),
    }
    let (status, later) = server.post("/generate", body.to_string());
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(reason(&later), sent_away);
    assert_eq!(server.post("/continue_generation", "").0, StatusCode::OK);
    assert_eq!(server.post("/generate", body.to_string()).0, StatusCode::OK);
}

/// Whoever reaches the port of an engine, a page of a browser among them.
#[test]
fn nobody_without_the_key_has_anything_generated_paused_or_ended() {
    let server = Server::start(true);
    let ask = |key: Option<EngineKey>, method: &str, path: &str, body: &str| {
        let key = key.unwrap_or_else(|| EngineKey::known(""));
        let request = client(&key)
            .request(
                method.parse().unwrap(),
                format!("http://{}{path}", server.addr),
            )
            .header("content-type", "application/json")
            .body(body.to_owned());
        server.runtime.block_on(async {
            let response = request.send().await.unwrap();
            (response.status(), response.text().await.unwrap())
        })
    };
    let another = EngineKeys::of(b"job").of_engine(2);
    for key in [None, Some(another)] {
        for (method, path, body) in [
            ("POST", "/generate", r#"{"input_ids": [1]}"#),
            ("POST", "/pause_generation", r#"{"mode": "abort"}"#),
            ("POST", "/abort_request", r#"{"abort_all": true}"#),
            ("GET", "/health_generate", ""),
            ("GET", "/metrics", ""),
            ("GET", "/model_info", ""),
            ("GET", "/nothing", ""),
        ] {
            let (status, reply) = ask(key.clone(), method, path, body);
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{path}: {reply}");
            assert!(reason(&reply).contains("the key of the tests"), "{reply}");
        }
        let (status, _) = ask(key, "GET", "/health", "");
        assert_eq!(status, StatusCode::OK, "whether it lives is no secret");
    }
    let (_, info) = server.get("/server_info");
    let info: Value = serde_json::from_str(&info).unwrap();
    assert!(!info.to_string().contains("paused\":true"), "{info}");
    let body = json!({"input_ids": [1], "sampling_params": {"max_new_tokens": 1}});
    assert_eq!(server.post("/generate", body.to_string()).0, StatusCode::OK);
    // What a page could send with a key that it does not have.
    let text = server
        .client
        .post(format!("http://{}/generate", server.addr));
    let text = text.header("content-type", "text/plain").body("{}");
    let host = server.client.get(format!("http://{}/health", server.addr));
    let host = host.header("host", "rebound.example");
    let statuses = server.runtime.block_on(async {
        [
            text.send().await.unwrap().status(),
            host.send().await.unwrap().status(),
        ]
    });
    let refused = [StatusCode::UNSUPPORTED_MEDIA_TYPE, StatusCode::FORBIDDEN];
    assert_eq!(statuses, refused);
}

#[test]
fn requests_beyond_those_that_may_wait_are_told_to_come_later_and_a_probe_is_not_among_them() {
    let server = Server::start(true);
    let pause = |mode: &str| {
        server
            .post("/pause_generation", format!(r#"{{"mode": "{mode}"}}"#))
            .0
    };
    assert_eq!(pause("in_place"), StatusCode::OK);
    let generate = || {
        let body = json!({"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 2}});
        let request = server
            .client
            .post(format!("http://{}/generate", server.addr));
        let request = request
            .header("content-type", "application/json")
            .body(body.to_string());
        async move { request.send().await.unwrap() }
    };
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..2 * MOST {
        asked.spawn_on(generate(), server.runtime.handle());
    }
    for _ in 0..MOST {
        let refused = server
            .runtime
            .block_on(async { tokio::time::timeout(PATIENCE, asked.join_next()).await });
        let refused = refused
            .expect("more are taken than may wait")
            .unwrap()
            .unwrap();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.headers()["retry-after"], "1");
        let why = server.runtime.block_on(refused.text()).unwrap();
        let why = reason(&why);
        assert!(why.starts_with("12 requests are under way"), "{why}");
    }
    assert_eq!(server.post("/continue_generation", "").0, StatusCode::OK);
    while let Some(reply) = server.runtime.block_on(asked.join_next()) {
        assert_eq!(reply.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(server.get("/health_generate").0, StatusCode::OK);
    let body = json!({"input_ids": [1], "sampling_params": {"max_new_tokens": 1}});
    assert_eq!(
        server.post("/generate", body.to_string()).0,
        StatusCode::OK,
        "places are free again"
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        prop::collection::vec(-2i64..26, 0..70).prop_map(Value::from),
    ];
    let keys = prop_oneof![
        Just("input_ids".to_owned()),
        Just("sampling_params".to_owned()),
        Just("max_new_tokens".to_owned()),
        Just("temperature".to_owned()),
        Just("stop_token_ids".to_owned()),
        Just("stream".to_owned()),
        Just("return_logprob".to_owned()),
        Just("rid".to_owned()),
        Just("position".to_owned()),
        Just("mode".to_owned()),
        Just("abort_all".to_owned()),
    ];
    leaf.prop_recursive(3, 24, 6, move |inner| {
        prop::collection::hash_map(keys.clone(), inner, 0..6)
            .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into())
    })
}

#[test]
fn no_body_breaks_the_server() {
    let server = Server::start(true);
    let bodies = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300),
        any_json().prop_map(|value| value.to_string().into_bytes()),
    ];
    let paths = prop::sample::select(vec![
        "/generate",
        "/abort_request",
        "/pause_generation",
        "/continue_generation",
        "/unknown",
    ]);
    let config = ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..Default::default()
    };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    runner
        .run(&(paths, bodies), |(path, body)| {
            let (status, reply) = server.post(path, body);
            prop_assert!(
                status.is_success() || status.is_client_error(),
                "{status}: {reply}"
            );
            // A pause would keep the next generation waiting for ever.
            prop_assert_eq!(server.post("/continue_generation", "").0, StatusCode::OK);
            Ok(())
        })
        .unwrap();
    assert_eq!(server.get("/health_generate").0, StatusCode::OK);
}
