//! Clients that are not the job's, through the router of a daemon with role processes.
use super::fake::rollout::{HTTP, asked};
use super::site::{Daemon, Site, assert_ended_cleanly};
use axum::body::Body;
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use robust_proto::v1;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

fn start(site: &Site) -> Daemon {
    let folder = site.file("http");
    fs::create_dir(&folder).unwrap();
    let mut command = site.command(&["--router", "127.0.0.1:0"]);
    command.env(HTTP, folder);
    site.start_command(command)
}

fn rollouts(status: &v1::Status) -> Vec<&v1::RoleStatus> {
    let rollouts = status.roles.iter();
    rollouts.filter(|role| role.role == "rollout").collect()
}

async fn routed(site: &Site) -> v1::Status {
    let when = |s: &v1::Status| s.step >= 1 && rollouts(s).iter().all(|r| r.admitted);
    site.wait_for("rollouts that serve", when).await
}

/// Asks, and reads the whole reply.
async fn generate(router: &str, key: &str) -> (u16, String) {
    let request = axum::http::Request::post(format!("{router}/generate"))
        .header("authorization", format!("Bearer {key}"))
        .body(Body::from(r#"{"input_ids": [1]}"#));
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = client.request(request.unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn key(site: &Site) -> String {
    let path = site.state().join("router.key");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    fs::read_to_string(path).unwrap().trim().to_owned()
}

/// The rollout that was asked, other than this one.
async fn asked_one(site: &Site, other_than: u64) -> v1::RoleStatus {
    let folder = site.file("http");
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let status = site.wait_for("a status", |_| true).await;
        let asked = |r: &&&v1::RoleStatus| asked(&folder, r.incarnation).exists();
        let mut found = rollouts(&status).into_iter();
        if let Some(found) = found.find(|r| r.incarnation != other_than && asked(&r)) {
            return found.clone();
        }
        assert!(Instant::now() < deadline, "nobody is asked: {}", site.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_request_whose_rollout_is_killed_is_answered_by_another() {
    let site = Site::new(100_000);
    let daemon = start(&site);
    let status = routed(&site).await;
    let (router, key) = (status.router.clone(), key(&site));
    assert!(router.starts_with("http://127.0.0.1:"), "{router}");
    assert!(site.log().contains(&router) && !site.log().contains(&key));
    assert_eq!(generate(&router, "nobody's").await.0, 401);

    let strike = async {
        let first = asked_one(&site, 0).await;
        kill(
            Pid::from_raw(i32::try_from(first.pid).unwrap()),
            Signal::SIGKILL,
        )
        .unwrap();
        let second = asked_one(&site, first.incarnation).await;
        fs::write(site.file("http").join("go"), "").unwrap();
        second.incarnation
    };
    let ((status, body), second) = tokio::join!(generate(&router, &key), strike);
    assert_eq!(status, 200, "{body}\n{}", site.log_tail());
    assert_eq!(body, format!("{{\"incarnation\":{second}}}"));

    // The next one finds its rollout at once; nothing is left of those before.
    let (status, body) = generate(&router, &key).await;
    assert_eq!(status, 200, "{body}");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143, "{}", site.log_tail());
    assert_ended_cleanly(&site);
}

#[tokio::test]
async fn the_end_of_the_job_answers_who_waits_and_the_key_outlives_the_daemon() {
    let site = Site::new(100_000);
    let daemon = start(&site);
    let status = routed(&site).await;
    let first = key(&site);
    let ends = async {
        asked_one(&site, 0).await;
        daemon.signal(Signal::SIGTERM);
    };
    let ((status, body), ()) = tokio::join!(generate(&status.router, &first), ends);
    assert!([502, 503].contains(&status), "{status}: {body}");
    assert_eq!(daemon.output().0, 143, "{}", site.log_tail());
    assert_ended_cleanly(&site);
    fs::remove_dir_all(site.file("http")).unwrap();
    let daemon = start(&site);
    routed(&site).await;
    assert_eq!(key(&site), first);
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143, "{}", site.log_tail());
}
