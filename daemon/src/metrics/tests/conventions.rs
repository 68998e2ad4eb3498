//! Names, units, words and form.
use super::*;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Where Prometheus' own tool is: what PROMTOOL names, what scripts/setup.sh fetched, or on the PATH.
fn promtool_path() -> Option<PathBuf> {
    let fetched = robust_needs::cache().join("tests/promtool");
    let named = std::env::var_os("PROMTOOL").map(PathBuf::from);
    let fetched = Some(fetched).filter(|path| robust_needs::is_program(path));
    named
        .or(fetched)
        .or_else(|| robust_needs::program("promtool"))
}

/// What Prometheus' own tool says; none, recorded, where it is not installed.
pub(super) fn promtool(args: &[&str], input: &str) -> Option<String> {
    let spawned = Command::new(promtool_path()?)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = spawned.unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let out = child.wait_with_output().unwrap();
    let text = [out.stdout, out.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(out.status.success(), "promtool {args:?}: {text}");
    Some(text)
}

#[test]
fn promtool_finds_nothing_to_complain_about() {
    let metrics = full();
    metrics.status(&Arc::new(everything()));
    let text = Form::Classic.write(metrics.encode().unwrap());
    let of_follower = Form::Classic.write(following().encode().unwrap());
    for text in [text, of_follower] {
        if let Some(said) = promtool(&["check", "metrics"], &text) {
            assert_eq!(said, "", "{text}");
        }
    }
}

/// What `promtool check metrics` looks at, and what OpenMetrics demands of the text.
#[test]
fn the_text_keeps_to_the_conventions() {
    let metrics = full();
    metrics.status(&Arc::new(everything()));
    let text = metrics.encode().unwrap();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let (mut help, mut kinds) = (BTreeMap::new(), BTreeMap::new());
    let mut of_family = String::new();
    for line in text.lines().filter(|l| *l != "# EOF") {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, words) = rest.split_once(' ').unwrap();
            assert!(words.ends_with('.') && words.len() > 5, "{line}");
            assert!(
                help.insert(name, words).is_none(),
                "described twice: {name}"
            );
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(kinds.insert(name, kind).is_none(), "typed twice: {name}");
            of_family = name.to_owned();
        } else {
            check_sample(line, &of_family, kinds[&*of_family]);
        }
    }
    assert_eq!(
        help.keys().collect::<Vec<_>>(),
        kinds.keys().collect::<Vec<_>>()
    );
    assert!(kinds.len() > 50, "{kinds:?}");
    for name in kinds.keys() {
        check_name(name);
    }
}

/// Samples stand under their family, with the suffixes of its type.
fn check_sample(line: &str, family: &str, kind: &str) {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let value: f64 = value.parse().unwrap();
    let name = series.split('{').next().unwrap();
    let suffix = name.strip_prefix(family).unwrap();
    match kind {
        "counter" => assert!(suffix == "_total" && value >= 0.0, "{line}"),
        "gauge" => assert_eq!(suffix, "", "{line}"),
        "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
        other => unreachable!("{other}"),
    }
}

/// One prefix, lower case, base units, and the unit last.
fn check_name(name: &str) {
    let ours = ["robust_", "process_"].iter().any(|p| name.starts_with(p));
    assert!(ours, "{name}");
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    assert!(name.chars().all(fine), "{name}");
    assert!(
        !name.ends_with("_total"),
        "a counter's family has no suffix: {name}"
    );
    let words: Vec<&str> = name.split('_').collect();
    let scaled = [
        "ms",
        "milliseconds",
        "minutes",
        "hours",
        "kb",
        "mb",
        "kib",
        "mib",
        "kilobytes",
        "percent",
        "milliwatts",
        "fahrenheit",
    ];
    assert!(!words.iter().any(|w| scaled.contains(w)), "{name}");
    let units = ["seconds", "bytes", "ratio", "celsius", "watts"];
    let unit = words.iter().position(|w| units.contains(w));
    assert!(
        unit.is_none_or(|at| at + 1 == words.len()),
        "the unit is last: {name}"
    );
}
