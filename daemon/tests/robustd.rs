//! The daemon as a program, with fake role processes: order of beginning and end, recovery, and
//! every refusal with its exit code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod afflict;
mod collector;
mod crash;
mod fake;
mod full;
mod hook;
mod hooked;
mod hung;
mod lost;
mod manual;
mod routed;
mod services;
mod site;
mod stalled;
mod traced;
mod trust;
mod watched;

use robust_proto::v1;
use robust_proto::v1::control_client::ControlClient;
use site::{Daemon, Site, assert_ended_cleanly, said, steps_printed};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tonic::transport::Endpoint;

/// Not a test: what the script that stands for `robust-worker` runs.
#[test]
#[ignore = "runs as a role process only"]
fn fake_role() {
    if let Ok(args) = std::env::var("FAKE_ROLE") {
        fake::run(&args);
    }
}

#[test]
fn a_job_runs_to_its_end_and_a_second_start_says_that_it_is_done() {
    let site = Site::new(3);
    let output = site.run(&[]);
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(steps_printed(&out), [1, 2, 3]);
    assert!(
        out.contains("mean reward: 0.500 over the first 3 steps"),
        "{out}"
    );
    assert!(
        out.contains("12 trajectories consumed") && out.contains("no incidents"),
        "{out}"
    );
    assert!(
        site.state().join("ckpt/step-3/manifest.json").exists(),
        "the end is on disk"
    );
    assert_ended_cleanly(&site);

    let again = site.run(&[]);
    assert_eq!(again.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&again.stdout).contains("was completed before"));
    let anew = site.run(&["--fresh"]);
    assert_eq!(anew.status.code(), Some(0), "{}", said(&anew));
    assert_eq!(
        steps_printed(&String::from_utf8_lossy(&anew.stdout)),
        [1, 2, 3]
    );
    assert_ended_cleanly(&site);
}

#[tokio::test]
async fn each_role_that_is_killed_comes_back_and_the_incident_is_timed() {
    let site = Site::new(40);
    let daemon = site.start();
    site.wait_for("first step", |s| s.step >= 1).await;
    let mut control = site.control().await;
    for role in ["trainer", "rollout", "agent"] {
        let request = v1::InjectRequest {
            fault: "kill".into(),
            role: role.into(),
            index: Some(1),
            wait: true,
            wait_timeout_ms: 20_000,
            ..Default::default()
        };
        let struck = control
            .inject(request.clone())
            .await
            .unwrap_or_else(|e| panic!("{e}: {}", site.log()));
        let struck = struck.into_inner();
        let incident = struck.incident.unwrap();
        assert_eq!((struck.role.as_str(), struck.index), (role, 1));
        assert_eq!(
            (incident.rule.as_str(), incident.outcome.as_str()),
            ("exit", "recovered")
        );
        let stages: Vec<_> = incident.stages.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(stages[..2], ["exited", "seen"], "{incident:?}");
        let parts = incident.stages[0].ms + incident.stages[1].ms;
        assert!((incident.detect_ms - parts).abs() < 0.01, "{incident:?}");
        assert!(incident.detect_ms < 1000.0, "{incident:?}");
        assert!(incident.total_ms > 0.0, "{incident:?}");
        let late = v1::InjectRequest {
            incarnation: Some(struck.incarnation),
            ..request
        };
        let refusal = control.inject(late).await.unwrap_err();
        assert_eq!(refusal.code(), tonic::Code::FailedPrecondition);
        let said = refusal.message();
        assert!(said.contains("was restarted since you looked"), "{said}");
    }
    let (code, out) = daemon.output();
    assert_eq!(code, 0, "{}", site.log());
    assert_eq!(steps_printed(&out), (1..=40).collect::<Vec<_>>());
    assert_ended_cleanly(&site);
}

#[tokio::test]
async fn a_killed_daemon_takes_its_living_roles_over_and_goes_on() {
    let site = Site::new(12);
    let daemon = site.start();
    let before = site.wait_for("second step", |s| s.step >= 2).await;
    daemon.signal(nix::sys::signal::Signal::SIGKILL);
    drop(daemon);
    assert_eq!(site.roles().len(), 7, "roles outlive their daemon");
    let daemon = site.start();
    let after = site
        .wait_for("another step", |s| s.step > before.step + 1)
        .await;
    let pids = |s: &v1::Status| {
        s.roles
            .iter()
            .map(|r| (r.incarnation, r.pid))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        pids(&before),
        pids(&after),
        "the very same processes: {}",
        site.log()
    );
    let (code, out) = daemon.output();
    assert_eq!(code, 0, "{}", site.log());
    assert_eq!(steps_printed(&out).last(), Some(&12));
    assert!(out.contains("no incidents"), "{out}");
    assert_ended_cleanly(&site);
}

