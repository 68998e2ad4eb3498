//! From the core's view to what operators' tools read.
use robust_proto::v1;
use robust_shared::core::{
    Answer, ArmedOn, Context, Incident, InstanceView, NodeView, PauseView, Recurring, Restarted,
    Root, SlotRef, StepMetrics, Testimony, View,
};
use robust_shared::ettr::{Slice, TimeSpent};
use robust_shared::ids::Step;
use robust_shared::job::Job;
use robust_shared::promises::Promises;
use robust_shared::time::Time;
use robust_shared::wire::{JobState, TestimonyState};
use std::time::Duration;

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// What does not change while the daemon runs.
#[derive(Clone, Debug)]
pub struct Frame {
    job: String,
    mode: &'static str,
    policy: &'static str,
    steps: u64,
    node: String,
    publish_after: &'static str,
    protected: bool,
    router: String,
    hosted: Vec<v1::HostedRole>,
    promises: Vec<v1::Promise>,
}

impl Frame {
    /// Of this job, on this machine.
    pub fn new(job: &Job) -> Self {
        let Promises { hosted, promises } = Promises::of(job);
        Self {
            hosted: hosted.iter().map(v1::HostedRole::from).collect(),
            promises: promises.iter().map(v1::Promise::from).collect(),
            job: job.job.name.clone(),
            mode: job.job.mode.name(),
            policy: job.job.policy.name(),
            steps: job.steps().unwrap_or(0),
            publish_after: job.checkpoint.publish_after.name(),
            protected: job.job.protected,
            router: String::new(),
            node: job
                .nodes
                .first()
                .map_or_else(|| "local".to_owned(), |n| n.name.clone()),
        }
    }

    /// With the address at which clients reach the job's engines.
    pub fn routed_at(self, router: String) -> Self {
        Self { router, ..self }
    }

    /// The address at which clients reach the job's engines; empty when they do not.
    pub fn router(&self) -> &str {
        &self.router
    }

    /// The machine's name.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The status before the core runs.
    pub fn starting(&self, now: Time, reason: &str) -> v1::Status {
        v1::Status {
            job: self.job.clone(),
            mode: self.mode.to_owned(),
            policy: self.policy.to_owned(),
            state: JobState::Starting.word().to_owned(),
            steps_total: self.steps,
            now_ms: now.millis(),
            started_ms: now.millis(),
            node: self.node.clone(),
            daemon_version: env!("CARGO_PKG_VERSION").to_owned(),
            reason: reason.to_owned(),
            publish_after: self.publish_after.to_owned(),
            protected: self.protected,
            router: self.router.clone(),
            hosted: self.hosted.clone(),
            promises: self.promises.clone(),
            ..Default::default()
        }
    }

    /// The status the core shows.
    pub fn status(&self, view: &View, now: Time) -> v1::Status {
        v1::Status {
            state: view.state.word().to_owned(),
            step: view.step.0,
            steps_total: view.steps_total,
            weight_version: view.version.map_or(0, |v| v.0),
            reward: view.reward,
            ettr_sliding: view.ettr.sliding,
            ettr: view.ettr.total,
            goodput: view.ettr.goodput,
            roles: view.instances.iter().map(|i| role(i, view, now)).collect(),
            incidents: view.incidents.iter().map(incident).collect(),
            goodput_sliding: view.ettr.goodput_sliding,
            ettr_history: view.ettr.history.clone(),
            goodput_history: view.ettr.goodput_history.clone(),
            reward_history: view.reward_history.clone(),
            started_ms: view.started.millis(),
            step_seconds: view.step_duration.as_secs_f64(),
            trajectories_in_flight: view.in_flight,
            trajectories_finished: view.finished,
            trajectories_discarded: view.discarded,
            trajectories_stale: view.stale,
            trajectories_set_aside: view.set_aside,
            trajectories_given_back: view.given_back,
            context: view.context.map_or("", Context::word).to_owned(),
            reason: view.reason.clone(),
            weight_bytes: view.weight_bytes,
            nodes: view.nodes.iter().map(node).collect(),
            steps_repeated: view.ettr.steps_repeated,
            pause: view.pause.as_ref().map(pause),
            armed: view.armed.iter().map(armed).collect(),
            time_spent: Some(time_spent(&view.spent)),
            ..self.starting(now, "")
        }
    }
}

