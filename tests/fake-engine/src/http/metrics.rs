//! `/metrics`: those series of the real engines that tell how busy they are.

use super::Shared;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::fmt::Write;

/// SGLang's.
pub async fn sglang(State(app): Shared) -> Response {
    let running = app.link.requests() as f64;
    let served = app.served();
    page(
        "text/plain; version=0.0.4; charset=utf-8",
        &format!("model_name=\"{served}\",tp_rank=\"0\""),
        &[
            ("sglang:num_running_reqs", running),
            ("sglang:num_queue_reqs", 0.0),
            ("sglang:num_used_tokens", 0.0),
            ("sglang:token_usage", 0.0),
            (
                "sglang:gen_throughput",
                if running > 0.0 {
                    app.args.tokens_per_s * running
                } else {
                    0.0
                },
            ),
            ("sglang:generation_tokens_total", app.link.tokens() as f64),
        ],
    )
}

/// vLLM's.
pub async fn vllm(State(app): Shared) -> Response {
    let paused = app.leader().paused;
    let requests = app.link.requests() as f64;
    let served = app.served();
    page(
        "text/plain; version=1.0.0; charset=utf-8",
        &format!("engine=\"0\",model_name=\"{served}\""),
        &[
            (
                "vllm:num_requests_running",
                if paused { 0.0 } else { requests },
            ),
            (
                "vllm:num_requests_waiting",
                if paused { requests } else { 0.0 },
            ),
            ("vllm:kv_cache_usage_perc", 0.0),
            ("vllm:generation_tokens_total", app.link.tokens() as f64),
        ],
    )
}

fn page(kind: &'static str, labels: &str, series: &[(&str, f64)]) -> Response {
    let mut text = String::new();
    for (name, value) in series {
        let is_counter = name.ends_with("_total");
        let _ = writeln!(
            text,
            "# TYPE {name} {}",
            if is_counter { "counter" } else { "gauge" }
        );
        let _ = writeln!(text, "{name}{{{labels}}} {value:?}");
    }
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}
