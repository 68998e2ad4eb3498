#![allow(clippy::unwrap_used)]
use super::*;
use robust_shared::audit::{Check, FILE, Found, HEAD, Head, older_file};
use robust_shared::wire::AuditResult;
use std::fs::{self, OpenOptions};
use std::io::Write;

/// What the files of a state directory are found to be.
fn check(state: &Path) -> Found {
    let noted = fs::read_to_string(state.join(HEAD)).ok();
    let noted = noted.and_then(|text| Head::parse(&text));
    let older: Vec<String> = (1..99).map(older_file).collect();
    let older = older.into_iter().filter(|name| state.join(name).exists());
    let names: Vec<String> = older.chain([FILE.to_owned()]).collect();
    let is_whole = names.len() == 1 || names[0] == older_file(1);
    let mut check = Check::new(noted, is_whole);
    for name in names {
        let text = fs::read(state.join(&name)).unwrap();
        for (at, line) in text.split_inclusive(|b| *b == b'\n').enumerate() {
            check.line(&name, at as u64 + 1, line);
        }
    }
    check.end(FILE)
}

fn append(state: &Path, text: &str) {
    let mut file = OpenOptions::new()
        .append(true)
        .open(state.join(FILE))
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_request_is_on_disk_before_it_acts_and_numbers_go_on_after_a_crash() {
    let temp = tempfile::tempdir().unwrap();
    let audit = Audit::open(temp.path()).unwrap();
    let asked = audit
        .asked("uid 7", "inject", "{\"fault\":\"kill\"}")
        .unwrap();
    let text = fs::read_to_string(temp.path().join(FILE)).unwrap();
    assert!(text.contains("\"result\":\"asked\""), "{text}");
    let took = Duration::from_millis(30);
    audit
        .came_of(&asked, AuditResult::Refused, "it is protected", took)
        .unwrap();
    drop(audit);
    // A crash in the middle of a line.
    append(temp.path(), "{\"id\":2,\"wh");
    let audit = Audit::open(temp.path()).unwrap();
    let again = audit.asked("uid 7", "stop", "{}").unwrap();
    let (entries, end) = audit.read(Position::default()).unwrap();
    let seen: Vec<(u64, &str, &str)> = entries
        .iter()
        .map(|e| (e.id, e.what.as_str(), e.result.as_str()))
        .collect();
    assert_eq!(
        seen,
        [
            (1, "inject", "asked"),
            (1, "inject", "refused"),
            (2, "stop", "asked")
        ]
    );
    assert_eq!(again.id, 2);
    assert_eq!(audit.read(end).unwrap(), (vec![], end));
    assert_eq!(check(temp.path()).damage, []);
}

#[test]
fn only_its_owner_can_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let temp = tempfile::tempdir().unwrap();
    drop(Audit::open(temp.path()).unwrap());
    for name in [FILE, HEAD] {
        let found = fs::metadata(temp.path().join(name)).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_log_of_a_build_without_a_chain_goes_on_and_its_lines_are_covered_from_then_on() {
    let temp = tempfile::tempdir().unwrap();
    let former = "{\"id\":41,\"at_ms\":5,\"who\":\"uid 7\",\"what\":\"stop\",\"on\":\"\",\
                  \"result\":\"asked\",\"reason\":\"\",\"took_ms\":0}\n";
    fs::write(temp.path().join(FILE), former).unwrap();
    let audit = Audit::open(temp.path()).unwrap();
    assert_eq!(audit.asked("uid 7", "pause", "").unwrap().id, 42);
    drop(audit);
    let audit = Audit::open(temp.path()).unwrap();
    audit.asked("uid 7", "resume", "").unwrap();
    let found = check(temp.path());
    assert_eq!(found.damage, []);
    assert_eq!((found.without_chain, found.lines), (1, 2));
    let text = fs::read_to_string(temp.path().join(FILE)).unwrap();
    fs::write(temp.path().join(FILE), text.replace("uid 7", "uid 0")).unwrap();
    assert_eq!(check(temp.path()).damage.len(), 2);
}

#[test]
fn a_line_that_was_cut_off_at_the_end_is_missed_ever_after() {
    let temp = tempfile::tempdir().unwrap();
    let audit = Audit::open(temp.path()).unwrap();
    for what in ["pause", "inject", "resume"] {
        audit.asked("uid 7", what, "").unwrap();
    }
    drop(audit);
    let text = fs::read_to_string(temp.path().join(FILE)).unwrap();
    let kept = text.find("resume").unwrap();
    let kept = text[..kept].rfind('\n').unwrap() + 1;
    fs::write(temp.path().join(FILE), &text[..kept]).unwrap();
    let said = |found: Found| {
        found
            .damage
            .iter()
            .map(|d| d.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        said(check(temp.path())),
        ["audit.jsonl: line 3 of the chain is cut out"]
    );
    let audit = Audit::open(temp.path()).unwrap();
    audit.asked("uid 7", "stop", "").unwrap();
    assert_eq!(
        said(check(temp.path())),
        ["audit.jsonl line 3: line 3 of the chain is cut out"]
    );
}

#[test]
fn a_file_that_is_long_becomes_an_older_one_and_who_follows_misses_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let audit = Audit::open_with(temp.path(), 2000, None).unwrap();
    let (mut seen, mut at) = (Vec::new(), Position::default());
    for _ in 0..100 {
        audit.asked("uid 7", "pause", "").unwrap();
        let (entries, end) = audit.read(at).unwrap();
        seen.extend(entries.iter().map(|e| e.id));
        at = end;
    }
    assert_eq!(seen, (1..=100).collect::<Vec<_>>());
    let older = |number| temp.path().join(older_file(number)).exists();
    let newest = (1..99).rfind(|n| older(*n)).unwrap();
    assert!(newest > MOST_FILES as u64, "{newest}");
    assert!(!older(newest - MOST_FILES as u64) && older(newest + 1 - MOST_FILES as u64));
    let found = check(temp.path());
    assert_eq!(found.damage, []);
    assert!(found.first > 1 && found.last == 100, "{found:?}");
    drop(audit);
    let audit = Audit::open_with(temp.path(), 2000, None).unwrap();
    assert_eq!(audit.asked("uid 7", "stop", "").unwrap().id, 101);
    // A file that is taken away from the middle is missed.
    fs::remove_file(temp.path().join(older_file(newest - 2))).unwrap();
    assert_eq!(check(temp.path()).damage.len(), 1);
}

#[test]
fn who_is_refused_all_the_time_fills_no_disk() {
    let temp = tempfile::tempdir().unwrap();
    let audit = Audit::open(temp.path()).unwrap();
    for _ in 0..10_000 {
        audit
            .refused("the viewer's token", "stop", "may only look")
            .unwrap();
    }
    let bytes = fs::metadata(temp.path().join(FILE)).unwrap().len();
    assert!(bytes < 20_000, "{bytes}");
    let long = "x".repeat(1 << 20);
    audit.asked("uid 7", "update", &long).unwrap();
    let bytes = fs::metadata(temp.path().join(FILE)).unwrap().len();
    assert!(bytes < 30_000, "{bytes}");
}
