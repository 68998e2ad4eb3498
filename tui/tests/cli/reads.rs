//! What the commands that look at a job print.
use super::fake::Book;
use super::{daemon, err, out, run, status};
use robust_proto::v1;

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
    assert!(!text.contains("cordoned for faults"), "{text}");
    assert!(line("b ").contains("rollout 1, train 2"), "{text}");
    assert!(line("b ").contains("train 0"), "{text}");
    assert!(line("c ").contains("awaited"), "{text}");
}

#[test]
fn nodes_shows_what_failed_on_each_and_that_one_is_cordoned_for_it() {
    let mut status = status();
    let node = |name: &str| v1::NodeStatus {
        name: name.into(),
        state: "here".into(),
        ..Default::default()
    };
    status.nodes = vec![
        node("a"),
        v1::NodeStatus {
            cordoned: true,
            cordoned_for_faults: true,
            faults: 3,
            last_fault_ms: status.now_ms - 20_000,
            ..node("b")
        },
    ];
    let (dir, _fake, _server) = daemon(Book {
        status: status.clone(),
        ..Default::default()
    });
    let text = out(&run(dir.path(), &["nodes"]));
    let line = |name: &str| {
        text.lines()
            .find(|l| l.starts_with(name))
            .unwrap()
            .to_owned()
    };
    assert!(line("NODE").ends_with("FAULTS"), "{text}");
    assert!(line("a ").ends_with('-'), "{text}");
    assert!(line("b ").contains("here, cordoned for faults"), "{text}");
    assert!(line("b ").ends_with("3 (last 20s ago)"), "{text}");
    let json = out(&run(dir.path(), &["nodes", "--json"]));
    let nodes: Vec<v1::NodeStatus> = serde_json::from_str(&json).unwrap();
    assert_eq!(nodes, status.nodes);
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
    let one = out(&run(dir.path(), &["rules", "trainer idle"]));
    assert!(
        one.contains("trainer idle") && !one.contains("link lost"),
        "{one}"
    );
    let wrong = run(dir.path(), &["rules", "trainer idel"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        err(&wrong).contains("did you mean `trainer idle`?"),
        "{}",
        err(&wrong)
    );
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
