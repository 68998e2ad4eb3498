//! The pages of `docs/reference` that the programs write themselves. `UPDATE_DOCS=1 cargo test -p robust-tests --test
//! documents` writes them anew; look at what changed before it is checked in.
use super::root;
use robust_shared::verbs::{self, Searched, Verb};
use robust_tests::bin;
use serde_json::Value;
use std::fmt::Write as _;
use std::process::Command;

/// Holds a page against what it should be, or writes it.
pub fn is_page(name: &str, text: &str) {
    let path = root().join("docs/reference").join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let how = "UPDATE_DOCS=1 cargo test -p robust-tests --test documents writes it anew";
    assert_eq!(
        there,
        text,
        "{} is not as it should be; {how}",
        path.display()
    );
}

fn said(program: &str, args: &[&str]) -> String {
    let out = Command::new(bin(program))
        .args(args)
        .env_remove("RUST_LOG")
        .env_remove("ROBUST_WORKER")
        .env_remove("ROBUST_LOG_FORMAT")
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    assert!(out.status.success(), "{program} {args:?}");
    String::from_utf8(out.stdout).unwrap()
}

/// The commands that a help lists.
fn commands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    // A description that goes on stands further to the right.
    let listed = listed.filter(|line| !line.starts_with("   "));
    let names = listed.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// The help of a command and of all below it, each under a heading.
fn helps(page: &mut String, program: &str, path: &[&str]) {
    let args: Vec<&str> = path.iter().copied().chain(["--help"]).collect();
    let help = said(program, &args);
    if !path.is_empty() {
        let level = "#".repeat(path.len() + 1);
        let _ = writeln!(page, "\n{level} {program} {}", path.join(" "));
    }
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    let _ = writeln!(page, "\n```text\n{}\n```", help.join("\n").trim_end());
    for command in commands(&help.join("\n")) {
        let deeper: Vec<&str> = path.iter().copied().chain([command.as_str()]).collect();
        helps(page, program, &deeper);
    }
}

#[test]
fn the_pages_of_the_programs_are_their_help() {
    for program in ["robustctl", "robustd", "robust-bench"] {
        let mut page =
            format!("# {program}\n\nWhat `{program} --help` says, command by command.\n");
        helps(&mut page, program, &[]);
        is_page(&format!("{program}.md"), &page);
    }
}

/// The exit codes that a help lists, with their meaning; the program writes them from the codes that it ends with.
fn exit_codes(program: &str) -> Vec<(String, String)> {
    let help = said(program, &["--help"]);
    let listed = help.lines().skip_while(|line| *line != "Exit codes:");
    let listed = listed
        .skip(1)
        .map_while(|line| line.strip_prefix("  ")?.split_once(' '));
    listed
        .map(|(code, meaning)| (code.to_owned(), meaning.trim().to_owned()))
        .collect()
}

#[test]
fn the_page_of_the_exit_codes_has_those_that_the_programs_end_with() {
    let mut page = "# Exit codes\n\nWritten from the codes that the programs end with, as their `--help` has them.\n".to_owned();
    for program in ["robustd", "robustctl", "robust-bench"] {
        let codes = exit_codes(program);
        assert!(codes.len() > 5, "{program}: {codes:?}");
        let _ = writeln!(
            page,
            "\n## {program}\n\n| code | what it tells |\n| --- | --- |"
        );
        for (code, meaning) in codes {
            let _ = writeln!(page, "| {code} | {meaning} |");
        }
    }
    page += "\n`robustctl run` without `--detach` ends with the code of the `robustd` that it started, and 0 when the job completed.\n";
    is_page("exit-codes.md", &page);
}

/// The words of a list, or what stands for none.
fn listed(list: &Value, none: &str) -> String {
    let words: Vec<&str> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|w| w.as_str().unwrap())
        .collect();
    match words.is_empty() {
        true => none.to_owned(),
        false => words.join(", "),
    }
}

