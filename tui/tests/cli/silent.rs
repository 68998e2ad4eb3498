//! A daemon that is there and says nothing: stopped, hung, or behind a tunnel that stalls.
use super::fake::Book;
use super::{daemon, err, robustctl, status};
use robust_proto::v1;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// An answer may take 10 s; a loaded machine starts processes late. Whoever waited for the daemon to
/// come back would take longer.
const WITHIN: Duration = Duration::from_secs(25);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Runs them side by side; each must end with exit code 3 and say that nothing was answered.
fn all_give_up(dir: &Path, commands: &[&[&str]]) {
    let begin = Instant::now();
    let start = |args: &&[&str]| {
        let mut command = robustctl(dir, args);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let children: Vec<Child> = commands.iter().map(start).collect();
    for (args, child) in commands.iter().zip(children) {
        let output = ended(child, begin + WITHIN);
        let said = err(&output);
        assert_eq!(output.status.code(), Some(3), "{args:?}: {said}");
        assert!(
            said.contains("did not answer within 10 s"),
            "{args:?}: {said}"
        );
    }
}

/// What it left when it ended, or was ended then.
fn ended(mut child: Child, until: Instant) -> Output {
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            child.kill().unwrap();
            break;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    child.wait_with_output().unwrap()
}

#[test]
fn no_command_waits_for_a_stopped_daemon_longer_than_for_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    // Nobody takes up what the system accepts, as with a process under SIGSTOP.
    let _stopped = UnixListener::bind(dir.path().join("control.sock")).unwrap();
    let commands = [
        &["status"][..],
        &["events"],
        &["events", "--follow"],
        &["watch"],
        &["roles", "--follow"],
        &["logs", "rollout-0"],
        &["logs", "rollout-0", "--follow"],
        &["report"],
        &["audit"],
    ];
    all_give_up(dir.path(), &commands);
}

#[test]
fn an_answer_that_is_begun_and_does_not_go_on_is_given_up() {
    let rollout = |index| v1::RoleStatus {
        role: "rollout".into(),
        index,
        state: "running".into(),
        ..Default::default()
    };
    let mut status = status();
    status.roles.extend([rollout(0), rollout(1)]);
    let (dir, _fake, _server) = daemon(Book {
        status,
        never_ends: true,
        ..Default::default()
    });
    let drill = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../fixtures/drills/kill-rollout.toml"
    );
    // The drill asks for the events before it strikes anything.
    let commands = [&["events"][..], &["drill", "--attach", drill]];
    all_give_up(dir.path(), &commands);
}

#[test]
fn what_is_followed_through_a_tunnel_that_stalls_is_lost_and_found_again() {
    let (far, fake, _server) = daemon(Book {
        status: status(),
        ..Default::default()
    });
    let near = tempfile::tempdir().unwrap();
    let socket = |dir: &Path| dir.join("control.sock");
    let stalled = tunnel(&socket(near.path()), &socket(far.path()));
    let mut child = robustctl(near.path(), &["watch", "--json", "--interval", "0.1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut statuses = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut notes = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut note = || {
        let line = notes.next().unwrap().unwrap();
        let note: serde_json::Value = serde_json::from_str(&line).unwrap();
        note["note"].as_str().unwrap().to_owned()
    };
    statuses.next().unwrap().unwrap();
    stalled.store(true, Ordering::Relaxed);
    assert_eq!(note(), "daemon lost, retrying for 30 s");
    fake.0.lock().unwrap().status.state = "completed".into();
    stalled.store(false, Ordering::Relaxed);
    let back = note();
    assert!(back.starts_with("daemon back after"), "{back}");
    let last = statuses.last().unwrap().unwrap();
    assert!(last.contains("\"completed\""), "{last}");
    assert!(child.wait().unwrap().success());
}

/// From this socket to that one, until it stalls: then what is under way vanishes, connections stay
/// open, and only later ones work again.
fn tunnel(near: &Path, far: &Path) -> Arc<AtomicBool> {
    let stalled = Arc::new(AtomicBool::new(false));
    let (listener, far) = (UnixListener::bind(near).unwrap(), far.to_owned());
    let stalls = stalled.clone();
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let far = UnixStream::connect(&far).unwrap();
            let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            pass(near, far, stalls.clone());
            pass(far_too, near_too, stalls.clone());
        }
    });
    stalled
}

fn pass(mut from: UnixStream, mut to: UnixStream, stalls: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let (mut bytes, mut whole) = ([0; 4096], true);
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            whole &= !stalls.load(Ordering::Relaxed);
            if whole && to.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        // The other end may have left before.
        let _ = to.shutdown(Shutdown::Both);
    });
}
