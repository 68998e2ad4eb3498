//! What an operator asks of a job that runs on real processes: pause, resume, restart, logs.
use crate::cluster::{Cluster, on};
use robust_proto::v1;
use robust_proto::v1::control_client::ControlClient;
use std::time::Duration;
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use tonic::{Code, Status};

const PATIENCE: Duration = Duration::from_secs(60);

fn is_paused(s: &v1::Status) -> bool {
    s.state == "paused" && s.pause.as_ref().is_some_and(|p| p.state == "paused")
}

async fn control(cluster: &Cluster) -> ControlClient<Channel> {
    cluster.control().await.expect("the leader answers")
}

#[tokio::test]
async fn a_question_of_more_than_its_bound_is_refused() {
    let mut cluster = Cluster::new(1000);
    cluster.lead();
    cluster.wait_for("the leader", |_| true).await;
    let long = v1::LogsRequest {
        role: "x".repeat((1 << 20) + 1),
        ..Default::default()
    };
    let refused = control(&cluster).await.logs(long).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    let mut control = control(&cluster).await;
    let status = control.get_status(v1::GetStatusRequest {}).await;
    status.expect("others are answered as before");
}

async fn restart(cluster: &Cluster, role: &str, index: Option<u32>) -> Result<String, Status> {
    let role = role.to_owned();
    let request = v1::RestartRequest { role, index };
    let reply = control(cluster).await.restart(request).await?;
    Ok(reply.into_inner().what)
}

fn lives(s: &v1::Status) -> Vec<u64> {
    s.roles.iter().map(|r| r.incarnation).collect()
}

fn all_run(s: &v1::Status) -> bool {
    s.roles.iter().all(|r| r.state == "running" && r.pid > 0)
}

#[tokio::test]
async fn a_pause_holds_over_the_leaders_death_and_a_fault_until_it_is_resumed() {
    let mut cluster = Cluster::new(1000);
    cluster.lead();
    cluster.join("b");
    cluster.join("c");
    cluster.wait_for("steps", |s| s.step >= 2).await;
    let reply = control(&cluster).await.pause(v1::PauseRequest {}).await;
    let pause = reply.unwrap().into_inner().pause.unwrap();
    let paused = cluster.wait_for("the pause", is_paused).await;
    assert_eq!(paused.step, pause.after_step, "{paused:#?}");
    let twice = control(&cluster).await.pause(v1::PauseRequest {}).await;
    assert_eq!(twice.unwrap_err().code(), Code::FailedPrecondition);
    cluster.kill("a");
    cluster.lead();
    let back = |s: &v1::Status| is_paused(s) && all_run(s);
    let again = cluster.wait_for("the pause, still", back).await;
    assert_eq!((again.step, lives(&again)), (paused.step, lives(&paused)));
    // A process that dies meanwhile has its successor, and nothing goes on.
    let request = v1::InjectRequest {
        fault: "kill".to_owned(),
        role: "rollout".to_owned(),
        index: Some(1),
        wait: true,
        ..Default::default()
    };
    let struck = control(&cluster).await.inject(request).await.unwrap();
    let incident = struck.into_inner().incident.unwrap();
    assert_eq!(incident.outcome, "recovered", "{incident:?}");
    let still = cluster.wait_for("the pause, after a fault", back).await;
    assert_eq!(still.step, paused.step);
    let resumed = control(&cluster).await.resume(v1::ResumeRequest {}).await;
    assert_eq!(resumed.unwrap().into_inner().pause, None);
    let more = paused.step + 3;
    let goes_on = |s: &v1::Status| s.step >= more && s.state == "running";
    let after = cluster.wait_for("more steps", goes_on).await;
    assert_eq!((after.pause, after.incidents.len()), (None, 1));
}

