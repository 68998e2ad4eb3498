//! vLLM's routes besides generation; those of its development mode are always there.

use super::vllm_generate::{dead, error, generate, invalid};
use super::{App, Shared, completions, empty, metrics, plugin, reply};
use crate::link::Dead;
use crate::protocol::{Operation, PauseMode};
use axum::Router;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The recorded version.
const VERSION: &str = "0.32.0";

type Pairs = Query<HashMap<String, String>>;

/// All of them.
pub fn routes(app: &Arc<App>) -> Router<Arc<App>> {
    let router = Router::new()
        .route("/v1/completions", post(completions::vllm))
        .route("/v1/models", get(models))
        .route(
            "/version",
            get(async || reply(200, json!({ "version": VERSION }))),
        )
        .route("/server_info", get(server_info))
        .route("/health", get(health))
        .route("/ping", get(health).post(health))
        .route("/load", get(load))
        .route("/metrics", get(metrics::vllm))
        .route("/weight_info", get(weight_info))
        .route("/is_paused", get(is_paused))
        .route(
            "/get_world_size",
            get(async || reply(200, json!({ "world_size": 1 }))),
        )
        .route("/pause", post(pause))
        .route("/resume", post(resume))
        .route("/abort_requests", post(abort))
        .route("/collective_rpc", post(rpc))
        .route("/reset_prefix_cache", post(reset_prefix_cache))
        .route("/update_weight_version", post(rename))
        .route("/weight_checker", post(checker))
        .route("/release_kv_cache_memory", post(release_kv))
        .route("/is_sleeping", get(is_sleeping))
        .route("/sleep", post(sleep))
        .route("/wake_up", post(wake_up));
    let router = match plugin::has_backend(app) {
        true => router
            .route("/init_weight_transfer_engine", post(plugin::vllm_init))
            .route("/start_weight_update", post(plugin::vllm_start))
            .route("/update_weights", post(plugin::vllm_update))
            .route("/finish_weight_update", post(plugin::vllm_finish)),
        false => router
            .route("/init_weight_transfer_engine", post(no_transfer))
            .route("/start_weight_update", post(no_transfer))
            .route("/update_weights", post(no_transfer))
            .route("/finish_weight_update", post(no_transfer)),
    };
    if !app.args.enable_scale_out {
        return router;
    }
    router
        .route("/inference/v1/generate", post(generate))
        .route("/inference/v1/abort_requests", post(abort_quietly))
}

/// Never asks the engine: it is well until its death has been noticed.
async fn health(State(app): Shared) -> Response {
    empty(if app.is_dead() { 503 } else { 200 })
}

async fn models(State(app): Shared) -> Response {
    let (served, root) = (app.served(), app.leader().model_path.clone());
    let permission = json!({
        "id": format!("modelperm-{}", &app.id()[..16]), "object": "model_permission", "created": 0,
        "allow_create_engine": false, "allow_sampling": true, "allow_logprobs": true,
        "allow_search_indices": false, "allow_view": true, "allow_fine_tuning": false,
        "organization": "*",
        "group": null, "is_blocking": false,
    });
    let model = json!({
        "id": served, "object": "model", "created": 0, "owned_by": "vllm", "root": root,
        "parent": null,
        "max_model_len": app.context, "permission": [permission],
    });
    reply(200, json!({ "object": "list", "data": [model] }))
}

async fn server_info(State(app): Shared) -> Response {
    let config = format!("model='{}'", app.leader().model_path);
    reply(
        200,
        json!({ "vllm_config": config, "vllm_env": {}, "system_env": {} }),
    )
}

async fn load(State(app): Shared) -> Response {
    reply(200, json!({ "server_load": app.link.requests() }))
}

async fn weight_info(State(app): Shared) -> Response {
    let version = app.leader().version.clone();
    reply(200, json!({ "weight_version": version }))
}

async fn is_paused(State(app): Shared) -> Response {
    let paused = app.leader().paused;
    reply(200, json!({ "is_paused": paused }))
}

