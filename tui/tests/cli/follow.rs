//! The commands that go on: `events`, `watch`.
use super::fake::{Book, Server};
use super::{daemon, err, out, robustctl, run, status};
use robust_proto::v1;
use std::io::{BufRead as _, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

/// `events --follow` in a process of its own, which ends with this value.
struct Followed {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Followed {
    fn start(dir: &Path) -> Self {
        let mut child = robustctl(dir, &["events", "--follow", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn next(&mut self) -> v1::Event {
        let line = self.lines.next().unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn followed_events_survive_a_restart_of_the_daemon_and_none_comes_twice() {
    let event = |seq| v1::Event {
        seq,
        text: format!("event {seq}"),
        ..Default::default()
    };
    let book = Book {
        status: status(),
        events: vec![event(1), event(2)],
        ..Default::default()
    };
    let (dir, fake, server) = daemon(book);
    let mut followed = Followed::start(dir.path());
    let mut next = || followed.next().seq;
    assert_eq!([next(), next()], [1, 2]);
    drop(server);
    fake.0.lock().unwrap().events.push(event(3));
    let _server = Server::start(dir.path(), &fake);
    assert_eq!(next(), 3);
}

#[test]
fn events_without_follow_end_and_start_where_asked() {
    let event = |seq| v1::Event {
        seq,
        kind: "step".into(),
        ..Default::default()
    };
    let events = (1..=5).map(event).collect();
    let (dir, _fake, _server) = daemon(Book {
        events,
        ..Default::default()
    });
    let output = run(dir.path(), &["events", "--since", "4"]);
    assert!(output.status.success());
    assert_eq!(out(&output).lines().count(), 2, "{}", out(&output));
}

#[test]
fn another_job_on_the_same_socket_is_followed_from_its_first_event() {
    let event = |seq, text: &str| v1::Event {
        seq,
        text: text.into(),
        ..Default::default()
    };
    let events = (1..=3).map(|seq| event(seq, "old")).collect();
    let (dir, fake, server) = daemon(Book {
        events,
        ..Default::default()
    });
    let mut followed = Followed::start(dir.path());
    let mut next = || {
        let event = followed.next();
        (event.seq, event.text)
    };
    assert_eq!([next().0, next().0, next().0], [1, 2, 3]);
    drop(server);
    fake.0.lock().unwrap().events = vec![event(1, "new"), event(2, "new")];
    let _server = Server::start(dir.path(), &fake);
    assert_eq!(
        [next(), next()],
        [(1, "new".to_owned()), (2, "new".to_owned())]
    );
}

#[test]
fn watch_ends_with_the_job_and_its_exit_code_says_how() {
    for (state, code) in [("completed", 0), ("stopped", 0), ("failed", 1)] {
        let mut end = status();
        (end.state, end.reason) = (state.into(), "no budget left".into());
        let (dir, _fake, _server) = daemon(Book {
            status: end,
            ..Default::default()
        });
        let output = run(dir.path(), &["watch", "--interval", "0.05"]);
        assert_eq!(output.status.code(), Some(code), "{}", err(&output));
        assert!(out(&output).contains("step   12/40"), "{}", out(&output));
    }
}
