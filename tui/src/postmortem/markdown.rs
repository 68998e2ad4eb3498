//! The Markdown. Texts of others are shown in it and mark nothing up.
use super::{Fingerprint, words};
use crate::format::{millis, of_total, who};
use robust_proto::v1::{Incident, Status};
use robust_shared::printable;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Lines of evidence, and letters of each, that are kept: whoever reads it wants the place, and all of it is in
/// `robustctl report --json`.
const LINES: usize = 60;
const LETTERS: usize = 200;
/// Nodes that are named.
const NODES: usize = 8;

/// All there is to say of an incident. It ends with a line end.
pub fn markdown(s: &Status, i: &Incident) -> String {
    let title = format!(
        "# Incident {} of {}: {}, {}\n",
        i.id,
        plain(&s.job),
        plain(&who(&i.role, i.index)),
        plain(&i.rule)
    );
    let parts = [
        ("What failed", list(&failed(i))),
        ("What was done", list(&done(s, i))),
        ("Timings", timings(i)),
        ("What followed", followed(s, i)),
        ("Seen before", seen(s, i)),
        ("Notes", notes(i)),
        ("Evidence", evidence(&i.evidence)),
        ("Environment", list(&environment(s))),
    ];
    let told = parts.into_iter().filter(|(_, text)| !text.is_empty());
    told.fold(title, |all, (heading, text)| {
        format!("{all}\n## {heading}\n\n{text}")
    })
}

/// Names and what they are, of which those that say nothing are left out.
type Facts = Vec<(&'static str, String)>;

fn failed(i: &Incident) -> Facts {
    let instance = format!(
        "{}, incarnation {}, in step {}",
        who(&i.role, i.index),
        i.incarnation,
        i.step + 1
    );
    vec![
        ("Instance", instance),
        ("Rule", i.rule.clone()),
        ("Seen", i.reason.clone()),
        ("Cause", words::cause(i)),
        ("Root", words::root(i)),
        ("Cascade", words::under(i)),
        ("Verdict", words::moment(i.at_ms)),
    ]
}

fn done(s: &Status, i: &Incident) -> Facts {
    vec![
        ("Outcome", i.outcome.clone()),
        ("Plan", i.plan.clone()),
        ("Restarted with it", words::with_it(i)),
        ("Lost", words::lost(s, i)),
    ]
}

/// The parts of the recovery, then its stages.
fn timings(i: &Incident) -> String {
    let parts = [
        ("detect", i.detect_ms),
        ("restart", i.restart_ms),
        ("reconnect", i.reconnect_ms),
        ("total", i.total_ms),
    ];
    let stages = i.stages.iter().map(|stage| (stage.name.as_str(), stage.ms));
    let mut text = table("Part", parts.into_iter());
    if !i.stages.is_empty() {
        text = text + "\n" + &table("Stage", stages);
    }
    text
}

fn table<'a>(heading: &str, rows: impl Iterator<Item = (&'a str, f64)>) -> String {
    let mut text = format!("| {heading} | Time |\n| --- | ---: |\n");
    for (name, ms) in rows {
        let _ = writeln!(text, "| {} | {} |", plain(name), plain(&millis(ms)));
    }
    text
}

fn followed(s: &Status, i: &Incident) -> String {
    let below = words::led_to(&s.incidents, i);
    below
        .iter()
        .map(|text| format!("- Incident {}\n", plain(text)))
        .collect()
}

fn seen(s: &Status, i: &Incident) -> String {
    let before = match words::before(&s.incidents, i).as_str() {
        "" => "not among the incidents that the daemon has".to_owned(),
        before => before.to_owned(),
    };
    let known = Fingerprint::of(i).to_string();
    list(&[("Before this", before), ("Fingerprint", known)])
}

/// What operators wrote beside it, oldest first.
fn notes(i: &Incident) -> String {
    let note = i.notes.iter().map(|note| {
        let (when, who) = (words::moment(note.at_ms), plain(&note.who));
        format!("- {} ({who}, {when})\n", plain(&note.text))
    });
    note.collect()
}

