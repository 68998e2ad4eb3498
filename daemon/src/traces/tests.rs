//! What a collector gets, and that nobody waits for one.
#![allow(clippy::unwrap_used)]
#[path = "../../tests/collector/mod.rs"]
mod collector;

use super::*;
use axum::http::StatusCode;
use collector::{LONG, collector, next, roots, spans_of, text};
use opentelemetry_proto::tonic::trace::v1::Span;
use std::collections::{BTreeMap, BTreeSet};
use tokio::net::TcpListener;

fn identity() -> Identity {
    Identity {
        job: "j".to_owned(),
        run: "r7".to_owned(),
        node: "n0".to_owned(),
    }
}

fn stage(name: &str, ms: f64) -> v1::Stage {
    let name = name.to_owned();
    v1::Stage { name, ms }
}

fn incident(id: u64, outcome: &str) -> v1::Incident {
    let done = |ms: f64| if outcome == "recovered" { ms } else { 0.0 };
    let restart = [stage("spawned", 250.0), stage("attached", 1750.0)];
    let restart = restart.into_iter().chain([stage("restored", 500.0)]);
    let detect = [stage("exited", 30.0), stage("seen", 10.0)];
    let stages = detect
        .into_iter()
        .chain(restart.filter(|_| outcome == "recovered"));
    v1::Incident {
        id,
        role: "trainer".to_owned(),
        index: 1,
        incarnation: 12,
        rule: "exit".to_owned(),
        reason: "killed by signal 9".to_owned(),
        plan: "restart the trainer gang from step 7 and train step 8".to_owned(),
        detect_ms: 40.0,
        restart_ms: done(2000.0),
        reconnect_ms: done(500.0),
        total_ms: done(2540.0),
        outcome: outcome.to_owned(),
        at_ms: 1_700_000_000_000,
        step: 7,
        evidence: "é".repeat(4000),
        swept: vec![13],
        cause: None,
        root: "trainer-1 is stopped".to_owned(),
        stages: stages.collect(),
        ..Default::default()
    }
}

fn status(incidents: Vec<v1::Incident>) -> v1::Status {
    v1::Status {
        incidents,
        ..Default::default()
    }
}

fn start(url: &str) -> (Traces, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new("n0"));
    let endpoint = endpoint(url).unwrap();
    let traces = Traces::start(&endpoint, identity(), Arc::clone(&metrics)).unwrap();
    traces.status(&status(vec![]));
    (traces, metrics)
}

fn counted(metrics: &Metrics, result: &str) -> bool {
    let line = format!("robust_traces_total{{result={result}");
    metrics.encode().unwrap().contains(&line)
}

#[tokio::test]
async fn a_collector_gets_the_incident_with_its_stages_when_it_is_over() {
    let (url, mut posted) = collector(StatusCode::OK).await;
    let (traces, metrics) = start(&url);
    traces.status(&status(vec![incident(1, "recovering")]));
    for _ in 0..3 {
        traces.status(&status(vec![incident(1, "recovered")]));
    }
    traces.flush(LONG).await;
    let (head, request) = next(&mut posted).await;
    assert!(posted.try_recv().is_err(), "one trace, once");
    assert_eq!(head["content-type"], "application/x-protobuf");
    assert!(counted(&metrics, "\"sent\"} 1"));

    let resource = request.resource_spans[0].resource.clone().unwrap();
    assert_eq!(text(&resource.attributes, "service.name"), "robustd");
    assert_eq!(text(&resource.attributes, "service.instance.id"), "n0");
    let spans = spans_of(&request);
    let root = &roots(&request)[0];
    let wanted = [
        ("robust.incident.rule", "exit"),
        ("robust.incident.scope", "gang"),
        ("robust.incident.outcome", "recovered"),
        ("robust.role", "trainer"),
        ("robust.index", "1"),
        ("robust.step", "7"),
        ("robust.job", "j"),
    ];
    for (key, value) in wanted {
        assert_eq!(text(&root.attributes, key), value, "{key}");
    }
    assert!(text(&root.attributes, "robust.incident.evidence").len() <= 4096);
    check_tree(&spans, root);
}

/// Names, parents, and the intervals in milliseconds from the fault.
fn check_tree(spans: &[Span], root: &Span) {
    let names: BTreeMap<_, _> = spans.iter().map(|s| (&s.span_id, &*s.name)).collect();
    assert_eq!(
        names.len(),
        spans.len(),
        "every span has a number of its own"
    );
    let traces: BTreeSet<_> = spans.iter().map(|s| &s.trace_id).collect();
    assert_eq!(traces.len(), 1);
    let ms = |at: u64| (at - root.start_time_unix_nano) / 1_000_000;
    let mut tree: Vec<_> = spans
        .iter()
        .map(|s| {
            let parent = names.get(&s.parent_span_id).copied().unwrap_or("");
            let (from, to) = (ms(s.start_time_unix_nano), ms(s.end_time_unix_nano));
            (parent, &*s.name, from, to)
        })
        .collect();
    tree.sort_unstable();
    let wanted = [
        ("", "incident", 0, 2540),
        ("detect", "exited", 0, 30),
        ("detect", "seen", 30, 40),
        ("incident", "detect", 0, 40),
        ("incident", "reconnect", 2040, 2540),
        ("incident", "restart", 40, 2040),
        ("reconnect", "restored", 2040, 2540),
        ("restart", "attached", 290, 2040),
        ("restart", "spawned", 40, 290),
    ];
    assert_eq!(tree, wanted);
    assert_eq!(root.start_time_unix_nano, 1_699_999_999_960_000_000);
}