#[tokio::test]
async fn processes_are_replaced_on_request_and_it_is_no_fault() {
    let mut cluster = Cluster::new(1000);
    cluster.lead();
    cluster.join("b");
    cluster.join("c");
    let before = cluster
        .wait_for("steps", |s| s.step >= 2 && all_run(s))
        .await;
    assert_eq!(
        restart(&cluster, "rollout", Some(1)).await.unwrap(),
        "rollout-1"
    );
    let of = |s: &v1::Status, role: &str, index: u32| {
        let found = s.roles.iter().find(|r| r.role == role && r.index == index);
        found.cloned().unwrap()
    };
    let old = of(&before, "rollout", 1).incarnation;
    let replaced = |s: &v1::Status| of(s, "rollout", 1).incarnation > old && all_run(s);
    let one = cluster.wait_for("a new rollout-1", replaced).await;
    let changed = lives(&one)
        .iter()
        .zip(lives(&before))
        .filter(|(a, b)| *a != b)
        .count();
    let role = of(&one, "rollout", 1);
    assert_eq!(
        (changed, role.restarts, role.restarts_planned),
        (1, 0, 1),
        "{one:#?}"
    );
    assert_eq!(role.restarted[0].why, "an operator asked for it");
    let (spans, step) = (phases(&cluster, "rollout", 1).await, one.step);
    assert_eq!(spans[0].incarnation, old, "its life before is known, too");
    let now = spans.last().unwrap();
    assert_eq!((now.present, now.incarnation), (true, role.incarnation));
    for two in spans
        .windows(2)
        .filter(|s| s[0].incarnation == s[1].incarnation)
    {
        let end = two[0].started_ms + two[0].ms;
        assert!(two[1].started_ms.abs_diff(end) <= 2, "{two:?}");
    }
    assert_eq!(restart(&cluster, "task", None).await.unwrap(), "everything");
    let all_new = |s: &v1::Status| {
        let new = lives(s).iter().zip(lives(&one)).all(|(a, b)| *a > b);
        new && all_run(s) && s.step > step + 2
    };
    let after = cluster.wait_for("a new life of everybody", all_new).await;
    assert_eq!(
        (after.incidents.len(), after.steps_repeated),
        (0, 0),
        "{after:#?}"
    );
    let none = restart(&cluster, "rollout", Some(9)).await.unwrap_err();
    assert_eq!(none.code(), Code::InvalidArgument, "{none}");
    let index = restart(&cluster, "task", Some(1)).await.unwrap_err();
    assert_eq!(index.code(), Code::InvalidArgument, "{index}");
}

/// Of one instance, oldest first.
async fn phases(cluster: &Cluster, role: &str, index: u32) -> Vec<v1::PhaseSpan> {
    let request = v1::PhasesRequest {
        role: role.to_owned(),
        index: Some(index),
        ..Default::default()
    };
    let parts = control(cluster).await.phases(request).await.unwrap();
    let mut parts = parts.into_inner();
    let mut spans = Vec::new();
    while let Some(part) = parts.message().await.unwrap() {
        spans.extend(part.spans);
    }
    spans
}

async fn whole(cluster: &Cluster, request: v1::LogsRequest) -> Result<(String, String), Status> {
    let mut parts = control(cluster).await.logs(request).await?.into_inner();
    let (mut text, mut node) = (Vec::new(), String::new());
    while let Some(part) = parts.next().await {
        let part = part?;
        assert_eq!(part.offset, text.len() as u64);
        text.extend(part.data);
        node = part.node;
    }
    Ok((String::from_utf8_lossy(&text).into_owned(), node))
}

#[tokio::test]
async fn logs_are_read_through_the_leader_from_whichever_node_has_them() {
    let mut cluster = Cluster::new(1000);
    cluster.lead();
    cluster.join("b");
    cluster.join("c");
    let placed = |s: &v1::Status| s.step >= 1 && all_run(s);
    let status = cluster.wait_for("steps", placed).await;
    let request = |role: &str, index| v1::LogsRequest {
        role: role.to_owned(),
        index,
        ..Default::default()
    };
    for node in ["a", "b", "c"] {
        let who = on(&status, node)[0].clone();
        let (role, index) = who.rsplit_once('-').unwrap();
        let request = request(role, index.parse().unwrap());
        let (text, from) = whole(&cluster, request).await.unwrap();
        // What the test harness that plays the role says first.
        assert!(text.contains("running 1 test"), "{who}: {text:?}");
        assert_eq!(from, node, "{who}");
    }
    let unknown = whole(&cluster, request("agent", 9)).await.unwrap_err();
    assert_eq!(unknown.code(), Code::InvalidArgument, "{unknown}");
    // One that is followed goes on with the next life of the place.
    let rollout = on(&status, "c")[0].clone();
    let index: u32 = rollout.rsplit_once('-').unwrap().1.parse().unwrap();
    let follow = v1::LogsRequest {
        follow: true,
        ..request("rollout", index)
    };
    let mut parts = control(&cluster)
        .await
        .logs(follow)
        .await
        .unwrap()
        .into_inner();
    restart(&cluster, "rollout", Some(index)).await.unwrap();
    let mut text = String::new();
    while text.matches("running 1 test").count() < 2 {
        let next = tokio::time::timeout(PATIENCE, parts.next()).await;
        let part = next.expect("more comes").unwrap().unwrap();
        text += &String::from_utf8_lossy(&part.data);
    }
    // A node that is away is named.
    drop(parts);
    cluster.kill("c");
    let away = tokio::time::timeout(PATIENCE, async {
        loop {
            match whole(&cluster, request("rollout", index)).await {
                Err(status) if status.message().contains("`c`") => return status,
                // Its stream is not known to be broken yet, or its rollout has another home by now.
                Ok((_, node)) if node != "c" => return Status::ok("moved"),
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    let away = away.await.expect("a refusal");
    let moved = away.code() == Code::Ok;
    assert!(moved || away.code() == Code::FailedPrecondition, "{away}");
}