#[tokio::test]
async fn a_role_that_died_with_its_daemon_is_started_again() {
    let site = Site::new(10);
    let daemon = site.start();
    let before = site.wait_for("second step", |s| s.step >= 2).await;
    daemon.signal(nix::sys::signal::Signal::SIGKILL);
    drop(daemon);
    let trainer = before.roles.iter().find(|r| r.role == "trainer").unwrap();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(trainer.pid).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    let (code, out) = site.start().output();
    assert_eq!(code, 0, "{}", site.log());
    assert_eq!(steps_printed(&out).last(), Some(&10));
    assert!(out.contains("trainer-0"), "the incident is reported: {out}");
    assert_ended_cleanly(&site);
}

#[tokio::test]
async fn a_job_that_was_stopped_leaves_nothing_behind_and_goes_on_when_started_again() {
    use nix::sys::signal::Signal;
    for (signal, code) in [
        (Some(Signal::SIGTERM), 143),
        (Some(Signal::SIGINT), 130),
        (None, 1),
    ] {
        let site = Site::new(1000);
        let daemon = site.start();
        site.wait_for("first step", |s| s.step >= 1).await;
        match signal {
            Some(signal) => daemon.signal(signal),
            None => drop(site.control().await.stop(v1::StopRequest {}).await.unwrap()),
        }
        let (ended, out) = daemon.output();
        assert_eq!(ended, code, "{}", site.log());
        assert!(out.contains("job fake stopped after"), "{out}");
        assert_ended_cleanly(&site);
        let last = *steps_printed(&out).last().unwrap();
        let daemon = site.start();
        site.wait_for("next step", |s| s.step > last).await;
        let restored =
            format!("is at step {last}: from own disk; passed over: own memory at step {last}: ");
        assert!(site.log().contains(&restored), "{}", site.log());
        daemon.signal(Signal::SIGTERM);
        let (ended, out) = daemon.output();
        assert_eq!(ended, 143, "{}", site.log());
        assert_eq!(
            steps_printed(&out).first(),
            Some(&(last + 1)),
            "no step twice, none left out"
        );
        assert_ended_cleanly(&site);
    }
}

