//! The commands that act on a job.
use super::fake::{self, Book};
use super::{daemon, err, incident, out, run, status, struck};
use robust_proto::v1;
use robust_shared::audit::Head;

#[test]
fn quarantine_and_readmit_say_what_is_so_now_and_why_not() {
    let (dir, _fake, _server) = daemon(Book::default());
    let text = |args: &[&str]| out(&run(dir.path(), args));
    assert_eq!(
        text(&["quarantine", "rollout", "1"]),
        "rollout-1 is quarantined: it finishes its turns and gets no new ones\n"
    );
    assert_eq!(
        text(&["readmit", "rollout", "1"]),
        "rollout-1 is readmitted\n"
    );
    let refused = run(dir.path(), &["quarantine", "trainer", "0"]);
    assert_eq!(refused.status.code(), Some(4));
    assert!(err(&refused).contains("a trainer gets no requests"));
}

#[test]
fn a_note_is_kept_with_its_incident_and_shown_and_an_unknown_one_exits_4() {
    let (dir, _fake, _server) = daemon(Book {
        status: status(),
        ..Default::default()
    });
    let text = |args: &[&str]| out(&run(dir.path(), args));
    assert_eq!(
        text(&["note", "3", "the switch in rack 4"]),
        "note 1 of incident 3 is kept\n"
    );
    let shown = text(&["status"]);
    assert!(
        shown.contains("uid 7 (ann), pid 9  the switch in rack 4\n"),
        "{shown}"
    );
    let markdown = text(&["report", "--incident", "3"]);
    assert!(
        markdown.contains("## Notes\n\n- the switch in rack 4 (uid 7"),
        "{markdown}"
    );
    let refused = run(dir.path(), &["note", "4", "x"]);
    assert_eq!(refused.status.code(), Some(4));
    assert_eq!(
        err(&refused),
        "robustctl: refused: there is no incident 4\n"
    );
}

