//! `robustctl rules`: what is watched, how, and where each value came from.
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::output::{put, put_json};
use crate::paint::Paint;
use crate::table::Table;
use robust_proto::v1;
use robust_shared::core::CoreConfig;
use robust_shared::job::Job;
use robust_shared::nearest::instead_of;
use std::path::Path;

/// Phases of a rule that are named in the table of all rules.
const MOST_PHASES: usize = 6;

/// Prints the rules in force in a running job.
pub async fn run(endpoint: &Endpoint, rule: Option<&str>, json: bool) -> Result<(), CliError> {
    let mut client = endpoint.connect().await?;
    let rules = endpoint
        .ask(client.get_rules(v1::GetRulesRequest {}))
        .await?;
    show(rules, rule, json)
}

/// Prints the rules that a job file would bring into force.
pub fn of_file(path: &Path, rule: Option<&str>, json: bool) -> Result<(), CliError> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| CliError::Usage(format!("{} cannot be read: {e}", path.display())))?;
    let job = Job::parse(&text, path).map_err(|e| CliError::Usage(e.to_string()))?;
    show(v1::Rules::from(&CoreConfig::from(&job)), rule, json)
}

fn show(mut rules: v1::Rules, rule: Option<&str>, json: bool) -> Result<(), CliError> {
    if let Some(name) = rule {
        keep(&mut rules, name)?;
    }
    match json {
        true => put_json(&rules),
        false => put(&text(&rules, Paint::stdout())),
    }
}

/// Only one rule and the budget that its faults count against.
fn keep(rules: &mut v1::Rules, name: &str) -> Result<(), CliError> {
    let names: Vec<String> = rules.rules.iter().map(|r| r.name.clone()).collect();
    let Some(kept) = rules.rules.iter().position(|r| r.name == name) else {
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        let hint = instead_of(name, &known, "the rules are");
        return Err(CliError::Usage(format!(
            "there is no rule `{name}`; {hint}"
        )));
    };
    rules.rules = vec![rules.rules.swap_remove(kept)];
    let kind = rules.rules[0].kind.clone();
    rules.budgets.retain(|b| b.kind == kind);
    Ok(())
}

fn text(rules: &v1::Rules, paint: Paint) -> String {
    let mut text = watched(rules).render(paint);
    text += &format!("\n{}", values(rules).render(paint));
    text += &format!("\n{}", budgets(rules).render(paint));
    text += &format!("\none cause: {}\n", same_cause(rules));
    text += "\nsignals\n";
    for rule in &rules.rules {
        text += &format!("  {}: {}\n", rule.name, rule.signal);
    }
    text
}

fn watched(rules: &v1::Rules) -> Table {
    let mut table = Table::new(&["RULE", "BUDGET", "ROLES", "PHASES", "THEN"]);
    for r in &rules.rules {
        table.row([
            r.name.clone(),
            or_dash(&r.kind),
            r.roles.join(" "),
            phases(&r.phases, rules.rules.len() == 1),
            r.action.clone(),
        ]);
    }
    table
}

/// A long list widens the table for all rules; of one rule that is asked for by its name it is told as a whole.
fn phases(all: &[String], whole: bool) -> String {
    match all {
        [] => "all".to_owned(),
        long if long.len() > MOST_PHASES && !whole => {
            let shown = long[..MOST_PHASES].join(" ");
            format!("{shown} and {} more", long.len() - MOST_PHASES)
        }
        all => all.join(" "),
    }
}

fn values(rules: &v1::Rules) -> Table {
    let mut table = Table::new(&["RULE", "SETTING", "FOR", ">VALUE", "SOURCE"]);
    for r in &rules.rules {
        for v in &r.values {
            let parts = [v.role.as_str(), v.phase.as_str()];
            let only: Vec<&str> = parts.into_iter().filter(|p| !p.is_empty()).collect();
            table.row([
                r.name.clone(),
                v.key.clone(),
                or_dash(&only.join(" ")),
                v.value.to_string(),
                v.source.clone(),
            ]);
        }
    }
    table
}

fn budgets(rules: &v1::Rules) -> Table {
    let mut table = Table::new(&["FAULT", ">MAX", ">WINDOW", ">BACKOFF", "SOURCE"]);
    for b in &rules.budgets {
        table.row([
            b.kind.clone(),
            b.max.to_string(),
            format!("{} s", b.window_s),
            format!("{} ms", b.backoff_ms),
            b.source.clone(),
        ]);
    }
    table
}

fn same_cause(rules: &v1::Rules) -> String {
    let source = &rules.same_cause_source;
    match rules.same_cause {
        0 => format!("borne any number of times ({source})"),
        most => format!(
            "the task is restarted when it is met {most} times in a row, and the job ends when it is met once \
             more ({source})"
        ),
    }
}

fn or_dash(text: &str) -> String {
    match text {
        "" => "-".to_owned(),
        text => text.to_owned(),
    }
}
