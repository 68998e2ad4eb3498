//! Every recorded request gets a reply of the recorded status and shape.
#![allow(clippy::unwrap_used)]

mod common;

use common::recording::{Session, folder};
use common::{Fake, model};
use serde_json::json;
use std::collections::BTreeSet;

const VLLM: &str = "vllm-0.32.0";
const SGLANG: &str = "sglang-0.5.23";

const VLLM_ALONE: &[&str] = &[
    "version",
    "server_info",
    "health",
    "ping",
    "load",
    "models",
    "weight_info",
    "is_paused",
    "world_size",
    "rpc_check_health",
    "unknown_route",
    "wrong_method",
    "fault_tolerance_status",
    "generate",
    "generate_request_id",
    "generate_stream",
    "generate_stream_usage",
    "generate_no_logprobs",
    "generate_seed",
    "generate_full",
    "too_long",
    "too_long_stream",
    "out_of_vocabulary",
    "out_of_vocabulary_stream",
    "unknown_sampling_key",
    "unknown_key",
    "bad_sampling_value",
    "empty_input",
    "no_input",
    "bad_body",
    "no_content_type",
    "completions",
    "completions_stream",
    "completions_text",
    "completions_unknown_model",
    "pause_bad_mode",
    "abort_unknown",
    "abort_nothing",
    "abort_scale_out",
    "checksum",
    "compare",
    "reset_prefix_cache",
    "metrics",
    "release_kv_unpaused",
    "is_sleeping",
    "weight_transfer_init",
    "weight_transfer_start",
    "weight_transfer_generate",
    "rpc_unknown",
    "rpc_unknown_generate",
];
const VLLM_PAUSES: &[&str] = &[
    "+pause_abort_running",
    "pause_abort",
    "pause_abort_is_paused",
    "pause_abort_health",
    "pause_abort_check_health",
    "pause_abort_generate",
    "pause_abort_resume",
    "-pause_abort_running",
    "+pause_wait_running",
    "pause_wait",
    "pause_wait_is_paused",
    "pause_wait_health",
    "pause_wait_check_health",
    "pause_wait_generate",
    "pause_wait_resume",
    "-pause_wait_running",
    "+pause_keep_running",
    "pause_keep",
    "pause_keep_is_paused",
    "pause_keep_health",
    "pause_keep_check_health",
    "pause_keep_generate",
    "pause_keep_resume",
    "-pause_keep_running",
];
const VLLM_ABORTS: &[&str] = &[
    "+abort_running",
    "abort_own_id",
    "abort",
    "-abort_running",
    "+abort_all_running",
    "abort_all",
    "-abort_all_running",
];
const VLLM_WEIGHTS: &[&str] = &[
    "+reload_running",
    "!POST /pause?mode=keep",
    "reload",
    "update_weight_version",
    "!POST /resume",
    "-reload_running",
    "reload_weight_info",
    "reload_checksum",
    "reload_generate",
];
const VLLM_SLEEP: &[&str] = &[
    "sleep",
    "sleep_is_sleeping",
    "sleep_generate",
    "wake_up",
    "wake_up_generate",
];
const VLLM_REFUSED_LOAD: &[&str] = &[
    "reload_missing",
    "reload_missing_generate",
    "reload_missing_health",
];
const VLLM_KILLED: &[&str] = &[
    "worker_killed_running",
    "worker_killed_health",
    "worker_killed_generate",
];
const VLLM_ENDS: &[&str] = &[
    "generate_eos",
    "generate_stop_token",
    "generate_stop_token_stream",
];

const SGLANG_ALONE: &[&str] = &[
    "model_info",
    "server_info",
    "ready",
    "health",
    "health_generate",
    "models",
    "loads",
    "get_weight_version",
    "unknown_route",
    "wrong_method",
    "generate",
    "generate_cached",
    "generate_rid",
    "generate_stream",
    "generate_no_logprobs",
    "generate_no_logprobs_stream",
    "generate_seed",
    "generate_full",
    "generate_batch",
    "generate_text",
    "too_long",
    "too_long_stream",
    "unknown_sampling_key",
    "unknown_key",
    "bad_sampling_value",
    "bad_sampling_value_stream",
    "no_input",
    "bad_body",
    "no_content_type",
    "completions",
    "completions_stream",
    "pause_bad_mode",
    "continue_no_body",
    "abort_unknown",
    "abort_nothing",
    "abort_all",
    "checksum",
    "flush",
    "metrics",
    "release_memory",
    "resume_memory",
    "begin_weight_update",
    "end_weight_update",
    "from_tensor_without_begin",
];
const SGLANG_PAUSES: &[&str] = &[
    "+pause_abort_running",
    "pause_abort",
    "pause_abort_ready",
    "pause_abort_generate",
    "pause_abort_continue",
    "-pause_abort_running",
    "+pause_retract_running",
    "pause_retract",
    "pause_retract_ready",
    "pause_retract_generate",
    "pause_retract_continue",
    "-pause_retract_running",
    "+pause_in_place_running",
    "pause_in_place",
    "pause_in_place_ready",
    "pause_in_place_generate",
    "pause_in_place_health",
    "pause_in_place_continue",
    "-pause_in_place_running",
];
const SGLANG_ABORTS: &[&str] = &[
    "+abort_running",
    "abort",
    "-abort_running",
    "+abort_whole_running",
    "abort_prefix",
    "abort_whole",
    "-abort_whole_running",
];
const IN_PLACE: &str = "!POST /pause_generation {\"mode\": \"in_place\"}";
const CONTINUE: &str = "!POST /continue_generation {}";
const SGLANG_WEIGHTS: &[&str] = &[
    "+update_running",
    IN_PLACE,
    "update",
    CONTINUE,
    "-update_running",
    "update_model_info",
    "update_checksum",
    "update_generate_stale",
    "!POST /flush_cache",
    "update_generate",
    "update_flushed",
    "update_no_version",
    "update_missing",
    "update_no_path",
    "update_missing_model_info",
    "update_missing_generate",
    "update_weight_version",
];
const UPDATE: &str = r#"!POST /update_weights_from_disk
    {"model_path": "{models}/small-2", "weight_version": "2"}"#;