#[test]
fn a_refused_injection_exits_4_with_the_daemons_reason() {
    let (dir, fake, _server) = daemon(Book::default());
    let output = run(dir.path(), &["inject", "--kill", "trainer", "--index", "7"]);
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(
        err(&output),
        format!("robustctl: refused: {}\n", fake::REFUSAL)
    );
    let output = run(dir.path(), &["inject", "--hang", "trainer", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(json["error"]["exit_code"], 4);
    let faults: Vec<String> = fake
        .0
        .lock()
        .unwrap()
        .injected
        .iter()
        .map(|r| r.fault.clone())
        .collect();
    assert_eq!(faults, ["kill", "hang"]);
}

#[test]
fn a_waited_for_injection_shows_whom_it_struck_and_where_the_time_went() {
    let (dir, fake, _server) = daemon(Book {
        inject: Some(struck("recovered")),
        ..Default::default()
    });
    let output = run(
        dir.path(),
        &["inject", "--kill", "trainer", "--wait", "--timeout", "9"],
    );
    let text = out(&output);
    assert!(output.status.success(), "{text}{}", err(&output));
    for part in [
        "killed trainer-1 (incarnation 5, pid 4242)",
        "plan        restart the trainer gang from the snapshot of step 12",
        "restart                     1.34 s  ██████████████████████▉",
        "total                       1.76 s",
        "process start               900 ms  ███████████████▍",
    ] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    let request = fake.0.lock().unwrap().injected[0].clone();
    assert_eq!(
        (request.wait, request.wait_timeout_ms, request.index),
        (true, 9_000, None)
    );
}

#[test]
fn a_recovery_that_does_not_finish_exits_1() {
    for outcome in ["recovering", "failed"] {
        let (dir, _fake, _server) = daemon(Book {
            inject: Some(struck(outcome)),
            ..Default::default()
        });
        let output = run(dir.path(), &["inject", "--kill", "trainer", "--wait"]);
        assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    }
}

#[test]
fn stop_asks_the_daemon_and_report_sums_up() {
    let report = v1::Report {
        job: "arith".into(),
        state: "completed".into(),
        steps: 40,
        duration_s: 192.0,
        reward_first: 0.2,
        reward_last: 0.5,
        incidents: vec![incident("recovered")],
        ..Default::default()
    };
    let (dir, fake, _server) = daemon(Book {
        report,
        ..Default::default()
    });
    let text = out(&run(dir.path(), &["report"]));
    assert!(
        text.contains("0.200 first 20 steps, 0.500 last 20 steps, 2.50 times"),
        "{text}"
    );
    assert!(
        text.contains("1, 1 recovered in 1.76 s on average"),
        "{text}"
    );
    assert!(run(dir.path(), &["stop"]).status.success());
    assert!(fake.0.lock().unwrap().stopped);
}

#[test]
fn a_fault_for_a_start_up_is_said_to_wait_for_the_next_life() {
    let at = "load_checkpoint".to_owned();
    let (dir, _fake, _server) = daemon(Book {
        inject: Some(v1::InjectReply {
            armed: Some(5),
            at: at.clone(),
            fault: "kill".to_owned(),
            incarnation: 0,
            ..struck("recovered")
        }),
        status: v1::Status {
            armed: vec![v1::ArmedFault {
                id: 5,
                fault: "kill".to_owned(),
                role: "trainer".to_owned(),
                index: 1,
                at,
                ..v1::ArmedFault::default()
            }],
            ..status()
        },
        ..Default::default()
    });
    let args = ["inject", "--kill", "trainer", "--at", "load_checkpoint"];
    let said = out(&run(dir.path(), &args));
    let line = "armed 5: kill strikes the next life of trainer-1 at load_checkpoint\n";
    assert!(said.starts_with(line), "{said}");
    let said = out(&run(dir.path(), &["status"]));
    let line = "armed    5: kill of trainer-1 at load_checkpoint of its next life\n";
    assert!(said.contains(line), "{said}");
}

#[test]
fn every_fault_has_a_flag_and_what_is_none_is_refused_without_asking() {
    let (dir, fake, _server) = daemon(Book {
        inject: Some(v1::InjectReply {
            armed: Some(4),
            at: "pull:50%".to_owned(),
            fault: "slow 20% 3s".to_owned(),
            ..struck("recovered")
        }),
        status: v1::Status {
            armed: vec![v1::ArmedFault {
                id: 4,
                fault: "kill".to_owned(),
                role: "trainer".to_owned(),
                index: 1,
                ..v1::ArmedFault::default()
            }],
            ..v1::Status::default()
        },
        ..Default::default()
    });
    let args = [
        "inject",
        "--slow",
        "rollout",
        "--percent",
        "20",
        "--seconds",
        "3",
        "--at",
        "pull:50%",
        "--i-know",
    ];
    let output = run(dir.path(), &args);
    let said = out(&output);
    assert!(
        said.starts_with("armed 4: slow 20% 3s strikes trainer-1"),
        "{said}"
    );
    assert!(
        said.contains("`robustctl inject --disarm 4` takes it back"),
        "{said}"
    );
    let request = fake.0.lock().unwrap().injected[0].clone();
    assert_eq!(
        (request.fault.as_str(), request.percent),
        ("slow", Some(20))
    );
    assert_eq!((request.at.as_str(), request.i_know), ("pull:50%", true));
    for (args, why) in [
        (
            &["inject", "--kill", "agent", "--code", "3"][..],
            "takes no `code`",
        ),
        (&["inject", "--slow", "agent", "--percent", "0"], "5 to 95"),
        (&["inject", "--cut-network", "rollout"], "needs a peer"),
        (
            &["inject", "--kill", "agent", "--at", "updat"],
            "did you mean `update`?",
        ),
        (&["inject", "--disarm", "some"], "or `all`"),
    ] {
        let output = run(dir.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(err(&output).contains(why), "{args:?}: {}", err(&output));
    }
    assert_eq!(fake.0.lock().unwrap().injected.len(), 1);
    let output = run(dir.path(), &["inject", "--disarm", "4"]);
    assert_eq!(out(&output), "disarmed 4: kill of trainer-1\n");
}

#[test]
fn the_audit_log_has_a_line_for_each_request_with_what_came_of_it() {
    let (dir, _fake, _server) = daemon(Book::default());
    let text = out(&run(dir.path(), &["audit"]));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines[0].contains("refused") && lines[0].contains("it is protected"),
        "{text}"
    );
    assert!(
        lines[1].contains("no result") && lines[1].contains("uid 0 (root)"),
        "{text}"
    );
    let json = out(&run(dir.path(), &["audit", "--json"]));
    let first: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["id"], &first["result"]),
        (&1.into(), &"refused".into())
    );
}

