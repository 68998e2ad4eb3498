//! `GET /metrics`.
use super::Metrics;
use super::text::Form;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Serves scrapes, until the task is dropped. Nobody shows a key here: a connection lives for a few seconds.
pub async fn serve(listener: TcpListener, metrics: Arc<Metrics>) {
    let router = Router::new()
        .route("/metrics", get(scrape))
        .with_state(metrics);
    robust_http::serve_until(listener, router, std::future::pending()).await;
}

async fn scrape(State(metrics): State<Arc<Metrics>>, asked: HeaderMap) -> Response {
    let accept = asked.get_all(header::ACCEPT).iter();
    let accept: Vec<_> = accept.filter_map(|value| value.to_str().ok()).collect();
    let form = Form::asked(&accept.join(","));
    match metrics.encode() {
        Ok(text) => {
            let kind = [(header::CONTENT_TYPE, form.content_type())];
            (kind, form.write(text)).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