/// What the engine said, or that it is dead.
fn answered(answer: Result<Result<Value, String>, Dead>, body: Value) -> Response {
    match answer {
        Ok(Ok(_)) => reply(200, body),
        Ok(Err(why)) => reply(500, error("InternalServerError", 500, Value::Null, &why)),
        Err(Dead) => reply(500, dead()),
    }
}

/// A call that only a living engine is asked.
async fn call(app: &App, operation: Operation) -> Result<Result<Value, String>, Dead> {
    if app.is_dead() {
        Err(Dead)
    } else {
        app.link.call(operation).await
    }
}

async fn pause(State(app): Shared, Query(pairs): Pairs) -> Response {
    let mode = match pairs.get("mode").map(String::as_str) {
        None | Some("abort") => PauseMode::Abort,
        Some("wait") => PauseMode::Wait,
        Some("keep") => PauseMode::Freeze,
        Some(_) => {
            return invalid(
                json!("query.mode"),
                "Input should be 'abort', 'wait' or 'keep'",
            );
        }
    };
    tokio::time::sleep(Duration::from_secs_f64(app.boot.quirks.slow_pause_s)).await;
    app.leader().paused = true;
    answered(
        call(&app, Operation::Pause { mode }).await,
        json!({ "status": "paused" }),
    )
}

async fn resume(State(app): Shared) -> Response {
    app.leader().paused = false;
    answered(
        call(&app, Operation::Resume).await,
        json!({ "status": "resumed" }),
    )
}

/// The ids are those of the replies; how many were named is what is counted.
async fn abort(State(app): Shared, body: Bytes) -> Response {
    let count = match named(&body) {
        Some(ids) if !ids.is_empty() => {
            app.link.abort(|rid| ids.iter().any(|id| id == rid));
            ids.len()
        }
        _ => app.link.abort(|_| true),
    };
    reply(200, json!({ "status": "aborted", "aborted": count }))
}

async fn abort_quietly(State(app): Shared, body: Bytes) -> Response {
    let Some(ids) = named(&body) else {
        return reply(
            400,
            error(
                "Bad Request",
                400,
                Value::Null,
                "Missing 'request_ids' in request body",
            ),
        );
    };
    app.link.abort(|rid| ids.iter().any(|id| id == rid));
    empty(200)
}

fn named(body: &Bytes) -> Option<Vec<String>> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let ids = body["request_ids"].as_array()?;
    Some(
        ids.iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
    )
}

async fn rpc(State(app): Shared, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    match body["method"].as_str() {
        Some("check_health") => check_health(&app, body["timeout"].as_f64()).await,
        Some("reload_weights") => reload(&app, body["kwargs"]["weights_path"].as_str()).await,
        Some(method) => reply(
            500,
            rpc_failed(&format!("'CPUWorker' object has no attribute '{method}'")),
        ),
        None => reply(
            400,
            error(
                "Bad Request",
                400,
                Value::Null,
                "Missing 'method' in request body",
            ),
        ),
    }
}

fn rpc_failed(why: &str) -> Value {
    let message = format!(
        "Call to collective_rpc method failed: Worker failed with error '{why}', please check \
         the stack trace above for the root cause"
    );
    error("InternalServerError", 500, Value::Null, &message)
}

/// The engine is dead after a worker that did not answer in time.
async fn check_health(app: &App, timeout_s: Option<f64>) -> Response {
    let answer = call(app, Operation::Ping);
    let Some(seconds) = timeout_s else {
        return answered(answer.await, json!({ "results": [null] }));
    };
    match tokio::time::timeout(Duration::from_secs_f64(seconds.max(0.0)), answer).await {
        Ok(answer) => answered(answer, json!({ "results": [null] })),
        Err(_) => {
            app.link.died("VLLM::EngineCore");
            reply(500, rpc_failed("RPC call to check_health timed out."))
        }
    }
}

