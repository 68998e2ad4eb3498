//! The command line against a Control server in this process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod fake;

use fake::{Book, Fake, Server};
use robust_proto::v1;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

fn robustctl(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_robustctl"));
    command
        .env("ROBUST_STATE_DIR", dir)
        .env("LC_ALL", "C.UTF-8")
        .args(args);
    command
}

fn run(dir: &Path, args: &[&str]) -> Output {
    robustctl(dir, args).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn daemon(book: Book) -> (TempDir, Fake, Server) {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake(Arc::new(Mutex::new(book)));
    let server = Server::start(dir.path(), &fake);
    (dir, fake, server)
}

fn status() -> v1::Status {
    v1::Status {
        job: "arith".into(),
        mode: "async".into(),
        policy: "role".into(),
        state: "running".into(),
        step: 12,
        steps_total: 40,
        roles: vec![v1::RoleStatus {
            role: "trainer".into(),
            index: 1,
            pid: 4242,
            state: "running".into(),
            phase: "update".into(),
            phase_ms: 340,
            ..Default::default()
        }],
        incidents: vec![incident("recovered")],
        started_ms: 1_000,
        now_ms: 66_000,
        ..Default::default()
    }
}

fn incident(outcome: &str) -> v1::Incident {
    v1::Incident {
        id: 3,
        role: "trainer".into(),
        index: 1,
        rule: "exit".into(),
        reason: "killed by SIGKILL".into(),
        plan: "restart the trainer gang from the snapshot of step 12".into(),
        detect_ms: 12.0,
        restart_ms: 1340.0,
        reconnect_ms: 410.0,
        total_ms: 1762.0,
        outcome: outcome.into(),
        stages: [("exited", 9.0), ("seen", 3.0), ("process start", 900.0)]
            .map(|(name, ms)| v1::Stage {
                name: name.into(),
                ms,
            })
            .into(),
        ..Default::default()
    }
}

fn struck(outcome: &str) -> v1::InjectReply {
    v1::InjectReply {
        role: "trainer".into(),
        index: 1,
        incarnation: 5,
        pid: 4242,
        incident: Some(incident(outcome)),
        slot: None,
    }
}

#[test]
fn status_as_json_has_the_documented_field_names() {
    let (dir, _fake, _server) = daemon(Book {
        status: status(),
        ..Default::default()
    });
    let output = run(dir.path(), &["status", "--json"]);
    assert!(output.status.success(), "{}", err(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let job =
        "job mode policy step weight_version reward ettr_sliding ettr goodput roles incidents";
    let role = "role index incarnation pid state phase weight_version tokens_total tokens_per_s";
    let incident =
        "id role index rule reason plan detect_ms restart_ms reconnect_ms total_ms outcome";
    for (object, names) in [
        (&json, job),
        (&json["roles"][0], role),
        (&json["incidents"][0], incident),
    ] {
        for name in names.split(' ') {
            assert!(object.get(name).is_some(), "{name} is missing in {object}");
        }
    }
    assert_eq!(json["roles"][0]["pid"], 4242);
}

#[test]
fn status_as_text_is_an_aligned_table_without_colour() {
    let (dir, _fake, _server) = daemon(Book {
        status: status(),
        ..Default::default()
    });
    let text = out(&run(dir.path(), &["status"]));
    assert!(
        text.starts_with("arith  mode async, policy role, running for 1m05s"),
        "{text}"
    );
    let row = text
        .lines()
        .find(|l| l.starts_with("trainer-1  running"))
        .unwrap();
    let head = text.lines().find(|l| l.starts_with("ROLE")).unwrap();
    assert_eq!(head.find("PHASE"), row.find("update"), "{text}");
    assert!(
        text.contains("12 ms  3 ms   1.34 s     410 ms  1.76 s  recovered"),
        "{text}"
    );
    assert!(!text.contains('\x1b'));
}

#[test]
fn several_nodes_are_listed_with_what_they_have_and_roles_with_their_places() {
    let node = |name: &str, state: &str, instances| v1::NodeStatus {
        name: name.into(),
        state: state.into(),
        dc: "a".into(),
        pools: [("train".to_owned(), 2), ("rollout".to_owned(), 1)].into(),
        instances,
        ..Default::default()
    };
    let mut status = status();
    (status.roles[0].node, status.roles[0].slot) = ("b".into(), "train 1".into());
    status.nodes = vec![node("a", "here", 3)];
    let shown = |status: &v1::Status| {
        let (dir, _fake, _server) = daemon(Book {
            status: status.clone(),
            ..Default::default()
        });
        out(&run(dir.path(), &["status"]))
    };
    let text = shown(&status);
    assert!(!text.contains("NODE"), "one node needs no table: {text}");
    status.nodes.push(v1::NodeStatus {
        cordoned: true,
        lost: vec![v1::Slot {
            node: "b".into(),
            pool: "train".into(),
            index: 0,
        }],
        ..node("b", "here", 2)
    });
    status.nodes.push(node("c", "awaited", 0));
    let text = shown(&status);
    let line = |name: &str| {
        let found = text.lines().find(|l| l.starts_with(name));
        found
            .unwrap_or_else(|| panic!("no {name}: {text}"))
            .to_owned()
    };
    assert!(text.contains("4242  b     train 1"), "{text}");
    assert!(line("b ").contains("here, cordoned"), "{text}");
    assert!(line("b ").contains("rollout 1, train 2"), "{text}");
    assert!(line("b ").contains("train 0"), "{text}");
    assert!(line("c ").contains("awaited"), "{text}");
}

#[test]
fn rules_shows_what_is_in_force_and_where_it_came_from() {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/jobs/test.toml");
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["rules", "--job", fixture, "--json"]);
    assert!(output.status.success(), "{}", err(&output));
    let rules: v1::Rules = serde_json::from_slice(&output.stdout).unwrap();

    // A daemon's answer is shown the same way.
    let (dir, _fake, _server) = daemon(Book {
        rules,
        ..Default::default()
    });
    let text = out(&run(dir.path(), &["rules"]));
    let row = |parts: &[&str]| {
        let has = |line: &str| parts.iter().all(|p| line.contains(p));
        text.lines().any(has)
    };
    assert!(
        row(&["trainer idle", "hang", "ref_logprob old_logprob update"]),
        "{text}"
    );
    let set = "job file: detect.trainer_idle.window_s";
    assert!(row(&["trainer idle", "window_s", "3", set]), "{text}");
    assert!(row(&["link lost", "window_s", "5", "default"]), "{text}");
    assert!(
        row(&["pull stall", "from 5 x weights.stall_timeout_s"]),
        "{text}"
    );
    assert!(row(&["hang", "600 s", "100 ms"]), "{text}");
}

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
fn rules_of_a_bad_job_file_are_refused_with_place_and_fix() {
    let fixture = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../fixtures/bad_jobs/zero_window.toml"
    );
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["rules", "--job", fixture]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err(&output).contains("it must be above 0"),
        "{}",
        err(&output)
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
fn without_a_daemon_the_exit_code_is_3_and_the_message_says_where_and_how() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("control.sock");
    for args in [
        &["status"][..],
        &["events"],
        &["watch"],
        &["report"],
        &["stop"],
    ] {
        let output = run(dir.path(), args);
        assert_eq!(output.status.code(), Some(3), "{args:?}");
        let text = err(&output);
        assert!(text.contains(socket.to_str().unwrap()), "{text}");
        assert!(text.contains("robustd --job FILE --state-dir"), "{text}");
    }
    // A socket file that a killed daemon left behind.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let output = run(dir.path(), &["status"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        err(&output).contains("nobody listens there any more"),
        "{}",
        err(&output)
    );
}

