//! The real console in a real terminal (tmux), against a Control server in this process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// The command line's tests use more of it.
#[allow(dead_code)]
mod fake;
// The same terminal as real daemons are looked at with.
#[path = "../../tests/src/terminal.rs"]
mod terminal;

use fake::{Book, Fake, Server};
use robust_proto::v1;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use terminal::{Terminal, has_tmux};

/// A loaded machine may be slow to draw; what does not come within this never comes.
const PATIENCE: Duration = Duration::from_secs(30);

fn role(role: &str, index: u32, phase: &str) -> v1::RoleStatus {
    v1::RoleStatus {
        role: role.into(),
        index,
        incarnation: 7 + u64::from(index),
        pid: 4200 + index,
        state: "running".into(),
        phase: phase.into(),
        phase_ms: 400,
        admitted: role == "rollout",
        ..Default::default()
    }
}

fn status() -> v1::Status {
    v1::Status {
        roles: vec![
            role("trainer", 0, "update"),
            role("rollout", 0, "generating"),
            role("rollout", 1, "generating"),
        ],
        ..fake::running()
    }
}

fn struck(role: &str) -> v1::InjectReply {
    v1::InjectReply {
        role: role.into(),
        index: 0,
        incarnation: 7,
        pid: 4200,
        ..Default::default()
    }
}

fn daemon(book: Book) -> (TempDir, Fake, Server) {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake(Arc::new(Mutex::new(book)));
    let server = Server::start(dir.path(), &fake);
    (dir, fake, server)
}

fn console(dir: &Path, arguments: &str) -> String {
    let program = env!("CARGO_BIN_EXE_robustctl");
    let dir = dir.display();
    format!("LC_ALL=C.UTF-8 {program} --state-dir {dir} tui {arguments}")
}

fn open(size: (u16, u16), command: &str) -> Terminal {
    Terminal::start(size, command, PATIENCE)
}

#[test]
fn a_fault_is_injected_from_the_keyboard_and_the_recovery_is_seen() {
    if !has_tmux() {
        return;
    }
    let (dir, fake, _server) = daemon(Book {
        status: status(),
        inject: Some(struck("trainer")),
        ..Default::default()
    });
    let terminal = open((100, 30), &console(dir.path(), ""));
    let screen = terminal.wait("trainer-0");
    assert!(screen.contains("[1 Overview]"), "{screen}");
    terminal.text("K");
    terminal.wait("Kill trainer-0?");
    terminal.text("y");
    terminal.keys(&["Enter"]);
    terminal.wait("> y");
    assert!(
        fake.0.lock().unwrap().injected.is_empty(),
        "a yes is not enough"
    );
    terminal.keys(&["BSpace"]);
    terminal.text("trainer");
    terminal.keys(&["Enter"]);
    terminal.wait("trainer-0 is killed (incarnation 7, pid 4200)");
    {
        let mut book = fake.0.lock().unwrap();
        assert_eq!(book.injected.len(), 1);
        let (fault, life) = (&book.injected[0].fault, book.injected[0].incarnation);
        assert_eq!((fault.as_str(), life), ("kill", Some(7)));
        book.status.state = "recovering".into();
        book.status.roles[0].state = "recovering".into();
    }
    terminal.until("recovering", |s| s.contains("trainer-0  ◐ recovering"));
    {
        let mut book = fake.0.lock().unwrap();
        book.status.state = "running".into();
        book.status.roles[0].state = "running".into();
        book.status.roles[0].incarnation = 9;
        book.status.incidents.push(v1::Incident {
            id: 1,
            role: "trainer".into(),
            rule: "exit".into(),
            reason: "killed by SIGKILL".into(),
            plan: "restart the trainer gang from the snapshot of step 12".into(),
            total_ms: 1_755.0,
            outcome: "recovered".into(),
            ..Default::default()
        });
    }
    terminal.text("6");
    let screen = terminal.wait("restart the trainer gang from the snapshot of step 12");
    assert!(screen.contains("[6 Incidents]"), "{screen}");
    terminal.text("q");
    let screen = terminal.wait("code 0");
    assert!(screen.contains("arith: running at step 12/40"), "{screen}");
}

#[test]
fn the_terminal_is_as_it_was_after_a_signal() {
    if !has_tmux() {
        return;
    }
    for signal in ["TERM", "INT", "HUP", "QUIT"] {
        let (dir, _fake, _server) = daemon(Book {
            status: status(),
            ..Default::default()
        });
        let command = console(dir.path(), "");
        let command = format!(
            "sh -c 'echo $$ > {}/pid; exec {command}'",
            dir.path().display()
        );
        let command = command.replace(
            "exec LC_ALL",
            "LC_ALL=C.UTF-8; export LC_ALL; exec env LC_ALL",
        );
        let terminal = open((100, 30), &command);
        terminal.wait("trainer-0");
        assert_eq!(
            terminal.modes(),
            "1 10 0",
            "alternate screen, mouse, no cursor"
        );
        let pid = std::fs::read_to_string(dir.path().join("pid")).unwrap();
        let kill = Command::new("kill")
            .args(["-s", signal, pid.trim()])
            .status();
        assert!(kill.unwrap().success());
        terminal.wait("code 0");
        assert_eq!(terminal.modes(), "0 00 1", "after SIG{signal}");
    }
}

