#![allow(clippy::unwrap_used)]
use super::*;
use insta::assert_snapshot;

const BEGIN: u64 = 1_700_000_000_000;

fn incident(id: u64, at_s: u64, role: &str) -> v1::Incident {
    v1::Incident {
        id,
        role: role.to_owned(),
        index: 0,
        rule: "exit".to_owned(),
        reason: "exited by SIGKILL".to_owned(),
        plan: "restart the trainer gang from step 7".to_owned(),
        detect_ms: 40.0,
        restart_ms: 1_200.0,
        reconnect_ms: 300.0,
        total_ms: 1_540.0,
        outcome: "recovered".to_owned(),
        at_ms: BEGIN + at_s * 1_000,
        step: 7,
        evidence: "wchan: do_exit".to_owned(),
        stages: vec![v1::Stage {
            name: "exited".to_owned(),
            ms: 35.0,
        }],
        ..Default::default()
    }
}

fn lane(role: &str, phases: [&str; 2]) -> v1::Lane {
    let span = |n: u64| v1::LaneSpan {
        phase: phases[n as usize % 2].to_owned(),
        from_ms: BEGIN + n * 10_000,
        ms: if n == 3 { 6_000 } else { 10_000 },
    };
    let spent = |(phase, ms): (&str, u64)| v1::PhaseTime {
        phase: phase.to_owned(),
        ms,
    };
    v1::Lane {
        role: role.to_owned(),
        index: 0,
        spans: (0..12).map(span).collect(),
        spent: [(phases[0], 60_000), (phases[1], 56_000)]
            .map(spent)
            .to_vec(),
    }
}

