//! The documents: what they link to is there, what they tell to run runs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod bounds;
mod fences;
mod job_keys;
mod pages;
mod reference;
mod session;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .unwrap()
}

/// Every page: those beside the README, and all below `docs`.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = ["README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG"]
        .iter()
        .map(|name| root().join(format!("{name}.md")))
        .collect();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|ext| ext == "md") => pages.push(path),
                false => {}
            }
        }
    }
    pages.sort();
    pages
}

/// The lines of a page that are no code.
fn prose(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let mut code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        if !code && !fence {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// Where the links of a page lead, but for those out of the repository.
fn links(page: &Path) -> Vec<String> {
    links_in(prose(page))
}

/// The pages that the book lists in one of its parts.
fn links_of_part(part: &str) -> Vec<String> {
    let lines = prose(&root().join("docs/SUMMARY.md")).into_iter();
    let lines = lines.skip_while(|line| *line != format!("# {part}"));
    let lines = lines.skip(1).take_while(|line| !line.starts_with("# "));
    links_in(lines.collect())
}

fn links_in(lines: Vec<String>) -> Vec<String> {
    let mut found = Vec::new();
    for line in lines {
        let mut rest = line.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let (target, after) = after.split_once(')').unwrap_or((after, ""));
            rest = after;
            if !target.contains("://") {
                found.push(target.to_owned());
            }
        }
        // A picture that is another one in the dark is said in HTML.
        for source in ["src=\"", "srcset=\""] {
            let file = line.split_once(source);
            found.extend(file.and_then(|(_, rest)| Some(rest.split_once('"')?.0.to_owned())));
        }
    }
    found
}

/// The names by which the headings of a page are linked to.
fn anchors(page: &Path) -> BTreeSet<String> {
    let headings = prose(page).into_iter();
    let headings = headings.filter_map(|line| {
        let text = line.trim_start_matches('#');
        (text.len() < line.len() && text.starts_with(' ')).then(|| text.trim().to_lowercase())
    });
    let name = |heading: String| {
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(name).collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading_that_are_there() {
    let mut broken = Vec::new();
    for page in pages() {
        for link in links(&page) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file.is_empty() {
                true => page.clone(),
                false => page.parent().unwrap().join(file),
            };
            let there = target.exists()
                && (anchor.is_empty() || target.is_file() && anchors(&target).contains(anchor));
            if !there {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_book_has_every_page_once() {
    let docs = root().join("docs");
    let listed: Vec<PathBuf> = links(&docs.join("SUMMARY.md"))
        .iter()
        .map(|link| docs.join(link))
        .collect();
    let distinct: BTreeSet<_> = listed.iter().cloned().collect();
    assert_eq!(distinct.len(), listed.len(), "a page is listed twice");
    let own = |page: &PathBuf| page.starts_with(&docs) && !page.ends_with("SUMMARY.md");
    let there: BTreeSet<_> = pages().into_iter().filter(own).collect();
    assert_eq!(distinct, there);
}

#[test]
fn the_architecture_in_the_dark_differs_in_its_colours_only() {
    let drawn = |name: &str| {
        let picture = std::fs::read_to_string(root().join("docs/pictures").join(name)).unwrap();
        let (style, other): (Vec<_>, Vec<_>) = picture
            .lines()
            .map(str::to_owned)
            .partition(|line| line.starts_with("<style>"));
        (style, other)
    };
    let (light, dark) = (drawn("architecture.svg"), drawn("architecture-dark.svg"));
    assert_ne!(light.0, dark.0);
    assert_eq!(light.1, dark.1);
}

#[test]
fn the_page_of_production_gives_reasons_for_lines_that_the_unit_has() {
    let unit = root().join("fixtures/ops/systemd/robustd@.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    let page = prose(&root().join("docs/operate/production.md"));
    let table = page
        .iter()
        .skip_while(|line| !line.starts_with("| line of the unit"));
    let rows = table
        .skip(2)
        .map_while(|row| row.strip_prefix("| ")?.split_once(" |"));
    let lines: Vec<&str> = rows
        .flat_map(|(lines, _)| lines.split('`').skip(1).step_by(2))
        .collect();
    assert!(lines.len() > 5, "{lines:?}");
    for line in lines {
        let has = |of: &str| of == line || of.split_once('=').is_some_and(|(key, _)| key == line);
        assert!(unit.lines().any(has), "{line}");
    }
}

#[test]
fn the_readme_is_short_enough_to_be_read() {
    let lines = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(lines.lines().count() <= 150);
}

#[test]
fn the_runbook_has_a_section_for_every_alert_and_for_no_other() {
    let alerts = root().join("fixtures/ops/prometheus/alerts.yaml");
    let alerts = std::fs::read_to_string(alerts).unwrap();
    let named = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let named: BTreeSet<String> = named.map(str::to_owned).collect();
    let sections = prose(&root().join("docs/operate/runbook.md"));
    let sections = sections.iter().filter_map(|line| line.strip_prefix("## "));
    assert_eq!(named, sections.map(str::to_owned).collect());
}
