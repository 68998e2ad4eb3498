//! A small job in several situations.
use super::super::event::Event;
use super::super::state::State;
use super::super::ui::look::Look;
use crate::cli::ThemeName;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use robust_proto::v1;

/// 2026-01-02 03:04:05 UTC.
pub const NOW: u64 = 1_767_323_045_000;

/// A console that has just asked for its first connection (number 1).
pub fn console() -> State {
    let look = Look::new(ThemeName::Dark, true, false);
    let place = "unix socket /run/user/1000/robust/control.sock".to_owned();
    let fix = "start one:  robustd --job FILE --state-dir /run/user/1000/robust\n\
               or name another's state directory with --state-dir DIR or ROBUST_STATE_DIR";
    let mut state = State::new(look, place, fix.to_owned(), false);
    assert_eq!(state.start(NOW).len(), 1);
    state
}

/// A console that shows this status.
pub fn showing(status: v1::Status) -> State {
    let mut state = console();
    let begun = if status.step == 0 { 1 } else { 7 };
    let _ = state.handle(NOW, over(1, status));
    for event in journal().into_iter().take(begun) {
        let _ = state.handle(
            NOW,
            Event::Logged {
                link: 1,
                event: Box::new(event),
            },
        );
    }
    state
}

/// A status over a connection.
pub fn over(link: u64, status: v1::Status) -> Event {
    Event::Status {
        link,
        status: Box::new(status),
    }
}

/// A key without modifiers.
pub fn key(code: KeyCode) -> Event {
    Event::Key(KeyEvent::new(code, KeyModifiers::NONE))
}

/// A letter.
pub fn press(c: char) -> Event {
    key(KeyCode::Char(c))
}

/// An event with this number.
pub fn logged(seq: u64, severity: &str, kind: &str, role: &str, text: &str) -> v1::Event {
    v1::Event {
        seq,
        at_ms: NOW - 60_000 + seq * 1000,
        severity: severity.into(),
        kind: kind.into(),
        role: role.into(),
        index: 0,
        text: text.into(),
    }
}

fn journal() -> Vec<v1::Event> {
    vec![
        logged(1, "info", "job", "", "job arith-grpo started with 7 roles"),
        logged(
            2,
            "info",
            "admitted",
            "rollout",
            "serves version 0 and is routed to",
        ),
        logged(3, "fault", "verdict", "trainer", "exit: killed by SIGKILL"),
        logged(
            4,
            "info",
            "plan",
            "trainer",
            "restart the trainer gang from the snapshot of step 61",
        ),
        logged(5, "info", "recovered", "trainer", "recovered in 1.76 s"),
        logged(
            6,
            "warn",
            "straggler",
            "rollout",
            "generates at 0.4 times the median of its peers",
        ),
        logged(
            7,
            "info",
            "step",
            "",
            "step 118 committed: reward 0.412, 2210 tokens, staleness 1",
        ),
    ]
}

fn role(role: &str, index: u32, phase: &str, ms: u64) -> v1::RoleStatus {
    let rollout = role == "rollout";
    v1::RoleStatus {
        role: role.into(),
        index,
        incarnation: u64::from(index) + 3,
        pid: 41_000 + index * 7,
        state: "running".into(),
        phase: phase.into(),
        weight_version: 118,
        tokens_total: if rollout { 48_211 } else { 0 },
        tokens_per_s: if rollout {
            812.4 + f64::from(index)
        } else {
            0.0
        },
        running: if rollout { 16 + index } else { 0 },
        restarts: u32::from(role == "trainer"),
        cpu_percent: 61.3,
        rss_bytes: 412 << 20,
        admitted: rollout,
        pull_bytes: if rollout { 4_300_000 } else { 0 },
        pull_total: if rollout { 4_300_000 } else { 0 },
        pull_version: 118,
        phase_ms: ms,
        ..Default::default()
    }
}

/// A job that waits for its processes.
pub fn starting() -> v1::Status {
    let mut s = healthy();
    (s.state, s.step, s.weight_version, s.reward) = ("starting".into(), 0, 0, 0.0);
    (s.ettr_sliding, s.ettr, s.goodput, s.step_seconds) = (0.0, 0.0, 0.0, 0.0);
    (s.trajectories_in_flight, s.trajectories_finished) = (0, 0);
    s.ettr_history = vec![0.0; 3];
    s.reward_history.clear();
    s.incidents.clear();
    s.started_ms = NOW - 3_000;
    for r in &mut s.roles {
        *r = v1::RoleStatus {
            role: r.role.clone(),
            index: r.index,
            incarnation: r.incarnation,
            pid: r.pid,
            state: "starting".into(),
            phase: "init".into(),
            phase_ms: 2_400,
            ..Default::default()
        };
    }
    s
}