#[test]
fn wrong_use_exits_2_and_names_the_nearest_role() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["inject", "--kill", "trianer"]);
    assert_eq!(output.status.code(), Some(2));
    let text = err(&output);
    assert!(text.contains("a similar value exists: 'trainer'"), "{text}");
    for args in [
        &["inject"][..],
        &["inject", "--kill", "agent", "--hang", "agent"],
        &["--connect", "192.0.2.1:7000", "status"],
        &[
            "--connect",
            "127.0.0.1:7000",
            "--token-file",
            "/nonexistent",
            "status",
        ],
        &["tui"],
    ] {
        let output = robustctl(dir.path(), args)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", err(&output));
    }
}

#[test]
fn followed_events_survive_a_restart_of_the_daemon_and_none_comes_twice() {
    let event = |seq| v1::Event {
        seq,
        text: format!("event {seq}"),
        ..Default::default()
    };
    let book = Book {
        status: status(),
        events: vec![event(1), event(2)],
        ..Default::default()
    };
    let (dir, fake, server) = daemon(book);
    let mut child = robustctl(dir.path(), &["events", "--follow", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || {
        let line = lines.next().unwrap().unwrap();
        serde_json::from_str::<v1::Event>(&line).unwrap().seq
    };
    assert_eq!([next(), next()], [1, 2]);
    drop(server);
    fake.0.lock().unwrap().events.push(event(3));
    let _server = Server::start(dir.path(), &fake);
    assert_eq!(next(), 3);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn events_without_follow_end_and_start_where_asked() {
    let event = |seq| v1::Event {
        seq,
        kind: "step".into(),
        ..Default::default()
    };
    let events = (1..=5).map(event).collect();
    let (dir, _fake, _server) = daemon(Book {
        events,
        ..Default::default()
    });
    let output = run(dir.path(), &["events", "--since", "4"]);
    assert!(output.status.success());
    assert_eq!(out(&output).lines().count(), 2, "{}", out(&output));
}

#[test]
fn watch_ends_with_the_job_and_its_exit_code_says_how() {
    for (state, code) in [("completed", 0), ("stopped", 0), ("failed", 1)] {
        let mut end = status();
        (end.state, end.reason) = (state.into(), "no budget left".into());
        let (dir, _fake, _server) = daemon(Book {
            status: end,
            ..Default::default()
        });
        let output = run(dir.path(), &["watch", "--interval", "0.05"]);
        assert_eq!(output.status.code(), Some(code), "{}", err(&output));
        assert!(out(&output).contains("step   12/40"), "{}", out(&output));
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
fn a_reader_that_leaves_early_is_no_error() {
    let events = (1..=5_000)
        .map(|seq| v1::Event {
            seq,
            ..Default::default()
        })
        .collect();
    let (dir, _fake, _server) = daemon(Book {
        events,
        ..Default::default()
    });
    let mut child = robustctl(dir.path(), &["events"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), err(&output)),
        (Some(0), String::new())
    );
}

#[test]
fn over_tcp_the_token_file_decides() {
    let fake = Fake(Arc::new(Mutex::new(Book {
        status: status(),
        ..Default::default()
    })));
    let (_server, addr) = Server::start_tcp("open sesame", &fake);
    let dir = tempfile::tempdir().unwrap();
    let connect = format!("--connect={addr}");
    std::fs::write(dir.path().join("token"), "open sesame\n").unwrap();
    let output = run(dir.path(), &[&connect, "status"]);
    assert!(output.status.success(), "{}", err(&output));
    std::fs::write(dir.path().join("token"), "guess\n").unwrap();
    let output = run(dir.path(), &[&connect, "status"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(
        err(&output).contains("refused: wrong token"),
        "{}",
        err(&output)
    );
}

#[test]
fn another_job_on_the_same_socket_is_followed_from_its_first_event() {
    let event = |seq, text: &str| v1::Event {
        seq,
        text: text.into(),
        ..Default::default()
    };
    let events = (1..=3).map(|seq| event(seq, "old")).collect();
    let (dir, fake, server) = daemon(Book {
        events,
        ..Default::default()
    });
    let mut child = robustctl(dir.path(), &["events", "--follow", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || {
        let line = lines.next().unwrap().unwrap();
        let event = serde_json::from_str::<v1::Event>(&line).unwrap();
        (event.seq, event.text)
    };
    assert_eq!([next().0, next().0, next().0], [1, 2, 3]);
    drop(server);
    fake.0.lock().unwrap().events = vec![event(1, "new"), event(2, "new")];
    let _server = Server::start(dir.path(), &fake);
    assert_eq!(
        [next(), next()],
        [(1, "new".to_owned()), (2, "new".to_owned())]
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn completions_are_made_without_a_daemon() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let output = run(dir.path(), &["completions", shell]);
        assert!(
            output.status.success() && out(&output).contains("inject"),
            "{shell}"
        );
    }
}

#[test]
fn the_papers_experiments_print_every_run_and_their_proof_of_determinism() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["sim", "paper", "--steps", "10", "--json"]);
    assert!(output.status.success(), "{}", err(&output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(found["identical_journal_lines"].as_u64().unwrap() > 10_000);
    let rows = found["paper"].as_array().unwrap();
    assert_eq!(rows.len(), 27, "3 workloads, 3 modes, 3 policies");
    for row in rows {
        let ettr = row["ettr"].as_f64().unwrap();
        assert!(row["completed"].as_bool().unwrap() && ettr > 0.3, "{row}");
    }
}

#[test]
fn the_way_of_a_version_is_printed_beside_the_ideal_and_the_papers() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "sim",
        "weights",
        "--rollouts",
        "1,4",
        "--chunk-mib",
        "256",
        "--json",
    ];
    let output = run(dir.path(), &args);
    assert!(output.status.success(), "{}", err(&output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let ideal = number(&found["ideal_s"]);
    assert!((4.6..4.8).contains(&ideal), "{ideal}");
    let (one, four) = (&found["rows"][0], &found["rows"][1]);
    assert_eq!(found["sim_1"], one["over_ideal"]);
    assert!(found.get("sim_256").is_none(), "it was not asked for");
    assert!(
        number(&one["seconds"]) > ideal && number(&one["seconds"]) < 1.3 * ideal,
        "{one}"
    );
    assert!(
        number(&four["seconds"]) < number(&four["store_and_forward_s"]) / 1.9,
        "{four}"
    );
    assert_eq!(
        (number(&one["paper_s"]), number(&four["paper_s"])),
        (6.0, 18.0)
    );
}

#[test]
fn a_size_that_is_no_cluster_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["sim", "scale", "--nodes", "3"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("10..=60000"), "{}", err(&output));
}