#[tokio::test]
async fn an_incident_that_ended_the_job_is_an_error_and_has_no_stage_it_never_reached() {
    let (url, mut posted) = collector(StatusCode::OK).await;
    let (traces, _) = start(&url);
    traces.status(&status(vec![incident(4, "failed")]));
    traces.flush(LONG).await;
    let (_, request) = next(&mut posted).await;
    let spans = spans_of(&request);
    let root = &roots(&request)[0];
    let said = root.status.clone().unwrap();
    assert_eq!((said.code, &*said.message), (2, "killed by signal 9"));
    let names: Vec<_> = spans.iter().map(|s| &*s.name).collect();
    assert_eq!(names, ["incident", "detect", "exited", "seen"]);
}

#[test]
fn a_trace_has_the_same_numbers_wherever_it_is_made() {
    let ids = |id, run: &str| {
        let identity = Identity {
            run: run.to_owned(),
            ..identity()
        };
        let spans = spans::spans(&incident(id, "recovered"), &identity);
        let all = spans.into_iter().map(|s| s.span_context);
        all.map(|c| (c.trace_id(), c.span_id())).collect::<Vec<_>>()
    };
    assert_eq!(ids(1, "a"), ids(1, "a"));
    assert_ne!(ids(1, "a")[0], ids(2, "a")[0]);
    assert_ne!(ids(1, "a")[0], ids(1, "b")[0]);
}

#[tokio::test]
async fn what_was_over_before_this_life_of_the_daemon_is_not_sent_again() {
    let (url, mut posted) = collector(StatusCode::OK).await;
    let metrics = Arc::new(Metrics::new("n0"));
    let traces = Traces::start(&endpoint(&url).unwrap(), identity(), metrics).unwrap();
    let before = [incident(1, "recovered"), incident(2, "recovering")];
    traces.status(&status(before.to_vec()));
    let after = [incident(1, "recovered"), incident(2, "recovered")];
    traces.status(&status(after.to_vec()));
    traces.flush(LONG).await;
    let (_, request) = next(&mut posted).await;
    let roots = roots(&request).into_iter();
    let ids: Vec<_> = roots
        .map(|s| text(&s.attributes, "robust.incident.id"))
        .collect();
    assert_eq!(ids, ["2"]);
    assert!(posted.try_recv().is_err());
}

#[tokio::test]
async fn a_collector_that_refuses_or_is_gone_is_counted_and_said_once() {
    let (url, mut posted) = collector(StatusCode::BAD_REQUEST).await;
    let (traces, metrics) = start(&url);
    traces.status(&status(vec![incident(1, "recovered")]));
    traces.flush(LONG).await;
    next(&mut posted).await;
    assert!(counted(&metrics, "\"failed\"} 1"));
    assert!(counted(&metrics, "\"sent\"} 0"));

    // Nobody listens there any more: the port was this listener's.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let (traces, metrics) = start(&gone);
    traces.status(&status(vec![incident(1, "recovered")]));
    traces.flush(LONG).await;
    assert!(counted(&metrics, "\"failed\"} 1"));
}

/// One that takes connections and never answers.
#[tokio::test]
async fn nobody_waits_for_a_collector_that_hangs_and_what_is_too_much_is_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (traces, metrics) = start(&format!("http://{}", listener.local_addr().unwrap()));
    let many = 3 * QUEUED as u64;
    let begun = std::time::Instant::now();
    traces.status(&status(
        (1..=many).map(|id| incident(id, "recovered")).collect(),
    ));
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    let text = metrics.encode().unwrap();
    let dropped = text
        .lines()
        .find_map(|l| l.strip_prefix("robust_traces_total{result=\"dropped\"} "));
    let dropped: u64 = dropped.unwrap().parse().unwrap();
    // One batch may be on its way, one in the queue.
    assert!(dropped >= many - 2 * QUEUED as u64, "{dropped}");
    traces.flush(Duration::from_millis(50)).await;
}

#[test]
fn an_address_gets_the_specifications_path_and_a_path_is_kept() {
    let cases = [
        ("http://h:4318", "http://h:4318/v1/traces"),
        ("http://h:4318/", "http://h:4318/v1/traces"),
        ("https://h/otlp/v1/traces", "https://h/otlp/v1/traces"),
    ];
    for (given, wanted) in cases {
        assert_eq!(endpoint(given).unwrap(), wanted);
    }
    for wrong in [
        "",
        "h:4318",
        "ftp://h",
        "grpc://h:4317",
        "/v1/traces",
        "http://",
    ] {
        let said = endpoint(wrong).unwrap_err().to_string();
        assert!(said.starts_with(&format!("--otlp {wrong}: not ")), "{said}");
    }
}

#[test]
fn a_setting_about_tls_that_would_not_be_read_is_refused() {
    let set = |wanted: &'static str| {
        move |variable: &str| (variable == wanted).then(|| "/nowhere.pem".into())
    };
    for variable in [
        "OTEL_EXPORTER_OTLP_CERTIFICATE",
        "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY",
    ] {
        let said = checked("https://h:4318", set(variable)).unwrap_err();
        let said = said.to_string();
        assert!(
            said.contains(variable) && said.contains("SSL_CERT_FILE"),
            "{said}"
        );
        assert!(checked("http://h:4318", set(variable)).is_ok());
    }
    assert!(checked("https://h:4318", set("OTEL_EXPORTER_OTLP_HEADERS")).is_ok());
    let said = checked("https://h:4318", set(CA_FILE))
        .unwrap_err()
        .to_string();
    assert!(
        said.starts_with("--otlp: SSL_CERT_FILE names /nowhere.pem: "),
        "{said}"
    );
}
