//! What a scrape holds, and that it keeps to Prometheus' conventions.
#![allow(clippy::unwrap_used)]
mod conventions;
mod ops;
mod strangers;

use super::text::Form;
use super::*;
use crate::telemetry::{DeviceFinding, Devices, HostSample, Seen};
use robust_shared::hardware::{Finding, Reading};
use robust_shared::ids::Role;
use std::collections::BTreeMap;
use std::time::Duration;

fn status() -> v1::Status {
    let role = |role: &str, index, state: &str| v1::RoleStatus {
        role: role.to_owned(),
        index,
        state: state.to_owned(),
        tokens_total: 1234,
        restarts: 2,
        cpu_percent: 150.0,
        rss_bytes: 1 << 30,
        disk_read_bytes: 11,
        disk_write_bytes: 22,
        weight_version: 6,
        running: 3,
        pull_version: 6,
        pull_chunks: if role == "rollout" { 4 } else { 0 },
        pull_chunks_total: if role == "rollout" { 5 } else { 0 },
        pull_fetched: 4096,
        pull_bytes_per_s: 1.5e9,
        pull_source: if role == "rollout" { "rollout-0" } else { "" }.to_owned(),
        ..Default::default()
    };
    v1::Status {
        job: "a \"quoted\" job".to_owned(),
        mode: "async".to_owned(),
        policy: "role".to_owned(),
        state: "recovering".to_owned(),
        step: 7,
        steps_total: 40,
        weight_version: 6,
        reward: 0.25,
        ettr_sliding: 0.5,
        ettr: 0.75,
        goodput: 0.625,
        roles: vec![
            role("trainer", 0, "recovering"),
            role("rollout", 1, "running"),
        ],
        ..Default::default()
    }
}

fn incident(id: u64, outcome: &str) -> v1::Incident {
    let done = outcome == "recovered";
    v1::Incident {
        id,
        role: "trainer".to_owned(),
        rule: "exit".to_owned(),
        plan: "restart the trainer gang from step 7 and train step 8".to_owned(),
        outcome: outcome.to_owned(),
        detect_ms: 40.0,
        restart_ms: if done { 2000.0 } else { 0.0 },
        reconnect_ms: if done { 500.0 } else { 0.0 },
        total_ms: if done { 2540.0 } else { 0.0 },
        ..Default::default()
    }
}

/// A status in which every figure is there.
fn everything() -> v1::Status {
    let agent = v1::RoleStatus {
        role: "agent".to_owned(),
        tool_failures: 5,
        ..Default::default()
    };
    let node = |name: &str, state: &str, cordoned| v1::NodeStatus {
        name: name.to_owned(),
        state: state.to_owned(),
        cordoned,
        faults: 3,
        lost: vec![v1::Slot::default()],
        ..Default::default()
    };
    v1::Status {
        last_step: Some(v1::StepLine {
            step: 7,
            clip_fraction: Some(0.25),
            entropy: Some(1.5),
            kl: Some(0.125),
            groups: Some(4),
            flat_groups: Some(1),
            mean_length: Some(31.5),
            longest: Some(64),
            ..Default::default()
        }),
        replicas: Some(v1::ReplicaStatus {
            state: "safe".to_owned(),
            ..Default::default()
        }),
        remote: Some(v1::RemoteStatus {
            url: "s3://b/p".to_owned(),
            step: Some(6),
            sent_bytes: 7,
            skipped: 8,
            failed: 9,
            ..Default::default()
        }),
        alarms: vec![v1::Alarm {
            kind: "database full".to_owned(),
            ..Default::default()
        }],
        nodes: vec![node("a", "here", false), node("b", "lost", true)],
        services: vec![v1::ServiceStatus {
            name: "judge".to_owned(),
            state: "up".to_owned(),
            restarts: 2,
            ..Default::default()
        }],
        controllers: Some(v1::Controllers {
            leader: "a".to_owned(),
            epoch: 7,
            followers: vec![v1::Follower {
                name: "b".to_owned(),
                state: "follows".to_owned(),
                behind: 2,
                ..Default::default()
            }],
            takeover: Some(v1::Takeover {
                from: "c".to_owned(),
                stages: vec![v1::Stage {
                    name: "silence".to_owned(),
                    ms: 702.0,
                }],
                ..Default::default()
            }),
            ..Default::default()
        }),
        incidents: vec![incident(1, "recovered"), incident(2, "recovering")],
        roles: [status().roles, vec![agent]].concat(),
        ..status()
    }
}

/// A controller that follows, with every figure.
fn following() -> FollowerMetrics {
    FollowerMetrics::new(|| Follower {
        name: "b".to_owned(),
        leader: Some(Followed {
            name: "a".to_owned(),
            epoch: 7,
            since: 1_700_000_000.5,
            silent: Duration::from_millis(250),
        }),
        group: 40,
        behind: 2,
        may_lead: true,
        lacks_bytes: 0,
    })
}