/// Its first lines as they are, in a block that none of them ends.
fn evidence(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let clean = printable::lines(text);
    let fence = fence(&clean);
    let mut block = format!("{fence}text\n");
    for line in clean.lines().take(LINES) {
        let short: String = line.chars().take(LETTERS).collect();
        let more = match short.len() < line.len() {
            true => " ...",
            false => "",
        };
        let _ = writeln!(block, "{short}{more}");
    }
    match clean.lines().count().saturating_sub(LINES) {
        0 => format!("{block}{fence}\n"),
        more => format!("{block}... {more} more lines\n{fence}\n"),
    }
}

/// Longer than any run of its own kind in the text.
fn fence(text: &str) -> String {
    let (mut longest, mut run) = (0_usize, 0_usize);
    for letter in text.chars() {
        run = if letter == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    "`".repeat(longest.max(2) + 1)
}

fn environment(s: &Status) -> Facts {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for r in &s.roles {
        *counts.entry(&r.role).or_default() += 1;
    }
    let counts: Vec<String> = counts
        .iter()
        .map(|(role, count)| format!("{count} {role}"))
        .collect();
    let hosted: Vec<String> = s
        .hosted
        .iter()
        .map(|h| format!("{}: {}", h.role, h.text))
        .collect();
    let job = format!(
        "{}, mode {}, policy {}, at step {}{}, weights of version {}",
        s.job,
        s.mode,
        s.policy,
        s.step,
        of_total(s.steps_total),
        s.weight_version
    );
    vec![
        ("Job", job),
        ("Instances", counts.join(", ")),
        ("Programs", hosted.join("; ")),
        ("Leader", s.node.clone()),
        ("Nodes", nodes(s)),
        ("RobustRL", s.daemon_version.clone()),
    ]
}

fn nodes(s: &Status) -> String {
    let named = s.nodes.iter().take(NODES).map(|n| match n.accel.as_str() {
        "" => n.name.clone(),
        accel => format!("{} ({accel})", n.name),
    });
    let named: Vec<String> = named.collect();
    match s.nodes.len().saturating_sub(NODES) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

fn list(facts: &[(&'static str, String)]) -> String {
    let said = facts.iter().filter(|(_, value)| !value.is_empty());
    said.map(|(name, value)| format!("- **{name}:** {}\n", plain(value)))
        .collect()
}

/// Text of others on one line, in which nothing is markup, calls a person or names a ticket.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let clean = printable::one_line(text);
    let mut letters = clean.chars().peekable();
    while let Some(letter) = letters.next() {
        if "\\`*_<>[]|~&@#".contains(letter) {
            out.push('\\');
        }
        out.push(letter);
        // GitHub looks for names and tickets once the backslash is gone; a comment, which nobody sees, parts them.
        if "@#".contains(letter) && letters.peek().is_some_and(|next| next.is_alphanumeric()) {
            out.push_str("<!-- -->");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use robust_proto::v1;

    fn status(incidents: Vec<Incident>) -> Status {
        Status {
            job: "arith-grpo".into(),
            mode: "async".into(),
            policy: "role".into(),
            step: 118,
            steps_total: 400,
            daemon_version: "0.1.0".into(),
            node: "node-a".into(),
            roles: vec![v1::RoleStatus {
                role: "trainer".into(),
                ..Default::default()
            }],
            incidents,
            ..Default::default()
        }
    }

    fn incident(id: u64) -> Incident {
        Incident {
            id,
            role: "trainer".into(),
            index: 1,
            incarnation: 2,
            rule: "exit".into(),
            reason: "killed by SIGKILL".into(),
            plan: "restart the trainer gang from the snapshot of step 61".into(),
            detect_ms: 3.2,
            total_ms: 1755.0,
            outcome: "recovered".into(),
            at_ms: 1_767_323_045_000,
            step: 61,
            ..Default::default()
        }
    }

    #[test]
    fn an_incident_is_told_whole() {
        let mut one = incident(2);
        one.evidence = "wchan do_signal_stop".into();
        one.stages = vec![v1::Stage {
            name: "load_checkpoint".into(),
            ms: 500.0,
        }];
        let follows = Incident {
            under: 2,
            role: "rollout".into(),
            index: 0,
            ..incident(3)
        };
        let s = status(vec![incident(1), one.clone(), follows]);
        let text = markdown(&s, &one);
        for part in [
            "# Incident 2 of arith-grpo: trainer-1, exit\n\n## What failed\n\n",
            "- **Instance:** trainer-1, incarnation 2, in step 62\n",
            "- **Seen:** killed by SIGKILL\n",
            "- **Verdict:** 2026-01-02 03:04:05.000 UTC\n",
            "- **Plan:** restart the trainer gang from the snapshot of step 61\n",
            "- **Lost:** what step 62 had come to, done again\n",
            "| detect | 3 ms |\n",
            "| load\\_checkpoint | 500 ms |\n",
            "## What followed\n\n- Incident 3 rollout-0 (recovered)\n",
            "- **Before this:** once: incident 1\n",
            "```text\nwchan do_signal_stop\n```\n",
            "- **Job:** arith-grpo, mode async, policy role, at step 118/400, ",
            "- **RobustRL:** 0.1.0\n",
        ] {
            assert!(text.contains(part), "`{part}` is missing in\n{text}");
        }
        assert!(!text.contains("Cause"), "what is not known is left out");
    }

    #[test]
    fn words_of_others_mark_nothing_up_and_order_nothing() {
        let mut one = incident(1);
        one.reason = "<b>|*x*\n# no heading\x1b[2J".into();
        one.evidence = "a\n```\nb".into();
        let text = markdown(&status(vec![one.clone()]), &one);
        assert!(
            text.contains("\\<b\\>\\|\\*x\\*\u{fffd}\\# no heading"),
            "{text}"
        );
        assert!(text.contains("````text\na\n```\nb\n````\n"), "{text}");
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn words_of_others_strike_nothing_out_call_nobody_and_link_no_ticket() {
        assert_eq!(plain("~~gone~~ &lt;"), "\\~\\~gone\\~\\~ \\&lt;");
        assert_eq!(
            plain("@ann broke #12, # 3"),
            "\\@<!-- -->ann broke \\#<!-- -->12, \\# 3"
        );
    }

    #[test]
    fn notes_are_told_with_who_wrote_them_and_mark_nothing_up() {
        let mut one = incident(1);
        let text = markdown(&status(vec![one.clone()]), &one);
        assert!(!text.contains("## Notes"), "{text}");
        let note = |text: &str| v1::IncidentNote {
            at_ms: 1_767_323_045_000,
            who: "uid 7 (ann), pid 9".into(),
            text: text.into(),
        };
        one.notes = vec![note("the switch in rack 4"), note("see *#12*")];
        let text = markdown(&status(vec![one.clone()]), &one);
        let told = "## Notes\n\n- the switch in rack 4 (uid 7 (ann), pid 9, 2026-01-02 03:04:05.000 UTC)\n\
                    - see \\*\\#<!-- -->12\\* (";
        assert!(text.contains(told), "{text}");
    }

    #[test]
    fn long_evidence_is_shortened_and_says_so() {
        let mut one = incident(1);
        one.evidence = format!("{}\n", "x".repeat(1_000)).repeat(100);
        let text = markdown(&status(vec![one.clone()]), &one);
        assert!(text.contains(&format!("\n{} ...\n", "x".repeat(LETTERS))));
        assert!(text.contains("... 40 more lines\n```\n"), "{text}");
        assert!(text.len() < 16_000, "{}", text.len());
    }
}
