//! The rules in force: the table of all rules, every setting with its value and where that came from.
use super::setting::{LEAST_SAMPLES, LONGEST_S, Source, Value, Values};
use super::{RULES, Rule, RuleSet, attach_overdue, node_lost, scope};
use crate::ids::Role;
use crate::job::{Detect, DetectValue, Problem};
use crate::phase::Phase;
use std::collections::BTreeMap;
use std::time::Duration;

/// Settings that say how long a rule waits for a sign of life.
const WAITS: [&str; 3] = ["window_s", "timeout_s", "probe_timeout_s"];

/// One line of the rules in force.
#[derive(Clone, Debug, PartialEq)]
pub struct InForce {
    /// The rule.
    pub rule: &'static Rule,
    /// The setting's key; empty for a rule that has none.
    pub key: &'static str,
    /// For this role only.
    pub role: Option<Role>,
    /// For this phase only.
    pub phase: Option<Phase>,
    /// The value.
    pub value: f64,
    /// Where it came from.
    pub source: Source,
}

/// Makes the table of rules and, of the same lines, the struct of what is set of them.
macro_rules! registry {
    ($($field:ident: $settings:ty = $rule:path,)+) => {
        /// Every rule; `robustctl rules` prints them in this order with what is in force, and in this
        /// order they are looked at when a timer falls.
        pub static RULES: &[&Rule] = &[$(&$rule),+];

        /// The settings of every rule in one job.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct RuleSet {
            $(
                #[doc = concat!("Of [`", stringify!($rule), "`].")]
                pub $field: $settings,
            )+
            /// Rules that are switched off: they find nothing.
            off: Vec<&'static Rule>,
        }

        #[cfg(test)]
        const FIELDS: &[&str] = &[$(stringify!($field)),+];

        impl RuleSet {
            fn tables(&self) -> Vec<(&'static Rule, Vec<&Values>)> {
                vec![$((&$rule, self.$field.values())),+]
            }

            pub(super) fn tables_mut(&mut self) -> Vec<(&'static Rule, Vec<&mut Values>)> {
                vec![$((&$rule, self.$field.values_mut())),+]
            }
        }
    };
}
pub(super) use registry;

impl RuleSet {
    /// The same with something set, for simulations and tests.
    pub fn with(mut self, set: impl FnOnce(&mut Self)) -> Self {
        set(&mut self);
        self
    }

    /// Whether a rule is switched off: what it would find is nothing to anybody.
    pub fn is_off(&self, rule: &Rule) -> bool {
        self.off.contains(&rule)
    }

    /// Those that are not, in the order of the table.
    pub(in crate::core) fn on(&self) -> impl Iterator<Item = &'static Rule> {
        RULES.iter().copied().filter(|rule| !self.is_off(rule))
    }

    /// The shortest time after which a rule may find fault with a process of this role because it does nothing,
    /// whatever its phase. Whoever stops one for a moment stays far below it. A rule that only tells or is switched off
    /// is none of these, nor are those of nodes and links, which live on meanwhile; none at all: 30 days.
    pub fn least_patience(&self, role: Role) -> Duration {
        let watches = |rule: &Rule| {
            rule.kind.is_some()
                && rule.roles.contains(&role)
                && *rule != node_lost::RULE
                && *rule != attach_overdue::LINK_LOST
                && !self.is_off(rule)
        };
        let tables = self.tables().into_iter();
        let settings = tables.filter(|(rule, _)| watches(rule)).flat_map(|t| t.1);
        let times = settings.filter(|values| WAITS.contains(&values.setting.key));
        let seconds = times.flat_map(move |values| {
            let own = values.special.iter();
            let own = own.filter(move |s| s.role.is_none_or(|of| of == role));
            std::iter::once(values.base.number).chain(own.map(|s| s.value.number))
        });
        let least = seconds.fold(LONGEST_S, f64::min);
        Duration::try_from_secs_f64(least).unwrap_or_default()
    }

    /// Switches a rule off, for simulations and tests.
    pub fn switch_off(&mut self, rule: &'static Rule) {
        self.off.push(rule);
    }

    /// Everything in force, rule by rule, what is special after what is general.
    pub fn in_force(&self) -> Vec<InForce> {
        let mut lines = Vec::new();
        for (rule, settings) in self.tables() {
            let line = |key, role, phase, value: &Value| InForce {
                rule,
                key,
                role,
                phase,
                value: value.number,
                source: value.source.clone(),
            };
            if settings.is_empty() {
                let (number, source) = (0.0, Source::Default);
                lines.push(line("", None, None, &Value { number, source }));
            }
            for values in settings {
                let key = values.setting.key;
                lines.push(line(key, None, None, &values.base));
                let special = values.special.iter();
                lines.extend(special.map(|s| line(key, s.role, s.phase, &s.value)));
            }
        }
        lines
    }

    /// The rules of a job file's `[detect]`; the first impossible value is the error.
    pub fn from_job(detect: &Detect) -> Result<Self, Problem> {
        let mut set = Self::default();
        let sample = detect.sample_interval().as_secs_f64();
        for (name, value) in &detect.rules {
            let key = format!("detect.{name}");
            let (rule, mut settings) = scope::rule_named(&mut set, &key, name)?;
            let table = scope::table(&key, value)?;
            read(rule, &mut settings, table, &key, None, sample)?;
        }
        for (at, name) in detect.off.iter().enumerate() {
            set.off
                .push(scope::any_rule(&format!("detect.off.{at}"), name)?);
        }
        Ok(set)
    }
}

/// Reads a rule's table, or within it that of a role.
fn read(
    rule: &Rule,
    settings: &mut [&mut Values],
    table: &BTreeMap<String, DetectValue>,
    at: &str,
    role: Option<Role>,
    sample_s: f64,
) -> Result<(), Problem> {
    for (name, value) in table {
        let key = format!("{at}.{name}");
        let phased = settings.iter().position(|s| s.setting.by_phase);
        if let Some(values) = settings.iter_mut().find(|s| s.setting.key == name) {
            scope::may_differ(rule, &values.setting, &key, role)?;
            let number = scope::number(&values.setting, &key, value, sample_s)?;
            values.say(role, None, number, key);
        } else if let (Some(phased), "phases") = (phased, name.as_str()) {
            for (name, value) in scope::table(&key, value)? {
                let key = format!("{key}.{name}");
                let phase = scope::phase_named(rule, &key, name)?;
                let number = scope::number(&settings[phased].setting, &key, value, sample_s)?;
                settings[phased].say(role, Some(phase), number, key);
            }
        } else if let (None, Some(own)) = (role, scope::role_named(rule, name)) {
            let table = scope::table(&key, value)?;
            read(rule, settings, table, &key, Some(own), sample_s)?;
        } else {
            return Err(scope::unknown(rule, settings, &key, name, role));
        }
    }
    Ok(())
}

/// The least a window over samples may be.
pub(super) fn least_window_s(sample_s: f64) -> f64 {
    sample_s * f64::from(LEAST_SAMPLES)
}
