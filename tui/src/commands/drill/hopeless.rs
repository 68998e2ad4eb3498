//! When what is expected of a rule that is switched off cannot be met any more: nobody waits for the rest.
//!
//! ```text
//!  struck ── longer ago than `detected_within` allows, and no incident ──► hopeless
//!     └───── every fault has its incident, and none is the rule's ─────────► hopeless
//! ```
//! Of a rule that only says something (an event) nothing is certain before the job is over.
use super::striker::Striker;
use robust_proto::v1;
use robust_shared::core::Rule;
use std::time::{Duration, Instant};

/// A fault counts from when it was struck, a status may be as much older.
const GRACE: Duration = Duration::from_millis(500);

/// Watches for it.
#[derive(Debug)]
pub struct Hopeless {
    rule: &'static Rule,
    within: Option<Duration>,
    /// Since when a fault is open.
    open: Option<Instant>,
}

impl Hopeless {
    /// For a rule that is off, and how soon every fault must be found.
    pub fn new(rule: &'static Rule, within: Option<Duration>) -> Self {
        Self {
            rule,
            within,
            open: None,
        }
    }

    /// Whether it is certain by now.
    pub fn is_certain(&mut self, now: Instant, striker: &Striker, status: &v1::Status) -> bool {
        self.open = match striker.unseen() {
            Some(_) => self.open.or(Some(now)),
            None => None,
        };
        let late = |since: Instant| self.within.is_some_and(|bound| now - since > bound + GRACE);
        if self.open.is_some_and(late) {
            return true;
        }
        let others = status.incidents.iter().all(|i| i.rule != self.rule.name);
        self.rule.event.is_none() && striker.all_seen() && others
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_shared::core::RULES;
    use robust_shared::drill::{After, Moment, Strike, Whom};
    use robust_shared::fault::Fault;
    use robust_shared::ids::{InstanceId, Role};

    fn kill() -> Strike {
        Strike {
            at: Moment::Steps(1.0),
            fault: Fault::Kill,
            whom: Whom::Instance(InstanceId {
                role: Role::Rollout,
                index: 0,
            }),
            phase: None,
            after: After::Commit,
        }
    }

    fn status(rules: &[&str]) -> v1::Status {
        let incident = |(id, rule): (u64, &&str)| v1::Incident {
            id,
            rule: (*rule).to_owned(),
            step: 1,
            ..Default::default()
        };
        v1::Status {
            state: "running".to_owned(),
            step: 1,
            incidents: (1..).zip(rules).map(incident).collect(),
            ..Default::default()
        }
    }

    fn watch(rules: &[&str], after: Duration) -> bool {
        let rule = RULES.iter().find(|r| r.name == "exit").unwrap();
        let mut hopeless = Hopeless::new(rule, Some(Duration::from_secs(3)));
        let (mut striker, t) = (Striker::new(vec![kill()], Duration::ZERO), Instant::now());
        let strike = striker.due(t, &status(&[])).unwrap();
        assert!(!hopeless.is_certain(t, &striker, &status(&[])));
        striker.struck(&strike, None, &status(&[]));
        assert!(!hopeless.is_certain(t, &striker, &status(&[])));
        striker.due(t + after, &status(rules));
        hopeless.is_certain(t + after, &striker, &status(rules))
    }

    #[test]
    fn a_run_goes_on_while_the_rule_may_still_find_the_fault_and_no_longer() {
        let second = Duration::from_secs(1);
        assert!(!watch(&[], second), "it may be found yet");
        assert!(watch(&[], second * 4), "nobody found it in time");
        assert!(watch(&["link lost"], second), "another rule found it");
        assert!(!watch(&["exit"], second), "the rule found it");
    }
}
