//! Injected faults on a running daemon: their moments, who may ask for them, and what is written down.
use super::*;
use nix::sys::signal::Signal;
use robust_identity::Person;
use robust_proto::v1::revoke_join_request::What;
use robustd::launcher::proc_stat::ProcStat;
use std::time::{SystemTime, UNIX_EPOCH};
use tonic::Code;
use tonic::transport::Channel;

fn inject(fault: &str, role: &str, at: &str) -> v1::InjectRequest {
    let (kind, rest) = fault.split_once(' ').unwrap_or((fault, ""));
    let spec = robust_shared::fault::Spec::parse(&format!("{kind} {rest}")).unwrap();
    v1::InjectRequest {
        fault: spec.kind,
        role: role.to_owned(),
        index: (!role.is_empty()).then_some(1),
        at: at.to_owned(),
        code: spec.code,
        seconds: spec.seconds,
        percent: spec.percent,
        event: spec.event.unwrap_or_default(),
        ..v1::InjectRequest::default()
    }
}

async fn audited(control: &mut ControlClient<Channel>) -> Vec<v1::AuditEntry> {
    let request = v1::AuditRequest::default();
    let mut entries = control.audit(request).await.unwrap().into_inner();
    let mut all = Vec::new();
    while let Some(entry) = entries.message().await.unwrap() {
        all.push(entry);
    }
    all
}

