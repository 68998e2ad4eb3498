//! SGLang's routes besides `/generate`.

use super::sglang_generate::{generate, invalid};
use super::{App, Shared, completions, empty, is_json, metrics, plugin, recorded, reply};
use crate::protocol::{Operation, PauseMode};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::{any, get, post};
use bytes::Bytes;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const MODEL_INFO: &str = include_str!("../../../../fixtures/engines/sglang-0.5.23/model_info.json");
const SERVER_INFO: &str =
    include_str!("../../../../fixtures/engines/sglang-0.5.23/server_info.json");
const LOADS: &str = include_str!("../../../../fixtures/engines/sglang-0.5.23/loads.json");
/// How long the real engine's own health check waits for a token.
const HEALTH_S: f64 = 20.0;

/// All of them.
pub fn routes(app: &Arc<App>) -> Router<Arc<App>> {
    let router = Router::new()
        .route("/generate", post(generate).put(generate))
        .route("/v1/completions", post(completions::sglang))
        .route("/v1/models", get(models))
        .route("/v1/loads", get(loads))
        .route("/model_info", get(model_info))
        .route("/get_model_info", get(model_info))
        .route("/server_info", get(server_info))
        .route("/get_server_info", get(server_info))
        .route("/ready", get(ready))
        .route("/health", get(health))
        .route("/health_generate", get(health))
        .route("/pause_generation", post(pause))
        .route("/continue_generation", post(resume))
        .route("/abort_request", post(abort))
        .route("/flush_cache", any(flush))
        .route("/update_weights_from_disk", post(update))
        .route("/update_weight_version", post(rename))
        .route("/weights_checker", any(checker))
        .route("/begin_weight_update", post(plugin::sglang_begin))
        .route("/end_weight_update", post(plugin::sglang_end))
        .route("/update_weights_from_tensor", post(plugin::sglang_update))
        .route("/update_weights_from_distributed", post(not_between))
        .route("/release_memory_occupation", any(release))
        .route("/resume_memory_occupation", any(take_back));
    if app.args.enable_metrics {
        router.route("/metrics", get(metrics::sglang))
    } else {
        router
    }
}

async fn models(State(app): Shared) -> Response {
    let (served, root) = (app.served(), app.leader().model_path.clone());
    let model = json!({
        "id": served, "object": "model", "created": 0, "owned_by": "sglang", "root": root,
        "parent": null,
        "max_model_len": app.context,
    });
    reply(200, json!({ "object": "list", "data": [model] }))
}

/// A recorded reply with this engine's names in it.
fn named(app: &App, fixture: &str) -> Value {
    let mut body = recorded(fixture);
    let served = app.served();
    let leader = app.leader();
    body["model_path"] = json!(leader.model_path);
    body["served_model_name"] = json!(served);
    body["tokenizer_path"] = json!(app.boot.model);
    body["weight_version"] = json!(leader.version);
    body
}

async fn model_info(State(app): Shared) -> Response {
    reply(200, named(&app, MODEL_INFO))
}

async fn server_info(State(app): Shared) -> Response {
    let mut body = named(&app, SERVER_INFO);
    body["incremental_streaming_output"] = json!(app.args.incremental_streaming_output);
    body["skip_tokenizer_init"] = json!(app.args.skip_tokenizer_init);
    body["context_length"] = json!(app.context);
    reply(200, body)
}

async fn loads(State(app): Shared) -> Response {
    let mut body = recorded(LOADS);
    body["loads"][0]["num_running_reqs"] = json!(app.link.requests());
    reply(200, body)
}

async fn ready(State(app): Shared) -> Response {
    let paused = app.leader().paused;
    empty(if paused { 503 } else { 200 })
}

