//! The console in a real terminal against a real daemon: what is typed happens to real processes, and
//! what happens to them is seen.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::{Daemon, JobFile, PATIENCE, Terminal, bin, cache, has_tmux, roles};
use robust_tests::{fixture, processes_naming};
use serde_json::Value;
use std::path::Path;
use tempfile::TempDir;

const SIZE: (u16, u16) = (120, 40);

fn long_job() -> JobFile {
    JobFile::small().set("job", "steps", 400)
}

/// The console on a state directory. The terminal's own files are in the folder that comes along.
fn console(state_dir: &Path, arguments: &str) -> (Terminal, TempDir) {
    let own = tempfile::tempdir().unwrap();
    let (program, state_dir) = (bin("robustctl"), state_dir.display());
    let (program, temp) = (program.display(), own.path().display());
    let env = format!(
        "LC_ALL=C.UTF-8 TMPDIR={temp} ROBUST_CACHE={}",
        cache().display()
    );
    let command = format!("{env} {program} --state-dir {state_dir} tui {arguments}");
    (Terminal::start(SIZE, &command, PATIENCE), own)
}

/// The line of the screen that begins with these words, behind the mark of the selection.
fn line<'a>(screen: &'a str, words: &str) -> Option<&'a str> {
    let begins = |l: &&str| l.trim_start_matches(['▶', ' ']).starts_with(words);
    screen.lines().find(begins)
}

fn shows(screen: &str, who: &str, word: &str) -> bool {
    line(screen, who).is_some_and(|l| l.contains(word))
}

/// Selects an instance by typing its name as the filter.
fn select(terminal: &Terminal, who: &str) {
    terminal.keys(&["Escape"]);
    terminal.text("/");
    terminal.wait("filter:");
    terminal.text(who);
    terminal.keys(&["Enter"]);
    terminal.wait(&format!("filter: {who} (Esc)"));
}

fn pid(status: &Value, role: &str, index: usize) -> u64 {
    roles(status, role)[index]["pid"].as_u64().unwrap()
}

#[test]
fn a_trainer_killed_from_the_keyboard_recovers_on_the_screen_and_the_job_goes_on() {
    if !has_tmux() {
        return;
    }
    let mut daemon = Daemon::start(&long_job());
    let before = daemon.until_step(2);
    let (terminal, _own) = console(&daemon.state_dir(), "");
    terminal.until("trainer-0 at work", |s| shows(s, "trainer-0", "running"));
    terminal.text("K");
    terminal.wait("Kill trainer-0?");
    terminal.text("trainer");
    terminal.keys(&["Enter"]);
    let killed = format!("pid {})", pid(&before, "trainer", 0));
    let screen = terminal.until("what was done", |s| s.contains("trainer-0 is killed"));
    assert!(screen.contains(&killed), "{screen}");
    terminal.text("6");
    terminal.wait("INCIDENT 1: trainer-0 recovered");
    let screen = terminal.wait("rule     exit");
    assert!(screen.contains("killed by SIGKILL"), "{screen}");
    terminal.text("1");
    terminal.until("a new life", |s| {
        shows(s, "trainer-0", "running") && !s.contains("trainer-0 is killed")
    });
    let step = before["step"].as_u64().unwrap();
    let after = daemon.until_step(step + 3);
    assert_ne!(pid(&before, "trainer", 0), pid(&after, "trainer", 0));
    assert_eq!(pid(&before, "rollout", 0), pid(&after, "rollout", 0));
    // The daemon's death is said, what is known stays, and its return is noticed.
    daemon.kill_daemon();
    let screen = terminal.wait("daemon lost");
    assert!(line(&screen, "trainer-0").is_some(), "{screen}");
    terminal.text("K");
    terminal.wait("the daemon is not reachable");
    daemon.launch();
    // One that begins says that it is there before it says who else is.
    terminal.until("the daemon again", |s| {
        !s.contains("daemon lost") && line(s, "trainer-0").is_some()
    });
    terminal.text("q");
    terminal.wait("code 0");
    daemon.until_step(step + 4);
}

