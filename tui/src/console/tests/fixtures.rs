//! A small job in several situations.
use super::super::drills::DrillFile;
use super::super::event::Event;
use super::super::state::{Settings, State};
use super::super::stored::{CheckpointRow, Stored};
use super::super::ui::look::Look;
use crate::cli::ThemeName;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use robust_proto::v1;

/// 2026-01-02 03:04:05 UTC.
pub const NOW: u64 = 1_767_323_045_000;

/// Of a console in a terminal that can show everything.
pub fn settings() -> Settings {
    let look = Look::new(ThemeName::Dark, true, false);
    let place = "unix socket /run/user/1000/robust/control.sock".to_owned();
    let fix = "start one:  robustd --job FILE --state-dir /run/user/1000/robust\n\
               or name another's state directory with --state-dir DIR or ROBUST_STATE_DIR";
    Settings {
        fix: fix.to_owned(),
        ..Settings::of(look, place)
    }
}

/// A console that has just asked for its first connection (number 1).
pub fn console() -> State {
    console_of(settings())
}

/// The same, started like this.
pub fn console_of(settings: Settings) -> State {
    let mut state = State::new(settings);
    assert_eq!(state.start(NOW).len(), 1);
    state
}

/// A console that shows this status.
pub fn showing(status: v1::Status) -> State {
    showing_of(settings(), status)
}

/// The same, started like this.
pub fn showing_of(settings: Settings, status: v1::Status) -> State {
    let mut state = console_of(settings);
    if status.step > 0 {
        with_past(&mut state, &status, 1);
    }
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
    (s.ettr_history, s.goodput_history) = (vec![0.0; 3], vec![0.0; 3]);
    s.goodput_sliding = 0.0;
    s.time_spent = None;
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
        goodput_sliding: 0.951,
        ettr_history: (0..300).map(ettr).collect(),
        goodput_history: (0..300)
            .map(|i| ettr(i) * if i > 160 { 0.93 } else { 1.0 })
            .collect(),
        reward_history: (0..118).map(reward).collect(),
        now_ms: NOW,
        started_ms: NOW - 201_000,
        node: "node-a".into(),
        daemon_version: "0.1.0".into(),
        step_seconds: 1.21,
        trajectories_in_flight: 96,
        trajectories_finished: 41,
        weight_bytes: 4_300_000,
        weight_digest: "5c".repeat(32),
        time_spent: Some(time_spent()),
        ..Default::default()
    }
}

/// A window that ends now.
pub fn time_window(name: &str, length_ms: u64, slices: &[(&str, f64)]) -> v1::TimeWindow {
    let slice = |(name, seconds): &(&str, f64)| v1::TimeSlice {
        name: (*name).to_owned(),
        seconds: *seconds,
    };
    v1::TimeWindow {
        name: name.into(),
        from_ms: NOW - length_ms,
        to_ms: NOW,
        slices: slices.iter().map(slice).collect(),
    }
}

/// Of a job that is 201 s old.
fn time_spent() -> v1::TimeSpent {
    let slices = [
        ("useful", 104.3),
        ("waits_for_data", 61.0),
        ("waits_for_weights", 3.1),
        ("between", 21.0),
        ("detect", 0.003),
        ("restart", 1.34),
        ("reconnect", 0.412),
        ("replayed", 1.645),
        ("start", 8.2),
    ];
    let stretch = |slice: &str, ago_ms: u64, ms: u64, over: bool| v1::TimeStretch {
        slice: slice.into(),
        from_ms: NOW - ago_ms,
        ms,
        over,
    };
    v1::TimeSpent {
        windows: vec![time_window("job", 201_000, &slices)],
        stretches: vec![
            stretch("start", 201_000, 8_200, false),
            stretch("replayed", 126_900, 1_900, true),
            stretch("detect", 125_003, 3, true),
            stretch("restart", 125_000, 1_340, false),
            stretch("reconnect", 123_660, 412, false),
            stretch("waits_for_data", 2_100, 900, false),
            stretch("between", 1_200, 310, false),
            stretch("useful", 890, 890, false),
        ],
    }
}

