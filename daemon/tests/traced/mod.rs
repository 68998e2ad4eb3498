//! A daemon that sends a trace of each incident.
use super::collector::{Posted, collector, collector_over_tls, next, roots, spans_of, text};
use super::*;
use axum::http::StatusCode;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::mpsc::UnboundedReceiver;

/// Kills the rollout; the trace that tells of it.
async fn trace_of_a_kill(site: &Site, posted: &mut UnboundedReceiver<Posted>) -> Posted {
    let admitted = |s: &v1::Status| s.roles.iter().any(|r| r.role == "rollout" && r.admitted);
    let status = site.wait_for("a rollout at work", admitted).await;
    let rollout = status.roles.iter().find(|r| r.role == "rollout").unwrap();
    let pid = Pid::from_raw(i32::try_from(rollout.pid).unwrap());
    kill(pid, Signal::SIGKILL).unwrap();
    next(posted).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_incident_is_traced_once_across_a_crash_of_the_daemon() {
    let (url, mut posted) = collector(StatusCode::OK).await;
    let site = Site::new(1000);
    let daemon = site.start_with(&["--otlp", &url]);
    let (_, first) = trace_of_a_kill(&site, &mut posted).await;
    let root = &roots(&first)[0];
    assert_eq!(text(&root.attributes, "robust.role"), "rollout");
    assert_eq!(text(&root.attributes, "robust.incident.rule"), "exit");
    assert_eq!(
        text(&root.attributes, "robust.incident.outcome"),
        "recovered"
    );
    let names: Vec<_> = spans_of(&first).into_iter().map(|s| s.name).collect();
    for stage in ["detect", "restart", "reconnect", "exited", "attached"] {
        assert!(names.iter().any(|n| n == stage), "{stage} in {names:?}");
    }
    // What is committed after it makes it durable that the incident is over.
    let seen = site.wait_for("a status", |_| true).await.step;
    let later = |s: &v1::Status| s.step >= seen + 2;
    site.wait_for("two steps more", later).await;
    daemon.signal(Signal::SIGKILL);
    daemon.output();
    let daemon = site.start_with(&["--otlp", &url]);
    let (_, second) = trace_of_a_kill(&site, &mut posted).await;
    let ids: Vec<_> = [&first, &second]
        .iter()
        .map(|r| {
            let roots = roots(r);
            assert_eq!(roots.len(), 1, "{roots:?}");
            text(&roots[0].attributes, "robust.incident.id")
        })
        .collect();
    assert_eq!(ids, ["1", "2"], "the first is not sent again");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143);
    assert!(posted.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_never_answers_holds_up_neither_the_job_nor_its_end() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let site = Site::new(1000);
    let daemon = site.start_with(&["--otlp", &url]);
    let before = site.wait_for("two steps", |s| s.step >= 2).await;
    for pid in site.roles_named("rollout") {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
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
}

#[test]
fn an_address_that_is_none_is_refused_before_anything_starts() {
    let site = Site::new(1);
    let out = site.run(&["--otlp", "grpc://127.0.0.1:4317"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("not an http:// or https:// URL"), "{said}");
    assert!(!site.state().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_a_collector_is_trusted_whose_ca_is_named_and_no_other() {
    let (url, ca, mut posted) = collector_over_tls().await;
    let site = Site::new(1000);
    fs::write(site.file("ca.pem"), ca).unwrap();
    let (_, other, _) = collector_over_tls().await;
    fs::write(site.file("other.pem"), other).unwrap();
    let trusting = |ca: &str| {
        let mut command = site.command(&["--otlp", &url]);
        command.env("SSL_CERT_FILE", site.file(ca));
        site.start_command(command)
    };
    let daemon = trusting("ca.pem");
    let (_, trace) = trace_of_a_kill(&site, &mut posted).await;
    assert_eq!(text(&roots(&trace)[0].attributes, "robust.role"), "rollout");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143, "{}", site.log());
    let daemon = trusting("other.pem");
    let two = |s: &v1::Status| s.step >= 2;
    site.wait_for("two steps", two).await;
    for pid in site.roles_named("rollout") {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    let begun = Instant::now();
    while !site.log().contains("does not take traces") {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{}",
            site.log_tail()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(site.log().contains("over TLS"), "{}", site.log_tail());
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143, "{}", site.log());
    assert!(posted.try_recv().is_err());
}

#[test]
fn a_ca_that_cannot_be_read_or_is_named_where_nobody_reads_it_is_refused() {
    let site = Site::new(1);
    let nowhere = site.file("nowhere.pem").display().to_string();
    for (variable, code, says) in [
        ("SSL_CERT_FILE", 6, "nowhere.pem"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", 2, "SSL_CERT_FILE"),
    ] {
        let mut command = site.command(&["--otlp", "https://127.0.0.1:4318"]);
        let out = command.env(variable, &nowhere).output().unwrap();
        assert_eq!(out.status.code(), Some(code), "{}", said(&out));
        assert!(said(&out).contains(says), "{}", said(&out));
    }
}
