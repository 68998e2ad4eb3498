//! `GET /metrics`.
use super::text::Form;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use robust_http::Wire;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Whether what a scraper shows is the key.
pub type IsKey = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Makes the text of a scrape (OpenMetrics).
pub type Text = Arc<dyn Fn() -> Result<String, std::fmt::Error> + Send + Sync>;

/// Serves scrapes, until the task is dropped, to whoever shows the key if there is one. No caller is proven by it:
/// a connection lives for a few seconds.
pub async fn serve(listener: TcpListener, wire: Wire, key: Option<IsKey>, text: Text) {
    let mut router = Router::new()
        .route("/metrics", get(scrape))
        .with_state(text);
    if let Some(key) = key {
        router = router.layer(from_fn_with_state(key, with_key));
    }
    robust_http::serve_until(listener, wire, router, std::future::pending()).await;
}

async fn with_key(State(is_key): State<IsKey>, asked: Request, next: Next) -> Response {
    let shown = asked.headers().get(header::AUTHORIZATION);
    let shown = shown.and_then(|value| value.to_str().ok());
    let shown = shown.and_then(|text| text.strip_prefix("Bearer "));
    match shown.is_some_and(|shown| is_key(shown)) {
        true => next.run(asked).await,
        false => {
            let hint = "show what is in STATE/metrics.key as Authorization: Bearer\n";
            (StatusCode::UNAUTHORIZED, hint).into_response()
        }
    }
}

async fn scrape(State(text): State<Text>, asked: HeaderMap) -> Response {
    let accept = asked.get_all(header::ACCEPT).iter();
    let accept: Vec<_> = accept.filter_map(|value| value.to_str().ok()).collect();
    let form = Form::asked(&accept.join(","));
    match text() {
        Ok(text) => {
            let kind = [(header::CONTENT_TYPE, form.content_type())];
            (kind, form.write(text)).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
