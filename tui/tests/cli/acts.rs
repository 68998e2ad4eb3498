//! The commands that act on a job.
use super::fake::{self, Book};
use super::{daemon, err, incident, out, run, struck};
use robust_proto::v1;

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
    assert!(err(&refused).contains("only rollouts get requests"));
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
