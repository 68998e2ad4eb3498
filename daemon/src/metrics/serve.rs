//! `GET /metrics`.
use super::Metrics;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::io;
use std::sync::Arc;
use tokio::net::TcpListener;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves scrapes, until the task is dropped.
pub async fn serve(listener: TcpListener, metrics: Arc<Metrics>) -> io::Result<()> {
    let router = Router::new()
        .route("/metrics", get(scrape))
        .with_state(metrics);
    axum::serve(listener, router).await
}

async fn scrape(State(metrics): State<Arc<Metrics>>) -> Response {
    match metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
