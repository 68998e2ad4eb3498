#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::driver::InspectError;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

fn role(role: &str, index: u32, incarnation: u64) -> v1::RoleStatus {
    v1::RoleStatus {
        role: role.to_owned(),
        index,
        incarnation,
        node: "b".to_owned(),
        phase: "update".to_owned(),
        phase_ms: 1500,
        admitted: true,
        ..v1::RoleStatus::default()
    }
}

fn status() -> v1::Status {
    v1::Status {
        roles: vec![
            role("trainer", 0, 7),
            role("rollout", 0, 8),
            role("rollout", 1, 9),
        ],
        ..v1::Status::default()
    }
}

fn request(role: &str, index: Option<u32>) -> v1::InspectRequest {
    v1::InspectRequest {
        role: role.to_owned(),
        index,
        what: String::new(),
    }
}

/// Finds one process of incarnation 7, none of 8, and says nothing of all others.
fn driver() -> Tell<OperatorEvent> {
    let (driver, mut asked) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Some(asked) = asked.recv().await {
            match asked {
                OperatorEvent::Inspect {
                    incarnation: Incarnation(7),
                    answer,
                    ..
                } => {
                    let found = v1::InspectedProcess {
                        pid: 4711,
                        ..v1::InspectedProcess::default()
                    };
                    answer.send(Ok(vec![found])).unwrap();
                }
                OperatorEvent::Inspect {
                    incarnation: Incarnation(8),
                    answer,
                    ..
                } => answer.send(Err(InspectError::Gone)).unwrap(),
                other => held.push(other),
            }
        }
    });
    Tell::into_channel(&driver)
}

#[test]
fn whom_a_request_means_is_what_the_job_has() {
    let meant = |role: &str, index| {
        let meant = whom(&status(), &request(role, index));
        meant.map(|roles| roles.iter().map(|r| r.incarnation).collect::<Vec<u64>>())
    };
    assert_eq!(meant("", None).unwrap(), [7, 8, 9]);
    assert_eq!(meant("rollout", None).unwrap(), [8, 9]);
    assert_eq!(meant("rollout", Some(1)).unwrap(), [9]);
    let refused = meant("rollout", Some(5)).unwrap_err();
    assert_eq!(
        refused.message(),
        "there is no rollout-5; the job has 2 of role rollout"
    );
    let refused = meant("agent", None).unwrap_err();
    assert_eq!(
        refused.message(),
        "there is no agent; the job has 0 of role agent"
    );
    for (role, index) in [("cook", None), ("", Some(1))] {
        let code = meant(role, index).unwrap_err().code();
        assert_eq!(code, tonic::Code::InvalidArgument);
    }
}

#[test]
fn a_viewer_looks_but_lets_no_debugger_stop_a_process() {
    let all = [
        Rights::Operator,
        Rights::BreakGlass,
        Rights::Viewer,
        Rights::Role,
        Rights::Over,
    ];
    assert_eq!(all.map(stops), [true, true, false, false, false]);
}

#[test]
fn a_way_to_look_that_nobody_knows_is_refused() {
    assert_eq!(Way::of_word("").unwrap(), Way::Look(Depth::Stacks));
    assert_eq!(Way::of_word("native").unwrap(), Way::Look(Depth::Native));
    assert_eq!(Way::of_word("probe").unwrap(), Way::Probe);
    let refused = Way::of_word("x-ray").unwrap_err();
    assert!(refused.message().contains("`x-ray`"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn each_instance_has_a_part_also_where_nothing_is_known_of_it() {
    let (to, mut parts) = channel(8);
    let way = Way::Look(Depth::Threads);
    tokio::spawn(send(driver(), way, (status().roles, Vec::new()), to));
    let mut next = async || parts.recv().await.unwrap().unwrap();
    let first = next().await;
    assert_eq!((first.role.as_str(), first.incarnation), ("trainer", 7));
    assert_eq!((first.phase.as_str(), first.phase_ms), ("update", 1500));
    assert_eq!((first.processes[0].pid, first.error.as_str()), (4711, ""));
    let second = next().await;
    assert_eq!(second.error, "its process is over, or is not started yet");
    let third = next().await;
    assert_eq!(
        third.error,
        "the daemon of node `b` did not answer within 16s"
    );
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_the_driver_does_not_answer_is_given_up() {
    let part = of_role(driver(), role("rollout", 1, 9), Way::Probe).await;
    assert_eq!(part.error, "the daemon did not ask it within 10s");
    let (gone, asked) = mpsc::unbounded_channel::<OperatorEvent>();
    drop(asked);
    let gone = Tell::into_channel(&gone);
    let part = of_role(gone, role("rollout", 1, 9), Way::Probe).await;
    assert_eq!(part.error, ENDING);
}

#[tokio::test]
async fn a_service_is_asked_at_its_port() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let service = |addr: String, state: &str| v1::ServiceStatus {
        name: "judge".to_owned(),
        state: state.to_owned(),
        addr,
        ..v1::ServiceStatus::default()
    };
    let addr = listener.local_addr().unwrap().to_string();
    let part = of_service(service(addr, "up")).await;
    assert_eq!(part.role, "judge");
    assert!(part.probes[0].ok, "{part:?}");
    let part = of_service(service("127.0.0.1:1".to_owned(), "up")).await;
    assert!(!part.probes[0].ok, "{part:?}");
    for (state, ok) in [("up", true), ("down", false)] {
        let part = of_service(service(String::new(), state)).await;
        assert_eq!(part.probes[0].ok, ok, "{part:?}");
    }
}