const SGLANG_INCREMENTAL: &[&str] = &[
    "incremental_generate_stream",
    "incremental_completions_stream",
    "+incremental_update_running",
    IN_PLACE,
    UPDATE,
    CONTINUE,
    "-incremental_update_running",
    "+incremental_abort_running",
    "!POST /abort_request {\"rid\": \"abort-me\"}",
    "-incremental_abort_running",
];
const SGLANG_POISON: &[&str] = &[
    "+out_of_vocabulary_running",
    "out_of_vocabulary",
    "-out_of_vocabulary_running",
];
const SGLANG_KILLED: &[&str] = &["scheduler_killed_running", "scheduler_killed_generate"];
const SGLANG_BROKEN: &[&str] = &["update_broken"];
const SGLANG_ENDS: &[&str] = &[
    "generate_eos",
    "generate_stop_token",
    "generate_stop_token_stream",
    "incremental_generate_stop_token_stream",
];

#[test]
fn every_recording_is_played_by_a_test() {
    let played = |all: &[&[&str]]| {
        let names = all
            .iter()
            .flat_map(|steps| steps.iter())
            .filter(|step| !step.starts_with('!'));
        names
            .map(|step| step.trim_start_matches(['+', '-']).to_owned())
            .collect::<BTreeSet<_>>()
    };
    let vllm = [
        VLLM_ALONE,
        VLLM_PAUSES,
        VLLM_ABORTS,
        VLLM_WEIGHTS,
        VLLM_SLEEP,
        VLLM_REFUSED_LOAD,
        VLLM_KILLED,
        VLLM_ENDS,
    ];
    let sglang = [
        SGLANG_ALONE,
        SGLANG_PAUSES,
        SGLANG_ABORTS,
        SGLANG_WEIGHTS,
        SGLANG_INCREMENTAL,
        SGLANG_POISON,
        SGLANG_KILLED,
        SGLANG_BROKEN,
        SGLANG_ENDS,
    ];
    for (engine, played) in [(VLLM, played(&vllm)), (SGLANG, played(&sglang))] {
        let files = std::fs::read_dir(folder(engine))
            .unwrap()
            .map(|f| f.unwrap().path());
        let recorded: BTreeSet<_> = files
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(recorded, played, "{engine}");
    }
}

fn vllm(args: &[&str]) -> Fake {
    Fake::start("vllm", &[&["--served-model-name", "q"], args].concat())
}

async fn play(engine: &str, fake: Fake, steps: &[&str]) {
    Session::new(engine, &fake).play(steps).await;
}

#[tokio::test]
async fn vllm_answers_single_requests_as_recorded() {
    play(VLLM, vllm(&[]), VLLM_ALONE).await;
}

#[tokio::test]
async fn vllm_pauses_as_recorded() {
    play(VLLM, vllm(&[]), VLLM_PAUSES).await;
}

#[tokio::test]
async fn vllm_aborts_as_recorded() {
    play(VLLM, vllm(&[]), VLLM_ABORTS).await;
}

#[tokio::test]
async fn vllm_loads_weights_as_recorded() {
    play(VLLM, vllm(&[]), VLLM_WEIGHTS).await;
}

#[tokio::test]
async fn vllm_sleeps_as_recorded() {
    play(VLLM, vllm(&[]), VLLM_SLEEP).await;
}

#[tokio::test]
async fn vllm_dies_of_weights_that_are_not_there_as_recorded() {
    let fake = vllm(&["--time-scale", "5"]);
    let mut session = Session::new(VLLM, &fake);
    session.play(&VLLM_REFUSED_LOAD[..1]).await;
    common::until("the death is noticed", async || {
        fake.get("/health").await.status() == 503
    })
    .await;
    session.play(&VLLM_REFUSED_LOAD[1..]).await;
}

