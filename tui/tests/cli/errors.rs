//! Wrong use, no daemon, no right: exit codes and what is said.
use super::fake::{Book, Fake, Server};
use super::{daemon, err, out, robustctl, run, status};
use robust_identity::Person;
use robust_proto::v1;
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

#[test]
fn without_a_daemon_the_exit_code_is_3_and_the_message_says_where_and_how() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("control.sock");
    for args in [
        &["status"][..],
        &["events"],
        &["watch"],
        &["report"],
        &["stop"],
    ] {
        let output = run(dir.path(), args);
        assert_eq!(output.status.code(), Some(3), "{args:?}");
        let text = err(&output);
        assert!(text.contains(socket.to_str().unwrap()), "{text}");
        assert!(text.contains("robustd --job FILE --state-dir"), "{text}");
    }
    // A socket file that a killed daemon left behind.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let output = run(dir.path(), &["status"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        err(&output).contains("nobody listens there any more"),
        "{}",
        err(&output)
    );
}

#[test]
fn wrong_use_exits_2_and_names_the_nearest_role() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["inject", "--kill", "trianer"]);
    assert_eq!(output.status.code(), Some(2));
    let text = err(&output);
    assert!(text.contains("a similar value exists: 'trainer'"), "{text}");
    for args in [
        &["inject"][..],
        &["inject", "--kill", "agent", "--hang", "agent"],
        &["--connect", "7000", "status"],
        &[
            "--connect",
            "127.0.0.1:7000",
            "--token-file",
            "/nonexistent",
            "status",
        ],
        &["tui"],
    ] {
        let output = robustctl(dir.path(), args)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", err(&output));
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let events = (1..=5_000)
        .map(|seq| v1::Event {
            seq,
            ..Default::default()
        })
        .collect();
    let (dir, _fake, _server) = daemon(Book {
        events,
        ..Default::default()
    });
    let mut child = robustctl(dir.path(), &["events"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), err(&output)),
        (Some(0), String::new())
    );
}

#[test]
fn over_tcp_the_token_file_decides() {
    let fake = Fake(Arc::new(Mutex::new(Book {
        status: status(),
        ..Default::default()
    })));
    let (_server, addr) = Server::start_tcp("open sesame", &fake);
    let dir = tempfile::tempdir().unwrap();
    let connect = format!("--connect={addr}");
    std::fs::write(dir.path().join("token"), "open sesame\n").unwrap();
    let output = run(dir.path(), &[&connect, "status"]);
    assert!(output.status.success(), "{}", err(&output));
    std::fs::write(dir.path().join("token"), "guess\n").unwrap();
    let output = run(dir.path(), &[&connect, "status"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(
        err(&output).contains("refused: wrong token"),
        "{}",
        err(&output)
    );
}

#[test]
fn a_controller_that_follows_leads_to_the_one_that_leads_or_says_whom_it_follows() {
    let of = |follows: Option<String>| {
        let fake = Fake(Arc::new(Mutex::new(Book {
            status: status(),
            follows,
            ..Default::default()
        })));
        Server::start_tcp("open sesame", &fake)
    };
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("token"), "open sesame\n").unwrap();
    let ask = |at: &str| run(dir.path(), &[&format!("--connect={at}"), "status"]);
    let (leading, leader) = of(None);
    let (_following, follower) = of(Some(leader.to_string()));
    // The system takes connections there, and nobody answers on any.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = (silent.local_addr().unwrap(), silent);
    for at in [
        format!("{follower}"),
        format!("{},{follower}", silent.0),
        format!("{follower},{leader}"),
        format!("{leader},{follower}"),
    ] {
        let output = ask(&at);
        assert!(output.status.success(), "{at}: {}", err(&output));
    }
    let (_lost, nobody) = of(Some(String::new()));
    let output = ask(&nobody.to_string());
    assert_eq!(output.status.code(), Some(3));
    let said = err(&output);
    assert!(said.contains("b is a controller that follows a"), "{said}");
    assert!(ask(&format!("{nobody},{follower}")).status.success());

    drop(leading);
    let output = ask(&follower.to_string());
    assert_eq!(output.status.code(), Some(3));
    let said = err(&output);
    let there = format!("the leader is not reached at {leader} from here");
    assert!(said.contains(&there), "{said}");
}

#[test]
fn an_operator_gets_a_token_of_his_own_which_ends_with_its_time() {
    let fake = Fake(Arc::new(Mutex::new(Book {
        status: status(),
        ..Default::default()
    })));
    let (_server, addr) = Server::start_tcp("open sesame", &fake);
    let dir = tempfile::tempdir().unwrap();
    let connect = format!("--connect={addr}");
    std::fs::write(dir.path().join("token"), "open sesame\n").unwrap();
    let create = |args: &[&str]| {
        let words = [&["token", "create"], args].concat();
        run(dir.path(), &words)
    };
    let file = dir.path().join("alice");
    let file_flag = format!("--token-file={}", file.display());
    let by_alice = |token: &str| {
        std::fs::write(&file, token).unwrap();
        run(dir.path(), &[&connect, &file_flag, "status"])
    };
    let made = create(&["--operator", "alice", "--ttl", "2h"]);
    assert!(err(&made).contains("alice's own until"), "{}", err(&made));
    let token = out(&made);
    let output = by_alice(&token);
    assert!(output.status.success(), "{}", err(&output));

    let over = Person::new("operator", "alice", 1_700_000_000).unwrap();
    let output = by_alice(&over.token("open sesame"));
    assert_eq!(output.status.code(), Some(2));
    let said = err(&output);
    assert!(said.contains("is over since 2023-11-14"), "{said}");
    assert!(
        said.contains("robustctl token create --operator alice"),
        "{said}"
    );

    by_alice(&token);
    let from = format!("--from={}", file.display());
    for (args, why) in [
        (
            &["--operator", "Alice"][..],
            "`Alice` is no name for a token",
        ),
        (&["--viewer", "bob"], "--viewer-token-file"),
        (&["--operator", "bob", &from], "is the own token of alice"),
        (&["--operator", "bob", "--ttl", "31d"], "30d at most"),
        (&["--operator", "bob", "--node", "b"], "cannot be used with"),
        (
            &["--operator", "bob", "--viewer", "bob"],
            "cannot be used with",
        ),
        (&[&from], "--operator"),
    ] {
        let output = create(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(err(&output).contains(why), "{}", err(&output));
    }
}

#[test]
fn whoever_listens_at_the_daemons_address_learns_no_token() {
    use std::io::Read as _;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = format!("--connect={}", listener.local_addr().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let token = "0123456789abcdef".repeat(4);
    std::fs::write(dir.path().join("token"), &token).unwrap();
    let listening = std::thread::spawn(move || {
        let (mut caller, _) = listener.accept().unwrap();
        let mut heard = vec![0; 4096];
        let n = caller.read(&mut heard).unwrap();
        heard.truncate(n);
        heard
    });
    let output = run(dir.path(), &[&connect, "status"]);
    assert_eq!(output.status.code(), Some(3), "{}", err(&output));
    let heard = listening.join().unwrap();
    let has = |what: &str| heard.windows(what.len()).any(|w| w == what.as_bytes());
    assert!(heard.len() > 100, "a client's hello");
    assert!(
        !has(&token) && !has(&token[..16]) && !has("Bearer"),
        "{heard:?}"
    );
}
