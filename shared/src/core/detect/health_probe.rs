//! Health probe: every so often an engine must generate one token, whether it has requests or not
//! (slime's four parameters). That it answers some other question proves nothing.
//!
//! ```text
//!            first_wait after its link, then every interval
//!  trusted ───────────────────────────────────► probed ── ok ──► trusted
//!     ▲                                           │ failed, or no answer within the timeout
//!     └──── one success, or any token ──── suspect: no traffic ── threshold in a row ──► verdict
//! ```
//! Silent while the engine is paused, has no verified weights yet, is not linked, or is suspected by
//! the silent rule, whose own probe decides. Tokens that come while a probe waits are generation
//! too: an engine so loaded that a probe starves is not sick (I-8).
use super::{ByRole, Fall, Rule, Setting, Values, Verdict, Watch, settings};
use crate::core::effects::Cx;
use crate::core::roster::instance::Instance;
use crate::core::weights::Holder;
use crate::core::{Core, FaultKind, Output, Severity};
use crate::ids::{InstanceId, Role};
use crate::job::EngineHealth;
use crate::phase::Phase;
use crate::time::Time;
use std::time::Duration;

/// An engine that does not generate when it is asked to.
pub const RULE: Rule = Rule {
    name: "health probe",
    roles: &[Role::Hybrid, Role::Rollout],
    // Before its first weights are verified it is not admitted, whatever phase it reports.
    phases: &[
        Phase::Init,
        Phase::PullWeights,
        Phase::Idle,
        Phase::Generating,
        Phase::AwaitingTool,
    ],
    signal: "asked to generate one token, it does not within the timeout",
    action: "suspect: no traffic until a success; `threshold` in a row: evidence, quarantine, restart",
    kind: Some(FaultKind::Health),
    event: None,
    watch: Some(Watch {
        due: |sight, i| due(i, sight.weights.of(i.id())),
        fall: Fall::Act(Core::check_health),
        is_learned: false,
    }),
};

settings! {
    /// What a job file may set of it.
    pub struct HealthProbe {
        /// How long after its link it is first asked.
        pub first_wait: ByRole<Duration> = Setting::seconds("first_wait_s", 300.0),
        /// How often it is asked.
        pub interval: ByRole<Duration> = Setting::seconds("interval_s", 10.0),
        /// How long an answer may take.
        pub timeout: ByRole<Duration> = Setting::seconds("timeout_s", 5.0),
        /// Failures in a row that are a verdict.
        pub threshold: ByRole<u32> = Setting::number("threshold", 3.0, 1.0, 1000.0),
    }
}

impl HealthProbe {
    /// What `rollout.command.health` says of the settings: each with its value, if it is said, and the
    /// key that says it.
    pub(crate) fn said_by(
        &mut self,
        health: &EngineHealth,
    ) -> [(&mut Values, Option<f64>, &'static str); 4] {
        [
            (
                self.first_wait.values.as_mut(),
                health.first_wait_s,
                "rollout.command.health.first_wait_s",
            ),
            (
                self.interval.values.as_mut(),
                health.every_s,
                "rollout.command.health.every_s",
            ),
            (
                self.timeout.values.as_mut(),
                health.timeout_s,
                "rollout.command.health.timeout_s",
            ),
            (
                self.threshold.values.as_mut(),
                health.threshold.map(f64::from),
                "rollout.command.health.threshold",
            ),
        ]
    }
}

fn applies(i: &Instance, holder: &Holder) -> bool {
    let silent_rule_decides = i.suspect().is_some() && i.health().failures == 0;
    i.id().role.is_engine()
        && i.attached()
        && holder.is_admitted()
        && i.condemned().is_none()
        && !silent_rule_decides
        && RULE.phases.contains(&i.phase())
}

/// When a probe is to be sent, or counts as failed.
pub fn due(i: &Instance, holder: &Holder) -> Option<Time> {
    applies(i, holder).then(|| i.health().asked.unwrap_or(i.health().next))
}

impl Core {
    pub(super) fn check_health(&mut self, fallen: &[InstanceId]) {
        for &id in fallen.iter().filter(|id| id.role.is_engine()) {
            let (s, now) = (&mut self.s, self.now);
            let Some(i) = s.roster.get_mut(id) else {
                continue;
            };
            let mut cx = Cx {
                now,
                config: &self.config,
                out: &mut self.out,
            };
            if let Some(verdict) = check(&mut cx, i, s.weights.of(id)) {
                self.fault(verdict);
            }
        }
    }
}

/// A new life of an engine: its first probe waits until it can be expected to be warm.
pub(in crate::core) fn begin(cx: &Cx<'_>, engine: &mut Instance) {
    let wait = &cx.config.rules.health_probe.first_wait;
    engine.begin_probes(cx.now + wait.of(engine.id().role));
}

/// Tokens came: that is generation, which is all a probe asks for.
pub(in crate::core) fn generates(cx: &Cx<'_>, engine: &mut Instance) {
    engine.generates(next(cx, engine));
}

/// The answer to a probe of this rule.
pub(super) fn answered(
    cx: &mut Cx<'_>,
    engine: &mut Instance,
    holder: &Holder,
    ok: bool,
) -> Option<Verdict> {
    if !ok {
        return failed(cx, engine, holder, "it did not generate");
    }
    let (id, next) = (engine.id(), next(cx, engine));
    let failures = engine.probe_succeeded(cx.now, next);
    if failures > 0 {
        let text = format!("{id} generates again after {failures} failed probes and gets traffic");
        cx.event(Severity::Info, "suspect", Some(id), text);
    }
    None
}

/// When the next probe is due after one that is over now.
fn next(cx: &Cx<'_>, engine: &Instance) -> Time {
    let interval = &cx.config.rules.health_probe.interval;
    cx.now + interval.of(engine.id().role)
}

fn check(cx: &mut Cx<'_>, i: &mut Instance, holder: &Holder) -> Option<Verdict> {
    let now = cx.now;
    let overdue = i.health().failures > 0 && i.suspect().is_some_and(|at| at <= now);
    if overdue && !applies(i, holder) {
        // Paused or unlinked: what was said of it before is void.
        i.void_probes(next(cx, i));
    }
    if due(i, holder).is_none_or(|at| at > now) {
        return None;
    }
    if i.health().asked.is_some() {
        return failed(cx, i, holder, "no answer in time");
    }
    let timeout = cx.config.rules.health_probe.timeout.of(i.id().role);
    let suspect = i.ask(now + timeout);
    cx.out.push(Output::Probe {
        incarnation: i.incarnation(),
        timeout,
        suspect,
    });
    None
}

fn failed(cx: &mut Cx<'_>, i: &mut Instance, holder: &Holder, what: &str) -> Option<Verdict> {
    let next = next(cx, i);
    i.probe_is_over(next);
    // Paused meanwhile: it could not answer.
    if !applies(i, holder) {
        return None;
    }
    let (id, failures) = (i.id(), i.probe_failed());
    if failures >= cx.config.rules.health_probe.threshold.of(id.role) {
        i.trust();
        let reason = format!(
            "{failures} probes in a row failed in {}, the last one: {what}; it is quarantined",
            i.phase()
        );
        return Some(Verdict::new(id, &RULE, reason).hanging());
    }
    i.suspect_until(next);
    if failures == 1 {
        let text = format!("{id} is suspect: a health probe failed ({what}); it gets no traffic");
        cx.event(Severity::Warn, "suspect", Some(id), text);
    }
    None
}
