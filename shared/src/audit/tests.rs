#![allow(clippy::unwrap_used)]
use super::*;

const FORMER: [&str; 2] = [
    "{\"id\":1,\"what\":\"stop\"}\n",
    "{\"id\":1,\"result\":\"done\"}\n",
];

/// Five requests, after lines of a build without a chain if there are any; and the end.
fn log(former: &[&str]) -> (Vec<String>, Head) {
    let mut lines: Vec<String> = former.iter().map(|&l| l.to_owned()).collect();
    let mut head = Head::begin(lines.concat().as_bytes());
    for id in 10..15 {
        let entry = format!("{{\"id\":{id},\"reason\":\",\\\"chain\\\":\\\"\"}}");
        let (line, after) = head.seal(&entry);
        lines.push(line + "\n");
        head = after;
    }
    (lines, head)
}

fn check(lines: &[String], noted: Option<Head>) -> Found {
    let mut check = Check::new(noted, true);
    for (at, line) in lines.iter().enumerate() {
        check.line("audit.jsonl", at as u64 + 1, line.as_bytes());
    }
    check.end("audit.jsonl")
}

fn said(lines: &[String], noted: Option<Head>) -> Vec<String> {
    let damage = check(lines, noted).damage;
    damage.iter().map(ToString::to_string).collect()
}

#[test]
fn a_log_as_it_was_written_is_whole_and_its_head_reads_back() {
    for former in [[].as_slice(), &FORMER] {
        let (lines, head) = log(former);
        let found = check(&lines, Some(head));
        assert_eq!(found.damage, [], "{former:?}");
        assert_eq!((found.lines, found.first, found.last), (5, 1, 5));
        assert_eq!(found.without_chain, former.len() as u64);
        assert_eq!(found.head, head.chain.to_hex().to_string());
        assert!(found.end_known);
        assert_eq!(Head::parse(&head.text()), Some(head));
        assert_eq!(Head::after(lines.last().unwrap().as_bytes()), Some(head));
    }
    assert!(check(&[], None).end_known, "a log that was never begun");
}

#[test]
fn a_changed_line_is_named() {
    let (mut lines, head) = log(&[]);
    lines[2] = lines[2].replace("\"id\":12", "\"id\":99");
    assert_eq!(
        said(&lines, Some(head)),
        ["audit.jsonl line 3: changed since it was written (request 99)"]
    );
    let (mut lines, head) = log(&[]);
    lines[2] = "{\"id\":12}\n".to_owned();
    assert_eq!(
        said(&lines, Some(head)),
        [
            "audit.jsonl line 3: it was not written by a daemon",
            "audit.jsonl line 4: line 3 of the chain is cut out",
        ]
    );
    let (mut lines, head) = log(&FORMER);
    lines[0] = lines[0].replace("stop", "look");
    assert_eq!(
        said(&lines, Some(head)),
        ["audit.jsonl line 3: lines before the chain were changed since it began"]
    );
}

#[test]
fn lines_that_are_cut_out_are_named_wherever_they_were() {
    let (lines, head) = log(&[]);
    let without = |from: usize, to: usize| {
        let mut lines = lines.clone();
        lines.drain(from..to);
        said(&lines, Some(head))
    };
    assert_eq!(
        without(1, 3),
        ["audit.jsonl line 2: lines 2 to 3 of the chain are cut out"]
    );
    assert_eq!(
        without(0, 1),
        ["audit.jsonl line 1: line 1 of the chain is cut out"]
    );
    assert_eq!(
        without(4, 5),
        ["audit.jsonl: line 5 of the chain is cut out"]
    );
    assert_eq!(
        without(0, 5),
        ["audit.jsonl: lines 1 to 5 of the chain are cut out"]
    );
    // Without the noted end nobody knows, and that is said.
    let found = check(&lines[..3], None);
    assert!(!found.end_known && found.damage.is_empty());
}

#[test]
fn lines_in_another_order_and_twice_are_named() {
    let (mut lines, head) = log(&[]);
    lines.swap(1, 2);
    assert_eq!(
        said(&lines, Some(head)),
        ["audit.jsonl line 3: line 2 of the chain is out of order or there twice"]
    );
    let (mut lines, head) = log(&[]);
    lines.insert(4, lines[1].clone());
    assert_eq!(
        said(&lines, Some(head)),
        ["audit.jsonl line 5: line 2 of the chain is out of order or there twice"]
    );
}

#[test]
fn a_chain_that_was_written_anew_does_not_have_the_noted_head() {
    let (_, head) = log(&[]);
    let (mut forged, mut at) = (Vec::new(), Head::begin(b""));
    for id in 20..25 {
        let (line, after) = at.seal(&format!("{{\"id\":{id}}}"));
        forged.push(line + "\n");
        at = after;
    }
    assert_eq!(
        said(&forged, Some(head)),
        ["audit.jsonl line 5: the chain up to line 5 was written anew"]
    );
}

#[test]
fn what_was_removed_with_the_oldest_file_is_no_damage() {
    let (lines, head) = log(&[]);
    let mut check = Check::new(Some(head), false);
    for (at, line) in lines[2..].iter().enumerate() {
        check.line("audit.2.jsonl", at as u64 + 1, line.as_bytes());
    }
    let found = check.end("audit.jsonl");
    assert_eq!((found.damage, found.first, found.lines), (vec![], 3, 3));
}