#[test]
fn a_daemon_that_dies_is_said_with_the_age_of_the_data_and_found_again() {
    if !has_tmux() {
        return;
    }
    let (dir, fake, server) = daemon(Book {
        status: status(),
        ..Default::default()
    });
    let terminal = open((100, 30), &console(dir.path(), ""));
    terminal.wait("step 12/40");
    drop(server);
    terminal.wait("daemon lost");
    let screen = terminal.wait("data 2s old");
    assert!(
        screen.contains("step 12/40"),
        "the last data stays:\n{screen}"
    );
    fake.0.lock().unwrap().status.step = 13;
    let _server = Server::start(dir.path(), &fake);
    let screen = terminal.wait("step 13/40");
    assert!(!screen.contains("daemon lost"), "{screen}");
}

#[test]
fn a_session_is_recorded_and_played_again_without_a_daemon() {
    if !has_tmux() {
        return;
    }
    let (dir, fake, server) = daemon(Book {
        status: status(),
        ..Default::default()
    });
    let file = dir.path().join("session.jsonl");
    let record = console(dir.path(), &format!("--record {}", file.display()));
    let terminal = open((100, 30), &record);
    terminal.wait("step 12/40");
    fake.0.lock().unwrap().status.step = 14;
    terminal.wait("step 14/40");
    terminal.text("q");
    terminal.wait("code 0");
    drop((terminal, server));
    let other = tempfile::tempdir().unwrap();
    let replay = console(other.path(), &format!("--replay {}", file.display()));
    let terminal = open((140, 30), &replay);
    terminal.wait("step 14/40");
    terminal.text("{");
    terminal.text(" ");
    terminal.wait("paused");
    terminal.text("K");
    terminal.wait("this is a recording");
}

#[test]
fn the_screen_follows_the_size_of_the_terminal_and_the_mouse_its_tabs() {
    if !has_tmux() {
        return;
    }
    let (dir, _fake, _server) = daemon(Book {
        status: status(),
        ..Default::default()
    });
    let terminal = open((100, 30), &console(dir.path(), ""));
    terminal.wait("trainer-0");
    terminal.tmux(&["resize-window", "-t", "0", "-x", "50", "-y", "12"]);
    terminal.wait("50x12 is too small");
    terminal.tmux(&["resize-window", "-t", "0", "-x", "120", "-y", "30"]);
    let screen = terminal.wait("3 Timeline");
    let tabs = screen.lines().next().unwrap();
    let column = tabs.find("3 Timeline").unwrap() + 2;
    // A press of the left button, as a terminal sends it: columns and rows from 1.
    terminal.text(&format!("\x1b[<0;{column};1M"));
    terminal.wait("TIMELINE");
}

#[test]
fn a_fault_is_armed_from_the_list_shown_while_it_waits_and_taken_back() {
    if !has_tmux() {
        return;
    }
    let (dir, fake, _server) = daemon(Book {
        status: status(),
        inject: Some(v1::InjectReply {
            armed: Some(3),
            at: "pull:50%".into(),
            fault: "slow 20% 5s".into(),
            ..struck("rollout")
        }),
        ..Default::default()
    });
    let terminal = open((120, 30), &console(dir.path(), ""));
    terminal.wait("trainer-0");
    terminal.text("jI");
    terminal.wait("A fault for rollout-0");
    terminal.text("jjj");
    terminal.wait("▶ slow");
    terminal.keys(&["Enter"]);
    terminal.wait("> slow 50% 10s");
    for _ in 0.."50% 10s".len() {
        terminal.keys(&["BSpace"]);
    }
    terminal.text("20% 5s at pul");
    terminal.keys(&["Enter"]);
    terminal.wait("did you mean `pull`?");
    terminal.text("l:50%");
    terminal.keys(&["Enter"]);
    terminal.wait("Inject `slow 20% 5s` into rollout-0 at pull:50%?");
    terminal.text("y");
    terminal.wait("`slow 20% 5s` waits for pull:50% of rollout-0");
    {
        let mut book = fake.0.lock().unwrap();
        let asked = &book.injected[0];
        assert_eq!(
            (asked.fault.as_str(), asked.at.as_str()),
            ("slow", "pull:50%")
        );
        assert_eq!((asked.percent, asked.seconds), (Some(20), Some(5.0)));
        assert!(!asked.i_know, "nothing was said to be known");
        book.status.armed.push(v1::ArmedFault {
            id: 3,
            fault: "slow 20% 5s".into(),
            role: "rollout".into(),
            index: 0,
            incarnation: 7,
            at: "pull:50%".into(),
            since_ms: 66_000,
        });
    }
    terminal.wait("armed: slow 20% 5s for rollout-0, waits for pull:50%");
    terminal.text("D");
    terminal.wait("Take back `slow 20% 5s`?");
    terminal.text("y");
    terminal.wait("`slow 20% 5s` is taken back");
    fake.0.lock().unwrap().status.armed.clear();
    terminal.until("it is gone", |s| !s.contains("armed: slow"));
}

