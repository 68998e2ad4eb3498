//! A daemon that posts alarms and incidents.
use super::collector::{Tls, identity};
use super::hook::{Posted, next, receiver, taking};
use super::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::Write as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;

/// The job file names the receiver.
fn hooked(site: &Site, url: &str) {
    let mut job = fs::File::options()
        .append(true)
        .open(site.file("job.toml"))
        .unwrap();
    writeln!(job, "[alarms]\nwebhook = \"{url}\"").unwrap();
}

fn kill_rollouts(site: &Site) {
    for pid in site.roles_named("rollout") {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
}

/// Waits until a document about that event is posted.
async fn until_event(posted: &mut UnboundedReceiver<Posted>, event: &str) {
    loop {
        let (_, body) = next(posted).await;
        let document: Value = serde_json::from_slice(&body).unwrap();
        if document["event"] == event {
            return;
        }
    }
}

/// Waits until the daemon has logged that.
async fn until_logged(site: &Site, words: &str) {
    let begun = Instant::now();
    while !site.log().contains(words) {
        let passed = begun.elapsed() < Duration::from_secs(60);
        assert!(passed, "no {words}: {}", site.log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_never_answers_holds_up_neither_the_job_nor_its_end_and_hears_it_later() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = silent.local_addr().unwrap();
    let site = Site::new(1000);
    hooked(&site, &format!("http://{at}/secret-path"));
    let daemon = site.start();
    let before = site.wait_for("two steps", |s| s.step >= 2).await;
    kill_rollouts(&site);
    let recovered = |s: &v1::Status| {
        s.incidents.iter().any(|i| i.outcome == "recovered") && s.step >= before.step + 3
    };
    site.wait_for("a recovery and three steps", recovered).await;
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143, "{}", site.log());
    assert!(
        site.log().contains("not waiting any longer"),
        "{}",
        site.log()
    );
    assert!(!site.log().contains("secret-path"), "{}", site.log());

    // The job goes on with a receiver that answers, and is the same job.
    drop(silent);
    let (url, mut posted, _) = receiver(&[]).await;
    site.write_job(1000);
    hooked(&site, &url);
    let daemon = site.start();
    until_event(&mut posted, "incident_begins").await;
    until_event(&mut posted, "incident_ends").await;
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143, "{}", site.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_a_receiver_is_trusted_whose_ca_is_named_and_no_other() {
    let (ca, tls) = identity();
    let (router, mut posted, _) = taking(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(Tls { listener, tls }, router).await });
    let site = Site::new(1000);
    hooked(&site, &url);
    fs::write(site.file("ca.pem"), ca).unwrap();
    let (other, _) = identity();
    fs::write(site.file("other.pem"), other).unwrap();
    let trusting = |ca: &str| {
        let mut command = site.command(&[]);
        command.env("SSL_CERT_FILE", site.file(ca));
        site.start_command(command)
    };
    let daemon = trusting("other.pem");
    site.wait_for("two steps", |s| s.step >= 2).await;
    kill_rollouts(&site);
    until_logged(&site, "does not take a document").await;
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143, "{}", site.log());
    assert!(posted.try_recv().is_err());
    let daemon = trusting("ca.pem");
    until_event(&mut posted, "incident_begins").await;
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143, "{}", site.log());
}

#[test]
fn a_secret_that_is_not_there_is_said_before_anything_starts() {
    let site = Site::new(1);
    hooked(&site, "http://127.0.0.1:9/");
    let mut job = fs::read_to_string(site.file("job.toml")).unwrap();
    job += "webhook_secret_file = \"nowhere\"\n";
    fs::write(site.file("job.toml"), job).unwrap();
    let out = site.run(&[]);
    assert_eq!(out.status.code(), Some(6), "{}", said(&out));
    assert!(
        said(&out).contains("alarms.webhook_secret_file"),
        "{}",
        said(&out)
    );
    assert!(!site.state().exists());
}