#[test]
fn a_log_that_was_changed_cut_or_reordered_says_where_and_fails() {
    let dir = tempfile::tempdir().unwrap();
    let verify = |lines: &[String]| {
        std::fs::write(dir.path().join("audit.jsonl"), lines.concat()).unwrap();
        run(dir.path(), &["audit", "--verify"])
    };
    let (mut lines, mut head) = (Vec::new(), Head::begin(b""));
    for id in 1..=4 {
        let (line, after) = head.seal(&format!("{{\"id\":{id},\"who\":\"uid 7\"}}"));
        lines.push(line + "\n");
        head = after;
    }
    std::fs::write(dir.path().join("audit.head"), head.text()).unwrap();
    let whole = verify(&lines);
    assert!(whole.status.success(), "{}", err(&whole));
    let says = format!(
        "4 lines of the chain, 1 to 4, are as written\nhead 4 {}\n",
        head.chain
    );
    assert_eq!(out(&whole), says);
    let mut changed = lines.clone();
    changed[1] = changed[1].replace("uid 7", "uid 0");
    let mut reordered = lines.clone();
    reordered.swap(1, 2);
    for (lines, says) in [
        (
            &changed[..],
            "line 2: changed since it was written (request 2)",
        ),
        (&lines[..3], "audit.jsonl: line 4 of the chain is cut out"),
        (&lines[1..], "line 1: line 1 of the chain is cut out"),
        (&reordered, "line 3: line 2 of the chain is out of order"),
    ] {
        let output = verify(lines);
        assert_eq!(output.status.code(), Some(1), "{}", out(&output));
        assert!(out(&output).contains(says), "{says}: {}", out(&output));
    }
    let json = run(dir.path(), &["audit", "--verify", "--json"]);
    let found: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(found["damage"][0]["kind"], "moved", "{found}");
    assert_eq!(found["damage"][0]["line"], 3);
    let remote = run(dir.path(), &["audit", "--verify", "--follow"]);
    assert_eq!(remote.status.code(), Some(2));
}

#[test]
fn the_reports_page_is_written_whole_and_json_has_the_history_in_one_piece() {
    let part = |role: &str| v1::History {
        from_ms: 1_000,
        to_ms: 61_000,
        lanes: vec![v1::Lane {
            role: role.into(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let (dir, _fake, _server) = daemon(Book {
        report: v1::Report {
            job: "arith <1>".into(),
            incidents: vec![incident("recovered")],
            ..Default::default()
        },
        history: vec![part("trainer"), part("rollout")],
        ..Default::default()
    });
    let path = dir.path().join("report.html");
    let said = out(&run(
        dir.path(),
        &["report", "--html", path.to_str().unwrap()],
    ));
    assert!(said.contains("report.html"), "{said}");
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.contains("<h1>arith &lt;1&gt;</h1>"), "{page}");
    assert!(page.trim_end().ends_with("</html>"), "{page}");
    let text = out(&run(dir.path(), &["report", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let roles: Vec<_> = json["history"]["lanes"]
        .as_array()
        .unwrap()
        .iter()
        .collect();
    assert_eq!(
        (&roles[0]["role"], &roles[1]["role"]),
        (&"trainer".into(), &"rollout".into())
    );
    let missing = dir.path().join("none/report.html");
    let refused = run(dir.path(), &["report", "--html", missing.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        err(&refused).contains("cannot be written"),
        "{}",
        err(&refused)
    );
}
