//! Pause, resume, restart, roles and logs.
use super::fake::{Book, Server};
use super::{daemon, err, out, robustctl, run, status};
use robust_proto::v1;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

fn book() -> Book {
    let logs = [
        ("rollout-0", "one\ntwo warn\n"),
        ("rollout-1", "three\nfour warn"),
    ];
    let role = |index| v1::RoleStatus {
        role: "rollout".into(),
        index,
        pid: 50 + index,
        incarnation: 7,
        state: "running".into(),
        phase: "generating".into(),
        ..Default::default()
    };
    let mut status = status();
    status.roles.extend([role(0), role(1)]);
    status.roles[1].restarts_planned = 2;
    status.roles[1].restarted = vec![v1::Restarted {
        at_ms: 2_000,
        why: "an operator asked for it".into(),
        incident: 0,
    }];
    let span = |phase: &str, started_ms, ms, present| v1::PhaseSpan {
        role: "rollout".into(),
        phase: phase.into(),
        started_ms,
        ms,
        step: 4,
        incarnation: 7,
        present,
        ..Default::default()
    };
    let phases = vec![
        span("pull_weights", 1_000, 250, false),
        span("generating", 1_250, 90, true),
    ];
    Book {
        status,
        phases,
        logs: logs.map(|(who, text)| (who.into(), text.into())).into(),
        ..Default::default()
    }
}

#[test]
fn pause_resume_and_restart_ask_the_daemon_and_say_when() {
    let (dir, fake, _server) = daemon(book());
    let text = |args: &[&str]| out(&run(dir.path(), args));
    assert_eq!(
        text(&["pause", "--wait"]),
        "the job pauses: when step 13 is committed and published\npaused after step 12\n"
    );
    let shown = text(&["status"]);
    assert!(shown.contains("paused after step 12"), "{shown}");
    let twice = run(dir.path(), &["pause"]);
    assert_eq!(twice.status.code(), Some(4));
    assert!(err(&twice).contains("paused already"));
    assert_eq!(text(&["resume"]), "the job goes on\n");
    assert_eq!(
        text(&["restart", "rollout-1"]),
        "rollout-1 is restarted: now\n"
    );
    assert_eq!(text(&["restart", "task"]), "task is restarted: now\n");
    let asked = fake.0.lock().unwrap().asked.clone();
    assert_eq!(
        asked,
        ["pause", "resume", "restart rollout-1", "restart task"]
    );
}