#[test]
fn what_an_operator_does_to_engines_and_nodes_is_done_and_undone_from_the_keyboard() {
    if !has_tmux() {
        return;
    }
    let mut daemon = Daemon::start(&long_job());
    daemon.until_step(1);
    let (terminal, _own) = console(&daemon.state_dir(), "");
    terminal.until("rollout-0", |s| line(s, "rollout-0").is_some());
    select(&terminal, "rollout-0");
    let is_out = |s: &Value| roles(s, "rollout")[0]["quarantined"] == true;
    terminal.text("Q");
    terminal.wait("Take rollout-0 out of traffic?");
    assert!(!is_out(&daemon.status()), "nothing is done before the yes");
    terminal.text("y");
    terminal.wait("rollout-0 is quarantined");
    daemon.until("the quarantine", is_out);
    terminal.until("it on the screen", |s| shows(s, "rollout-0", "quarantined"));
    terminal.text("Q");
    terminal.wait("Let rollout-0 have traffic again?");
    terminal.text("y");
    daemon.until("traffic again", |s| !is_out(s));
    terminal.until("it again", |s| shows(s, "rollout-0", "running"));
    // Fewer engines: their number, then the role's name, because instances end.
    let count = |n: usize| move |s: &Value| roles(s, "rollout").len() == n;
    let (from, to) = (roles(&daemon.status(), "rollout").len(), 2);
    assert!(from > to, "{from}");
    terminal.text("S");
    terminal.wait(&format!("How many rollout instances? (now {from})"));
    terminal.text(&to.to_string());
    terminal.keys(&["Enter"]);
    terminal.wait(&format!("Scale rollout from {from} to {to}?"));
    terminal.text("rollout");
    terminal.keys(&["Enter"]);
    daemon.until("fewer engines", count(to));
    terminal.keys(&["Escape"]);
    terminal.until("fewer lines", |s| {
        line(s, "rollout-1").is_some() && line(s, "rollout-2").is_none()
    });
    let cordoned = |s: &Value| s["nodes"][0]["cordoned"] == true;
    for (word, out) in [("Cordon", true), ("Uncordon", false)] {
        terminal.text("7C");
        terminal.wait(&format!("{word} local?"));
        terminal.text("y");
        daemon.until(word, |s| cordoned(s) == out);
        terminal.until(word, |s| shows(s, "local", "cordoned") == out);
    }
}

#[test]
fn a_drill_run_from_the_drills_screen_strikes_real_jobs_and_shows_what_held() {
    if !has_tmux() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let job = fixture("jobs/test.toml").canonicalize().unwrap();
    let drill = format!(
        "# One kill.\nversion = 1\nname = \"one\"\njob = \"{}\"\nseed = 1\n\
         set.job = {{ mode = \"sync\", steps = 3 }}\n\
         runs = [{{ name = \"none\" }}, {{ name = \"role\", policy = \"role\" }}]\n\
         faults = [{{ kind = \"kill\", role = \"trainer\", at_step = 1.5 }}]\n\
         [[series]]\nname = \"sync\"\n\
         expect = {{ compare = [\"restarts_role >= 1\", \"restarts_role >= 1000\"] }}\n",
        job.display()
    );
    std::fs::write(folder.path().join("one.toml"), drill).unwrap();
    let arguments = format!("--wait-for-daemon --drills {}", folder.path().display());
    // There is no daemon: a drill has jobs of its own.
    let (terminal, own) = console(folder.path(), &arguments);
    terminal.wait("8 Drills");
    terminal.text("8");
    terminal.wait("One kill.");
    terminal.keys(&["Enter"]);
    terminal.wait("DRILL one runs");
    let screen = terminal.wait("DRILL one failed after");
    let verdict = |words: &str| screen.lines().find(|l| l.contains(words)).unwrap();
    assert!(verdict("restarts_role >= 1 ").contains("held"), "{screen}");
    let broken = verdict("restarts_role >= 1000");
    assert!(broken.contains("not met"), "{screen}");
    // One that is ended leaves nothing behind.
    terminal.keys(&["Enter"]);
    terminal.wait("DRILL one runs");
    terminal.until("its processes", |_| {
        !processes_naming(own.path()).is_empty()
    });
    terminal.text("X");
    terminal.wait("DRILL one failed after");
    assert_eq!(processes_naming(own.path()), vec![], "processes were left");
    terminal.text("q");
    terminal.wait("code 0");
}
