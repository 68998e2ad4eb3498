//! What roles and models wrote, on a terminal: shown, and not obeyed.
use super::fake::{self, Book};
use super::{daemon, incident, out, robustctl, run, status, struck};
use robust_proto::v1;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Sets the window's title, writes to the clipboard, clears the screen, goes back to the line's begin.
const ATTACK: &str = "eins\x1b]0;owned\x07\x1b]52;c;cm0gLXJm\x1b\\\x1b[2J\u{9b}8m\rzwei";

/// What a terminal gets when the command's output goes there, and its errors, unless it shows how far it is with
/// them.
fn on_terminal(mut command: Command, with_errors: bool) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new())
        .unwrap()
        .into_string()
        .unwrap();
    let open = || File::options().read(true).write(true).open(&name).unwrap();
    command.env("TERM", "xterm").env_remove("NO_COLOR");
    match with_errors {
        true => command.stderr(open()),
        false => command.stderr(Stdio::null()),
    };
    let mut child = command.stdout(open()).spawn().unwrap();
    drop(command);
    let (mut seen, mut part) = (Vec::new(), [0; 4096]);
    let mut terminal = File::from(terminal);
    // Reading fails when nobody has the other side open any more.
    while let Ok(n @ 1..) = terminal.read(&mut part) {
        seen.extend(&part[..n]);
    }
    child.wait().unwrap();
    String::from_utf8(seen).unwrap()
}

/// Nothing of the attack is left but its words; what this program paints is.
fn assert_harmless(dir: &Path, args: &[&str]) {
    let has_spinner = args.contains(&"export") || args.contains(&"--wait");
    let seen = on_terminal(robustctl(dir, args), !has_spinner);
    assert!(
        seen.contains("eins") && seen.contains("zwei"),
        "{args:?}: {seen:?}"
    );
    // The terminal itself makes a line end of two.
    let mut text = seen.replace("\r\n", "\n");
    for painted in ["0", "1", "31", "32", "33"] {
        text = text.replace(&format!("\x1b[{painted}m"), "");
    }
    let obeyed = text
        .chars()
        .find(|c| c.is_control() && !matches!(c, '\n' | '\t'));
    assert_eq!(obeyed, None, "{args:?}: {seen:?}");
}

fn attacked() -> Book {
    let event = v1::Event {
        seq: 1,
        severity: "info".into(),
        kind: "note".into(),
        text: ATTACK.into(),
        ..Default::default()
    };
    let mut reply = struck("recovered");
    reply.incident = Some(v1::Incident {
        reason: ATTACK.into(),
        plan: ATTACK.into(),
        ..incident("recovered")
    });
    let turn = v1::Turn {
        tool_call: ATTACK.into(),
        tool_result: ATTACK.into(),
        ..Default::default()
    };
    Book {
        status: v1::Status {
            reason: ATTACK.into(),
            state: "failed".into(),
            ..status()
        },
        events: vec![event],
        report: v1::Report {
            job: "arith".into(),
            state: "failed".into(),
            reason: ATTACK.into(),
            ..Default::default()
        },
        inject: Some(reply),
        logs: [("rollout-0".to_owned(), format!("{ATTACK}\n"))].into(),
        trajectories: vec![v1::Trajectory {
            turns: vec![turn],
            answer: ATTACK.into(),
            ..Default::default()
        }],
        ..Book::default()
    }
}

#[test]
fn a_terminal_obeys_nothing_that_roles_or_models_wrote() {
    let (dir, _fake, _server) = daemon(attacked());
    for args in [
        ["logs", "rollout-0"].as_slice(),
        &["events"],
        &["events", "--json"],
        &["traj", "show", "0.0.0"],
        &["traj", "export", "-"],
        &["report"],
        &["status"],
        &["watch"],
        &["inject", "--kill", "trainer", "--wait"],
    ] {
        assert_harmless(dir.path(), args);
    }
}

#[test]
fn a_refusal_of_the_daemons_is_no_order_to_a_terminal() {
    let (dir, fake, _server) = daemon(Book::default());
    let seen = on_terminal(
        robustctl(dir.path(), &["inject", "--kill", "trainer"]),
        true,
    );
    assert!(seen.contains(fake::REFUSAL), "{seen}");
    drop(fake);
}

#[test]
fn through_a_pipe_a_log_is_what_was_written() {
    let (dir, _fake, _server) = daemon(attacked());
    let log = out(&run(dir.path(), &["logs", "rollout-0"]));
    assert_eq!(log, format!("{ATTACK}\n"));
}