/// A committed step's figures; `seconds` since the one before.
pub fn step_line(step: Step, at: Time, metrics: &StepMetrics, seconds: f64) -> v1::StepLine {
    let health = &metrics.health;
    v1::StepLine {
        step: step.0,
        at_ms: at.millis(),
        reward: metrics.reward,
        loss: metrics.loss,
        grad_norm: metrics.grad_norm,
        tokens: metrics.tokens,
        staleness: metrics.staleness,
        seconds,
        clip_fraction: health.clip_fraction,
        entropy: health.entropy,
        kl: health.kl,
        groups: health.groups,
        flat_groups: health.flat_groups,
        mean_length: health.mean_length,
        longest: health.longest,
    }
}

fn time_spent(spent: &TimeSpent) -> v1::TimeSpent {
    let slice = |(slice, time): &(Slice, Duration)| v1::TimeSlice {
        name: slice.name().to_owned(),
        seconds: time.as_secs_f64(),
    };
    let windows = spent.windows.iter().map(|w| v1::TimeWindow {
        name: w.name.word().to_owned(),
        from_ms: w.from.millis(),
        to_ms: w.to.millis(),
        slices: w.slices.iter().map(slice).collect(),
    });
    let stretches = spent.stretches.iter().map(|s| v1::TimeStretch {
        slice: s.slice.name().to_owned(),
        from_ms: s.from.millis(),
        ms: millis(s.to.since(s.from)),
        over: s.over,
    });
    v1::TimeSpent {
        windows: windows.collect(),
        stretches: stretches.collect(),
    }
}

/// A fault that waits.
pub fn armed(on: &ArmedOn) -> v1::ArmedFault {
    v1::ArmedFault {
        id: on.armed.number,
        fault: on.armed.fault.to_string(),
        role: on.id.role.name().to_owned(),
        index: on.id.index,
        incarnation: on.life.map_or(0, |life| life.0),
        at: on.armed.at.map(|at| at.to_string()).unwrap_or_default(),
        since_ms: on.armed.since.millis(),
    }
}

/// A slot by the name of its node.
pub fn slot(view: &View, slot: &SlotRef) -> v1::Slot {
    let node = view.nodes.get(slot.node.0 as usize);
    v1::Slot {
        node: node.map_or_else(String::new, |n| n.node.spec.name.clone()),
        pool: slot.pool.clone(),
        index: slot.index,
    }
}

fn node(n: &NodeView) -> v1::NodeStatus {
    let (spec, labels) = (&n.node.spec, &n.node.spec.labels);
    let slot = |(pool, index): &(String, u32)| v1::Slot {
        node: spec.name.clone(),
        pool: pool.clone(),
        index: *index,
    };
    v1::NodeStatus {
        name: spec.name.clone(),
        state: n.node.state.word().to_owned(),
        cordoned: n.node.cordoned,
        dc: labels.dc.clone(),
        rack: labels.rack.clone(),
        accel: labels.accel.clone(),
        pools: spec.pools.clone().into_iter().collect(),
        lost: n.node.lost.iter().map(slot).collect(),
        draining: n.node.left_slots().iter().map(slot).collect(),
        instances: n.instances,
        faults: n.faults,
        last_fault_ms: n.node.faults.last().map_or(0, |at| at.millis()),
        cordoned_for_faults: n.node.faults.cordoned(),
    }
}

