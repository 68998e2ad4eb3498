//! A rollout's HTTP side, where a test wants one: it generates nothing, says who it is, and lets
//! the test decide when.
//!
//! ```text
//!  POST /generate ──► DIR/asked-INCARNATION ──► waits for DIR/go ──► {"incarnation": ..}
//! ```
use axum::Router;
use axum::routing::{get, post};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder of those files; without it a rollout serves nothing.
pub const HTTP: &str = "FAKE_HTTP";

/// The file that says that a rollout was asked.
pub fn asked(folder: &Path, incarnation: u64) -> PathBuf {
    folder.join(format!("asked-{incarnation}"))
}

/// A socket to serve on, where the test wants one of this role.
pub fn bind(role: &str) -> Option<(TcpListener, PathBuf)> {
    let folder = std::env::var_os(HTTP).filter(|_| role == "rollout")?;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    Some((listener, folder.into()))
}

/// Serves until the process ends.
pub async fn serve(listener: TcpListener, folder: PathBuf, incarnation: u64) {
    let generate = async move || {
        std::fs::write(asked(&folder, incarnation), "").unwrap();
        while !folder.join("go").exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        axum::Json(serde_json::json!({"incarnation": incarnation}))
    };
    let routes = Router::new()
        .route("/generate", post(generate))
        .route("/health_generate", get(async || "fine"));
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    axum::serve(listener, routes).await.unwrap();
}
