//! `status --contexts`: several daemons, of which one is there, one is not and one hangs.
use super::fake::Book;
use super::{daemon, err, out, robustctl, status};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// An answer may take 10 s; a loaded machine starts processes late.
const WITHIN: Duration = Duration::from_secs(25);

/// A user's folder of settings with these contexts.
fn settings(text: &str) -> TempDir {
    let config = tempfile::tempdir().unwrap();
    let folder = config.path().join("robust");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("contexts.toml"), text).unwrap();
    config
}

fn of_folder(name: &str, folder: &Path) -> String {
    format!("[{name}]\nstate_dir = \"{}\"\n", folder.display())
}

fn run(config: &Path, args: &[&str]) -> Output {
    let mut command = robustctl(config, args);
    command.env("XDG_CONFIG_HOME", config).output().unwrap()
}

#[test]
fn every_context_is_told_and_one_that_hangs_keeps_nobody_waiting_longer_than_its_limit() {
    let (here, _fake, _server) = daemon(Book {
        status: status(),
        ..Default::default()
    });
    let hung = tempfile::tempdir().unwrap();
    // Nobody takes up what the system accepts, as with a process under SIGSTOP.
    let _stopped = UnixListener::bind(hung.path().join("control.sock")).unwrap();
    let text = of_folder("hung", hung.path())
        + &of_folder("prod", here.path())
        + "[half]\nconnect = \"127.0.0.1:1\"\n";
    let config = settings(&text);
    let begin = Instant::now();
    let output = run(config.path(), &["status", "--contexts"]);
    assert!(begin.elapsed() < WITHIN, "{:?}", begin.elapsed());
    assert!(output.status.success(), "{}", err(&output));
    let said = out(&output);
    let line = |name: &str| {
        let found = said.lines().find(|line| line.starts_with(name));
        found.unwrap_or_else(|| panic!("no {name} in\n{said}"))
    };
    assert!(line("prod").contains("arith") && line("prod").contains("12/40"));
    assert!(
        line("hung").contains("did not answer within 10 s"),
        "{said}"
    );
    assert!(
        line("half").contains("needs state_dir, or connect"),
        "{said}"
    );
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("prod"), "the worst first:\n{said}");
}

#[test]
fn scripts_read_the_same_of_those_that_are_named_as_json() {
    let (here, _fake, _server) = daemon(Book {
        status: status(),
        ..Default::default()
    });
    let gone = tempfile::tempdir().unwrap();
    let text = of_folder("gone", gone.path()) + &of_folder("prod", here.path());
    let config = settings(&text);
    let args = ["status", "--contexts", "prod,gone", "--json"];
    let output = run(config.path(), &args);
    assert!(output.status.success(), "{}", err(&output));
    let rows: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(rows[0]["context"], "gone");
    let why = rows[0]["away"]["why"].as_str().unwrap();
    assert!(why.contains("no such socket"), "{why}");
    assert!(rows[0]["job"].is_null() && rows[1]["away"].is_null());
    let job = &rows[1]["job"];
    assert_eq!((&job["name"], &job["step"]), (&"arith".into(), &12.into()));
    assert_eq!((&job["roles_up"], &job["roles"]), (&1.into(), &1.into()));
}

#[test]
fn no_context_is_said_and_one_that_is_not_written_down_is_an_error() {
    let config = settings("");
    let output = run(config.path(), &["status", "--contexts"]);
    assert!(output.status.success());
    assert!(out(&output).contains("no context is written down in "));
    let output = run(config.path(), &["status", "--contexts", "--json"]);
    assert_eq!(out(&output).trim(), "[]");
    let output = run(config.path(), &["status", "--contexts", "prod"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("there is no context `prod`"));
    let both = ["--state-dir", "/tmp", "status", "--contexts"];
    let output = run(config.path(), &both);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("leave --context, --state-dir and --connect out"));
}