/// Polls until it holds; half a minute is for a loaded machine.
fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_stopped(pid: u32) -> bool {
    ProcStat::read(pid).is_ok_and(|s| s.state == 'T')
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_strikes_at_its_moment_and_waits_for_it_across_a_killed_daemon() {
    let site = Site::new(1000);
    let daemon = site.start();
    site.wait_for("first step", |s| s.step >= 1).await;
    let mut control = site.control().await;
    let request = v1::InjectRequest {
        wait: true,
        wait_timeout_ms: 60_000,
        ..inject("kill", "trainer", "update")
    };
    let struck = control.inject(request).await.unwrap().into_inner();
    assert_eq!((struck.armed, struck.at.as_str()), (Some(1), "update"));
    assert_eq!(struck.incident.unwrap().outcome, "recovered");
    // No engine of an async job is ever paused: it waits.
    let waits = control.inject(inject("kill", "rollout", "paused")).await;
    assert_eq!(waits.unwrap().into_inner().armed, Some(2));
    let refused = control.inject(inject("kill", "agent", "update")).await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    daemon.signal(Signal::SIGKILL);
    daemon.output();
    let daemon = site.start();
    let status = site
        .wait_for("the job goes on", |s| {
            s.state == "running" && !s.armed.is_empty()
        })
        .await;
    assert_eq!(
        (status.armed[0].id, status.armed[0].fault.as_str()),
        (2, "kill")
    );
    let mut control = site.control().await;
    let disarmed = control.disarm(v1::DisarmRequest { id: None }).await;
    assert_eq!(disarmed.unwrap().into_inner().disarmed.len(), 1);
    site.wait_for("nothing waits", |s| s.armed.is_empty()).await;

    let entries = audited(&mut control).await;
    let seen = |what: &str, result: &str| {
        let is = |e: &&v1::AuditEntry| e.what == what && e.result == result;
        entries.iter().filter(is).count()
    };
    assert_eq!(
        (seen("inject", "asked"), seen("inject", "done")),
        (3, 2),
        "{entries:#?}"
    );
    assert_eq!((seen("inject", "refused"), seen("disarm", "done")), (1, 1));
    let uid = nix::unistd::getuid();
    assert!(
        entries[0].who.starts_with(&format!("uid {uid}")),
        "{}",
        entries[0].who
    );
    assert!(
        entries[0].on.contains(r#""at":"update""#),
        "{}",
        entries[0].on
    );
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_protected_job_is_struck_by_who_knows_it_and_a_viewer_only_looks() {
    let site = Site::new(1000);
    let job = fs::read_to_string(site.file("job.toml")).unwrap();
    let job = job.replace("[model]", "protected = true\n[model]");
    fs::write(site.file("job.toml"), job).unwrap();
    let viewer = site.file("viewer-token");
    let viewer_flag = viewer.display().to_string();
    let flags = [
        "--listen",
        "127.0.0.1:0",
        "--viewer-token-file",
        &viewer_flag,
    ];
    let daemon = site.start_with(&flags);
    let status = site.wait_for("first step", |s| s.step >= 1).await;
    assert!(status.protected);
    let mut control = site.control().await;
    let refused = control
        .inject(inject("kill", "agent", ""))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("--i-know"), "{refused}");
    let known = v1::InjectRequest {
        i_know: true,
        wait: true,
        ..inject("kill", "agent", "")
    };
    let struck = control.inject(known.clone()).await.unwrap().into_inner();
    assert_eq!(struck.incident.unwrap().outcome, "recovered");

    let token = fs::read_to_string(&viewer).unwrap();
    let mut looks = site.control_by(&token).await.unwrap();
    looks.get_status(v1::GetStatusRequest {}).await.unwrap();
    for denied in [
        looks.inject(known).await.err(),
        looks.stop(v1::StopRequest {}).await.err(),
    ] {
        assert_eq!(denied.unwrap().code(), Code::PermissionDenied);
    }
    // Persons whose own tokens are made of these may the same, under their names.
    let operators = fs::read_to_string(site.file("state/token")).unwrap();
    for (kind, name, of_all, code) in [
        ("operator", "alice", &operators, Code::FailedPrecondition),
        ("viewer", "bob", &token, Code::PermissionDenied),
    ] {
        let person = Person::new(kind, name, 4_000_000_000).unwrap();
        let mut own = site.control_by(&person.token(of_all)).await.unwrap();
        own.get_status(v1::GetStatusRequest {}).await.unwrap();
        let denied = own.inject(inject("kill", "agent", "")).await.unwrap_err();
        assert_eq!(denied.code(), code, "{denied}");
    }
    // One that is taken back, by its id: it opens nothing any more, and another of the same holder does.
    let lost = Person::new("operator", "erin", 4_000_000_000).unwrap();
    let kept = Person::new("operator", "erin", 4_000_000_001).unwrap();
    let mut own = site.control_by(&lost.token(&operators)).await.unwrap();
    own.get_status(v1::GetStatusRequest {}).await.unwrap();
    let what = Some(What::Token(lost.id()));
    let revoke = v1::RevokeJoinRequest { what };
    control.revoke_join(revoke.clone()).await.unwrap();
    let mut again = site.control_by(&lost.token(&operators)).await.unwrap();
    for control in [&mut own, &mut again] {
        let denied = control.get_status(v1::GetStatusRequest {}).await;
        let denied = denied.unwrap_err();
        assert_eq!(denied.code(), Code::PermissionDenied, "{denied}");
        assert!(
            denied.message().contains("has expired or was revoked"),
            "{denied}"
        );
    }
    let mut own = site.control_by(&kept.token(&operators)).await.unwrap();
    own.get_status(v1::GetStatusRequest {}).await.unwrap();
    let listed = control.list_joins(v1::ListJoinsRequest {}).await.unwrap();
    assert_eq!(listed.into_inner().revoked, [lost.id()]);
    let viewers = looks.revoke_join(revoke).await.unwrap_err();
    assert_eq!(viewers.code(), Code::PermissionDenied);
    // One that ends while its connection is open: from then on nothing is answered there.
    let now_s = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let ends = Person::new("operator", "dave", now_s + 3).unwrap();
    let mut ends = site.control_by(&ends.token(&operators)).await.unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    let denied = loop {
        assert!(Instant::now() < until, "it is answered still");
        if let Err(denied) = ends.get_status(v1::GetStatusRequest {}).await {
            break denied;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(denied.code(), Code::PermissionDenied, "{denied}");
    assert!(
        denied.message().contains("has expired or was revoked"),
        "{denied}"
    );
    let over = Person::new("operator", "carol", 1_700_000_000).unwrap();
    assert!(site.control_by(&over.token(&operators)).await.is_err());
    let entries = audited(&mut control).await;
    for (who, refused) in [
        ("the viewer's token from 127.0.0.1:", 3),
        ("viewer bob from 127.0.0.1:", 1),
        ("operator alice from 127.0.0.1:", 1),
    ] {
        let by = |e: &&v1::AuditEntry| {
            e.who.starts_with(who) && !["asked", "done"].contains(&&*e.result)
        };
        assert_eq!(entries.iter().filter(by).count(), refused, "{entries:#?}");
    }
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_protected_job_whose_glass_is_to_be_broken_is_struck_by_that_token_alone_and_the_log_says_so()
 {
    let site = Site::new(1000);
    let job = fs::read_to_string(site.file("job.toml")).unwrap();
    let job = job.replace("[model]", "protected = true\n[model]");
    fs::write(site.file("job.toml"), job).unwrap();
    let glass = site.file("glass-token");
    let glass_flag = glass.display().to_string();
    let flags = [
        "--listen",
        "127.0.0.1:0",
        "--break-glass-token-file",
        &glass_flag,
    ];
    let daemon = site.start_with(&flags);
    site.wait_for("first step", |s| s.step >= 1).await;
    let known = v1::InjectRequest {
        i_know: true,
        wait: true,
        ..inject("kill", "agent", "")
    };
    // Neither the user of the daemon nor who has the operators' token.
    let operators = fs::read_to_string(site.file("state/token")).unwrap();
    let mut control = site.control().await;
    for mut operator in [control.clone(), site.control_by(&operators).await.unwrap()] {
        let denied = operator.inject(known.clone()).await.unwrap_err();
        assert_eq!(denied.code(), Code::PermissionDenied, "{denied}");
        assert!(
            denied.message().contains("--break-glass-token-file"),
            "{denied}"
        );
    }
    let token = fs::read_to_string(&glass).unwrap();
    let mut breaks = site.control_by(&token).await.unwrap();
    let slip = breaks
        .inject(inject("kill", "agent", ""))
        .await
        .unwrap_err();
    assert_eq!(slip.code(), Code::FailedPrecondition, "{slip}");
    let struck = breaks.inject(known).await.unwrap().into_inner();
    assert_eq!(struck.incident.unwrap().outcome, "recovered");
    let entries = audited(&mut control).await;
    let by_it = |e: &&v1::AuditEntry| {
        e.who.starts_with("the break-glass token from 127.0.0.1:") && e.result == "done"
    };
    assert_eq!(entries.iter().filter(by_it).count(), 1, "{entries:#?}");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_role_is_no_incident_and_runs_on_when_the_daemon_is_killed() {
    let site = Site::new(1000);
    let daemon = site.start();
    site.wait_for("first step", |s| s.step >= 1).await;
    let mut control = site.control().await;
    let slow = control.inject(inject("slow 30% 2s", "rollout", "")).await;
    let pid = slow.unwrap().into_inner().pid;
    until("it is stopped", || is_stopped(pid));
    until("it runs", || !is_stopped(pid));
    let slow = control.inject(inject("slow 10% 600s", "agent", "")).await;
    let slow = slow.unwrap().into_inner();
    until("it is stopped", || is_stopped(slow.pid));
    let status = site.wait_for("a status", |_| true).await;
    assert!(status.incidents.is_empty(), "{:#?}", status.incidents);
    daemon.signal(Signal::SIGKILL);
    daemon.output();
    // Ten times a period without being stopped.
    until("nobody stops them any more", || {
        (0..100).all(|_| {
            std::thread::sleep(Duration::from_millis(10));
            !is_stopped(pid) && !is_stopped(slow.pid)
        })
    });
    assert!(
        ProcStat::read(slow.pid).is_ok_and(|s| !s.is_dead()),
        "it lives"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_can_be_crashed_its_disk_filled_and_its_newest_checkpoint_damaged() {
    let site = Site::new(1000);
    let env = [(fake::UPDATE_MS, "200")];
    let daemon = site.start_env(&env);
    let newest = site.state().join("ckpt");
    site.wait_for("steps on disk", |s| s.step >= 3).await;
    until("a checkpoint", || {
        robust_ckpt::newest_complete(&newest).is_ok_and(|f| f.checkpoint.is_some())
    });
    let mut control = site.control().await;
    let damaged = control.inject(inject("corrupt-checkpoint", "", "")).await;
    let said = damaged.unwrap().into_inner().fault;
    let path = said.split(" of ").nth(1).unwrap().trim_end_matches(')');
    let folder = Path::new(path).parent().unwrap();
    let checkpoint = robust_ckpt::manifest::load(folder).unwrap().unwrap();
    let found = robust_ckpt::verify(&checkpoint, &mut |_| ());
    assert!(found.is_err(), "{said}");

    control
        .inject(inject("disk-full 1s", "", ""))
        .await
        .unwrap();
    let full = |s: &v1::Status| s.alarms.iter().any(|a| a.kind == "database full");
    site.wait_for("the alarm", full).await;
    let after = site.wait_for("room again", |s| !full(s)).await;
    site.wait_for("it goes on", |s| s.step > after.step + 1)
        .await;

    let wrong = control.inject(inject("leader-crash", "trainer", "")).await;
    assert_eq!(wrong.unwrap_err().code(), Code::InvalidArgument);
    let before = site.wait_for("a status", |_| true).await;
    control
        .inject(inject("leader-crash", "", ""))
        .await
        .unwrap();
    assert_eq!(daemon.output().0, -1, "it ended by a signal");
    let daemon = site.start_env(&env);
    site.wait_for("it goes on", |s| s.step > before.step + 1)
        .await;
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_of_the_test_library_shows_what_is_asked_of_it() {
    let site = Site::new(1000);
    let daemon = site.start();
    site.wait_for("first step", |s| s.step >= 1).await;
    let mut control = site.control().await;
    let real = control
        .inject(inject("hardware xid-48", "trainer", ""))
        .await;
    assert_eq!(real.unwrap_err().code(), Code::FailedPrecondition);
    daemon.signal(Signal::SIGTERM);
    daemon.output();

    let library = watched::stage(&site, "hopper_busy");
    let daemon = site.start_with(&["--nvml-lib", &library]);
    // The fault is refused while the rank that it is to strike still starts.
    let rank_runs = |r: &v1::RoleStatus| r.role == "trainer" && r.state == "running";
    site.wait_for("its ranks run", |s| {
        s.roles.iter().filter(|r| rank_runs(r)).count() == 2
    })
    .await;
    let mut control = site.control().await;
    let shown = control
        .inject(inject("hardware xid-79", "trainer", ""))
        .await;
    shown.unwrap();
    until("it is seen", || site.log().contains("Xid 79"));
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143);
}