/// A pause as operators see it.
pub fn pause(pause: &PauseView) -> v1::Pause {
    v1::Pause {
        state: pause.state().word().to_owned(),
        after_step: pause.after.0,
        since_ms: pause.since.millis(),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn restarted(restarted: &Restarted) -> v1::Restarted {
    v1::Restarted {
        at_ms: restarted.at.millis(),
        why: restarted.why.clone(),
        incident: restarted.incident.map_or(0, |number| number.0),
    }
}

fn role(i: &InstanceView, view: &View, now: Time) -> v1::RoleStatus {
    let slot = i.slot.as_ref().map(|s| slot(view, s)).unwrap_or_default();
    let place = match slot.node.is_empty() {
        true => String::new(),
        false => format!("{} {}", slot.pool, slot.index),
    };
    v1::RoleStatus {
        node: slot.node,
        slot: place,
        role: i.id.role.name().to_owned(),
        index: i.id.index,
        incarnation: i.incarnation.0,
        pid: i.pid,
        state: i.state.word().to_owned(),
        phase: i.phase.name().to_owned(),
        weight_version: i.version.map_or(0, |v| v.0),
        tokens_total: i.tokens_total,
        tool_failures: i.tool_failures,
        callers_refused: i.callers_refused,
        tokens_per_s: i.tokens_per_s,
        running: i.running,
        restarts: i.restarts,
        cpu_percent: i.cpu * 100.0,
        rss_bytes: i.rss_bytes,
        disk_read_bytes: i.disk_read_bytes,
        disk_write_bytes: i.disk_write_bytes,
        admitted: i.admitted,
        quarantined: i.quarantined,
        pull_bytes: i.pull_bytes,
        pull_total: i.pull_total,
        pull_version: i.pull_version.map_or(0, |v| v.0),
        // The rest of the pull is the driver's to say.
        pull_chunks: 0,
        pull_chunks_total: 0,
        pull_source: String::new(),
        pull_road: String::new(),
        pull_bytes_per_s: 0.0,
        pull_fetched: 0,
        pull_patched: 0,
        pull_changed_words: 0,
        pull_wrong_patches: 0,
        phase_ms: millis(now.since(i.phase_since)),
        restarts_planned: i.replaced,
        restarted: i.restarted.iter().map(restarted).collect(),
        // What devices show is the driver's to say, too, and how long steps take.
        step_ms: None,
        gpu_percent: None,
        gpu_memory_bytes: None,
        gpu_memory_total_bytes: None,
        gpu_celsius: None,
    }
}

/// An incident as operators see it.
pub fn incident(i: &Incident) -> v1::Incident {
    let starts = std::iter::once(i.struck).chain(i.marks.iter().map(|(_, at)| *at));
    let stages = i
        .marks
        .iter()
        .zip(starts)
        .map(|((name, at), from)| v1::Stage {
            name: name.clone(),
            ms: ms(at.since(from)),
        });
    v1::Incident {
        id: i.id.0,
        role: i.who.role.name().to_owned(),
        index: i.who.index,
        incarnation: i.incarnation.0,
        rule: i.rule.clone(),
        reason: i.reason.clone(),
        plan: i.plan.clone(),
        detect_ms: ms(i.detect()),
        restart_ms: i.restart().map_or(0.0, ms),
        reconnect_ms: i.reconnect().map_or(0.0, ms),
        total_ms: i.total().map_or(0.0, ms),
        outcome: i.outcome.word().to_owned(),
        at_ms: i.verdict.millis(),
        step: i.step.0,
        evidence: i.evidence.clone(),
        stages: stages.collect(),
        swept: i.swept.iter().map(|life| life.0).collect(),
        cause: i.cause.as_ref().map(cause),
        root: i.root.as_ref().map(Root::to_string).unwrap_or_default(),
        testimony: i.testimony.iter().map(testimony).collect(),
        judged: i.judged.map(|who| who.to_string()).unwrap_or_default(),
        under: i.under.map_or(0, |first| first.0),
        // Not the controller's: what shows it to operators puts them there.
        notes: Vec::new(),
    }
}

fn cause(recurring: &Recurring) -> v1::Cause {
    v1::Cause {
        fingerprint: recurring.cause.fingerprint.to_string(),
        words: recurring.cause.words.clone(),
        count: recurring.count,
    }
}

fn testimony(of: &Testimony) -> v1::Testimony {
    v1::Testimony {
        role: of.who.role.name().to_owned(),
        index: of.who.index,
        incarnation: of.incarnation.0,
        node: of.node.clone(),
        state: match &of.answer {
            Answer::Seen(seen) => seen.state.word(),
            Answer::Late => TestimonyState::Late.word(),
            Answer::Awaited | Answer::Unheard => TestimonyState::Unheard.word(),
        }
        .to_owned(),
        place: of.place(),
    }
}
