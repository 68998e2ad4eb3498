//! A role's certificate, replaced over its link.

use std::process::Command;
use std::time::Duration;

use host_fake::FakeHost;
use robust_identity::{Authority, Fingerprint, Term};
use robust_proto::IDENTITY_VARIABLE;
use robust_proto::v1::host_message::Body as Down;
use robust_proto::v1::role_message::Body as Up;
use robust_proto::v1::{IdentityTaken, NewIdentity};

use super::link::link;

/// A certificate of a life of a role, and its key, in PEM.
fn issue(secret: &[u8]) -> String {
    let authority = Authority::of(secret, "tests").unwrap();
    authority.issue("role/7", Term::unbounded()).unwrap()
}

fn fingerprint(pem: &str) -> String {
    Fingerprint::of_pem(pem).unwrap().to_string()
}

/// Sends a role another identity, and hears what it says to that.
fn give(host: &FakeHost, pem: &str) -> IdentityTaken {
    let pem = pem.to_owned();
    host.send(7, Down::Identity(NewIdentity { pem }));
    host.wait("what it took", |_, up| match up {
        Up::IdentityTaken(taken) => Some(taken),
        _ => None,
    })
}

#[test]
fn a_role_that_has_a_certificate_shows_another_from_then_on_and_says_so_with_each_link() {
    // What a process is it finds in its environment: this one is started with it.
    let child = "renewed::with_a_certificate";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", child, "--ignored", "--nocapture"]);
    command.env(IDENTITY_VARIABLE, issue(b"one"));
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
#[ignore = "runs as a process with a certificate only"]
fn with_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = FakeHost::start(folder.path());
    let (_runtime, _link, _inbox) = link(&host, Duration::from_secs(60));
    let first = fingerprint(&std::env::var(IDENTITY_VARIABLE).unwrap());
    assert_eq!(host.hello(7).certificate, first);
    let refused = give(&host, "nonsense");
    assert!(!refused.error.is_empty());
    assert_eq!(refused.fingerprint, first, "it has what it had");
    let next = issue(b"two");
    for _ in 0..2 {
        // The same may come again.
        let taken = give(&host, &next);
        assert_eq!(taken.error, "");
        assert_eq!(taken.fingerprint, fingerprint(&next));
    }
    host.die();
    host.live();
    assert_eq!(host.hello(7).certificate, fingerprint(&next));
}

#[test]
fn a_role_without_a_certificate_takes_none_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    let (_runtime, _link, _inbox) = link(&host, Duration::from_secs(60));
    assert_eq!(host.hello(7).certificate, "");
    let taken = give(&host, &issue(b"one"));
    assert!(taken.error.contains("was not set"), "{taken:?}");
    assert_eq!(taken.fingerprint, "");
}