/// The same on two nodes.
pub fn on_two_nodes() -> v1::Status {
    let mut s = healthy();
    let node = |name: &str| v1::NodeStatus {
        name: name.into(),
        state: "here".into(),
        dc: "fra-1".into(),
        rack: "r07".into(),
        accel: "H200".into(),
        pools: [("train".to_owned(), 2), ("serve".to_owned(), 4)].into(),
        instances: 4,
        ..Default::default()
    };
    s.nodes = vec![node("node-a"), node("node-b")];
    s.replicas = Some(v1::ReplicaStatus {
        step: 118,
        state: "safe".into(),
        spread: "racks".into(),
        waiting: String::new(),
    });
    s.remote = Some(v1::RemoteStatus {
        url: "s3://weights/arith".into(),
        step: Some(100),
        sent_bytes: 9 << 30,
        skipped: 1,
        failed: 2,
        failing: "the bucket does not answer".into(),
    });
    (s.checkpoints_skipped, s.trajectories_stale) = (3, 12);
    s.trajectories_given_back = 5;
    if let Some(agent) = s.roles.iter_mut().find(|r| r.role == "agent") {
        agent.tool_failures = 17;
    }
    (s.disk_total_bytes, s.disk_free_bytes) = (400 << 30, 31 << 30);
    (s.nodes[1].cordoned, s.nodes[1].cordoned_for_faults) = (true, true);
    (s.nodes[1].faults, s.nodes[1].last_fault_ms) = (3, s.now_ms - 200_000);
    s.nodes[1].lost = vec![v1::Slot {
        node: "node-b".into(),
        pool: "serve".into(),
        index: 3,
    }];
    for r in &mut s.roles {
        r.node = format!("node-{}", if r.index == 0 { 'a' } else { 'b' });
        r.slot = format!("serve {}", r.index);
    }
    s
}

/// The whole task is being restarted: nothing runs.
pub fn task_restart() -> v1::Status {
    let mut s = healthy();
    s.state = "recovering".into();
    let mut fault = incident(2, "recovering");
    fault.plan = "second fault in the same step: the task restarts from step 118".into();
    fault.swept = (3..10).collect();
    s.incidents.push(fault);
    for r in &mut s.roles {
        (r.state, r.phase, r.phase_ms) = ("recovering".into(), "init".into(), STRUCK_AGO_MS);
        (r.running, r.tokens_per_s, r.admitted) = (0, 0.0, false);
        r.restarts += 1;
    }
    s
}

/// A minute of statuses before this one, so that there is a past to show.
pub fn with_past(state: &mut State, last: &v1::Status, link: u64) {
    const ROUND: [(&str, u64); 6] = [
        ("await_batch", 4),
        ("old_logprob", 2),
        ("update", 7),
        ("snapshot", 1),
        ("publish", 1),
        ("await_batch", 1),
    ];
    for beat in 0..240_u64 {
        let at = NOW - 60_000 + beat * 250;
        let mut s = last.clone();
        s.now_ms = at;
        s.state = "running".into();
        for r in &mut s.roles {
            let mut into = (beat + u64::from(r.index)) % 16;
            r.state = "running".into();
            match r.role.as_str() {
                "trainer" => {
                    let mut round = ROUND.iter();
                    let phase = loop {
                        match round.next() {
                            Some(&(_, length)) if into >= length => into -= length,
                            Some((phase, _)) => break phase,
                            None => break &"await_batch",
                        }
                    };
                    (r.phase, r.phase_ms) = ((*phase).to_owned(), into * 250);
                }
                "rollout" if into == 15 => {
                    (r.phase, r.phase_ms) = ("pull_weights".into(), 90);
                }
                _ => (r.phase, r.phase_ms) = ("generating".into(), into.min(14) * 250),
            }
        }
        if last.state == "recovering" && NOW - at <= STRUCK_AGO_MS {
            s.roles.clone_from(&last.roles);
            s.state.clone_from(&last.state);
            for r in &mut s.roles {
                r.phase_ms = r.phase_ms.saturating_sub(NOW - at);
            }
        }
        let _ = state.handle(at, over(link, s));
    }
}

/// In situations with a fault it was this long ago.
const STRUCK_AGO_MS: u64 = 6_640;

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
        total_ms: if whole { 1755.0 } else { STRUCK_AGO_MS as f64 },
        outcome: outcome.into(),
        at_ms: NOW - if whole { 125_000 } else { STRUCK_AGO_MS },
        step: 61,
        evidence: "process 41007 (robust-worker) is in state T (stopped)\nwchan do_signal_stop\n\
                   #0  __GI___poll () from libc.so.6\n#1  uct_progress () from libuct.so.0"
            .into(),
        stages: if whole { stages() } else { Vec::new() },
        swept: vec![3],
        ..Default::default()
    }
}