#[test]
fn a_controller_that_follows_shows_itself_and_nothing_of_the_job() {
    let values = series(&following().encode().unwrap());
    let expected = [
        (r#"robust_candidate_leads{name="b"}"#, 0.0),
        (r#"robust_candidate_group{name="b"}"#, 40.0),
        (r#"robust_candidate_behind_groups{name="b"}"#, 2.0),
        (r#"robust_candidate_may_lead{name="b"}"#, 1.0),
        (r#"robust_candidate_lacks_bytes{name="b"}"#, 0.0),
        (r#"robust_candidate_epoch{name="b",leader="a"}"#, 7.0),
        (
            r#"robust_candidate_leader_seen_time_seconds{name="b",leader="a"}"#,
            1_700_000_000.5,
        ),
        (
            r#"robust_candidate_leader_silent_seconds{name="b",leader="a"}"#,
            0.25,
        ),
    ];
    for (name, value) in expected {
        assert_eq!(values.get(name), Some(&value), "{name}: {values:?}");
    }
    let ours = values.keys().filter(|name| name.starts_with("robust_"));
    assert_eq!(ours.count(), expected.len(), "{values:?}");
    let alone = FollowerMetrics::new(Follower::default).encode().unwrap();
    assert!(!alone.contains("candidate_epoch"), "{alone}");
}

fn full() -> Metrics {
    let metrics = Metrics::new("n0");
    metrics.traces();
    metrics.webhook();
    metrics.status(&Arc::new(status()));
    let reading = Reading {
        index: 3,
        tensor_percent: Some(44.25),
        util_percent: Some(98.0),
        memory_used_bytes: Some(1),
        memory_total_bytes: Some(2),
        temperature_c: Some(58),
        power_w: Some(612.0),
        ecc_corrected: Some(5),
        nvlink_replays: Some(9),
        pcie_replays: Some(4),
        remapped_rows: Some(1),
        remap_pending: Some(true),
        ..Reading::default()
    };
    let seen = Seen {
        reading,
        age: Duration::ZERO,
        pids: vec![],
        busy: None,
    };
    let found = DeviceFinding {
        device: 3,
        finding: Finding::xid(79),
        pids: Vec::new(),
        users: Vec::new(),
    };
    metrics.samples(&Samples {
        processes: vec![],
        devices: Devices {
            seen: vec![seen],
            findings: vec![found],
            stuck: None,
        },
        host: Some(HostSample {
            disk_free_bytes: 77,
            load_1m: 1.5,
            ..HostSample::default()
        }),
    });
    let (role, index) = (Role::Rollout, 1);
    metrics.pulled(InstanceId { role, index }, 4096);
    metrics
}

/// Values by series, with the labels sorted.
fn series(text: &str) -> BTreeMap<String, f64> {
    let line = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    text.lines()
        .filter(|l| !l.starts_with('#'))
        .map(line)
        .collect()
}

#[test]
fn copies_elsewhere_show_where_there_are_any() {
    let metrics = Metrics::new("a");
    metrics.status(&Arc::new(status()));
    let text = metrics.encode().unwrap();
    assert!(
        !text.contains("remote_") && !text.contains("snapshot_replicated"),
        "{text}"
    );
    metrics.status(&Arc::new(everything()));
    let text = metrics.encode().unwrap();
    for line in [
        "robust_snapshot_replicated 1",
        "robust_remote_checkpoint_step 6",
        "robust_remote_sent_bytes_total{url=\"s3://b/p\"} 7",
        "robust_remote_checkpoints_skipped_total{url=\"s3://b/p\"} 8",
        "robust_remote_upload_failures_total{url=\"s3://b/p\"} 9",
        "robust_nodes{state=\"lost\"} 1",
        "robust_nodes{state=\"left\"} 0",
        "robust_nodes_cordoned 1",
        "robust_node_faults{node=\"b\"} 3",
        "robust_slots_unavailable{cause=\"lost\"} 2",
        "robust_alarm{kind=\"database full\"} 1",
        "robust_incidents_open 1",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn a_scrape_says_what_the_status_says() {
    let text = full().encode().unwrap();
    let values = series(&text);
    let expected = [
        ("robust_step", 7.0),
        ("robust_weight_version", 6.0),
        ("robust_reward", 0.25),
        (
            r#"robust_ettr_ratio{mode="async",policy="role",window="sliding"}"#,
            0.5,
        ),
        (
            r#"robust_ettr_ratio{mode="async",policy="role",window="total"}"#,
            0.75,
        ),
        (r#"robust_goodput_ratio{mode="async",policy="role"}"#, 0.625),
        (r#"robust_job_state{state="recovering"}"#, 1.0),
        (r#"robust_job_state{state="running"}"#, 0.0),
        (r#"robust_instance_up{role="trainer",index="0"}"#, 0.0),
        (r#"robust_instance_up{role="rollout",index="1"}"#, 1.0),
        (
            r#"robust_instance_restarts_total{role="rollout",index="1"}"#,
            2.0,
        ),
        (r#"robust_tokens_total{role="rollout",index="1"}"#, 1234.0),
        (
            r#"robust_pull_bytes_total{role="rollout",index="1"}"#,
            4096.0,
        ),
        (r#"robust_pull_chunks{role="rollout",index="1"}"#, 4.0),
        (r#"robust_pull_size_chunks{role="rollout",index="1"}"#, 5.0),
        (r#"robust_pull_rate_bytes{role="rollout",index="1"}"#, 1.5e9),
        (
            r#"robust_pull_source{role="rollout",index="1",source="rollout-0"}"#,
            1.0,
        ),
        (
            r#"robust_instance_cpu_cores{role="rollout",index="1"}"#,
            1.5,
        ),
        (
            r#"robust_instance_disk_written_bytes_total{role="trainer",index="0"}"#,
            22.0,
        ),
        (
            r#"robust_device_busy_ratio{node="n0",device="3",unit="tensor"}"#,
            0.4425,
        ),
        (
            r#"robust_device_temperature_celsius{node="n0",device="3"}"#,
            58.0,
        ),
        (
            r#"robust_device_memory_errors_total{node="n0",device="3",kind="corrected"}"#,
            5.0,
        ),
        (
            r#"robust_device_link_replays_total{node="n0",device="3",link="nvlink"}"#,
            9.0,
        ),
        (r#"robust_device_remap_pending{node="n0",device="3"}"#, 1.0),
        (
            r#"robust_hardware_findings_total{device="3",kind="xid_79",advice="fault"}"#,
            1.0,
        ),
        (r#"robust_node_disk_free_bytes{node="n0"}"#, 77.0),
        ("robust_driver_stuck", 0.0),
    ];
    for (name, value) in expected {
        assert_eq!(values.get(name), Some(&value), "{name} in\n{text}");
    }
    let of_trainer = r#"robust_tokens_total{role="trainer",index="0"}"#;
    assert_eq!(values.get(of_trainer), None, "a trainer generates nothing");
    let of_trainer = r#"robust_pull_chunks{role="trainer",index="0"}"#;
    assert_eq!(values.get(of_trainer), None, "a trainer pulls nothing");
    assert!(text.contains(r#"name="a \"quoted\" job""#), "{text}");
}

#[test]
fn an_incident_is_counted_once_and_its_stages_when_it_is_over() {
    let metrics = Metrics::new("n0");
    let see = |incidents: Vec<v1::Incident>| {
        metrics.status(&Arc::new(v1::Status {
            incidents,
            ..status()
        }));
        series(&metrics.encode().unwrap())
    };
    let count = r#"robust_incidents_total{role="trainer",rule="exit",plan="gang"}"#;
    let stage = |of| format!("robust_incident_seconds_count{{stage=\"{of}\"}}");
    for _ in 0..3 {
        let values = see(vec![incident(1, "recovering")]);
        assert_eq!(values[count], 1.0);
        assert_eq!(values[&stage("detect")], 1.0);
        assert_eq!(values[&stage("restart")], 0.0);
    }
    for _ in 0..3 {
        let values = see(vec![incident(1, "recovered"), incident(2, "failed")]);
        assert_eq!(values[count], 2.0);
        assert_eq!(values[&stage("detect")], 2.0);
        assert_eq!(values[&stage("restart")], 1.0, "the second never came back");
        assert_eq!(
            values[r#"robust_incident_seconds_sum{stage="reconnect"}"#],
            0.5
        );
        assert_eq!(
            values[r#"robust_incident_seconds_bucket{le="2.5",stage="restart"}"#],
            1.0
        );
        assert_eq!(
            values[r#"robust_incident_seconds_bucket{le="1.0",stage="restart"}"#],
            0.0
        );
    }
    // The status forgets old incidents; the counter does not.
    assert_eq!(see(vec![incident(3, "recovered")])[count], 3.0);
}

/// What is the same at every scrape: not the process's own figures.
fn steady(text: &str) -> Vec<&str> {
    let lines = text.lines();
    lines.filter(|l| !l.starts_with("process_")).collect()
}

fn body(reply: &str) -> Vec<&str> {
    steady(reply.split_once("\r\n\r\n").unwrap().1)
}

#[tokio::test]
async fn a_scrape_over_http_is_the_text_with_its_type() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let metrics = Arc::new(full());
    let server = tokio::spawn(serve(
        listener,
        robust_http::Wire::Plain,
        None,
        Arc::new({
            let metrics = Arc::clone(&metrics);
            move || metrics.encode()
        }),
    ));
    let get = async |path: &str, accept: &str| {
        let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\naccept: {accept}");
        let request = format!("{head}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        reply
    };
    let reply = get("/metrics", "application/openmetrics-text; version=1.0.0").await;
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    assert!(reply.contains("content-type: application/openmetrics-text; version=1.0.0"));
    assert_eq!(body(&reply), steady(&metrics.encode().unwrap()));
    let reply = get("/metrics", "*/*").await;
    assert!(
        reply.contains("content-type: text/plain; version=0.0.4"),
        "{reply}"
    );
    let classic = Form::Classic.write(metrics.encode().unwrap());
    assert_eq!(body(&reply), steady(&classic));
    assert!(get("/", "*/*").await.starts_with("HTTP/1.1 404 "));
    server.abort();
}