/// The engine is dead after weights that it could not load.
async fn reload(app: &App, path: Option<&str>) -> Response {
    if app.is_dead() {
        return reply(500, dead());
    }
    let own = app.boot.model.clone();
    match app.load(path.map_or(&own, Path::new)).await {
        Ok(Ok(())) => reply(200, json!({ "results": [null] })),
        Ok(Err(why)) => {
            app.link.died("VLLM::EngineCore");
            reply(500, rpc_failed(&why))
        }
        Err(Dead) => reply(500, dead()),
    }
}

async fn reset_prefix_cache(State(app): Shared) -> Response {
    answered(
        call(&app, Operation::Flush).await,
        json!({ "success": true }),
    )
}

async fn rename(State(app): Shared, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let Some(version) = body["new_version"].as_str() else {
        return invalid(
            json!("body.new_version"),
            "{'type': 'missing', 'msg': 'Field required'}",
        );
    };
    app.rename(version).await;
    reply(200, json!({ "success": true, "new_version": version }))
}

async fn checker(State(app): Shared, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let sums = match call(&app, Operation::Checksums).await {
        Ok(Ok(sums)) => sums,
        other => return answered(other, Value::Null),
    };
    let Some(baseline) = body["baseline"]
        .as_object()
        .filter(|_| body["action"] == "compare")
    else {
        return reply(200, sums);
    };
    let empty = serde_json::Map::new();
    let have = sums["checksums"].as_object().unwrap_or(&empty);
    let mut names: Vec<_> = have.keys().chain(baseline.keys()).collect();
    names.sort();
    names.dedup();
    names.retain(|name| have.get(*name) != baseline.get(*name));
    reply(
        200,
        json!({ "match": names.is_empty(), "mismatches": names }),
    )
}

async fn no_transfer() -> Response {
    reply(
        500,
        rpc_failed(
            "Weight transfer not configured. Please set weight_transfer_config to enable weight \
         transfer.",
        ),
    )
}

async fn release_kv(State(app): Shared) -> Response {
    if app.leader().paused {
        return reply(200, json!({ "status": "kv_cache_released" }));
    }
    let message = "Call to release_kv_cache_memory method failed: release_kv_cache_memory() \
     requires a completed pause first";
    reply(500, error("InternalServerError", 500, Value::Null, message))
}

async fn is_sleeping(State(app): Shared) -> Response {
    let sleeping = app.leader().sleeping;
    reply(200, json!({ "is_sleeping": sleeping }))
}

async fn sleep(State(app): Shared, Query(pairs): Pairs) -> Response {
    let level = pairs
        .get("level")
        .and_then(|l| l.parse::<u8>().ok())
        .unwrap_or(1);
    app.leader().sleeping = true;
    let mode = PauseMode::Abort;
    let mut answer = call(&app, Operation::Pause { mode }).await;
    if app.args.enable_sleep_mode && level > 0 {
        let operation = Operation::Sleep {
            tags: ["weights", "kv_cache"].map(str::to_owned).to_vec(),
            keeps: level == 1,
        };
        answer = call(&app, operation).await;
    }
    answered(answer, json!({ "status": "sleeping", "level": level }))
}

/// By tags, all without one. With the last part it goes on, whoever paused it.
async fn wake_up(State(app): Shared, Query(pairs): Query<Vec<(String, String)>>) -> Response {
    if app.args.enable_sleep_mode {
        let tags = pairs.into_iter().filter(|(key, _)| key == "tags");
        let tags: Vec<String> = tags.map(|(_, tag)| tag).collect();
        let told = (!tags.is_empty()).then(|| tags.clone());
        let answer = call(&app, Operation::Wake { tags }).await;
        let mut status = "sleeping";
        if let Ok(Ok(Value::Bool(true))) = &answer {
            let mut leader = app.leader();
            (leader.sleeping, leader.paused) = (false, false);
            status = "awake";
        }
        return answered(answer, json!({ "status": status, "tags": told }));
    }
    let goes_on = {
        let mut leader = app.leader();
        leader.sleeping = false;
        !leader.paused
    };
    let answer = if goes_on {
        call(&app, Operation::Resume).await
    } else {
        Ok(Ok(Value::Null))
    };
    answered(answer, json!({ "status": "awake", "tags": null }))
}
