//! Tokens depend on the weights, and what is said of the weights is so, unless a quirk lies.
#![allow(clippy::unwrap_used)]

mod common;

use common::Fake;
use serde_json::{Value, json};

const PROMPT: [u32; 4] = [1, 5, 9, 3];

async fn sglang(fake: &Fake, max: u32) -> Value {
    let sampling = json!({ "max_new_tokens": max, "temperature": 0, "ignore_eos": true });
    let body = json!({ "input_ids": PROMPT, "sampling_params": sampling, "return_logprob": true });
    fake.ask("/generate", &body).await
}

async fn vllm(fake: &Fake, sampling: Value) -> Value {
    let body = json!({ "token_ids": PROMPT, "sampling_params": sampling });
    fake.ask("/inference/v1/generate", &body).await["choices"][0].take()
}

async fn update(fake: &Fake, name: &str, version: &str, flush: bool) -> Value {
    let body =
        json!({ "model_path": fake.model(name), "weight_version": version, "flush_cache": flush });
    fake.ask("/update_weights_from_disk", &body).await
}

#[tokio::test]
async fn other_weights_give_other_tokens_and_the_same_give_the_same() {
    let fake = Fake::start("sglang", &[]);
    let first = sglang(&fake, 8).await;
    update(&fake, "small-2", "2", true).await;
    let second = sglang(&fake, 8).await;
    assert_ne!(first["output_ids"], second["output_ids"]);
    assert_eq!(second["meta_info"]["weight_version"], "2");
    update(&fake, "small-1", "3", true).await;
    assert_eq!(sglang(&fake, 8).await["output_ids"], first["output_ids"]);
}

#[tokio::test]
async fn both_dialects_make_the_same_tokens_of_the_same_weights() {
    let (one, other) = (Fake::start("sglang", &[]), Fake::start("vllm", &[]));
    let sampling = json!({ "max_tokens": 8, "temperature": 0, "ignore_eos": true });
    assert_eq!(
        sglang(&one, 8).await["output_ids"],
        vllm(&other, sampling).await["token_ids"]
    );
}

#[tokio::test]
async fn a_seed_gives_the_same_tokens_again_in_vllm_only() {
    let fake = Fake::start("vllm", &[]);
    let seeded = json!({ "max_tokens": 12, "temperature": 1, "seed": 3, "ignore_eos": true });
    let first = vllm(&fake, seeded.clone()).await;
    assert_eq!(first["token_ids"], vllm(&fake, seeded).await["token_ids"]);
    let fake = Fake::start("sglang", &[]);
    let sampling =
        json!({ "max_new_tokens": 12, "temperature": 1, "sampling_seed": 3, "ignore_eos": true });
    let body = json!({ "input_ids": PROMPT, "sampling_params": sampling });
    let first = fake.ask("/generate", &body).await;
    assert_ne!(
        first["output_ids"],
        fake.ask("/generate", &body).await["output_ids"]
    );
}

#[tokio::test]
async fn an_update_in_a_pause_leaves_two_spans() {
    let fake = Fake::start("vllm", &[]);
    let sampling = json!({ "max_tokens": 120, "temperature": 0, "ignore_eos": true });
    let running = vllm(&fake, sampling);
    let other = async {
        let made =
            async || fake.get("/load").await.json::<Value>().await.unwrap()["server_load"] == 1;
        common::until("a request under way", made).await;
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        fake.ask("/pause?mode=keep", &json!({})).await;
        let load = json!({ "method": "reload_weights",
        "kwargs": { "weights_path": fake.model("small-2") } });
        fake.ask("/collective_rpc", &load).await;
        fake.ask("/update_weight_version", &json!({ "new_version": "2" }))
            .await;
        fake.ask("/resume", &json!({})).await;
    };
    let (choice, ()) = tokio::join!(running, other);
    let spans = choice["weight_versions"].as_array().unwrap();
    assert_eq!(spans.len(), 2, "{spans:?}");
    assert_eq!(
        (&spans[0]["version"], &spans[1]["version"]),
        (&json!("default"), &json!("2"))
    );
    assert_eq!(
        (&spans[0]["end"], &spans[1]["end"]),
        (&spans[1]["start"], &json!(120))
    );
}

#[tokio::test]
async fn a_lying_reload_tells_the_new_version_and_serves_the_old_weights() {
    let fake = Fake::start("sglang", &["--quirk", "lying-reload=1"]);
    let before = fake
        .ask("/weights_checker", &json!({ "action": "checksum" }))
        .await;
    let first = sglang(&fake, 8).await;
    update(&fake, "small-2", "2", true).await;
    let lied = sglang(&fake, 8).await;
    assert_eq!(lied["meta_info"]["weight_version"], "2");
    assert_eq!(lied["output_ids"], first["output_ids"]);
    let after = fake
        .ask("/weights_checker", &json!({ "action": "checksum" }))
        .await;
    assert_ne!(before["per_engine_checksum"], after["per_engine_checksum"]);
    update(&fake, "small-2", "2", true).await;
    assert_ne!(
        sglang(&fake, 8).await["output_ids"],
        first["output_ids"],
        "the second load is none that lies"
    );
}

#[tokio::test]
async fn stale_keys_and_values_serve_the_old_tokens_until_a_flush() {
    let fake = Fake::start("sglang", &["--quirk", "stale-kv"]);
    let first = sglang(&fake, 8).await;
    update(&fake, "small-2", "2", false).await;
    assert_eq!(sglang(&fake, 8).await["output_ids"], first["output_ids"]);
    fake.post("/flush_cache", &json!({})).await;
    assert_ne!(sglang(&fake, 8).await["output_ids"], first["output_ids"]);
}

#[tokio::test]
async fn bad_logprobs_are_off_by_what_was_said() {
    let good = sglang(&Fake::start("sglang", &[]), 3).await;
    let bad = sglang(&Fake::start("sglang", &["--quirk", "bad-logprobs=-2"]), 3).await;
    assert_eq!(good["output_ids"], bad["output_ids"]);
    let first = |reply: &Value| {
        reply["meta_info"]["output_token_logprobs"][0][0]
            .as_f64()
            .unwrap()
    };
    assert!((first(&good) - first(&bad) - 2.0).abs() < 1e-9);
}
