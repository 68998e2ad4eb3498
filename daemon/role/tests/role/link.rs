//! The link, through restarts of the daemon.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use host_fake::FakeHost;
use robust_proto::v1::call_reply::Result as Answer;
use robust_proto::v1::host_message::Body as Down;
use robust_proto::v1::role_message::Body as Up;
use robust_proto::v1::{Call, CallReply, Hello, Ping, PullDone, RestoreReply, Shutdown};
use robust_role::{Busy, DaemonEpoch, FromHost, Link, LinkConfig, LinkEnd, WELCOME_WITHIN};
use robust_shared::ids::Role;
use robust_shared::phase::Phase;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedReceiver;

use super::fixture::runtime;

pub fn link(host: &FakeHost, grace: Duration) -> (Runtime, Link, UnboundedReceiver<FromHost>) {
    begin(config(host, grace))
}

fn config(host: &FakeHost, grace: Duration) -> LinkConfig {
    LinkConfig {
        socket: host.socket.clone(),
        role: Role::Trainer,
        index: 1,
        incarnation: 7,
        generation: 2,
        sample_interval: Duration::from_millis(20),
        busy: Busy::default(),
        daemon_grace: grace,
        welcome_within: WELCOME_WITHIN,
        end_within: None,
    }
}

fn begin(config: LinkConfig) -> (Runtime, Link, UnboundedReceiver<FromHost>) {
    let runtime = runtime();
    let hello = || Hello {
        step: Some(4),
        ..Default::default()
    };
    let handless = |_, _| Err("it has no hands".to_owned());
    let (link, inbox) = robust_role::start(runtime.handle(), config, hello, handless);
    (runtime, link, inbox)
}

fn ended(inbox: &mut UnboundedReceiver<FromHost>) -> LinkEnd {
    loop {
        if let Some(FromHost::Ended(end)) = inbox.blocking_recv() {
            return end;
        }
    }
}

fn epoch(inbox: &mut UnboundedReceiver<FromHost>) -> DaemonEpoch {
    match inbox.blocking_recv() {
        Some(FromHost::Message(epoch, _)) => epoch,
        other => panic!("{other:?}"),
    }
}

fn answer(call_id: u64) -> CallReply {
    let result = Some(Answer::Restore(RestoreReply { step: call_id }));
    CallReply {
        call_id,
        error: String::new(),
        numeric: false,
        result,
    }
}

#[test]
fn the_hello_comes_first_then_phase_and_samples() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    let (_runtime, link, _inbox) = link(&host, Duration::from_secs(60));
    let hello = host.hello(7);
    assert_eq!(
        (hello.role.as_str(), hello.index, hello.generation),
        ("trainer", 1, 2)
    );
    assert_eq!((hello.step, hello.pid), (Some(4), std::process::id()));
    link.phase(Phase::Update, 5);
    link.add_tokens(11);
    let phase = host.wait("a phase", |_, up| match up {
        Up::Phase(phase) => Some(phase),
        _ => None,
    });
    assert_eq!((phase.phase.as_str(), phase.step), ("update", 5));
    host.wait("a sample with the tokens", |_, up| match up {
        Up::Sample(sample) if sample.tokens_total == 11 && sample.busy_us > 0 => Some(()),
        _ => None,
    });
}

#[test]
fn a_ping_is_answered_though_the_role_looks_at_nothing_that_comes() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    let (_runtime, _link, mut inbox) = link(&host, Duration::from_secs(60));
    assert!(host.hello(7).answers_pings);
    for number in [4, 5] {
        host.send(7, Down::Ping(Ping { number }));
        let answered = host.wait("an answer", |_, up| match up {
            Up::Pong(pong) => Some(pong.number),
            _ => None,
        });
        assert_eq!(answered, number);
    }
    assert!(inbox.try_recv().is_err(), "it is nothing for the role");
}

#[test]
fn samples_report_the_processor_time_that_the_role_says() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    let used = Arc::new(AtomicU64::new(1_000));
    let told = Arc::clone(&used);
    let busy = Busy::told_by(move || Duration::from_secs(told.load(Ordering::Relaxed)));
    let (_runtime, _link, _inbox) = begin(LinkConfig {
        busy,
        ..config(&host, Duration::from_secs(60))
    });
    for seconds in [1_000, 2_000] {
        used.store(seconds, Ordering::Relaxed);
        host.wait("a sample of that time", |_, up| match up {
            Up::Sample(sample) if sample.busy_us == seconds * 1_000_000 => Some(()),
            _ => None,
        });
    }
}

#[test]
fn what_was_said_while_the_daemon_was_away_arrives_after_a_new_hello() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = FakeHost::start(folder.path());
    let (_runtime, link, mut inbox) = link(&host, Duration::from_secs(60));
    host.hello(7);
    host.send(
        7,
        Down::Call(Call {
            call_id: 1,
            ..Default::default()
        }),
    );
    let from = epoch(&mut inbox);
    link.phase(Phase::Update, 1);
    host.die();
    link.reply(from, answer(1));
    link.pull_done(PullDone {
        version: 9,
        order: 4,
        result: None,
    });
    link.phase(Phase::Snapshot, 2);
    link.returned(3, "why".into(), false);
    host.live();
    host.hello(7);
    let mut said = Vec::new();
    host.wait("everything that was said", |_, up| {
        if !matches!(up, Up::Sample(_)) {
            said.push(up);
        }
        matches!(said.last(), Some(Up::Returned(_))).then_some(())
    });
    let [
        Up::Phase(phase),
        Up::Reply(reply),
        Up::PullDone(done),
        Up::Returned(returned),
    ] = said.as_slice()
    else {
        panic!("{said:?}");
    };
    assert_eq!((phase.phase.as_str(), phase.step), ("snapshot", 2));
    assert_eq!(
        (reply, done.version, returned.trajectory),
        (&answer(1), 9, 3)
    );
}

#[test]
fn a_daemon_that_takes_the_connection_and_welcomes_nobody_is_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    host.welcome(false);
    let (_runtime, link, mut inbox) = begin(LinkConfig {
        welcome_within: Duration::from_millis(50),
        ..config(&host, Duration::from_secs(60))
    });
    link.returned(3, "why".into(), false);
    host.wait_attaches(3);
    assert!(inbox.try_recv().is_err(), "the role goes on");
    host.welcome(true);
    host.hello(7);
    host.wait("what was said meanwhile", |_, up| match up {
        Up::Returned(returned) if returned.trajectory == 3 => Some(()),
        _ => None,
    });
}

#[test]
fn the_link_ends_when_the_daemon_says_so_or_fences_it_or_stays_away() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = FakeHost::start(folder.path());
    let (_first, _link, mut inbox) = link(&host, Duration::from_secs(60));
    host.hello(7);
    host.send(7, Down::Shutdown(Shutdown {}));
    assert_eq!(ended(&mut inbox), LinkEnd::Shutdown);

    let (_second, _link, mut inbox) = link(&host, Duration::from_millis(300));
    host.hello(7);
    host.die();
    assert!(matches!(ended(&mut inbox), LinkEnd::NoDaemon(_)));

    host.live();
    host.fence();
    let (_third, _link, mut inbox) = link(&host, Duration::from_secs(60));
    let LinkEnd::Fenced(why) = ended(&mut inbox) else {
        panic!("not fenced")
    };
    assert_eq!(why, "incarnation 1 was followed by 2");
}