/// A job in its stride, one recovered incident behind it.
pub fn healthy() -> v1::Status {
    let ettr = |i: u32| match i {
        0..=129 => f64::from(i) / 135.0,
        130..=180 => 0.962 - f64::from(i - 130) * 0.004,
        _ => (0.76 + f64::from(i - 180) * 0.002).min(0.973),
    };
    let reward = |i: u32| 0.1 + 0.31 * f64::from(i) / 118.0 + 0.05 * f64::from(i % 7) / 7.0;
    v1::Status {
        job: "arith-grpo".into(),
        mode: "async".into(),
        context: String::new(),
        trajectories_discarded: 0,
        policy: "role".into(),
        state: "running".into(),
        step: 118,
        steps_total: 400,
        weight_version: 118,
        reward: 0.412,
        ettr_sliding: 0.973,
        ettr: 0.961,
        goodput: 0.95,
        roles: vec![
            role("trainer", 0, "update", 340),
            role("trainer", 1, "update", 341),
            role("rollout", 0, "generating", 8_120),
            role("rollout", 1, "generating", 7_911),
            role("rollout", 2, "pull_weights", 90),
            role("agent", 0, "generating", 12_000),
            role("agent", 1, "awaiting_tool", 35),
        ],
        incidents: vec![incident(1, "recovered")],
        ettr_history: (0..300).map(ettr).collect(),
        reward_history: (0..118).map(reward).collect(),
        now_ms: NOW,
        started_ms: NOW - 201_000,
        node: "node-a".into(),
        daemon_version: "0.1.0".into(),
        step_seconds: 1.21,
        trajectories_in_flight: 96,
        trajectories_finished: 41,
        reason: String::new(),
        weight_bytes: 4_300_000,
        weight_digest: "5c".repeat(32),
        steps_repeated: 0,
        nodes: Vec::new(),
        alarms: Vec::new(),
    }
}

/// The same on two nodes.
pub fn on_two_nodes() -> v1::Status {
    let mut s = healthy();
    let node = |name: &str| v1::NodeStatus {
        name: name.into(),
        state: "here".into(),
        ..Default::default()
    };
    s.nodes = vec![node("node-a"), node("node-b")];
    for r in &mut s.roles {
        r.node = format!("node-{}", if r.index == 0 { 'a' } else { 'b' });
    }
    s
}

fn incident(id: u64, outcome: &str) -> v1::Incident {
    let whole = outcome == "recovered";
    v1::Incident {
        id,
        role: "trainer".into(),
        index: 1,
        incarnation: 2,
        rule: "exit".into(),
        reason: "killed by SIGKILL".into(),
        plan: "restart the trainer gang from the snapshot of step 61".into(),
        detect_ms: 3.2,
        restart_ms: if whole { 1340.0 } else { 0.0 },
        reconnect_ms: if whole { 412.0 } else { 0.0 },
        total_ms: if whole { 1755.0 } else { 640.0 },
        outcome: outcome.into(),
        at_ms: NOW - if whole { 125_000 } else { 640 },
        step: 61,
        evidence: String::new(),
        stages: Vec::new(),
        swept: Vec::new(),
    }
}

/// The trainer gang is being restarted while the rollouts generate.
pub fn recovering() -> v1::Status {
    let mut s = healthy();
    s.state = "recovering".into();
    s.incidents.push(incident(2, "recovering"));
    for r in s.roles.iter_mut().filter(|r| r.role == "trainer") {
        r.state = "recovering".into();
        r.phase = if r.index == 0 {
            "load_checkpoint"
        } else {
            "init"
        }
        .into();
        r.restarts = 2;
        r.phase_ms = 410;
    }
    let puller = &mut s.roles[4];
    (puller.pull_bytes, puller.pull_version, puller.admitted) = (1_720_000, 118, false);
    puller.weight_version = 117;
    (puller.pull_chunks, puller.pull_chunks_total) = (2, 5);
    puller.pull_source = "rollout-1".into();
    puller.pull_bytes_per_s = 1.93e9;
    s
}
