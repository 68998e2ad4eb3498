//! The dashboard, the alert rules and the table under `fixtures/ops/` name what is exported.
use super::conventions::promtool;
use super::*;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;

fn ops(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures/ops")
        .join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(ops(path)).unwrap()
}

/// A family as a scraper of the older form sees it.
#[derive(Debug, Default)]
struct Exported {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

fn exported() -> BTreeMap<String, Exported> {
    let metrics = full();
    metrics.status(&Arc::new(everything()));
    let mut all = BTreeMap::new();
    read_families(&mut all, &metrics.encode().unwrap());
    read_families(&mut all, &following().encode().unwrap());
    all
}

fn read_families(all: &mut BTreeMap<String, Exported>, text: &str) {
    let text = Form::Classic.write(text.to_owned());
    let mut family = String::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' ')) {
            family = name.to_owned();
            all.entry(family.clone()).or_default().help = help.to_owned();
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' '))
        {
            all.entry(name.to_owned()).or_default().kind = kind.to_owned();
        } else if let Some((_, rest)) = line.split_once('{') {
            let pairs = rest.rsplit_once('}').unwrap().0;
            let names = pairs.split("\",").map(|p| p.split_once('=').unwrap().0);
            let labels = names.map(str::to_owned).filter(|l| l != "le");
            all.get_mut(&family).unwrap().labels.extend(labels);
        }
    }
}

/// Metrics named in an expression.
fn named(expression: &str) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = expression.split(|c| !word(c));
    let ours = words.filter(|w| w.starts_with("robust_") || w.starts_with("process_"));
    ours.map(str::to_owned).collect()
}

/// The family that a series is of.
fn family<'a>(all: &'a BTreeMap<String, Exported>, series: &str) -> Option<&'a Exported> {
    let of = |suffix: &str| {
        let family = all.get(series.strip_suffix(suffix)?)?;
        (family.kind == "histogram").then_some(family)
    };
    let parts = ["_bucket", "_sum", "_count"];
    all.get(series).or_else(|| parts.into_iter().find_map(of))
}

/// Label names in the matchers of an expression, with the series they are of.
fn matchers(expression: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (at, _) in expression.match_indices('{') {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let series = expression[..at].rsplit(|c| !word(c)).next().unwrap();
        let inner = expression[at + 1..].split('}').next().unwrap();
        for pair in inner.split(',').filter(|p| !p.is_empty()) {
            let name = pair.split(['=', '!']).next().unwrap().trim();
            all.push((series.to_owned(), name.to_owned()));
        }
    }
    all
}

/// What Prometheus adds to every series.
const TARGET: [&str; 2] = ["instance", "job"];

fn check(expression: &str, all: &BTreeMap<String, Exported>) {
    for series in named(expression) {
        assert!(family(all, &series).is_some(), "{series} in {expression}");
    }
    for (series, label) in matchers(expression) {
        let Some(family) = family(all, &series) else {
            continue;
        };
        let known = family.labels.contains(&label) || TARGET.contains(&&*label);
        assert!(known, "{series} has no label {label}: {expression}");
    }
}

/// Expressions of the dashboard's panels, annotations and variables.
fn expressions(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|p| p["targets"].as_array().into_iter().flatten());
    let notes = dashboard["annotations"]["list"].as_array().unwrap();
    let all = targets.chain(notes).map(|t| t["expr"].as_str().unwrap());
    all.map(str::to_owned).collect()
}

#[test]
fn the_dashboard_asks_only_for_what_is_exported() {
    let dashboard: Value = serde_json::from_str(&read("grafana/robustrl.json")).unwrap();
    let (all, asked) = (exported(), expressions(&dashboard));
    assert!(asked.len() > 40, "{asked:?}");
    for expression in &asked {
        check(expression, &all);
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let query = variables[1]["query"]["query"].as_str().unwrap();
    assert_eq!(query, "label_values(robust_job_info, instance)");
    check(query, &all);
    let ids: Vec<_> = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["id"].as_u64().unwrap())
        .collect();
    let set: BTreeSet<_> = ids.iter().collect();
    assert_eq!(set.len(), ids.len(), "every panel has a number of its own");
    check_queries(&asked);
}

/// Prometheus parses them, with Grafana's variables replaced.
fn check_queries(asked: &[String]) {
    let rule = |(number, expression): (usize, &String)| {
        let expression = expression
            .replace("$__rate_interval", "1m")
            .replace("$instance", ".*");
        serde_json::json!({ "record": format!("panel:{number}"), "expr": expression })
    };
    let rules: Vec<_> = asked.iter().enumerate().map(rule).collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    let groups = serde_json::json!({ "groups": [{ "name": "panels", "rules": rules }] });
    // JSON is YAML.
    std::fs::write(file.path(), groups.to_string()).unwrap();
    promtool(&["check", "rules", file.path().to_str().unwrap()], "");
}

#[test]
fn the_alert_rules_ask_only_for_what_is_exported_and_pass_their_own_tests() {
    let (text, all) = (read("prometheus/alerts.yaml"), exported());
    let expressions = text
        .lines()
        .filter_map(|l| l.trim_start().strip_prefix("expr: "));
    let asked: Vec<_> = expressions.collect();
    assert!(asked.len() > 15, "{asked:?}");
    for expression in asked {
        check(expression, &all);
    }
    for series in named(&read("prometheus/alerts_test.yaml")) {
        assert!(family(&all, &series).is_some(), "{series}");
    }
    let path = |name: &str| ops(name).to_str().unwrap().to_owned();
    promtool(&["check", "rules", &path("prometheus/alerts.yaml")], "");
    promtool(&["check", "config", &path("prometheus/prometheus.yml")], "");
    promtool(&["test", "rules", &path("prometheus/alerts_test.yaml")], "");
}

/// Written anew with `UPDATE_METRICS=1 cargo test -p robustd --lib the_table_of_metrics`.
#[test]
fn the_table_of_metrics_is_what_is_exported() {
    let mut table = String::from(
        "# What `robustd --metrics` exports\n\n\
         Prometheus adds `instance` and `job` to every series. A figure that is not known (a device \
         without power readings, a job without an object store) has no series.\n\n\
         | metric | type | labels | what |\n| --- | --- | --- | --- |\n",
    );
    for (name, of) in exported() {
        let labels: Vec<_> = of.labels.iter().map(|l| format!("`{l}`")).collect();
        let (kind, labels) = (of.kind, labels.join(", "));
        table += &format!("| `{name}` | {kind} | {labels} | {} |\n", of.help);
    }
    let path = ops("METRICS.md");
    if std::env::var_os("UPDATE_METRICS").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    assert_eq!(
        read("METRICS.md"),
        table,
        "write it anew with UPDATE_METRICS=1"
    );
}
