//! What a key of `[detect]` names, or why it is refused.
use super::ruleset::least_window_s;
use super::setting::{Setting, Values};
use super::{RULES, Rule, RuleSet};
use crate::ids::Role;
use crate::job::{DetectValue, Problem, suggest};
use crate::nearest::instead_of;
use crate::phase::Phase;
use std::collections::BTreeMap;

/// The rule whose table this is, and what can be set of it.
pub(super) fn rule_named<'s>(
    set: &'s mut RuleSet,
    key: &str,
    name: &str,
) -> Result<(&'static Rule, Vec<&'s mut Values>), Problem> {
    let mut tables = set.tables_mut();
    if let Some(at) = tables.iter().position(|(rule, _)| rule.key() == name) {
        return Ok(tables.swap_remove(at));
    }
    let settable = tables.iter().filter(|(_, settings)| !settings.is_empty());
    let known: Vec<String> = settable
        .map(|(rule, _)| rule.key())
        .chain(["sample_interval_ms", "evidence_ms", "off"].map(str::to_owned))
        .collect();
    Err(unknown_key(key, name, &known))
}

/// The rule of this name, whether anything can be set of it or not.
pub(super) fn any_rule(key: &str, name: &str) -> Result<&'static Rule, Problem> {
    let found = RULES.iter().find(|rule| rule.key() == name);
    found.copied().ok_or_else(|| {
        let known: Vec<String> = RULES.iter().map(|rule| rule.key()).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        Problem::BadValue {
            key: key.to_owned(),
            value: format!("`{name}`"),
            must: format!(
                "no rule is named so; {}",
                instead_of(name, &known, "the rules are")
            ),
        }
    })
}

/// The role of this name, if the rule watches it.
pub(super) fn role_named(rule: &Rule, name: &str) -> Option<Role> {
    let role = name.parse::<Role>().ok()?;
    rule.roles.contains(&role).then_some(role)
}

/// The phase of this name, if the rule speaks in it.
pub(super) fn phase_named(rule: &Rule, key: &str, name: &str) -> Result<Phase, Problem> {
    let speaks: Vec<Phase> = match rule.phases {
        [] => Phase::ALL.to_vec(),
        phases => phases.to_vec(),
    };
    let known: Vec<String> = speaks.iter().map(|p| p.name().to_owned()).collect();
    match name.parse::<Phase>() {
        Ok(phase) if speaks.contains(&phase) => Ok(phase),
        Ok(phase) => Err(Problem::BadValue {
            key: key.to_owned(),
            value: "set".to_owned(),
            must: format!(
                "remove it: the rule is silent in `{phase}`; it speaks in {}",
                known.join(", ")
            ),
        }),
        Err(_) => Err(unknown_key(key, name, &known)),
    }
}

/// Whether the setting may be said here: in general, or for a role where roles may differ.
pub(super) fn may_differ(
    rule: &Rule,
    setting: &Setting,
    key: &str,
    role: Option<Role>,
) -> Result<(), Problem> {
    if role.is_none() || setting.by_role {
        return Ok(());
    }
    let general = format!("detect.{}.{}", rule.key(), setting.key);
    Err(Problem::BadValue {
        key: key.to_owned(),
        value: "set".to_owned(),
        must: format!("remove it: it is the same for all roles; `{general}` says it"),
    })
}

/// A key that is neither a setting nor a role nor `phases`.
pub(super) fn unknown(
    rule: &Rule,
    settings: &[&mut Values],
    key: &str,
    name: &str,
    role: Option<Role>,
) -> Problem {
    let keys = settings.iter().map(|s| s.setting.key.to_owned());
    let mut known: Vec<String> = keys.collect();
    if settings.iter().any(|s| s.setting.by_phase) {
        known.push("phases".to_owned());
    }
    if role.is_none() && rule.roles.len() > 1 && settings.iter().any(|s| s.setting.by_role) {
        known.extend(rule.roles.iter().map(|r| r.name().to_owned()));
    }
    unknown_key(key, name, &known)
}

fn unknown_key(key: &str, name: &str, known: &[String]) -> Problem {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    Problem::UnknownKey {
        key: key.to_owned(),
        hint: suggest(name, &known),
    }
}

/// The table at this key.
pub(super) fn table<'v>(
    key: &str,
    value: &'v DetectValue,
) -> Result<&'v BTreeMap<String, DetectValue>, Problem> {
    match value {
        DetectValue::Table(table) => Ok(table),
        DetectValue::Number(number) => Err(Problem::WrongType {
            key: key.to_owned(),
            found: format!("the number {number}"),
            expected: "a table, such as `{ window_s = 60 }`".to_owned(),
        }),
    }
}

/// The number at this key, if the setting can have it.
pub(super) fn number(
    setting: &Setting,
    key: &str,
    value: &DetectValue,
    sample_s: f64,
) -> Result<f64, Problem> {
    let DetectValue::Number(number) = *value else {
        return Err(Problem::WrongType {
            key: key.to_owned(),
            found: "a table".to_owned(),
            expected: "a number".to_owned(),
        });
    };
    let refused = |must: String| Problem::BadValue {
        key: key.to_owned(),
        value: number.to_string(),
        must,
    };
    let (least, most) = (setting.least, setting.most);
    let fits = (least..=most).contains(&number);
    if setting.whole && !(fits && number.fract() == 0.0) {
        return Err(refused(format!(
            "it must be a whole number, {least} to {most}"
        )));
    }
    if !fits && setting.key.ends_with("_s") {
        let days = most / 86_400.0;
        let must = match least == 0.001 {
            true => format!("it must be above 0 and at most {days} days, in seconds"),
            false => format!("it must be at least {least} and at most {days} days, in seconds"),
        };
        return Err(refused(must));
    }
    if !fits {
        return Err(refused(format!("it must be {least} to {most}")));
    }
    let least = least_window_s(sample_s);
    if setting.samples && number < least {
        let interval = sample_s * 1e3;
        return Err(refused(format!(
            "it must span 4 activity samples: at least {least} with \
             `detect.sample_interval_ms = {interval}`"
        )));
    }
    Ok(number)
}
