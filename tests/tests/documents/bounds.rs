//! The bounds that the page on trust promises have the tests that it names.
use super::root;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The names of all functions of the workspace, its tests among them.
fn functions() -> BTreeSet<String> {
    let members = ["daemon", "proto", "shared", "tests", "tui"];
    let mut folders: Vec<PathBuf> = members.iter().map(|name| root().join(name)).collect();
    let mut names = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let lines = text.lines().filter_map(|line| line.split_once("fn "));
                let named = lines.filter_map(|(_, rest)| rest.split_once('('));
                names.extend(named.map(|(name, _)| name.to_owned()));
            }
        }
    }
    names
}

#[test]
fn each_bound_of_the_page_on_trust_has_tests_and_they_are_there() {
    let text = std::fs::read_to_string(root().join("docs/concepts/trust.md")).unwrap();
    let (_, bounds) = text.split_once("\n## Bounds\n").unwrap();
    let rows = bounds.lines().filter(|line| line.starts_with('|'));
    let rows: Vec<&str> = rows.skip(2).collect();
    assert!(rows.len() > 20, "{rows:?}");
    let there = functions();
    for row in rows {
        let tests = row.trim_end_matches('|').rsplit('|').next().unwrap();
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "no test is named: {row}");
        for name in named {
            assert!(there.contains(name), "there is no {name}: {row}");
        }
    }
}
