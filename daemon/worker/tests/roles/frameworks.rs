//! What RL frameworks ask of SGLang, asked of the built-in rollout. Each call has its source beside
//! it: slime is THUDM/slime 624b824, miles radixark/miles 31f1ca9, verl volcengine/verl b178a3c.

use std::path::Path;
use std::sync::Arc;

use reqwest::StatusCode;
use robust_shared::job::Job;
use robust_worker::rollout::{About, Digest};
use serde_json::{Value, json};

use super::fixture::{model, tokenizer_path};
use super::http::Server;

/// One with the job's tokenizer, so that its replies have text.
fn server() -> Server {
    let text = format!(
        "[data]\nprompts = \"p\"\ntokenizer = {:?}\n",
        tokenizer_path()
    );
    let job = Job::parse(&text, Path::new("test.toml")).unwrap();
    let about = About::of(&job, Path::new("/models/demo"), model(3).config()).unwrap();
    let digest = Digest {
        weight_version: "1".into(),
        digest: "ab".into(),
        chunk_bytes: 4096,
        chunk_xxh3: vec!["cd".into()],
    };
    Server::saying(about, Arc::new(move || Some(digest.clone())), true)
}

impl Server {
    fn ask(&self, path: &str, body: &Value) -> Value {
        let (status, reply) = self.post(path, body.to_string());
        assert_eq!(status, StatusCode::OK, "{path}: {reply}");
        serde_json::from_str(&reply).unwrap_or(Value::Null)
    }

    fn question(&self, path: &str) -> Value {
        let (status, reply) = self.get(path);
        assert_eq!(status, StatusCode::OK, "{path}: {reply}");
        serde_json::from_str(&reply).unwrap_or(Value::Null)
    }

    /// Refused as SGLang does, so that `raise_for_status` stops the framework with the reason.
    fn refuses(&self, path: &str, body: &Value, why: &str) {
        let (status, reply) = self.post(path, body.to_string());
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {reply}");
        assert!(reply.contains(why), "{path}: {reply}");
    }
}

/// What slime and miles read of a reply: `Sample.append_response_tokens` of
/// slime/utils/types.py, `update_sample_from_response` of
/// miles/rollout/generate_utils/generate_endpoint_utils.py.
fn sample(reply: &Value) -> (Vec<u64>, String, String) {
    let meta = &reply["meta_info"];
    let entries = meta["output_token_logprobs"].as_array().unwrap();
    assert!(
        entries
            .iter()
            .all(|entry| entry[0].as_f64().unwrap() <= 0.0)
    );
    let ids = entries.iter().map(|entry| entry[1].as_u64().unwrap());
    for key in ["prompt_tokens", "cached_tokens", "completion_tokens"] {
        assert!(meta[key].is_u64(), "{key}: {meta}");
    }
    assert_eq!(meta["weight_version"], "1");
    let text = reply["text"].as_str().unwrap().to_owned();
    let finish = meta["finish_reason"]["type"].as_str().unwrap().to_owned();
    (ids.collect(), text, finish)
}

/// `GenerateState.sampling_params` of slime/rollout/sglang_rollout.py and
/// miles/rollout/sglang_rollout.py.
fn sampling_params() -> Value {
    json!({"temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_new_tokens": 8, "stop": null,
        "stop_token_ids": null, "skip_special_tokens": false, "no_stop_trim": true,
        "spaces_between_special_tokens": false})
}

