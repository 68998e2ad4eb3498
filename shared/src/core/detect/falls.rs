//! What is done when timers have fallen: each rule looks at those whose they were, one rule after the other.
use super::rule::Fall;
use super::{Finding, RULES, Rule, Sight};
use crate::core::Core;
use crate::core::config::CoreConfig;
use crate::core::output::Severity;
use crate::core::roster::instance::Instance;
use crate::core::state::{JobState, State};
use crate::core::timers::TimerKey;
use crate::ids::{InstanceId, Role};
use crate::time::Time;

impl Core {
    /// Applies every rule that is due by now.
    pub(in crate::core) fn check_deadlines(&mut self) {
        self.derive();
        if self.now < self.hears_until {
            return;
        }
        let fallen = self.timers.take_fallen(self.now);
        let (mut nodes, mut instances) = (Vec::new(), Vec::new());
        for key in fallen {
            match key {
                TimerKey::Instance(id) => instances.push(id),
                TimerKey::Node(id) => nodes.push(id),
            }
        }
        self.check_nodes(&nodes);
        let fallen: Vec<InstanceId> = instances;
        let over = |core: &Self| fallen.is_empty() || core.s.job != JobState::Running;
        if !over(self) {
            self.execute_condemned(&fallen);
        }
        for &rule in RULES {
            if !over(self) && !self.config.rules.is_off(rule) {
                self.rule_falls(rule, &fallen);
            }
        }
        for part in [Self::end_avoidance, Self::respawn_due] {
            if !over(self) {
                part(self, &fallen);
            }
        }
        for &id in &fallen {
            // Its timer is set again, by what was found and done.
            self.s.roster.touch(id);
        }
    }

    /// A rule looks at those whose timers have fallen.
    fn rule_falls(&mut self, rule: &'static Rule, fallen: &[InstanceId]) {
        let Some(watch) = &rule.watch else {
            return;
        };
        let judge = match watch.fall {
            Fall::Act(check) => return check(self, fallen),
            Fall::Judge(judge) => judge,
        };
        for &id in fallen {
            let sight = self.s.sight(self.now, &self.config);
            let is_due = |i: &&Instance| (watch.due)(&sight, i).is_some_and(|at| at <= sight.now);
            let due = sight.instances.get(id).filter(is_due);
            let Some(finding) = due.and_then(|i| judge(&sight, i)) else {
                continue;
            };
            // One hang is enough: it ends the whole gang, of which the others wait for it.
            let ends_gang =
                matches!(&finding, Finding::Failed(v) if v.hangs && v.who.role == Role::Trainer);
            self.take_finding(rule, id, finding);
            if ends_gang || self.s.job != JobState::Running {
                return;
            }
        }
    }

    fn take_finding(&mut self, rule: &'static Rule, id: InstanceId, finding: Finding) {
        let kind = rule.event.unwrap_or(rule.name);
        match finding {
            Finding::Failed(verdict) => self.fault(verdict),
            Finding::Lasts(text) => {
                if let Some(i) = self.s.roster.get_mut(id) {
                    i.note_overrun();
                }
                self.event(Severity::Warn, kind, Some(id), text);
            }
            Finding::Stalls {
                order,
                source,
                text,
            } => {
                if self.pull_stalls(id, order, source) {
                    self.event(Severity::Warn, kind, Some(id), text);
                }
            }
        }
    }

    /// Sources that were passed over for long enough may be tried again.
    fn end_avoidance(&mut self, fallen: &[InstanceId]) {
        let now = self.now;
        for &id in fallen {
            self.s.weights.end_avoidance(&self.config, now, id);
        }
    }
}

impl State {
    /// What rules look at, now.
    pub(in crate::core) fn sight<'a>(&'a self, now: Time, config: &'a CoreConfig) -> Sight<'a> {
        Sight {
            now,
            config,
            instances: self.roster.instances(),
            gang: &self.gang,
            weights: &self.weights,
            work: &self.work,
            durations: &self.durations,
            is_paused: self.orders.is_paused(),
            resumed_at: self.orders.resumed_at(),
            gang_is_condemned: self.roster.counts(Role::Trainer).condemned > 0,
        }
    }
}