fn stages() -> Vec<v1::Stage> {
    [
        ("exited", 1.1),
        ("seen", 2.1),
        ("process start", 840.0),
        ("load_checkpoint", 500.0),
    ]
    .map(|(name, ms)| v1::Stage {
        name: name.into(),
        ms,
    })
    .into()
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
        r.phase_ms = STRUCK_AGO_MS - 230;
    }
    let puller = &mut s.roles[4];
    (puller.pull_bytes, puller.pull_version, puller.admitted) = (1_720_000, 118, false);
    puller.weight_version = 117;
    (puller.pull_chunks, puller.pull_chunks_total) = (2, 5);
    puller.pull_source = "rollout-1".into();
    puller.pull_bytes_per_s = 1.93e9;
    s
}

/// The end of a log.
pub fn log_lines() -> Vec<String> {
    let lines = [
        "INFO listening on /run/user/1000/robust/roles/trainer-0.sock",
        "INFO step 117: loss is 0.4133, grad norm 1.21",
        "INFO snapshot of step 117 copied in 41 ms",
        "WARN loss is not falling any more",
    ];
    lines.map(str::to_owned).into()
}

/// A store with a checkpoint that is of no use.
pub fn stored(at: u64) -> Stored {
    let row = |step: u64| CheckpointRow {
        step,
        bytes: Some(1_288_490_188),
        ranks: 2,
        reward: Some(0.4),
        at_ms: None,
        pinned: step == 100,
        state: "complete".into(),
    };
    let mut bad = row(112);
    (bad.bytes, bad.reward, bad.ranks) = (None, None, 0);
    bad.state = "unusable: the shard of rank 1 is missing".into();
    let trajectory = |member: u32| v1::Trajectory {
        batch: 119,
        group: member / 8,
        member: member % 8,
        state: if member < 7 { "running" } else { "finished" }.into(),
        turn_count: 1 + member % 3,
        tokens: u64::from(190 * (1 + member)),
        oldest_version: 117,
        reward: (member >= 7).then_some(0.5),
        ..Default::default()
    };
    Stored {
        at,
        checkpoints: Ok(vec![row(118), row(116), bad, row(100)]),
        trajectories: Ok((0..12).map(trajectory).collect()),
        cut: false,
    }
}

/// The last step of those that were committed.
const STEPS: u64 = 118;

/// A committed step. Of the first twenty nothing is known that a former build did not keep.
fn step_line(step: u64) -> v1::StepLine {
    let at = step as f64;
    let kept = |value: f64| (step > 20).then_some(value);
    v1::StepLine {
        step,
        at_ms: NOW - (STEPS - step) * 1_210,
        reward: 0.1 + 0.31 * at / 118.0 + 0.05 * (at % 7.0) / 7.0,
        loss: -0.03 + 0.01 * (at % 5.0),
        grad_norm: if step == 62 {
            41.5
        } else {
            1.2 + 0.1 * (at % 3.0)
        },
        tokens: 2_000 + 10 * (step % 11),
        staleness: step % 2,
        seconds: if step == 62 { 3.4 } else { 1.21 },
        clip_fraction: kept(0.002 * (at % 4.0)),
        entropy: kept(2.1 - at / 100.0),
        kl: kept(0.000_4 * (at % 9.0)),
        groups: (step > 20).then_some(16),
        flat_groups: (step > 20).then_some((step / 20) as u32),
        mean_length: kept(120.0 + at),
        longest: (step > 20).then_some(256),
    }
}

/// What the daemon answers who asks for figures of steps.
pub fn steps_read() -> Event {
    Event::StepsRead {
        started_ms: healthy().started_ms,
        lines: Some((1..=STEPS).map(step_line).collect()),
    }
}

/// A catalogue of two.
pub fn drill_files() -> Vec<DrillFile> {
    let file = |name: &str, about: &str| DrillFile {
        path: format!("fixtures/drills/{name}.toml").into(),
        name: name.into(),
        about: about.into(),
        plan: Ok([
            "series sync (mode sync): 6 steps each; runs none, task, role",
            "  fault   kill trainer-0 at step 1.5",
            "  expect  restarts_none + 2 <= restarts_role",
        ]
        .map(str::to_owned)
        .into()),
        faults: 2,
    };
    let mut broken = file("broken", "Names a job that is not there.");
    broken.plan = Err("cannot read ../jobs/none.toml: no such file".into());
    broken.faults = 0;
    vec![
        file(
            "paper",
            "No faults, policy task and policy role, as in the paper's evaluation.",
        ),
        broken,
    ]
}