#[test]
fn the_page_of_the_rules_has_every_rule_with_its_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("job.toml");
    std::fs::write(&job, "[data]\nprompts = \"p\"\ntokenizer = \"t\"\n").unwrap();
    let rules = said(
        "robustctl",
        &["rules", "--json", "--job", job.to_str().unwrap()],
    );
    let rules: Value = serde_json::from_str(&rules).unwrap();
    let mut page = "# Every rule\n\nWhat `robustctl rules` says without a job file's own values. A table `[detect.NAME]` in the job file sets \
                    them; what each rule is for is in [Rules](../concepts/rules.md).\n"
        .to_owned();
    for rule in rules["rules"].as_array().unwrap() {
        let word = |key: &str| rule[key].as_str().unwrap_or_default();
        let name = word("name");
        let table = name.replace(' ', "_");
        let _ = writeln!(page, "\n## {name}\n\n| | |\n| --- | --- |");
        let kind = Some(word("kind")).filter(|kind| !kind.is_empty());
        for (what, text) in [
            ("table", format!("`[detect.{table}]`")),
            ("roles", listed(&rule["roles"], "all")),
            ("phases", listed(&rule["phases"], "all")),
            ("signal", word("signal").to_owned()),
            ("action", word("action").to_owned()),
            (
                "budget",
                kind.map_or("none".to_owned(), |kind| format!("`[restart.{kind}]`")),
            ),
        ] {
            let _ = writeln!(page, "| {what} | {text} |");
        }
        for value in rule["values"].as_array().unwrap() {
            let of = |key: &str| value[key].as_str().unwrap_or_default();
            let whose = [of("role"), of("phase")]
                .into_iter()
                .filter(|w| !w.is_empty());
            let whose: String = whose.map(|w| format!(" for {w}")).collect();
            let _ = writeln!(page, "| `{}`{whose} | {} |", of("key"), value["value"]);
        }
    }
    is_page("rules.md", &page);
}

/// What the table says of a verb, a row each.
fn rows(verb: &Verb) -> Vec<(&'static str, String)> {
    let code = |words: &[&str]| {
        let words = words.iter().map(|word| format!("`{word}`"));
        words.collect::<Vec<_>>().join(", ")
    };
    let takes: Vec<&str> = verb.takes.iter().map(|argument| argument.word).collect();
    let mut rows = vec![("what it does", verb.about.to_owned())];
    if !takes.is_empty() {
        rows.push(("takes", code(&takes)));
    }
    rows.push(("call", code(&[verb.call])));
    rows.extend(verb.asks.map(|asks| ("the console asks", asks.to_owned())));
    if !verb.means.is_empty() {
        rows.push(("what follows", verb.means.join(" ")));
    }
    rows.extend(verb.undo.map(|undo| ("taken back with", code(&[undo]))));
    if verb.strikes {
        let wants =
            "wants `--i-know`, and where robustd has a `--break-glass-token-file` that token";
        rows.push(("a protected job", wants.to_owned()));
    }
    let searched = match verb.searched {
        Searched::As(_) => "its operators ask for it".to_owned(),
        Searched::Never(why) => format!("never asks for it: {why}"),
    };
    rows.push(("the fault search", searched));
    rows
}

#[test]
fn the_page_of_the_verbs_has_each_with_what_it_takes_and_what_follows() {
    let mut page = "# Every verb\n\nWhat changes a job, or who may take part in it. An operator may ask for all of it, and each request is written to \
                    the audit log; a viewer and a role may ask for none. Words in braces are said for the job at hand. `--dry-run` and `--wait`, where \
                    there are such, are `robustctl`'s own: [its page](robustctl.md) has all options.\n"
        .to_owned();
    for verb in verbs::ALL {
        let _ = writeln!(
            page,
            "\n## robustctl {}\n\n| | |\n| --- | --- |",
            verb.command
        );
        for (what, text) in rows(verb) {
            let _ = writeln!(page, "| {what} | {} |", text.replace('|', "\\|"));
        }
    }
    is_page("verbs.md", &page);
}

#[test]
fn the_page_of_the_control_api_has_every_call_with_its_comment() {
    let proto = root().join("proto/robust/v1/control.proto");
    let proto = std::fs::read_to_string(proto).unwrap();
    let (head, service) = proto.split_once("service Control {").unwrap();
    let (service, _) = service.split_once("\n}").unwrap();
    let about = head.lines().map_while(|line| line.strip_prefix("// "));
    let mut page = format!(
        "# The control API\n\n{}\n\ngRPC, [`robust/v1/control.proto`](../../proto/robust/v1/control.proto); a field's meaning is beside it there, and JSON names are \
         those of the fields.\n\n| call | takes | answers | |\n| --- | --- | --- | --- |\n",
        about.collect::<Vec<_>>().join("\n")
    );
    let mut comment = Vec::new();
    for line in service.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("// ") {
            comment.push(words);
        } else if let Some(call) = line.strip_prefix("rpc ") {
            let (name, rest) = call.split_once('(').unwrap();
            let (takes, rest) = rest.split_once(')').unwrap();
            let answers = rest.split_once('(').unwrap().1.split_once(')').unwrap().0;
            let _ = writeln!(
                page,
                "| `{name}` | `{takes}` | `{answers}` | {} |",
                comment.join(" ")
            );
            comment.clear();
        }
    }
    assert!(page.contains("| `Inject` |") && page.contains("`stream Status`"));
    is_page("control-api.md", &page);
}