#[test]
fn the_log_of_an_instance_that_moved_is_that_of_its_new_node() {
    if !has_tmux() {
        return;
    }
    let mut two = status();
    two.node = "a".into();
    two.roles[1].node = "a".into();
    two.roles[2].node = "b".into();
    let logs = [("rollout-1".to_owned(), "written on b\n".to_owned())];
    let (dir, _fake, _server) = daemon(Book {
        status: two,
        logs: logs.into(),
        ..Default::default()
    });
    let folder = dir.path().join("logs");
    std::fs::create_dir(&folder).unwrap();
    for who in ["rollout-0", "rollout-1"] {
        std::fs::write(folder.join(format!("{who}.log")), "written on a\n").unwrap();
    }
    let terminal = open((120, 40), &console(dir.path(), ""));
    terminal.wait("trainer-0");
    terminal.text("2j");
    terminal.wait("written on a");
    terminal.text("j");
    let screen = terminal.wait("written on b");
    assert!(!screen.contains("written on a"), "{screen}");
}

#[test]
fn a_job_is_paused_resumed_and_restarted_and_a_node_drained() {
    if !has_tmux() {
        return;
    }
    let mut two = status();
    for (name, index) in [("a", 0), ("b", 1)] {
        two.nodes.push(v1::NodeStatus {
            name: name.into(),
            state: "here".into(),
            ..Default::default()
        });
        two.roles[1 + index].node = name.into();
    }
    two.roles[0].node = "a".into();
    let (dir, fake, _server) = daemon(Book {
        status: two,
        ..Default::default()
    });
    let terminal = open((120, 30), &console(dir.path(), ""));
    terminal.wait("trainer-0");
    terminal.text("Py");
    terminal.wait("paused for");
    terminal.text("P");
    terminal.wait("Resume the job?");
    terminal.text("y");
    terminal.until("it goes on", |s| !s.contains("paused for"));
    terminal.text("jR");
    terminal.wait("Restart rollout-0?");
    terminal.text("y");
    terminal.wait("rollout-0 is restarted: now");
    terminal.text("T");
    terminal.wait("Type `arith` and Enter to restart");
    terminal.text("arith");
    terminal.keys(&["Enter"]);
    terminal.wait("task is restarted: now");
    terminal.text("7D");
    terminal.wait("Drain a?");
    terminal.wait("Type `a` and Enter to drain");
    terminal.text("a");
    terminal.keys(&["Enter"]);
    terminal.wait("a is cordoned; 2 of its instances get new places");
    let book = fake.0.lock().unwrap();
    let done = [
        "pause",
        "resume",
        "restart rollout-0",
        "restart task",
        "restart trainer-0",
        "restart rollout-0",
    ];
    assert_eq!(book.asked, done);
}

#[test]
fn a_new_incident_rings_and_is_copied_as_the_report_prints_it() {
    if !has_tmux() {
        return;
    }
    let (dir, fake, _server) = daemon(Book {
        status: status(),
        ..Default::default()
    });
    let terminal = open((100, 30), &console(dir.path(), ""));
    terminal.wait("trainer-0");
    let bell = || {
        let shown = terminal.tmux(&["display-message", "-p", "-t", "0", "#{window_bell_flag}"]);
        String::from_utf8(shown.stdout).unwrap()
    };
    assert_eq!(bell().trim(), "0");
    let set = terminal.tmux(&["set-option", "-g", "set-clipboard", "on"]);
    assert!(set.status.success(), "{set:?}");
    let incident = v1::Incident {
        id: 1,
        role: "trainer".into(),
        rule: "exit".into(),
        reason: "killed by SIGKILL".into(),
        outcome: "recovered".into(),
        ..Default::default()
    };
    fake.0.lock().unwrap().status.incidents.push(incident);
    terminal.until("a bell", |_| bell().trim() == "1");
    terminal.text(":");
    terminal.wait("What to do");
    terminal.text("incid");
    terminal.keys(&["Enter"]);
    terminal.wait("[6 Incidents]");
    terminal.text("y");
    terminal.wait("incident 1 copied");
    let copied = terminal.tmux(&["show-buffer"]);
    let report = Command::new(env!("CARGO_BIN_EXE_robustctl"))
        .arg("--state-dir")
        .arg(dir.path())
        .args(["report", "--incident", "1"])
        .output()
        .unwrap();
    let printed = String::from_utf8(report.stdout).unwrap();
    assert!(printed.contains("killed by SIGKILL"), "{printed}");
    assert_eq!(String::from_utf8(copied.stdout).unwrap(), printed);
}

