//! What a rule is: a value that says where it speaks, what it looks at and what can be set.
use crate::core::FaultKind;
use crate::ids::Role;
use crate::phase::Phase;

/// Names a rule; the order is that of [`super::RULES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleId {
    /// A process ended.
    Exit,
    /// A process could not be started.
    Spawn,
    /// A started process does not link.
    AttachOverdue,
    /// A broken link does not come back.
    LinkLost,
    /// A rank stopped computing.
    TrainerIdle,
    /// A rollout gives no tokens.
    RolloutSilent,
    /// An engine does not generate when asked to.
    HealthProbe,
    /// An agent worker stopped.
    AgentSilent,
    /// A pull brings no bytes.
    PullStall,
    /// A call to the gang ended with an exception.
    Exception,
    /// Loss or gradient are no numbers.
    Numeric,
    /// Weights are served whose digests differ.
    Corruption,
    /// A phase takes too long.
    PhaseOverrun,
    /// A rank is slower than its gang.
    Straggler,
    /// A hybrid engine does not pause, or does not go on.
    ContextSwitch,
    /// A node is not heard any more.
    NodeLost,
    /// A device fails, or is about to.
    Hardware,
    /// Somebody paused an engine and left it so.
    PausedTooLong,
    /// A trajectory takes engines along.
    Poison,
    /// An agent worker gives everything back.
    AgentUnable,
}

/// A detection rule. What is in force for it in a job is in [`super::RuleSet`].
#[derive(Debug, PartialEq)]
pub struct Rule {
    /// Which.
    pub id: RuleId,
    /// As incidents name it; with `_` for blanks it is the table's name in the job file.
    pub name: &'static str,
    /// Whom it watches.
    pub roles: &'static [Role],
    /// The phases in which it speaks; empty: all.
    pub phases: &'static [Phase],
    /// What it looks at.
    pub signal: &'static str,
    /// What it does when it finds something.
    pub action: &'static str,
    /// The budget its faults count against; none: it never restarts anything.
    pub kind: Option<FaultKind>,
    /// What a job file may set. The first one is what `phases = { .. }` sets for single phases.
    pub settings: &'static [Setting],
}

/// A number of a rule that a job file may set, for all or for single roles.
#[derive(Debug, PartialEq)]
pub struct Setting {
    /// Its key.
    pub key: &'static str,
    /// Its value if nobody sets it.
    pub default: f64,
    /// The smallest value with a meaning.
    pub least: f64,
    /// The largest.
    pub most: f64,
    /// It counts something.
    pub whole: bool,
    /// A window over activity samples: it must span several, or one late sample would be a verdict.
    pub samples: bool,
    /// It may differ by phase.
    pub by_phase: bool,
}

/// Longest time a rule may wait: 30 days.
pub const LONGEST_S: f64 = 30.0 * 86_400.0;
/// Activity samples a window must span.
pub const LEAST_SAMPLES: u32 = 4;

impl Rule {
    /// The name of its table below `[detect]`.
    pub fn key(&self) -> String {
        self.name.replace(' ', "_")
    }

    /// Its setting of this key.
    pub fn setting(&self, key: &str) -> Option<&'static Setting> {
        self.settings.iter().find(|s| s.key == key)
    }
}

impl RuleId {
    /// The rule.
    pub fn rule(self) -> &'static Rule {
        super::RULES[self as usize]
    }

    /// As incidents name it.
    pub fn name(self) -> &'static str {
        self.rule().name
    }
}

impl Setting {
    /// A time in seconds.
    pub const fn seconds(key: &'static str, default: f64) -> Self {
        Self {
            key,
            default,
            least: 0.001,
            most: LONGEST_S,
            whole: false,
            samples: false,
            by_phase: false,
        }
    }

    /// A number that counts nothing.
    pub const fn number(key: &'static str, default: f64, least: f64, most: f64) -> Self {
        Self {
            least,
            most,
            ..Self::seconds(key, default)
        }
    }

    /// A number of things.
    pub const fn count(key: &'static str, default: f64, least: f64, most: f64) -> Self {
        Self {
            whole: true,
            ..Self::number(key, default, least, most)
        }
    }

    /// A time that a phase may take, in seconds; it may be 0.
    pub const fn bound(key: &'static str, default: f64) -> Self {
        Self {
            least: 0.0,
            by_phase: true,
            ..Self::seconds(key, default)
        }
    }

    /// A window over activity samples, in seconds.
    pub const fn window(default: f64) -> Self {
        Self {
            samples: true,
            by_phase: true,
            ..Self::seconds("window_s", default)
        }
    }
}
