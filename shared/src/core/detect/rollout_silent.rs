//! Rollout silent: requests run and no token comes for the whole window: suspect. A suspect gets no
//! traffic and is probed (one token, really generated); only a failed probe is a verdict.
//!
//! Applies to `generating` with requests running, to other phases while by the tickets given requests
//! must be running there (a stopped process can't report its phase), and to one that was told to
//! pull weights and uses no processor time at all, in `awaiting_tool` too, and in `paused` if it is a hybrid.
//! Silent else: tools and pauses may take as long as they like. A hybrid engine whose slot is its rank's has no requests, whatever the tickets.
use super::{ByPhase, ByRole, Fall, Rule, Setting, Sight, Verdict, Watch, health_probe, settings};
use crate::core::effects::Cx;
use crate::core::gang::context::Turn;
use crate::core::roster::instance::Instance;
use crate::core::roster::instances::Current;
use crate::core::weights::Holder;
use crate::core::{Core, FaultKind, Mutation, Output, Severity};
use crate::ids::{InstanceId, Role};
use crate::phase::Phase;
use crate::time::Time;
use std::time::Duration;

/// A rollout that gives no tokens.
pub const RULE: Rule = Rule {
    name: "rollout silent",
    roles: &[Role::Hybrid, Role::Rollout],
    phases: &[
        Phase::Init,
        Phase::PullWeights,
        Phase::Idle,
        Phase::Generating,
        // Of one that was told to pull; `paused` of a hybrid alone.
        Phase::AwaitingTool,
        Phase::Paused,
    ],
    signal: "no token with requests running; told to pull weights, no processor time at all",
    action: "suspect: no traffic, one probe that must generate; failed: evidence, restart",
    kind: Some(FaultKind::Hang),
    event: None,
    watch: Some(Watch {
        due,
        fall: Fall::Act(Core::check_rollouts_silent),
        is_learned: false,
    }),
};

settings! {
    /// What a job file may set of it.
    pub struct RolloutSilent {
        /// Silence that makes a suspect.
        pub window: ByPhase<Duration> = Setting::window(60.0),
        /// How long the answer to a suspect's probe may take.
        pub probe_timeout: ByRole<Duration> = Setting::seconds("probe_timeout_s", 5.0),
    }
}

fn silent_since(sight: &Sight<'_>, i: &Instance) -> Option<Time> {
    let applies = i.id().role.is_engine()
        && i.was_attached()
        && i.condemned().is_none()
        && i.suspect().is_none();
    let paused = i.phase() == Phase::Paused;
    let loaded = match i.phase() {
        _ if i.turn() != Turn::Rolls => false,
        Phase::Generating => {
            i.sample().running > 0 || sight.work.rollouts.running(i.incarnation()) > 0
        }
        Phase::AwaitingTool | Phase::Paused => false,
        _ => sight.work.rollouts.running(i.incarnation()) > 0,
    };
    let pulls = sight.weights.of(i.id()).is_about_to_pull();
    let since = match (loaded, pulls) {
        (true, _) => i.tokens_at(),
        (false, true) if !paused || i.id().role == Role::Hybrid => i.tokens_at().max(i.moved_at()),
        (false, _) => return None,
    };
    (applies && i.sampled_at() > since).then_some(since)
}

/// When the rule falls, if no token comes.
pub fn due(sight: &Sight<'_>, i: &Instance) -> Option<Time> {
    let window = || {
        let rules = &sight.config.rules;
        rules.rollout_silent.window.at(i.id().role, i.phase())
    };
    silent_since(sight, i).map(|since| since + window())
}

impl Core {
    pub(super) fn check_rollouts_silent(&mut self, fallen: &[InstanceId]) {
        let now = self.now;
        for &id in fallen.iter().filter(|id| id.role.is_engine()) {
            let Some(i) = self.s.roster.instances().get(id) else {
                continue;
            };
            if due(&self.s.sight(self.now, &self.config), i).is_some_and(|at| at <= now) {
                let (incarnation, phase) = (i.incarnation(), i.phase());
                let timeout = self.config.rules.rollout_silent.probe_timeout.of(id.role);
                let until = now + timeout;
                let silence = now.since(i.tokens_at()).as_secs_f64();
                if let Some(i) = self.s.roster.get_mut(id) {
                    i.suspect_until(until);
                }
                self.out.push(Output::Probe {
                    incarnation,
                    timeout,
                    suspect: true,
                });
                let text =
                    format!("{id} is suspect: no sign of work in {phase} for {silence:.1} s");
                self.event(Severity::Warn, "suspect", Some(id), text);
            } else if i.suspect().is_some_and(|at| at <= now)
                && i.health().failures == 0
                && i.condemned().is_none()
            {
                let (roster, cx) = self.roster();
                let i = roster.get_mut(id);
                let what = "a health probe got no answer in time";
                if let Some(verdict) = i.and_then(|i| silent_for_good(&cx, i, what)) {
                    self.fault(verdict);
                }
            }
        }
    }

    pub(in crate::core) fn on_probed(&mut self, current: Current, ok: bool) {
        let holder = self.s.weights.of(current.id);
        let mut cx = Cx {
            now: self.now,
            config: &self.config,
            out: &mut self.out,
        };
        let engine = self.s.roster.of_mut(current);
        if let Some(verdict) = answered(&mut cx, engine, holder, ok) {
            self.fault(verdict);
        }
    }
}

/// The answer to a probe, of this rule or of the other one that asks.
fn answered(cx: &mut Cx<'_>, i: &mut Instance, holder: &Holder, ok: bool) -> Option<Verdict> {
    if i.condemned().is_some() {
        return None;
    }
    if i.suspect().is_none() || i.health().failures > 0 {
        let asked = i.health().asked.is_some();
        return asked.then(|| health_probe::answered(cx, i, holder, ok))?;
    }
    if !ok {
        return silent_for_good(cx, i, "a health probe failed");
    }
    i.answered(cx.now);
    let text = format!("{} answered its probe and gets traffic again", i.id());
    cx.event(Severity::Info, "suspect", Some(i.id()), text);
    None
}

fn silent_for_good(cx: &Cx<'_>, i: &mut Instance, what: &str) -> Option<Verdict> {
    if cx.config.mutant(Mutation::ForgetProbe) {
        i.suspect_until(Time::FAR);
        return None;
    }
    i.trust();
    let silence = cx.now.since(i.tokens_at()).as_secs_f64();
    let reason = format!(
        "no sign of work in {} for {silence:.1} s, then {what}",
        i.phase()
    );
    Some(Verdict::new(i.id(), &RULE, reason).hanging())
}