#[tokio::test]
async fn a_second_interrupt_kills_roles_at_once_and_the_end_stays_in_order() {
    use nix::sys::signal::{Signal, kill};
    let site = Site::new(1000);
    let daemon = site.start();
    site.wait_for("first step", |s| s.step >= 1).await;
    // Stopped, they would use up all the time they are given to end by themselves.
    for pid in site.roles() {
        kill(nix::unistd::Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
    }
    daemon.signal(Signal::SIGINT);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !site.log().contains("roles are ended in order") {
        assert!(Instant::now() < deadline, "{}", site.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    daemon.signal(Signal::SIGINT);
    let (ended, out) = daemon.output();
    assert_eq!(ended, 130, "{}", site.log());
    assert!(
        site.log().contains("roles are killed at once"),
        "{}",
        site.log()
    );
    assert!(out.contains("job fake stopped after"), "{out}");
    assert_ended_cleanly(&site);
}

#[tokio::test]
async fn a_state_directory_has_one_daemon_and_one_job() {
    let site = Site::new(1000);
    let daemon = site.start();
    site.wait_for("first step", |s| s.step >= 1).await;
    let second = site.run(&[]);
    assert_eq!(second.status.code(), Some(3), "{}", said(&second));
    assert!(
        said(&second).contains(&format!("pid {}", daemon.child.id())),
        "{}",
        said(&second)
    );
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    daemon.output();
    site.write_job(7);
    let other = site.run(&[]);
    assert_eq!(other.status.code(), Some(3), "{}", said(&other));
    assert!(said(&other).contains("another job"), "{}", said(&other));
}

#[tokio::test]
async fn bad_requests_are_refused_with_their_reason() {
    let site = Site::new(1000);
    let daemon = site.start();
    site.wait_for("first step", |s| s.step >= 1).await;
    let mut control = site.control().await;
    for (fault, role, index, what) in [
        ("burn", "trainer", None, "unknown fault `burn`"),
        ("kill", "king", None, "unknown role `king`"),
        (
            "kill",
            "trainer",
            Some(9),
            "there is no trainer 9; the job has 2",
        ),
    ] {
        let (fault, role) = (fault.into(), role.into());
        let request = v1::InjectRequest {
            fault,
            role,
            index,
            ..Default::default()
        };
        let refusal = control.inject(request).await.unwrap_err();
        assert_eq!(refusal.code(), tonic::Code::InvalidArgument);
        assert!(refusal.message().contains(what), "{refusal}");
    }
    let mut stranger = fake::connect(site.state().join("roles.sock"))
        .await
        .unwrap();
    // As a process that it is not; as itself, which was started for no incarnation.
    for (pid, code) in [
        (1, tonic::Code::PermissionDenied),
        (std::process::id(), tonic::Code::FailedPrecondition),
    ] {
        let hello = v1::Hello {
            incarnation: 1,
            pid,
            ..Default::default()
        };
        let message = v1::RoleMessage {
            body: Some(v1::role_message::Body::Hello(hello)),
        };
        let refusal = stranger
            .attach(tokio_stream::iter([message]))
            .await
            .unwrap_err();
        assert_eq!(refusal.code(), code, "{refusal}");
    }
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143);
}

#[tokio::test]
async fn over_tcp_only_the_tokens_holder_is_answered_and_the_report_outlives_the_job() {
    let site = Site::new(2);
    let daemon = site.start_with(&["--listen", "127.0.0.1:0", "--linger", "60"]);
    site.wait_for("end of the job", |s| s.state == "completed")
        .await;
    // As tools of earlier builds did: nobody answers, and what they show is not looked at.
    let token = fs::read_to_string(site.state().join("token")).unwrap();
    let plain = Endpoint::from_shared(format!("http://{}", site.listens_at())).unwrap();
    if let Ok(channel) = plain.connect().await {
        let mut request = tonic::Request::new(v1::GetReportRequest {});
        let bearer = format!("Bearer {}", token.trim()).parse().unwrap();
        request.metadata_mut().insert("authorization", bearer);
        let answer = ControlClient::new(channel).get_report(request).await;
        answer.unwrap_err();
    }
    let guess = "0".repeat(64);
    site.control_by(&guess).await.unwrap_err();
    let mut control = site.control_by(&token).await.unwrap();
    let report = control.get_report(v1::GetReportRequest {}).await;
    let report = report.unwrap().into_inner();
    assert_eq!(
        (report.steps, report.trajectories, report.state.as_str()),
        (2, 8, "completed")
    );
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(daemon.output().0, 0, "the job had completed");
}

fn refuse(site: &Site, more: &[&str], code: i32, what: &str) {
    let output = site.run(more);
    assert_eq!(output.status.code(), Some(code), "{}", said(&output));
    assert!(said(&output).contains(what), "{what}: {}", said(&output));
    assert_eq!(site.roles(), [] as [i32; 0]);
}

#[test]
fn bad_input_gives_one_clear_error_and_its_exit_code() {
    let site = Site::new(3);
    refuse(
        &site,
        &["--router", "localhost:1"],
        5,
        "not an ip:port address",
    );
    refuse(&site, &["--listen", "7070"], 5, "--listen 7070");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    refuse(&site, &["--listen", &addr], 5, "in use");
    refuse(&site, &["--metrics", "9090"], 5, "--metrics");
    refuse(&site, &["--metrics", &addr], 5, "in use");
    refuse(&site, &["--worker", "/nonexistent"], 6, "/nonexistent");
    fs::write(
        site.file("data.jsonl"),
        "{\"prompt\":\"1\",\"answer\":\"1\"}\n{\"x\":1}\n",
    )
    .unwrap();
    refuse(&site, &[], 2, "data.jsonl:2: ");
    fs::remove_file(site.file("data.jsonl")).unwrap();
    refuse(&site, &[], 6, "data.prompts");
    fs::write(site.file("job.toml"), "[job]\nnmae = \"x\"\n").unwrap();
    refuse(&site, &[], 2, "job.toml:2");
    fs::remove_file(site.file("job.toml")).unwrap();
    refuse(&site, &[], 2, "job.toml");
    assert!(
        !Path::new(&site.state().join("job.json")).exists(),
        "nothing was half-started"
    );
}
