//! The receivers of weights that run within the real engines (`python/` of this repository), played: the
//! orders are the engine's own, the folder is really loaded.

use super::{App, Shared, reply};
use axum::extract::State;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::Ordering;

use crate::protocol::Operation;

/// What an engine must be started with to have them.
pub const VLLM: &str = "robustrl";
/// The same for SGLang.
pub const SGLANG: &str = "robustrl.sglang.load";

fn read(body: &Bytes) -> Value {
    serde_json::from_slice(body).unwrap_or_default()
}

fn failed(why: &str) -> Response {
    let error = json!({ "message": why, "type": "InternalServerError", "code": 500 });
    reply(500, json!({ "error": error }))
}

/// Nobody has to be met.
pub async fn vllm_init() -> Response {
    reply(200, json!({ "message": "Weight transfer initialized" }))
}

/// An update begins.
pub async fn vllm_start(State(app): Shared) -> Response {
    app.updating.store(true, Ordering::Relaxed);
    reply(200, json!({ "message": "Weight update started" }))
}

/// A version's folder.
pub async fn vllm_update(State(app): Shared, body: Bytes) -> Response {
    let body = read(&body);
    let Some(folder) = body["update_info"]["folder"].as_str() else {
        return failed("update_info has no folder");
    };
    if !app.updating.load(Ordering::Relaxed) {
        return failed("start_weight_update was not called");
    }
    match app.load(Path::new(folder)).await {
        Ok(Ok(())) => reply(200, json!({ "message": "Weights updated" })),
        Ok(Err(why)) => failed(&why),
        Err(_) => std::future::pending().await,
    }
}

/// It ends, and names the version.
pub async fn vllm_finish(State(app): Shared, body: Bytes) -> Response {
    if !app.updating.swap(false, Ordering::Relaxed) {
        return failed("start_weight_update was not called");
    }
    if let Some(version) = read(&body)["weight_version"].as_str() {
        app.rename(version).await;
    }
    reply(200, json!({ "message": "Weight update finished" }))
}

/// SGLang's brackets around tensors of others.
pub async fn sglang_begin(State(app): Shared) -> Response {
    app.updating.store(true, Ordering::Relaxed);
    success()
}

pub async fn sglang_end(State(app): Shared) -> Response {
    app.updating.store(false, Ordering::Relaxed);
    success()
}

fn success() -> Response {
    reply(200, json!({ "success": true, "message": "Success" }))
}

/// Tensors between the brackets: the loader takes the name of the only one as a folder, and never raises.
pub async fn sglang_update(State(app): Shared, body: Bytes) -> Response {
    let body = read(&body);
    if !app.updating.load(Ordering::Relaxed) {
        let message = "update_weights_from_tensor must run between begin_weight_update() and \
                       end_weight_update()";
        return reply(400, json!({ "success": false, "message": message }));
    }
    if body["load_format"] != SGLANG || !has_loader(&app) {
        // The scheduler raises, and dies of it.
        let _ = app.link.call(Operation::Raise).await;
        return std::future::pending().await;
    }
    let payload = body["serialized_named_tensors"][0].as_str();
    let pickle = STANDARD.decode(payload.unwrap_or_default());
    let pickle = pickle.unwrap_or_default();
    match name(&pickle) {
        Some(folder) => {
            if app.load(Path::new(folder)).await.is_err() {
                return std::future::pending().await;
            }
        }
        None => eprintln!("fake-engine: the weights were not loaded: no folder is named"),
    }
    if body["flush_cache"] != false {
        let _ = app.link.call(Operation::Flush).await;
    }
    if let Some(version) = body["weight_version"].as_str() {
        app.rename(version).await;
    }
    success()
}

/// The first text of a pickle of protocol 2 that begins with a list.
fn name(pickle: &[u8]) -> Option<&str> {
    let rest = pickle.strip_prefix(b"\x80\x02]X")?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    std::str::from_utf8(rest.get(..length)?).ok()
}

/// Whether SGLang was started with the loader.
pub fn has_loader(app: &App) -> bool {
    app.args.custom_weight_loader.as_deref() == Some(SGLANG)
}

/// Whether vLLM was started with the backend.
pub fn has_backend(app: &App) -> bool {
    let config = app.args.weight_transfer_config.as_deref();
    config.is_some_and(|config| config.contains(VLLM))
}
