//! The rules in force: every setting with its value and where the value came from.
use super::rule::{LEAST_SAMPLES, Rule, RuleId, Setting};
use super::{RULES, scope};
use crate::ids::Role;
use crate::job::{Detect, DetectValue, Problem};
use crate::phase::Phase;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The values of every rule in one job.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleSet(Vec<Values>);

/// The values of one rule, in the order of its settings, then what single roles and phases have.
#[derive(Clone, Debug, PartialEq)]
struct Values {
    base: Vec<Value>,
    special: Vec<Special>,
}

#[derive(Clone, Debug, PartialEq)]
struct Special {
    setting: usize,
    role: Option<Role>,
    phase: Option<Phase>,
    value: Value,
}

#[derive(Clone, Debug, PartialEq)]
struct Value {
    number: f64,
    source: Source,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// A key of the job file, dotted.
    JobFile(String),
    /// It follows from another key of the job file.
    Derived(&'static str),
    /// A program set it: a simulation or a test.
    Program,
}

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

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::JobFile(key) => write!(f, "job file: {key}"),
            Source::Derived(from) => write!(f, "from {from}"),
            Source::Program => f.write_str("set by program"),
        }
    }
}

impl Default for RuleSet {
    fn default() -> Self {
        let value = |s: &Setting| Value {
            number: s.default,
            source: Source::Default,
        };
        let values = |rule: &&Rule| Values {
            base: rule.settings.iter().map(value).collect(),
            special: Vec::new(),
        };
        Self(RULES.iter().map(values).collect())
    }
}

impl RuleSet {
    /// What a setting is for this role in this phase: the most special value wins.
    pub fn get(&self, rule: RuleId, key: &str, role: Role, phase: Phase) -> f64 {
        let settings = rule.rule().settings;
        let Some(at) = settings.iter().position(|s| s.key == key) else {
            return 0.0;
        };
        let values = &self.0[rule as usize];
        let fits = |s: &&Special| {
            s.setting == at
                && s.role.is_none_or(|r| r == role)
                && s.phase.is_none_or(|p| p == phase)
        };
        let rank = |s: &&Special| (s.phase.is_some(), s.role.is_some());
        let special = values.special.iter().filter(fits).max_by_key(rank);
        special.map_or(values.base[at].number, |s| s.value.number)
    }

    /// The rule's window for this role in this phase.
    pub fn window(&self, rule: RuleId, role: Role, phase: Phase) -> Duration {
        seconds(self.get(rule, "window_s", role, phase))
    }

    /// A time that the rule has for all alike.
    pub fn time(&self, rule: RuleId, key: &str) -> Duration {
        seconds(self.number(rule, key))
    }

    /// A number that the rule has for all alike.
    pub fn number(&self, rule: RuleId, key: &str) -> f64 {
        let at = rule.rule().settings.iter().position(|s| s.key == key);
        at.map_or(0.0, |at| self.0[rule as usize].base[at].number)
    }

    /// The same with one value set, for simulations and tests.
    pub fn with(mut self, rule: RuleId, key: &str, number: f64) -> Self {
        self.put(rule, key, number, Source::Program);
        self
    }

    /// Sets what follows from another key, unless the job file says it.
    pub fn derive(&mut self, rule: RuleId, key: &str, number: f64, from: &'static str) {
        let at = rule.rule().settings.iter().position(|s| s.key == key);
        let unset = |at: usize| self.0[rule as usize].base[at].source == Source::Default;
        if at.is_some_and(unset) {
            self.put(rule, key, number, Source::Derived(from));
        }
    }

    /// Sets what a rule's window is for a role, or for it in one phase, unless the job file says just that.
    pub fn derive_for(
        &mut self,
        rule: RuleId,
        (role, phase): (Role, Option<Phase>),
        number: f64,
        from: &'static str,
    ) {
        let special = &mut self.0[rule as usize].special;
        let says_it = |s: &Special| s.phase == phase && s.role.is_none_or(|r| r == role);
        if !special.iter().any(says_it) {
            special.push(Special {
                setting: 0,
                role: Some(role),
                phase,
                value: Value {
                    number,
                    source: Source::Derived(from),
                },
            });
        }
    }

    fn put(&mut self, rule: RuleId, key: &str, number: f64, source: Source) {
        if let Some(at) = rule.rule().settings.iter().position(|s| s.key == key) {
            self.0[rule as usize].base[at] = Value { number, source };
        }
    }

    /// Everything in force, rule by rule, what is special after what is general.
    pub fn in_force(&self) -> Vec<InForce> {
        let mut lines = Vec::new();
        for (rule, values) in RULES.into_iter().zip(&self.0) {
            let line = |key, role, phase, value: &Value| InForce {
                rule,
                key,
                role,
                phase,
                value: value.number,
                source: value.source.clone(),
            };
            if rule.settings.is_empty() {
                lines.push(InForce {
                    rule,
                    key: "",
                    role: None,
                    phase: None,
                    value: 0.0,
                    source: Source::Default,
                });
            }
            for (at, setting) in rule.settings.iter().enumerate() {
                lines.push(line(setting.key, None, None, &values.base[at]));
                let special = values.special.iter().filter(|s| s.setting == at);
                lines.extend(special.map(|s| line(setting.key, s.role, s.phase, &s.value)));
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
            let rule = scope::rule_named(&key, name)?;
            let table = scope::table(&key, value)?;
            set.read(rule, table, &key, None, sample)?;
        }
        Ok(set)
    }

    /// Reads a rule's table, or within it that of a role.
    fn read(
        &mut self,
        rule: &'static Rule,
        table: &BTreeMap<String, DetectValue>,
        at: &str,
        role: Option<Role>,
        sample_s: f64,
    ) -> Result<(), Problem> {
        for (name, value) in table {
            let key = format!("{at}.{name}");
            if let Some(index) = rule.settings.iter().position(|s| s.key == name) {
                let number = scope::number(&rule.settings[index], &key, value, sample_s)?;
                self.special(rule.id, index, role, None, number, key);
            } else if name == "phases" && rule.settings.first().is_some_and(|s| s.by_phase) {
                for (name, value) in scope::table(&key, value)? {
                    let key = format!("{key}.{name}");
                    let phase = scope::phase_named(rule, &key, name)?;
                    let number = scope::number(&rule.settings[0], &key, value, sample_s)?;
                    self.special(rule.id, 0, role, Some(phase), number, key);
                }
            } else if let (None, Some(own)) = (role, scope::role_named(rule, name)) {
                self.read(rule, scope::table(&key, value)?, &key, Some(own), sample_s)?;
            } else {
                return Err(scope::unknown(rule, &key, name, role));
            }
        }
        Ok(())
    }

    fn special(
        &mut self,
        rule: RuleId,
        setting: usize,
        role: Option<Role>,
        phase: Option<Phase>,
        number: f64,
        key: String,
    ) {
        let value = Value {
            number,
            source: Source::JobFile(key),
        };
        let values = &mut self.0[rule as usize];
        match (role, phase) {
            (None, None) => values.base[setting] = value,
            _ => values.special.push(Special {
                setting,
                role,
                phase,
                value,
            }),
        }
    }
}

/// Seconds as a duration; what no job file may hold counts as none.
fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or_default()
}

/// The least a window over samples may be.
pub(super) fn least_window_s(sample_s: f64) -> f64 {
    sample_s * f64::from(LEAST_SAMPLES)
}
