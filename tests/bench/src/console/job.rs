//! A large job that never ran: statuses in which something changes every quarter of a second.
use robust_proto::v1;
use robustctl::measuring::CheckpointRow;

/// Unix ms of its begin.
pub const BEGIN_MS: u64 = 1_767_323_045_000;
/// Between two statuses.
pub const EVERY_MS: u64 = 250;
/// Ranks of its gang; an eighth of the rest are agents.
const RANKS: u32 = 8;

/// Its status after so many quarters of a second.
pub fn status(instances: u32, beat: u64) -> v1::Status {
    let now_ms = BEGIN_MS + beat * EVERY_MS;
    let step = beat / 16;
    let roles = (0..instances).map(|n| instance(n, instances, beat));
    v1::Status {
        job: "bench".into(),
        mode: "async".into(),
        policy: "role".into(),
        state: "running".into(),
        step,
        steps_total: 100_000,
        weight_version: step,
        reward: 0.4,
        ettr_sliding: 0.95,
        ettr: 0.94,
        goodput: 0.93,
        roles: roles.collect(),
        incidents: (1..=50).map(|id| incident(id, now_ms)).collect(),
        ettr_history: (0..300).map(|n| 0.5 + f64::from(n % 50) / 100.0).collect(),
        goodput_history: (0..300).map(|n| 0.4 + f64::from(n % 60) / 100.0).collect(),
        reward_history: (0..300).map(|n| f64::from(n % 40) / 100.0).collect(),
        now_ms,
        started_ms: BEGIN_MS,
        step_seconds: 4.0,
        trajectories_in_flight: 4_000,
        weight_bytes: 16 << 30,
        nodes: (0..instances.div_ceil(8)).map(node).collect(),
        ..Default::default()
    }
}

fn instance(n: u32, instances: u32, beat: u64) -> v1::RoleStatus {
    const ROUND: [&str; 4] = ["await_batch", "old_logprob", "update", "publish"];
    let agents = (instances - instances.min(RANKS)) / 8;
    let (role, index) = match n {
        n if n < RANKS => ("trainer", n),
        n if n < RANKS + agents => ("agent", n - RANKS),
        n => ("rollout", n - RANKS - agents),
    };
    let turn = beat + u64::from(n);
    let engine = role == "rollout";
    let (phase, in_phase) = match role {
        "trainer" => (ROUND[(beat / 4 % 4) as usize], beat % 4),
        _ if turn % 16 == 15 => ("pull_weights", 0),
        _ => ("generating", turn % 16),
    };
    let total = 16 << 30;
    v1::RoleStatus {
        role: role.into(),
        index,
        incarnation: u64::from(n) + 1,
        pid: 10_000 + n,
        state: if turn.is_multiple_of(97) {
            "recovering"
        } else {
            "running"
        }
        .into(),
        phase: phase.into(),
        weight_version: beat / 16,
        tokens_per_s: 800.0 + (turn % 61) as f64,
        tokens_total: beat * 200,
        running: (turn % 64) as u32,
        restarts: n % 3,
        cpu_percent: (turn % 100) as f64,
        rss_bytes: 2 << 30,
        admitted: engine,
        pull_bytes: if engine {
            total / 16 * (turn % 16 + 1)
        } else {
            0
        },
        pull_total: if engine { total } else { 0 },
        pull_version: beat / 16,
        phase_ms: in_phase * EVERY_MS,
        node: format!("node-{}", n / 8),
        slot: format!("gpu {}", n % 8),
        pull_chunks: turn % 16 + 1,
        pull_chunks_total: 16,
        pull_source: match (engine, index) {
            (false, _) => String::new(),
            (true, 0) => "trainer-0".to_owned(),
            (true, n) => format!("rollout-{}", (n - 1) / 2),
        },
        pull_bytes_per_s: 2.1e9,
        gpu_percent: Some(90.0),
        gpu_memory_bytes: Some(70 << 30),
        gpu_memory_total_bytes: Some(140 << 30),
        gpu_celsius: Some(60),
        step_ms: (role == "trainer").then_some(16 * EVERY_MS),
        ..Default::default()
    }
}

/// The phases that ended with this beat: everyone's, in turn.
pub fn phases(instances: u32, beat: u64) -> Vec<v1::PhaseSpan> {
    let before = beat.saturating_sub(1);
    let ended = (0..instances).filter_map(|n| {
        let (was, is) = (instance(n, instances, before), instance(n, instances, beat));
        let since = before - before.min(was.phase_ms / EVERY_MS);
        (was.phase != is.phase).then(|| v1::PhaseSpan {
            started_ms: BEGIN_MS + since * EVERY_MS,
            ms: (beat - since) * EVERY_MS,
            step: was.weight_version,
            incarnation: was.incarnation,
            phase: was.phase,
            role: was.role,
            index: was.index,
            present: false,
        })
    });
    ended.collect()
}

fn incident(id: u64, now_ms: u64) -> v1::Incident {
    let stage = |name: &str, ms| v1::Stage {
        name: name.into(),
        ms,
    };
    v1::Incident {
        id,
        role: "rollout".into(),
        index: id as u32,
        rule: "exit".into(),
        reason: "killed by SIGKILL".into(),
        plan: "restart rollout-3; its 12 requests go on elsewhere".into(),
        detect_ms: 3.0,
        restart_ms: 900.0,
        reconnect_ms: 400.0,
        total_ms: 1_303.0,
        outcome: "recovered".into(),
        at_ms: now_ms - (51 - id) * 2_000,
        evidence: "process 4711 is in state T\nwchan do_signal_stop\n".repeat(40),
        stages: vec![stage("exited", 1.0), stage("process start", 800.0)],
        ..Default::default()
    }
}

fn node(n: u32) -> v1::NodeStatus {
    v1::NodeStatus {
        name: format!("node-{n}"),
        state: "here".into(),
        dc: "dc-1".into(),
        rack: format!("r{:02}", n / 8),
        accel: "H200".into(),
        pools: [("gpu".to_owned(), 8)].into(),
        instances: 8,
        ..Default::default()
    }
}

/// A journal.
pub fn events() -> impl Iterator<Item = v1::Event> {
    (1..=500).map(|seq| v1::Event {
        seq,
        at_ms: BEGIN_MS + seq * 100,
        severity: "info".into(),
        kind: "step".into(),
        text: format!("step {seq} committed: reward 0.412, 2210 tokens, staleness 1"),
        ..Default::default()
    })
}

/// A hundred checkpoints.
pub fn checkpoints() -> Vec<CheckpointRow> {
    let row = |step: u64| CheckpointRow {
        step,
        bytes: Some(48 << 30),
        ranks: 8,
        reward: Some(0.4),
        at_ms: Some(BEGIN_MS),
        pinned: step.is_multiple_of(10),
        state: "complete".into(),
    };
    (0..100).rev().map(row).collect()
}

/// Four for every instance.
pub fn trajectories(instances: u32) -> Vec<v1::Trajectory> {
    let one = |n: u32| v1::Trajectory {
        batch: 30,
        group: n / 8,
        member: n % 8,
        state: "running".into(),
        turn_count: n % 5,
        tokens: u64::from(n * 7),
        oldest_version: 29,
        ..Default::default()
    };
    (0..instances * 4).map(one).collect()
}

/// A log of usual length.
pub fn log() -> Vec<String> {
    (0..3_000)
        .map(|n| format!("2026-01-02T03:04:05Z INFO step {n}: loss 0.41 grad norm 1.2"))
        .collect()
}
