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
        row(&["trainer idle", "hang", "init load_checkpoint", "and 6 more"]),
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
        one.contains("ref_logprob old_logprob") && !one.contains("link lost"),
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

fn set_back(kind: &str, why: &str) -> v1::Setback {
    v1::Setback {
        attempt: Some(1),
        kind: kind.into(),
        why: why.into(),
        agent: "agent-0".into(),
        incarnation: 3,
        at_ms: 5_000,
        thrown_away: false,
    }
}

#[test]
fn a_trajectory_says_which_step_consumed_it_on_which_attempt_and_what_befell_it() {
    let witness = v1::Witness {
        state: "consumed".into(),
        why: "step 7 was trained on it".into(),
        step: Some(7),
        generation: 2,
        record: Some(90),
        attempt: Some(2),
        attempts: Some(2),
        incarnation: 9,
        setbacks: vec![set_back("given_back", "no \u{1b}[2Jtool")],
        kept: true,
        proven: true,
        ..Default::default()
    };
    let book = |witness| Book {
        trajectories: vec![v1::Trajectory {
            batch: 7,
            state: "consumed".into(),
            witness: Some(witness),
            ..Default::default()
        }],
        ..Default::default()
    };
    let (dir, _fake, _server) = daemon(book(witness.clone()));
    let output = run(dir.path(), &["traj", "show", "7.0.0"]);
    assert!(output.status.success(), "{}", err(&output));
    let text = out(&output);
    for line in [
        "consumed    step 7 was trained on it",
        "attempt     2 of 2, brought to its end by i9",
        "given back, goes on from what is stored (agent-0 i3): no ",
        "proven      the step's record and its own record agree",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "{text:?}");
    let (dir, _fake, _server) = daemon(book(v1::Witness {
        proven: false,
        disagreements: vec!["its own record names step 8".into()],
        ..witness
    }));
    let output = run(dir.path(), &["traj", "show", "7.0.0"]);
    assert_eq!(output.status.code(), Some(1), "{}", out(&output));
    assert!(out(&output).contains("disagrees   its own record names step 8"));
}

#[test]
fn a_step_lists_what_entered_it_and_ends_with_1_where_records_contradict_each_other() {
    let row = |member, state: &str| v1::StepTrajectory {
        batch: 7,
        member,
        state: state.into(),
        kept: true,
        attempts: Some(2),
        setbacks: vec![set_back("set_aside", "")],
        ..Default::default()
    };
    let head = v1::StepAccount {
        step: 7,
        counted: true,
        line: Some(v1::StepLine::default()),
        ..Default::default()
    };
    let part = v1::StepAccount {
        trajectories: vec![row(0, "consumed"), row(1, "set_aside")],
        ..Default::default()
    };
    let book = |steps| Book {
        steps,
        ..Default::default()
    };
    let (dir, _fake, _server) = daemon(book(vec![head.clone(), part.clone()]));
    let output = run(dir.path(), &["report", "--step", "7"]);
    assert!(output.status.success(), "{}", err(&output));
    let text = out(&output);
    assert!(text.contains("2 trajectories, 1 trained on"), "{text}");
    assert!(text.contains("7.0.1"), "{text}");
    assert!(text.contains("set aside, trained on by no step"), "{text}");
    let wrong = v1::StepAccount {
        disagreements: vec!["7.0.1 is listed twice".into()],
        ..part
    };
    let (dir, _fake, _server) = daemon(book(vec![head, wrong]));
    let output = run(dir.path(), &["report", "--step", "7", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["trajectories"].as_array().unwrap().len(), 2);
    let (dir, _fake, _server) = daemon(Book::default());
    let output = run(dir.path(), &["report", "--step", "7"]);
    assert_eq!(output.status.code(), Some(4), "it is not committed");
}

#[test]
fn an_incident_is_reported_as_markdown_and_one_that_is_not_there_is_an_error() {
    let (dir, _fake, _server) = daemon(Book {
        status: status(),
        ..Default::default()
    });
    let output = run(dir.path(), &["report", "--incident", "3"]);
    assert!(output.status.success(), "{}", err(&output));
    let text = out(&output);
    for part in [
        "# Incident 3 of arith: trainer-1, exit\n",
        "- **Seen:** killed by SIGKILL\n",
        "| reconnect | 410 ms |\n",
        "- **Fingerprint:** ",
    ] {
        assert!(text.contains(part), "`{part}` is missing in\n{text}");
    }
    let output = run(dir.path(), &["report", "--incident", "3", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["id"], 3);
    let output = run(dir.path(), &["report", "--incident", "9"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("there is no incident 9"),
        "{}",
        err(&output)
    );
}

/// An instance as it was found, with these answers to probes.
fn found(role: &str, index: u32, answers: &[(&str, bool)]) -> v1::InspectPart {
    let answer = |(what, ok): &(&str, bool)| v1::ProbeAnswer {
        what: (*what).to_owned(),
        ok: *ok,
        us: 350,
        answer: if *ok { "it answers" } else { "it is silent" }.to_owned(),
    };
    v1::InspectPart {
        role: role.to_owned(),
        index,
        state: "running".to_owned(),
        processes: vec![v1::InspectedProcess {
            pid: 4711,
            name: "robust-worker".to_owned(),
            state: "S".to_owned(),
            over_us: 1_000_000,
            thread_count: 3,
            ..Default::default()
        }],
        probes: answers.iter().map(answer).collect(),
        ..Default::default()
    }
}

#[test]
fn a_look_inside_asks_for_whom_is_named_and_shows_each_as_it_is_found() {
    let inside = vec![found("trainer", 0, &[]), found("rollout", 1, &[])];
    let (dir, fake, _server) = daemon(Book {
        inside,
        ..Default::default()
    });
    let output = run(dir.path(), &["inspect"]);
    assert!(output.status.success(), "{}", err(&output));
    let text = out(&output);
    assert!(text.starts_with("trainer-0  running\n  pid 4711 robust-worker  S (sleeps)"));
    assert!(text.contains("\nrollout-1  running\n"), "{text}");
    let named = ["inspect", "rollout-1", "trainer", "--stacks", "native"];
    let output = run(dir.path(), &[&named[..], &["--json"]].concat());
    assert!(output.status.success(), "{}", err(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json[0]["role"], "rollout");
    assert_eq!(json[1]["processes"][0]["pid"], 4711);
    let asked = fake.0.lock().unwrap().asked.clone();
    let expected = [
        "stacks of `` None",
        "native of `rollout` Some(1)",
        "native of `trainer` None",
    ];
    assert_eq!(asked, expected);
}

#[test]
fn a_probe_ends_with_1_where_one_does_not_answer_and_says_which() {
    let book = |well| Book {
        inside: vec![
            found("trainer", 0, &[("link", true)]),
            found("rollout", 1, &[("link", true), ("engine", well)]),
        ],
        ..Default::default()
    };
    let (dir, _fake, _server) = daemon(book(true));
    let output = run(dir.path(), &["probe"]);
    assert!(output.status.success(), "{}", err(&output));
    let text = out(&output);
    assert!(text.starts_with("ROLE"), "{text}");
    assert!(text.contains("0.35 ms  it answers"), "{text}");
    let (dir, _fake, _server) = daemon(book(false));
    let output = run(dir.path(), &["probe"]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    assert!(out(&output).contains("it is silent"), "{}", out(&output));
    assert!(err(&output).contains("1 of 2 do not answer: rollout-1"));
    let output = run(dir.path(), &["probe", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json[1]["probes"][1]["ok"], false);
}
