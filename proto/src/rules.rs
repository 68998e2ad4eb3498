//! The rules in force as operators' tools read them.
use crate::v1;
use robust_shared::core::{CoreConfig, FaultKind, InForce, RULES, Rule};

impl From<&CoreConfig> for v1::Rules {
    fn from(config: &CoreConfig) -> Self {
        let in_force = config.rules.in_force();
        let off = |r: &Rule| config.rules.is_off(r).then(switched_off);
        let rules = RULES.iter().map(|r| rule(r, &in_force, off(r))).collect();
        let budgets = FaultKind::ALL.map(|kind| {
            let budget = config.budgets.of(kind);
            v1::RestartBudget {
                kind: kind.name().to_owned(),
                max: budget.max,
                window_s: budget.window.as_secs_f64(),
                backoff_ms: u64::try_from(budget.backoff.as_millis()).unwrap_or(u64::MAX),
                source: config.budgets.source(kind),
            }
        });
        Self {
            rules,
            budgets: budgets.into(),
            same_cause: config.same_cause,
            same_cause_source: config.source_of_same_cause().to_owned(),
        }
    }
}

fn rule(rule: &Rule, in_force: &[InForce], off: Option<v1::RuleValue>) -> v1::Rule {
    let own = |l: &&InForce| l.rule == rule && !l.key.is_empty();
    v1::Rule {
        name: rule.name.to_owned(),
        roles: rule.roles.iter().map(|r| r.name().to_owned()).collect(),
        phases: rule.phases.iter().map(|p| p.name().to_owned()).collect(),
        signal: rule.signal.to_owned(),
        action: rule.action.to_owned(),
        kind: rule.kind.map_or_else(String::new, |k| k.name().to_owned()),
        values: off
            .into_iter()
            .chain(in_force.iter().filter(own).map(value))
            .collect(),
    }
}

/// Of a rule that finds nothing, before its settings.
fn switched_off() -> v1::RuleValue {
    v1::RuleValue {
        key: "off".to_owned(),
        value: 1.0,
        source: "job file: detect.off".to_owned(),
        ..Default::default()
    }
}

fn value(line: &InForce) -> v1::RuleValue {
    v1::RuleValue {
        key: line.key.to_owned(),
        role: line.role.map_or_else(String::new, |r| r.name().to_owned()),
        phase: line.phase.map_or_else(String::new, |p| p.name().to_owned()),
        value: line.value,
        source: line.source.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use robust_shared::core::RuleSet;
    use std::time::Duration;

    #[test]
    fn every_rule_and_budget_is_there_and_a_set_value_names_its_source() {
        let config = CoreConfig {
            rules: RuleSet::default().with(|r| r.trainer_idle.window.set(Duration::from_secs(7))),
            ..CoreConfig::default()
        };
        let rules = v1::Rules::from(&config);
        assert_eq!(rules.rules.len(), RULES.len());
        assert_eq!(rules.budgets.len(), FaultKind::ALL.len());
        assert_eq!(rules.same_cause, 3);
        assert_eq!(rules.same_cause_source, "default");
        let idle = rules.rules.iter().find(|r| r.name == "trainer idle");
        let value = idle.map(|r| (r.values[0].value, r.values[0].source.as_str()));
        assert_eq!(value, Some((7.0, "set by program")));
    }
}