#[test]
fn a_dry_run_says_what_it_would_bring_and_asks_for_nothing_else() {
    let forecast = v1::ForecastReply {
        lines: vec![
            "restart rollout-1, now; no fault is counted".into(),
            "all at work after 12 s".into(),
        ],
        whole_ms: Some(12_000.0),
        ..Default::default()
    };
    let (dir, fake, _server) = daemon(Book {
        forecast: Some(forecast),
        ..book()
    });
    let text = |args: &[&str]| out(&run(dir.path(), args));
    let expected =
        "restart rollout-1, now; no fault is counted\nall at work after 12 s\nnothing was done\n";
    for args in [
        &["restart", "rollout-1", "--dry-run"][..],
        &["scale", "rollout", "5", "--dry-run"],
        &["cordon", "node-b", "--dry-run"],
        &["inject", "--kill", "rollout", "--dry-run"],
    ] {
        assert_eq!(text(args), expected, "{args:?}");
    }
    let json = text(&["restart", "task", "--dry-run", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["whole_ms"], 12_000.0);
    {
        let mut book = fake.0.lock().unwrap();
        assert!(book.injected.is_empty());
        assert_eq!(book.asked.len(), 5);
        assert!(
            book.asked
                .iter()
                .all(|asked| asked.starts_with("forecast "))
        );
        book.forecast = Some(v1::ForecastReply {
            refused: "the job is over".into(),
            ..Default::default()
        });
    }
    let refused = run(dir.path(), &["restart", "task", "--dry-run"]);
    assert_eq!(refused.status.code(), Some(4));
    assert!(err(&refused).contains("the job is over"));
    fake.0.lock().unwrap().forecast = None;
    let older = run(dir.path(), &["restart", "task", "--dry-run"]);
    assert_eq!(older.status.code(), Some(4));
    let said = err(&older);
    assert!(
        said.contains("earlier build") && said.contains("upgrade it"),
        "{said}"
    );
}

#[test]
fn the_authority_is_shown_and_replaced_and_who_is_waited_for_is_named() {
    let (dir, fake, _server) = daemon(book());
    let text = |args: &[&str]| out(&run(dir.path(), args));
    let shown = text(&["ca", "show"]);
    assert_eq!(
        shown,
        "authority aaaaaaaaaaaaaaaa is in force, alone\nnobody has a certificate\n"
    );
    let begun = text(&["ca", "rotate"]);
    for part in [
        "authority bbbbbbbbbbbbbbbb is in force, and aaaaaaaaaaaaaaaa is taken too",
        "2 waited for",
        "node b",
        "waited for, away",
        "rollout-1 #17",
    ] {
        assert!(begun.contains(part), "{part}: {begun}");
    }
    let json = text(&["ca", "rotate", "--now", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["stage"], "trusting");
    let asked = fake.0.lock().unwrap().asked.clone();
    assert_eq!(
        asked,
        [
            "rotate the authority, now false",
            "rotate the authority, now true"
        ]
    );
}

#[test]
fn join_tokens_are_made_listed_and_taken_back() {
    let (dir, fake, _server) = daemon(book());
    let text = |args: &[&str]| out(&run(dir.path(), args));
    let made = run(
        dir.path(),
        &["token", "create", "--node", "b", "--ttl", "2h"],
    );
    // The token alone, so that it may go into a file.
    assert_eq!(out(&made), format!("{}\n", "ab".repeat(32)));
    let how = err(&made);
    assert!(how.contains("--name b --token-file FILE"), "{how}");
    assert!(how.contains("5f3c0001"), "{how}");
    text(&["token", "create"]);
    let list = text(&["token", "list"]);
    let alice = "operator.alice.4000000000";
    let parts = ["5f3c0001", "b", "0123456789abcdef", "c", "joined", alice];
    for part in parts {
        assert!(list.contains(part), "{list}");
    }
    assert!(text(&["token", "revoke", "5f3c0001"]).contains("no node any more"));
    assert!(text(&["token", "revoke", "--node", "c"]).contains("node c is out"));
    // The secret of a whole token goes nowhere.
    let whole = format!("{alice}.{}", "ab".repeat(32));
    for id in [alice, &whole] {
        let said = text(&["token", "revoke", id]);
        assert!(said.contains("opens nothing any more"), "{said}");
        assert!(!said.contains(&whole), "{said}");
    }
    let asked = fake.0.lock().unwrap().asked.clone();
    assert_eq!(
        asked,
        [
            "token for `b`, 7200 s",
            "token for ``, 3600 s",
            "Some(Token(\"5f3c0001\"))",
            "Some(Node(\"c\"))",
            "Some(Token(\"operator.alice.4000000000\"))",
            "Some(Token(\"operator.alice.4000000000\"))",
        ]
    );
    for wrong in [
        &["token", "revoke"][..],
        &["token", "revoke", "x", "--node", "c"],
        &["token", "create", "--ttl", "soon"],
    ] {
        assert_eq!(run(dir.path(), wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_wrong_role_is_answered_with_the_one_that_was_meant() {
    let (dir, _fake, _server) = daemon(book());
    let output = run(dir.path(), &["restart", "rolout-1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err(&output).contains("did you mean `rollout`?"),
        "{}",
        err(&output)
    );
}

#[test]
fn roles_are_listed_and_one_is_shown_with_its_past() {
    let (dir, _fake, _server) = daemon(book());
    let text = |args: &[&str]| out(&run(dir.path(), args));
    assert_eq!(text(&["roles"]).lines().count(), 4);
    assert_eq!(text(&["roles", "rollout"]).lines().count(), 3);
    let one = text(&["roles", "rollout-0"]);
    for part in ["pull_weights", "250 ms", "90 ms so far", "asked for it"] {
        assert!(one.contains(part), "{part:?} is missing in\n{one}");
    }
    let json = text(&["roles", "rollout-1", "--json"]);
    let roles: Vec<v1::RoleStatus> = serde_json::from_str(&json).unwrap();
    assert_eq!((roles.len(), roles[0].pid), (1, 51));
    let json: serde_json::Value =
        serde_json::from_str(&text(&["roles", "rollout-0", "--json"])).unwrap();
    assert_eq!(json[0]["phases"][1]["present"], true, "{json}");
    let none = run(dir.path(), &["roles", "rollout-9"]);
    assert_eq!(none.status.code(), Some(4));
    assert!(err(&none).contains("there is no rollout-9; the job has 2"));
}

#[test]
fn followed_roles_are_said_when_they_change() {
    let (dir, fake, _server) = daemon(book());
    let mut child = robustctl(dir.path(), &["roles", "rollout", "--follow"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().contains("rollout-0"));
    assert!(next().contains("rollout-1"));
    fake.0.lock().unwrap().status.roles[2].incarnation = 9;
    let changed = next();
    assert!(
        changed.contains("rollout-1") && changed.contains("#9"),
        "{changed}"
    );
    fake.0.lock().unwrap().status.state = "completed".into();
    assert!(child.wait().unwrap().success());
}

#[test]
fn logs_are_whole_lines_of_one_or_of_a_role_and_can_be_searched() {
    let (dir, _fake, _server) = daemon(book());
    let text = |args: &[&str]| out(&run(dir.path(), args));
    assert_eq!(text(&["logs", "rollout-1"]), "three\nfour warn\n");
    assert_eq!(
        text(&["logs", "rollout", "--grep", "wa.n"]),
        "rollout-0    two warn\nrollout-1    four warn\n"
    );
    let json = text(&["logs", "rollout-0", "--json"]);
    let first: BTreeMap<String, String> =
        serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!((&*first["who"], &*first["line"]), ("rollout-0", "one"));
    let none = run(dir.path(), &["logs", "agent-3"]);
    assert_eq!(none.status.code(), Some(4));
    assert!(err(&none).contains("there is no agent-3"), "{}", err(&none));
    let wrong = run(dir.path(), &["logs", "agent", "--grep", "("]);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn a_followed_log_goes_on_where_it_was_when_the_daemon_is_back() {
    let (dir, fake, server) = daemon(book());
    let mut child = robustctl(dir.path(), &["logs", "rollout-0", "--follow"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!([next(), next()], ["one", "two warn"]);
    drop(server);
    let more = "one\ntwo warn\nfive\n".to_owned();
    fake.0.lock().unwrap().logs.insert("rollout-0".into(), more);
    let _server = Server::start(dir.path(), &fake);
    assert_eq!(next(), "five");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_job_is_not_run_where_one_runs() {
    let (dir, _fake, _server) = daemon(book());
    let output = run(dir.path(), &["run", "job.toml"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(err(&output).contains("a daemon runs"), "{}", err(&output));
}
