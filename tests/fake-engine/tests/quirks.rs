//! The quirks that are about time and death, and a command line as a job file has it.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Fake, command, model, until};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const QUIET: Duration = Duration::from_millis(500);

fn asking(ids: &[u32]) -> Value {
    json!({ "input_ids": ids, "sampling_params": { "temperature": 0, "max_new_tokens": 8,
    "ignore_eos": true } })
}

#[tokio::test]
async fn a_hang_leaves_health_at_200() {
    for dialect in ["sglang", "vllm"] {
        let fake = Fake::start(dialect, &["--quirk", "hang"]);
        let vllm = json!({ "token_ids": [1], "sampling_params": {} });
        let asked = if dialect == "vllm" {
            tokio::time::timeout(QUIET, fake.post("/inference/v1/generate", &vllm)).await
        } else {
            tokio::time::timeout(QUIET, fake.post("/generate", &asking(&[1]))).await
        };
        assert!(asked.is_err());
        assert_eq!(fake.get("/health").await.status(), 200);
    }
}

#[tokio::test]
async fn a_poisonous_request_ends_the_engine_and_others_do_not() {
    let mut fake = Fake::start("sglang", &["--quirk", "poison=42"]);
    fake.ask("/generate", &asking(&[41, 43])).await;
    assert!(
        fake.try_post("/generate", &asking(&[41, 42]))
            .await
            .is_err()
    );
    assert!(!fake.wait().success());
}

#[tokio::test]
async fn a_load_can_be_deadly_and_the_end_be_called_a_success() {
    let mut fake = Fake::start(
        "sglang",
        &["--quirk", "die-in-load", "--quirk", "exit-zero"],
    );
    let body = json!({ "model_path": fake.model("small-2") });
    assert!(
        fake.try_post("/update_weights_from_disk", &body)
            .await
            .is_err()
    );
    assert_eq!(fake.wait().code(), Some(0));
}

#[tokio::test]
async fn a_slow_pause_is_slow() {
    let fake = Fake::start("vllm", &["--quirk", "slow-pause=0.7"]);
    let asked = Instant::now();
    fake.ask("/pause?mode=keep", &json!({})).await;
    assert!(asked.elapsed() >= Duration::from_millis(700));
}

#[tokio::test]
async fn a_late_start_and_one_that_never_comes() {
    let started = Instant::now();
    let fake = Fake::start("sglang", &["--quirk", "late-start=0.7"]);
    assert!(started.elapsed() >= Duration::from_millis(700));
    drop(fake);
    let folder = tempfile::tempdir().unwrap();
    model::write(folder.path(), 1, None);
    let mut child = command("vllm", folder.path(), &["--quirk", "never-ready"]);
    until("its children", async || common::tree(child.id()).len() == 3).await;
    tokio::time::sleep(QUIET).await;
    assert!(child.try_wait().unwrap().is_none());
    common::signal(
        nix::unistd::Pid::from_raw(child.id().cast_signed()),
        nix::sys::signal::Signal::SIGTERM,
    );
    child.wait().unwrap();
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_request() {
    let fake = Fake::start("vllm", &[]);
    let sampling = json!({ "max_tokens": 250, "temperature": 0, "ignore_eos": true });
    let body = json!({ "token_ids": [1], "stream": true, "sampling_params": sampling });
    fake.ask("/pause?mode=keep", &json!({})).await;
    let reply = fake.post("/inference/v1/generate", &body).await;
    let load =
        async || fake.get("/load").await.json::<Value>().await.unwrap()["server_load"].clone();
    assert_eq!(load().await, 1);
    drop(reply);
    until("the request's end", async || load().await == 0).await;
}

#[tokio::test]
async fn the_key_guards_what_the_real_engine_guards() {
    let fake = Fake::start("vllm", &["--api-key", "secret"]);
    assert_eq!(fake.get("/v1/models").await.status(), 401);
    assert_eq!(
        fake.get("/weight_info").await.status(),
        200,
        "the routes of weights are open"
    );
    let url = format!("{}/v1/models", fake.url);
    let reply = reqwest::Client::new()
        .get(url)
        .bearer_auth("secret")
        .send()
        .await
        .unwrap();
    assert_eq!(reply.status(), 200);
}

#[test]
fn a_model_that_cannot_be_read_ends_the_engine_before_it_is_ready() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("model.safetensors"), "no weights").unwrap();
    let mut child = command("vllm", folder.path(), &[]);
    assert!(!child.wait().unwrap().success());
}

#[test]
fn vllm_listens_on_a_unix_socket_when_asked_to() {
    use std::io::{Read, Write};
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("engine.sock");
    let fake = Fake::start("vllm", &["--uds", socket.to_str().unwrap()]);
    let mut link = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    link.write_all(b"GET /health HTTP/1.1\r\nhost: engine\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut reply = String::new();
    link.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    drop(fake);
}
