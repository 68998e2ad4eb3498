//! What a rule is: a value that says where it speaks, what it looks at and when time makes it fall.
use super::sight::{Finding, Sight};
use crate::core::roster::instance::Instance;
use crate::core::{Core, FaultKind};
use crate::ids::{InstanceId, Role};
use crate::phase::Phase;
use crate::time::Time;

/// A detection rule. What is in force for it in a job is in [`super::RuleSet`].
#[derive(Debug)]
pub struct Rule {
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
    /// The kind of the events that say what it found; none: its verdicts do, as incidents.
    pub event: Option<&'static str>,
    /// When time makes it fall; none: only what happens does.
    pub(in crate::core) watch: Option<Watch>,
}

/// Looks at those whose timers have fallen, and does what follows.
pub(in crate::core) type Check = fn(&mut Core, &[InstanceId]);

/// What is done when a rule falls.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) enum Fall {
    /// It looks at an instance for which it is due, and says what it finds.
    Judge(fn(&Sight<'_>, &Instance) -> Option<Finding>),
    /// It asks before it finds anything, or does more than to find.
    Act(Check),
}

/// How a rule falls though nothing happens.
#[derive(Debug)]
pub(in crate::core) struct Watch {
    /// When it falls for an instance, if nothing happens before.
    pub due: fn(&Sight<'_>, &Instance) -> Option<Time>,
    /// What is done then.
    pub fall: Fall,
    /// When it falls is learned from others as well: it may move without a word of the instance.
    pub is_learned: bool,
}

/// Two rules of one name are the same: a test holds that no two have one.
impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Rule {}

impl Rule {
    /// The name of its table below `[detect]`.
    pub fn key(&self) -> String {
        self.name.replace(' ', "_")
    }
}