fn report() -> v1::Report {
    let point = |n: u64| {
        let ettr = if (40..60).contains(&n) { 0.6 } else { 0.9 };
        v1::CurvePoint {
            at_ms: BEGIN + (n + 1) * 1_200,
            ettr_sliding: ettr,
            goodput_sliding: ettr - 0.1,
            ettr,
            goodput: ettr - 0.1,
        }
    };
    let step = |n: u64| v1::StepLine {
        step: n,
        at_ms: BEGIN + n * 12_000,
        reward: n as f64 / 20.0,
        ..Default::default()
    };
    let cause = |(cause, seconds, waste): (&str, f64, bool)| v1::CauseTime {
        cause: cause.to_owned(),
        seconds,
        waste,
    };
    let sum = |kind: &str| {
        let pulled = kind.starts_with("pull");
        let by = |(road, pulls): (&str, u64)| v1::PullsByRoad {
            road: road.to_owned(),
            pulls,
        };
        v1::TransferSum {
            kind: kind.to_owned(),
            done: 20,
            failed: 1,
            bytes: 20 << 20,
            took_ms: 2_000,
            slowest_ms: 300,
            sent: if pulled { 5 << 20 } else { 0 },
            roads: match pulled {
                true => [("shm", 4), ("tls", 16)].map(by).to_vec(),
                false => Vec::new(),
            },
            pulled: if pulled { 20 << 20 } else { 0 },
            patched: if pulled { 16 << 20 } else { 0 },
            changed_words: if pulled { 80 << 10 } else { 0 },
        }
    };
    v1::Report {
        job: "arith".to_owned(),
        mode: "async".to_owned(),
        policy: "role".to_owned(),
        state: "completed".to_owned(),
        steps: 10,
        duration_s: 120.0,
        reward_first: 0.2,
        reward_last: 0.5,
        ettr: 0.85,
        goodput: 0.8,
        tokens: 123_456,
        trajectories: 160,
        incidents: vec![incident(1, 48, "trainer"), incident(2, 80, "rollout")],
        incidents_total: 2,
        history: Some(v1::History {
            from_ms: BEGIN,
            to_ms: BEGIN + 120_000,
            config: r#"{"job":{"name":"arith","seed":3,"mode":null},"data":{"mix":[1,2]}}"#
                .to_owned(),
            curve: (0..100).map(point).collect(),
            curve_resolution_s: 1.0,
            causes: [
                ("both", 90.0, false),
                ("initialisation", 20.0, false),
                ("step_repeated", 5.0, true),
            ]
            .map(cause)
            .to_vec(),
            lanes: vec![
                lane("trainer", ["update", "await_batch"]),
                lane("rollout", ["generating", "pull_weights"]),
            ],
            transfers: ["pull from trainer", "checkpoint"].map(sum).to_vec(),
            steps: (1..=10).map(step).collect(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn page(report: &v1::Report) -> String {
    html::page(&Run::of(report)).unwrap()
}

/// Every element is closed, in order: what a browser shows is what was meant.
fn assert_whole(page: &str) {
    let mut open = Vec::new();
    let mut rest = page.split_once("</head>").unwrap().1;
    while let Some((_, after)) = rest.split_once('<') {
        let (tag, after) = after.split_once('>').unwrap();
        let name = tag
            .trim_start_matches('/')
            .split([' ', '\n'])
            .next()
            .unwrap();
        match (tag.starts_with('/'), tag.ends_with('/')) {
            (true, _) => assert_eq!(open.pop(), Some(name), "</{name}>"),
            (false, false) => open.push(name),
            (false, true) => {}
        }
        rest = after;
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn the_text_tells_the_run_in_eighty_columns() {
    let text = text::report(&Run::of(&report()), Paint::plain(), false);
    assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
    assert_snapshot!(text);
}

#[test]
fn the_text_is_ascii_where_the_terminal_is() {
    let text = text::report(&Run::of(&report()), Paint::plain(), true);
    assert!(text.is_ascii(), "{text}");
}

#[test]
fn a_run_of_which_nothing_is_known_is_told_too() {
    let empty = v1::Report::default();
    let text = text::report(&Run::of(&empty), Paint::plain(), false);
    assert!(text.contains("incidents  0"), "{text}");
    let page = page(&empty);
    assert!(page.contains("Nothing has run yet."), "{page}");
    assert_whole(&page.replace("</html>", ""));
}

#[test]
fn the_page_has_every_part_and_asks_for_nothing() {
    let page = page(&report());
    assert_whole(&page.replace("</html>", ""));
    for part in [
        "<h2>ETTR and goodput</h2>",
        "<h2>Phases</h2>",
        "restart the trainer gang from step 7",
        "exited 35 ms",
        "1.54 s",
        "wchan: do_exit",
        "pull from trainer",
        "4 by shm, 16 by tls",
        "0.98 %",
        "<td>data.mix</td><td>[1,2]</td>",
        "fill=\"var(--update)\"",
        "stroke=\"var(--ettr)\"",
        "2023-11-14 22:13:20 to 2023-11-14 22:15:20 UTC",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    for foreign in ["<script", "src=", "href=", "@import", "url(", "#0102"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    // The only address is the name of SVG's own language, which nothing is fetched from.
    let addresses = page.matches("http://").count() + page.matches("https://").count();
    assert_eq!(
        addresses,
        page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count()
    );
}

#[test]
fn the_root_of_a_hang_is_told_and_what_follows_from_an_incident_is_folded_under_it() {
    let mut report = report();
    let first = &mut report.incidents[0];
    first.root = "trainer-1 is stopped".to_owned();
    first.judged = "trainer-0".to_owned();
    report.incidents[1].under = report.incidents[0].id;
    let text = text::report(&Run::of(&report), Paint::plain(), false);
    for part in [
        "incidents  2 (1 of them follows from another)",
        "\n    root: trainer-1 is stopped\n",
        "\n    with it, under 1: rollout-",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
    let page = page(&report);
    assert_whole(&page.replace("</html>", ""));
    for part in [
        "<p>Root: trainer-1 is stopped (the rule had named trainer-0).</p>",
        "<details><summary>1 that followed from 1</summary><article",
    ] {
        assert!(page.contains(part), "{part} is missing in {page}");
    }
}

#[test]
fn a_hostile_name_is_said_and_does_nothing() {
    const NAME: &str =
        "</title><script>alert(1)</script>\"'&<img src=x onerror=alert(2)>\u{1b}[31m";
    let mut report = report();
    let name = || NAME.to_owned();
    (report.job, report.reason, report.state) = (name(), name(), name());
    (report.mode, report.policy) = (name(), name());
    for i in &mut report.incidents {
        (i.role, i.rule, i.reason) = (name(), name(), name());
        (i.plan, i.outcome, i.evidence) = (name(), name(), name());
        i.cause = Some(v1::Cause {
            fingerprint: name(),
            words: name(),
            count: 2,
        });
        (i.root, i.judged) = (name(), name());
        i.stages[0].name = name();
    }
    let history = report.history.as_mut().unwrap();
    for lane in &mut history.lanes {
        lane.role = name();
        lane.spans.iter_mut().for_each(|s| s.phase = name());
        lane.spent.iter_mut().for_each(|s| s.phase = name());
    }
    history.causes.iter_mut().for_each(|c| c.cause = name());
    history.transfers.iter_mut().for_each(|t| t.kind = name());
    history.slowest.push(v1::Transfer {
        kind: name(),
        who: name(),
        road: name(),
        ..Default::default()
    });
    let roads = history.transfers.iter_mut().flat_map(|t| &mut t.roads);
    roads.for_each(|by| by.road = name());
    history.config = serde_json::json!({ NAME: NAME }).to_string();
    let page = page(&report);
    for harm in ["<script", "<img", "\u{1b}", "onerror=alert(2)>"] {
        assert!(!page.contains(harm), "{harm:?}");
    }
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert_whole(&page.replace("</html>", ""));
    let text = text::report(&Run::of(&report), Paint::plain(), false);
    assert!(
        !text.contains("\u{1b}"),
        "a terminal is told nothing either: {text:?}"
    );
}

#[test]
fn of_many_instances_those_with_incidents_are_drawn() {
    let mut report = report();
    let many = |index| v1::Lane {
        index,
        ..lane("rollout", ["generating", "idle"])
    };
    report.incidents[1].index = 900;
    report.history.as_mut().unwrap().lanes = (0..1_000).map(many).collect();
    let run = Run::of(&report);
    let rows = gantt::rows(&run);
    assert_eq!(rows.len(), gantt::ROWS);
    assert!(rows.iter().any(|lane| lane.index == 900));
    assert!(page(&report).contains("960 more instances, without incidents, are not drawn."));
}

#[test]
fn parts_are_put_together_in_their_order() {
    let mut whole = v1::History::default();
    let history = report().history.unwrap();
    let head = v1::History {
        lanes: Vec::new(),
        ..history.clone()
    };
    join(&mut whole, head);
    for lane in history.lanes.clone() {
        let lanes = vec![lane];
        let part = v1::History {
            lanes,
            ..Default::default()
        };
        join(&mut whole, part);
    }
    assert_eq!(whole, history);
}

#[test]
fn an_incident_says_what_it_came_of() {
    let mut report = report();
    assert!(!page(&report).contains("Cause:"), "no incident has one");
    report.incidents[0].cause = Some(v1::Cause {
        fingerprint: "91b2a947f85fabd6".to_owned(),
        words: "exit code 1: no layer <7>".to_owned(),
        count: 3,
    });
    let says = "<p>Cause: exit code 1: no layer &lt;7&gt;, 3 times in a row (91b2a947f85fabd6)</p>";
    assert!(page(&report).contains(says));
}

#[test]
fn steps_fit_80_columns_and_say_more_where_the_terminal_is_wide() {
    let line = v1::StepLine {
        step: 9_999,
        at_ms: BEGIN,
        reward: 0.5,
        loss: -0.1234,
        grad_norm: 10.123,
        tokens: 123_456,
        seconds: 12.5,
        entropy: Some(1.25),
        groups: Some(8),
        flat_groups: Some(3),
        ..Default::default()
    };
    let told = v1::Report {
        step_lines: vec![line],
        ..Default::default()
    };
    let lines = |r: &v1::Report, columns| text::steps(r, columns).render(Paint::plain());
    let wide = lines(&told, Some(160));
    assert!(wide.contains("1.2500") && wide.contains("3/8"), "{wide}");
    for columns in [None, Some(80)] {
        let narrow = lines(&told, columns);
        assert!(!narrow.contains("ENTROPY"), "{narrow}");
        let longest = narrow.lines().map(|line| line.chars().count()).max();
        assert!(longest.unwrap() <= 80, "{narrow}");
    }
    let silent = v1::StepLine {
        entropy: None,
        groups: None,
        flat_groups: None,
        ..line
    };
    let silent = v1::Report {
        step_lines: vec![silent],
        ..Default::default()
    };
    assert!(!lines(&silent, Some(160)).contains("ENTROPY"));
}