/// Generates a token: a second at least, and never an answer while nothing is generated.
async fn health(State(app): Shared) -> Response {
    let least = app.scaled(1.0);
    if app.boot.quirks.hang_after.is_some() {
        tokio::time::sleep(least).await;
        return empty(200);
    }
    let sampling = json!({ "temperature": 0.0 });
    let limits = super::ask::Limits::read(&app, &sampling, Some(1), "sampling_seed");
    let mut request = limits.begin(&app, "HEALTH_CHECK", vec![0]);
    let answer = async {
        let step = request.step().await;
        if step.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let both = async { tokio::join!(answer, tokio::time::sleep(least)) };
    let in_time = tokio::time::timeout(app.scaled(HEALTH_S), both).await;
    empty(if in_time.is_ok() { 200 } else { 503 })
}

async fn pause(State(app): Shared, headers: HeaderMap, body: Bytes) -> Response {
    let body = if is_json(&headers) {
        serde_json::from_slice::<Value>(&body).ok()
    } else {
        None
    };
    let mode = body.map(|body| body["mode"].as_str().unwrap_or("abort").to_owned());
    let mode = match mode.as_deref() {
        Some("abort") => PauseMode::Abort,
        Some("retract" | "in_place") => PauseMode::Freeze,
        _ => {
            return invalid(
                "Input should be 'abort', 'retract' or 'in_place'",
                "/pause_generation",
            );
        }
    };
    tokio::time::sleep(Duration::from_secs_f64(app.boot.quirks.slow_pause_s)).await;
    let was_busy = app.link.requests() > 0;
    app.leader().paused = true;
    if app.link.call(Operation::Pause { mode }).await.is_err() {
        std::future::pending::<()>().await;
    }
    if was_busy && mode == PauseMode::Abort {
        // It looks again after a second whether all have ended.
        tokio::time::sleep(app.scaled(1.0)).await;
    }
    reply(
        200,
        json!({ "message": "Generation paused successfully.", "status": "ok" }),
    )
}

async fn resume(State(app): Shared, body: Bytes) -> Response {
    if body.is_empty() {
        return invalid(
            "{'type': 'missing', 'loc': ('body',), 'msg': 'Field required'}",
            "/continue_generation",
        );
    }
    app.leader().paused = false;
    let _ = app.link.call(Operation::Resume).await;
    reply(
        200,
        json!({ "message": "Generation continued successfully.", "status": "ok" }),
    )
}

/// An id that is known ends itself and all that begin with it; any other nothing.
async fn abort(State(app): Shared, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let rid = body["rid"].as_str().unwrap_or_default();
    if body["abort_all"] == true {
        app.link.abort(|_| true);
    } else if !rid.is_empty() && app.link.knows(rid) {
        app.link.abort(|other| other.starts_with(rid));
    }
    empty(200)
}

async fn flush(State(app): Shared) -> Response {
    let _ = app.link.call(Operation::Flush).await;
    // Without a content type, as the real one.
    Response::new(Body::from(
        "Cache flushed.\nPlease check backend logs for more details. (When there are running or \
         waiting requests, the operation will not be performed.)\n",
    ))
}

async fn update(State(app): Shared, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let Some(folder) = body["model_path"].as_str() else {
        return invalid(
            "{'type': 'missing', 'msg': 'Field required'} model_path",
            "/update_weights_from_disk",
        );
    };
    if body["abort_all_requests"] == true {
        app.link.abort(|_| true);
    }
    // Without a pause it waits for the requests under way.
    while app.link.requests() > 0 && !is_paused(&app) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let Ok(loaded) = app.load(Path::new(folder)).await else {
        return std::future::pending().await;
    };
    let told = |success: bool, message: String| {
        let body = json!({ "success": success, "message": message, "num_paused_requests": 0 });
        reply(if success { 200 } else { 400 }, body)
    };
    if let Err(why) = loaded {
        return told(false, format!("Failed to get weights iterator: {why}."));
    }
    if body["flush_cache"] != false {
        let _ = app.link.call(Operation::Flush).await;
    }
    let mut message = "Succeeded to update model weights.".to_owned();
    if let Some(version) = body["weight_version"].as_str() {
        app.rename(version).await;
        message = format!("{message} Weight version updated to {version}.");
    }
    told(true, message)
}

fn is_paused(app: &App) -> bool {
    app.leader().paused
}

async fn rename(State(app): Shared, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let Some(version) = body["new_version"].as_str() else {
        return invalid(
            "{'type': 'missing', 'msg': 'Field required'} new_version",
            "/update_weight_version",
        );
    };
    app.rename(version).await;
    let message = format!("Weight version updated to {version}");
    reply(
        200,
        json!({ "success": true, "message": message, "new_version": version }),
    )
}

async fn checker(State(app): Shared) -> Response {
    match app.link.call(Operation::Checksums).await {
        Ok(Ok(told)) => reply(200, told),
        Ok(Err(why)) => reply(400, json!({ "success": false, "message": why })),
        Err(_) => std::future::pending().await,
    }
}

async fn not_between() -> Response {
    let message =
        "update_weights_from_tensor must run between begin_weight_update() and end_weight_update()";
    reply(400, json!({ "success": false, "message": message }))
}

/// The tags of a body, all without one.
fn tags(body: &Bytes) -> Vec<String> {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let tags = body["tags"].as_array().map_or(&[][..], Vec::as_slice);
    let tags: Vec<String> = tags
        .iter()
        .filter_map(|tag| tag.as_str().map(str::to_owned))
        .collect();
    match tags.is_empty() {
        true => ["weights", "kv_cache", "cuda_graph"]
            .map(str::to_owned)
            .to_vec(),
        false => tags,
    }
}

/// Asks the scheduler, whose death is never answered.
async fn scheduler(app: &App, operation: Operation) -> Response {
    match app.link.call(operation).await {
        Ok(_) => reply(200, Value::Null),
        Err(_) => std::future::pending().await,
    }
}

async fn release(State(app): Shared, body: Bytes) -> Response {
    if app.args.enable_memory_saver {
        app.leader().sleeping = true;
        let operation = Operation::Sleep {
            tags: tags(&body),
            keeps: app.args.enable_weights_cpu_backup,
        };
        return scheduler(&app, operation).await;
    }
    app.leader().sleeping = true;
    let _ = app
        .link
        .call(Operation::Pause {
            mode: PauseMode::Freeze,
        })
        .await;
    reply(200, Value::Null)
}

async fn take_back(State(app): Shared, body: Bytes) -> Response {
    if app.args.enable_memory_saver {
        app.leader().sleeping = false;
        return scheduler(&app, Operation::Wake { tags: tags(&body) }).await;
    }
    let goes_on = {
        let mut leader = app.leader();
        leader.sleeping = false;
        !leader.paused
    };
    if goes_on {
        let _ = app.link.call(Operation::Resume).await;
    }
    reply(200, Value::Null)
}