#[test]
fn slimes_calls_are_answered() {
    let server = server();
    // slime/backends/sglang_utils/sglang_engine.py: _wait_server_healthy, health_generate
    server.question("/health_generate");
    // slime/backends/sglang_utils/external.py: get_server_info, discover_external_engines
    let info = server.question("/server_info");
    assert_eq!((&info["tp_size"], &info["pp_size"]), (&json!(1), &json!(1)));
    assert!(info["disaggregation_bootstrap_port"].is_null());
    assert!(!["prefill", "decode"].contains(&info["disaggregation_mode"].as_str().unwrap()));
    // slime/rollout/sglang_rollout.py: generate
    let payload = json!({"sampling_params": sampling_params(), "return_logprob": true,
        "input_ids": [1, 8, 17, 9, 22]});
    let (ids, _, finish) = sample(&server.ask("/generate", &payload));
    assert!(ids.len() == 8 && finish == "length" || finish == "stop");
    // The same, with --sglang-enable-deterministic-inference: generate_and_rm_group
    let mut seeded = payload.clone();
    seeded["sampling_params"]["sampling_seed"] = 42.into();
    server.ask("/generate", &seeded);
    // slime/rollout/sglang_streaming_rollout.py: generate_streaming takes each chunk for all
    let mut streamed = payload.clone();
    streamed["stream"] = true.into();
    let (status, events) = server.post("/generate", streamed.to_string());
    assert_eq!(status, StatusCode::OK);
    let chunks = events.lines().filter_map(|line| line.strip_prefix("data:"));
    let chunks: Vec<&str> = chunks
        .map(str::trim)
        .filter(|data| *data != "[DONE]")
        .collect();
    let last: Value = serde_json::from_str(chunks.last().unwrap()).unwrap();
    let (ids, _, _) = sample(&last);
    assert_eq!(last["meta_info"]["completion_tokens"], ids.len());
    assert_eq!(last["output_ids"].as_array().unwrap().len(), ids.len());
    // slime/agent/adapters/common.py: call_sglang_generate, and what it does when it is cancelled
    let turn = json!({"rid": "0f3c", "input_ids": [1, 8], "return_logprob": true,
        "sampling_params": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 4}});
    let turn = server.ask("/generate", &turn);
    assert_eq!(turn["meta_info"]["id"], "0f3c");
    server.ask("/abort_request", &json!({"rid": "0f3c"}));
    // slime/backends/sglang_utils/server_control.py: abort_server_until_idle
    server.ask("/abort_request", &json!({"abort_all": true}));
    let load = &server.question("/v1/loads?include=core")["loads"][0];
    let waiting = load["num_waiting_reqs"].as_u64().unwrap();
    assert_eq!(load["num_running_reqs"].as_u64().unwrap() + waiting, 0);
    // slime/backends/megatron_utils/update_weight/update_weight_from_disk_delta.py: update_weights
    let paused = server.ask("/pause_generation", &json!({}));
    assert_eq!(
        paused,
        json!({"message": "Generation paused successfully.", "status": "ok"})
    );
    assert_eq!(server.get("/ready").0, StatusCode::SERVICE_UNAVAILABLE);
    server.question("/flush_cache");
    let disk = json!({"model_path": "/dev/shm/w", "weight_version": "2"});
    server.refuses("/update_weights_from_disk", &disk, "through the daemon");
    let continued = server.ask("/continue_generation", &json!({}));
    assert_eq!(continued["status"], "ok");
    assert_eq!(server.get("/ready").0, StatusCode::OK);
    // slime/backends/sglang_utils/sglang_engine.py: get_weight_version, check_weights, and offload
    assert_eq!(
        server.question("/get_weight_version")["weight_version"],
        "1"
    );
    let sums = server.ask("/weights_checker", &json!({"action": "checksum"}));
    assert_eq!(
        (&sums["success"], &sums["per_engine_checksum"]),
        (&json!(true), &json!("ab"))
    );
    server.refuses("/release_memory_occupation", &json!({}), "keeps its memory");
}

#[test]
fn miles_calls_are_answered() {
    let server = server();
    // miles/utils/ft_utils/health_checker.py: health_generate of the lead engine
    server.question("/health_generate");
    // miles/rollout/generate_utils/generate_endpoint_utils.py: compute_request_payload
    let payload = json!({"input_ids": [1, 8, 17], "sampling_params": sampling_params(),
        "return_logprob": true, "return_routed_experts": false, "return_indexer_topk": false});
    sample(&server.ask("/generate", &payload));
    // miles/backends/sglang_utils/sglang_engine.py: _init_external asks by the old name
    assert_eq!(server.question("/get_server_info")["version"], "0.5.23");
    // The same: get_weight_version
    assert_eq!(server.question("/model_info")["weight_version"], "1");
    // The same: pause_generation, flush_cache, begin_weight_update, continue_generation
    for mode in ["retract", "in_place"] {
        server.ask("/pause_generation", &json!({"mode": mode}));
        server.question("/flush_cache");
        server.ask("/continue_generation", &json!({}));
    }
    let all = json!({"selector": "all"});
    server.refuses("/begin_weight_update", &all, "through the daemon");
    let rename = json!({"new_version": "2", "abort_all_requests": false});
    server.refuses("/update_weight_version", &rename, "through the daemon");
    // The same: check_weights
    let check = json!({"action": "checksum", "allow_quant_error": false, "selector": "all"});
    assert_eq!(server.ask("/weights_checker", &check)["success"], true);
    let compare = json!({"action": "compare", "allow_quant_error": false, "selector": "all"});
    server.refuses("/weights_checker", &compare, "not supported");
    // miles/rollout/inference_rollout/inference_rollout_train.py: abort
    server.ask("/abort_request", &json!({"abort_all": true}));
}