#[test]
fn the_jobs_of_all_contexts_lead_to_a_console_and_back() {
    if !has_tmux() {
        return;
    }
    let (here, fake, _server) = daemon(Book {
        status: status(),
        ..Default::default()
    });
    let config = tempfile::tempdir().unwrap();
    let folder = config.path().join("robust");
    std::fs::create_dir(&folder).unwrap();
    let gone = config.path().display();
    let text = format!(
        "[gone]\nstate_dir = \"{gone}\"\n[prod]\nstate_dir = \"{}\"\n",
        here.path().display()
    );
    std::fs::write(folder.join("contexts.toml"), text).unwrap();
    let program = env!("CARGO_BIN_EXE_robustctl");
    let command =
        format!("LC_ALL=C.UTF-8 XDG_CONFIG_HOME={gone} {program} tui --contexts --read-only");
    let terminal = open((100, 30), &command);
    let screen = terminal.until("both are known", |s| {
        s.contains("there is no such socket") && s.contains("12/40")
    });
    assert!(screen.contains("2 contexts, 1 not reachable"), "{screen}");
    terminal.text("j");
    terminal.wait("CONTEXT prod");
    terminal.keys(&["Enter"]);
    terminal.wait("[1 Overview]");
    terminal.wait("step 12/40");
    fake.0.lock().unwrap().status.step = 13;
    terminal.wait("step 13/40");
    terminal.keys(&["Escape"]);
    let screen = terminal.wait("ALL JOBS");
    assert!(screen.contains("CONTEXT prod"), "{screen}");
    terminal.wait("13/40");
    terminal.text("J");
    terminal.wait("[1 Overview]");
    terminal.text("q");
    let screen = terminal.wait("code 0");
    assert!(screen.contains("arith: running at step 13/40"), "{screen}");
}

#[test]
fn marked_instances_are_restarted_one_after_the_other_and_who_is_refused_is_told() {
    if !has_tmux() {
        return;
    }
    let (dir, fake, _server) = daemon(Book {
        status: status(),
        // The restart before is under way for a moment.
        busy: 2,
        ..Default::default()
    });
    let terminal = open((100, 30), &console(dir.path(), ""));
    terminal.wait("trainer-0");
    terminal.text("j  ");
    terminal.wait("2 marked (Esc)");
    terminal.text("R");
    let screen = terminal.wait("Restart 2 instances?");
    assert!(screen.contains("rollout-0, rollout-1."), "{screen}");
    terminal.text("y");
    terminal.wait("restart: all 2 were accepted");
    let asked = fake.0.lock().unwrap().asked.clone();
    assert_eq!(asked, ["restart rollout-0", "restart rollout-1"]);
    // Nobody strikes: each refusal has its reason.
    terminal.text("K");
    terminal.wait("Kill 2 instances?");
    terminal.text("y");
    let screen = terminal.wait("What came of it");
    assert!(screen.contains("kill: 0 of 2 were accepted"), "{screen}");
    assert!(screen.contains("rollout-1: refused: "), "{screen}");
}

#[test]
fn nobody_is_moved_from_a_node_whose_cordon_is_refused() {
    if !has_tmux() {
        return;
    }
    let mut two = status();
    for name in ["a", "b"] {
        two.nodes.push(v1::NodeStatus {
            name: name.into(),
            state: "here".into(),
            ..Default::default()
        });
    }
    two.roles[1].node = "a".into();
    two.roles[2].node = "a".into();
    let (dir, fake, _server) = daemon(Book {
        status: two,
        no_cordons: true,
        ..Default::default()
    });
    let terminal = open((100, 30), &console(dir.path(), ""));
    terminal.wait("trainer-0");
    terminal.text("7D");
    let screen = terminal.wait("Drain a?");
    assert!(screen.contains("no rollout serves"), "{screen}");
    terminal.text("y");
    let screen = terminal.wait("What came of it");
    assert!(
        screen.contains("drain of a: 0 of 3 were accepted"),
        "{screen}"
    );
    assert!(
        screen.contains("a: refused: the job is stopping"),
        "{screen}"
    );
    assert!(
        screen.contains("2 more were not asked for after that"),
        "{screen}"
    );
    assert!(fake.0.lock().unwrap().asked.is_empty());
}
