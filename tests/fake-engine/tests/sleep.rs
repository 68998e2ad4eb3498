//! Memory that is given back and taken again: after both engines' source, for it needs a device.
#![allow(clippy::unwrap_used)]

mod common;

use common::Fake;
use serde_json::{Value, json};
use std::time::Duration;

const PROMPT: [u32; 4] = [1, 5, 9, 3];
/// An answer that needs nothing comes sooner.
const SILENCE: Duration = Duration::from_millis(500);

async fn sglang(fake: &Fake) -> Value {
    let sampling = json!({ "max_new_tokens": 8, "temperature": 0, "ignore_eos": true });
    let body = json!({ "input_ids": PROMPT, "sampling_params": sampling });
    fake.ask("/generate", &body).await["output_ids"].take()
}

async fn vllm(fake: &Fake) -> Value {
    let sampling = json!({ "max_tokens": 8, "temperature": 0, "ignore_eos": true });
    let body = json!({ "token_ids": PROMPT, "sampling_params": sampling });
    fake.ask("/inference/v1/generate", &body).await["choices"][0]["token_ids"].take()
}

async fn checksums(fake: &Fake, path: &str) -> Value {
    fake.ask(path, &json!({ "action": "checksum" })).await
}

async fn sleeps(fake: &Fake) -> bool {
    let reply = fake.get("/is_sleeping").await;
    reply.json::<Value>().await.unwrap()["is_sleeping"] == true
}

#[tokio::test]
async fn vllms_weights_come_again_from_level_1_and_must_be_loaded_after_level_2() {
    let fake = Fake::start("vllm", &["--enable-sleep-mode"]);
    let (nothing, first) = (json!({}), vllm(&fake).await);
    let sums = checksums(&fake, "/weight_checker").await;
    fake.ask("/sleep?level=1&mode=abort", &nothing).await;
    assert!(sleeps(&fake).await);
    fake.ask("/wake_up", &nothing).await;
    assert!(!sleeps(&fake).await);
    assert_eq!(vllm(&fake).await, first);
    fake.ask("/sleep?level=2", &nothing).await;
    fake.ask("/wake_up?tags=weights", &nothing).await;
    assert!(sleeps(&fake).await, "keys and values have no room yet");
    assert_ne!(checksums(&fake, "/weight_checker").await, sums);
    let load =
        json!({ "method": "reload_weights", "kwargs": { "weights_path": fake.model("small-1") } });
    fake.ask("/collective_rpc", &load).await;
    fake.ask("/wake_up?tags=kv_cache", &nothing).await;
    assert_eq!(checksums(&fake, "/weight_checker").await, sums);
    assert_eq!(vllm(&fake).await, first);
}

#[tokio::test]
async fn a_vllm_that_is_loaded_before_its_weights_are_awake_dies() {
    let mut fake = Fake::start("vllm", &["--enable-sleep-mode"]);
    fake.ask("/sleep", &json!({})).await;
    let load = json!({ "method": "reload_weights" });
    let _ = fake.try_post("/collective_rpc", &load).await;
    fake.wait();
}

#[tokio::test]
async fn sglangs_weights_are_anything_after_a_wake_up_unless_they_were_copied() {
    for (more, comes_again) in [(None, false), (Some("--enable-weights-cpu-backup"), true)] {
        let args: Vec<&str> = ["--enable-memory-saver"].into_iter().chain(more).collect();
        let fake = Fake::start("sglang", &args);
        let first = sglang(&fake).await;
        fake.ask("/pause_generation", &json!({})).await;
        fake.ask("/release_memory_occupation", &json!({})).await;
        let tags = json!({ "tags": ["weights"] });
        fake.ask("/resume_memory_occupation", &tags).await;
        let tags = json!({ "tags": ["kv_cache", "cuda_graph"] });
        fake.ask("/resume_memory_occupation", &tags).await;
        fake.ask("/continue_generation", &json!({})).await;
        assert_eq!(sglang(&fake).await == first, comes_again, "{more:?}");
    }
}

#[tokio::test]
async fn a_sglang_that_is_asked_for_tokens_while_its_memory_is_gone_dies() {
    let mut fake = Fake::start("sglang", &["--enable-memory-saver"]);
    fake.ask("/release_memory_occupation", &json!({})).await;
    let body = json!({ "input_ids": PROMPT, "sampling_params": { "max_new_tokens": 1 } });
    let _ = fake.try_post("/generate", &body).await;
    fake.wait();
}

#[tokio::test]
async fn a_wake_up_can_hang_and_keys_and_values_can_lie_over_the_weights() {
    let fake = Fake::start("vllm", &["--enable-sleep-mode", "--quirk", "hang-wake=1"]);
    fake.ask("/sleep", &json!({})).await;
    fake.ask("/wake_up?tags=weights", &json!({})).await;
    let (nothing, second) = (json!({}), "/wake_up?tags=kv_cache");
    let second = tokio::time::timeout(SILENCE, fake.post(second, &nothing));
    assert!(second.await.is_err());
    let args = ["--enable-sleep-mode", "--quirk", "forgetful-wake"];
    let fake = Fake::start("vllm", &args);
    let first = vllm(&fake).await;
    fake.ask("/sleep", &nothing).await;
    fake.ask("/wake_up", &nothing).await;
    assert_ne!(vllm(&fake).await, first);
}