#[test]
fn verls_calls_are_answered() {
    let server = server();
    // verl/workers/rollout/sglang_rollout/http_server_engine.py: launch_server_process
    server.question("/health_generate");
    server.question("/flush_cache");
    // The same: generate, which leaves out what is None
    let payload = json!({"input_ids": [1, 8, 17], "return_logprob": true,
        "sampling_params": {"n": 1, "max_new_tokens": 4, "temperature": 1.0, "top_p": 1.0,
            "top_k": -1, "repetition_penalty": 1.0, "presence_penalty": 0.0,
            "frequency_penalty": 0.0, "ignore_eos": false, "min_new_tokens": 0,
            "skip_special_tokens": true, "spaces_between_special_tokens": true}});
    let reply = server.ask("/generate", &payload);
    assert!(!reply["output_ids"].as_array().unwrap().is_empty());
    // The same: generate with a prompt instead of its tokens, and a reward model's score
    let prompt = json!({"text": "1+2=", "sampling_params": {}, "return_logprob": false});
    server.refuses("/generate", &prompt, "text is not supported");
    assert_eq!(server.post("/classify", "{}").0, StatusCode::NOT_FOUND);
    // The same: abort_request
    server.ask("/abort_request", &json!({"rid": "", "abort_all": true}));
    server.ask("/abort_request", &json!({"rid": "", "abort_all": false}));
    // The same: update_weights_from_tensor, release_memory_occupation, resume_memory_occupation
    let tensors = json!({"serialized_named_tensors": [], "load_format": null,
        "flush_cache": true});
    server.refuses(
        "/update_weights_from_tensor",
        &tensors,
        "through the daemon",
    );
    let tags = json!({"tags": ["weights", "kv_cache"]});
    server.refuses("/release_memory_occupation", &tags, "keeps its memory");
    server.refuses("/resume_memory_occupation", &tags, "keeps its memory");
}

#[test]
fn the_models_own_end_ends_a_reply_unless_it_is_ignored() {
    let server = server();
    let end = |ignore: bool| {
        // Temperature so high that every token is as likely: the end comes soon.
        let body = json!({"input_ids": [1, 8], "seed": 3, "trajectory": 1,
            "sampling_params": {"max_new_tokens": 60, "temperature": 100.0,
                "ignore_eos": ignore}});
        server.ask("/generate", &body)
    };
    let (stopped, whole) = (end(false), end(true));
    let eos = stopped["meta_info"]["finish_reason"]["matched"].clone();
    assert_eq!(stopped["meta_info"]["finish_reason"]["type"], "stop");
    let ids = |reply: &Value| reply["output_ids"].as_array().unwrap().clone();
    assert_eq!(ids(&stopped).last(), Some(&eos));
    assert!(ids(&whole).len() > ids(&stopped).len());
    assert!(ids(&whole).starts_with(&ids(&stopped)));
}

#[test]
fn figures_are_told_in_sglangs_names() {
    let server = server();
    let body = json!({"input_ids": [1, 8], "sampling_params": {"max_new_tokens": 5,
        "ignore_eos": true}});
    server.ask("/generate", &body);
    let (_, metrics) = server.get("/metrics");
    for line in [
        "sglang:num_running_reqs 0",
        "sglang:generation_tokens_total 5",
        "sglang:prompt_tokens_total 2",
        "sglang:num_requests_total 1",
    ] {
        assert!(
            metrics.lines().any(|said| said == line),
            "{line}: {metrics}"
        );
    }
}