#[tokio::test]
async fn vllm_without_its_worker_answers_as_recorded() {
    let fake = vllm(&["--time-scale", "5"]);
    let mut session = Session::new(VLLM, &fake);
    session.play(&["+worker_killed_running"]).await;
    common::signal(
        fake.process("VLLM::Worker"),
        nix::sys::signal::Signal::SIGKILL,
    );
    session
        .play(&[
            "-worker_killed_running",
            "worker_killed_health",
            "worker_killed_generate",
        ])
        .await;
}

#[tokio::test]
async fn sglang_answers_single_requests_as_recorded() {
    play(SGLANG, Fake::start("sglang", &[]), SGLANG_ALONE).await;
}

#[tokio::test]
async fn sglang_pauses_as_recorded() {
    play(
        SGLANG,
        Fake::start("sglang", &["--time-scale", "0.5"]),
        SGLANG_PAUSES,
    )
    .await;
}

#[tokio::test]
async fn sglang_aborts_as_recorded() {
    play(SGLANG, Fake::start("sglang", &[]), SGLANG_ABORTS).await;
}

#[tokio::test]
async fn sglang_loads_weights_as_recorded() {
    play(SGLANG, Fake::start("sglang", &[]), SGLANG_WEIGHTS).await;
}

#[tokio::test]
async fn sglang_streams_what_is_new_as_recorded() {
    let fake = Fake::start("sglang", &["--incremental-streaming-output"]);
    play(SGLANG, fake, SGLANG_INCREMENTAL).await;
}

#[tokio::test]
async fn sglang_dies_of_a_token_outside_the_vocabulary_as_recorded() {
    play(SGLANG, Fake::start("sglang", &[]), SGLANG_POISON).await;
}

#[tokio::test]
async fn sglang_without_its_scheduler_answers_as_recorded() {
    let fake = Fake::start("sglang", &["--incremental-streaming-output"]);
    let mut session = Session::new(SGLANG, &fake);
    session.play(&["+scheduler_killed_running"]).await;
    common::signal(
        fake.process("sglang::scheduler"),
        nix::sys::signal::Signal::SIGKILL,
    );
    session
        .play(&["scheduler_killed_generate", "-scheduler_killed_running"])
        .await;
}

#[tokio::test]
async fn sglang_dies_of_weights_that_cannot_be_read_as_recorded() {
    let mut fake = Fake::start("sglang", &["--time-scale", "0.5"]);
    let broken = fake.folder.path().join("broken");
    model::write(&broken, 2, None);
    std::fs::write(broken.join("model.safetensors"), [1; 40]).unwrap();
    Session::new(SGLANG, &fake).play(SGLANG_BROKEN).await;
    fake.wait();
}

/// The token that ends a recorded request is put where this model has it.
async fn ends(engine: &str, dialect: &str, args: &[&str], names: &[&str]) {
    let fake = Fake::start(dialect, args);
    let greedy = json!({ "max_tokens": 6, "max_new_tokens": 6, "temperature": 0 });
    let greedy = if dialect == "vllm" {
        greedy
    } else {
        json!({ "max_new_tokens": 6, "temperature": 0 })
    };
    let tokens = async |prompt: &[u32]| {
        let body = json!({ "token_ids": prompt, "input_ids": prompt, "sampling_params": greedy });
        let path = if dialect == "vllm" {
            "/inference/v1/generate"
        } else {
            "/generate"
        };
        let reply = fake.ask(path, &body).await;
        let ids = if dialect == "vllm" {
            &reply["choices"][0]["token_ids"]
        } else {
            &reply["output_ids"]
        };
        ids.as_array().unwrap().clone()
    };
    let third = tokens(&[1, 5, 9, 3, 7, 11, 2]).await[2].clone();
    let eos = tokens(&[1, 5]).await[1].as_u64().unwrap();
    let session = Session::new(engine, &fake);
    for name in names.iter().filter(|name| name.contains("stop_token")) {
        session
            .one(
                name,
                &json!({ "sampling_params": { "stop_token_ids": [third] } }),
            )
            .await;
    }
    let folder = tempfile::tempdir().unwrap();
    model::write(
        &folder.path().join("small-1"),
        1,
        Some(u32::try_from(eos).unwrap()),
    );
    let fake = Fake::start_with(dialect, args, folder);
    Session::new(engine, &fake).play(&names[..1]).await;
}

#[tokio::test]
async fn vllm_ends_requests_as_recorded() {
    ends(VLLM, "vllm", &["--served-model-name", "q"], VLLM_ENDS).await;
}

#[tokio::test]
async fn sglang_ends_requests_as_recorded() {
    ends(SGLANG, "sglang", &[], &SGLANG_ENDS[..3]).await;
    let incremental = [SGLANG_ENDS[0], SGLANG_ENDS[3]];
    // The first is no stream: it is as without the switch.
    ends(
        SGLANG,
        "sglang",
        &["--incremental-streaming-output"],
        &incremental,
    )
    .await;
}
