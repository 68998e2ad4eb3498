//! A child in a network of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod common;

use common::{Bench, LONG, hosted, plays, spec, until};
use robust_tree::{Child, Namespace, Policy, Way, permitted};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

/// The server: tells its port, and says who it is to everybody who connects.
fn serve() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    println!("port={}", listener.local_addr().unwrap().port());
    for stream in listener.incoming() {
        let _ = stream.unwrap().write_all(b"inside");
    }
}

/// What makes a way one that is permitted.
fn remedy(way: Way) -> &'static str {
    match way {
        Way::Privileged => robust_needs::ROOT,
        Way::UserNamespace => "run the tests where user namespaces are permitted",
    }
}

/// Starts this program's `test` as the server. None, and the reason recorded, where the system does
/// not permit it.
fn serving(test: &str, way: Way) -> Option<(Bench, Namespace, SocketAddr)> {
    let dir = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let argv = [program.to_str().unwrap(), test, "--exact", "--nocapture"];
    let mut spec = spec(dir.path(), &argv, Some(way));
    spec.env
        .push(("ROBUST_TREE_TEST_AS".into(), "server".into()));
    let mut child = match Child::start(spec) {
        Ok(child) => child,
        Err(refused) => {
            robust_needs::skip(format!("{way:?}: {refused}"), remedy(way));
            return None;
        }
    };
    let namespace = child.take_namespace().unwrap();
    let bench = Bench::watch(child, dir, Policy::default());
    let port: u16 = bench.said("port").parse().unwrap();
    Some((bench, namespace, (Ipv4Addr::LOCALHOST, port).into()))
}

fn greeting(mut stream: TcpStream) -> io::Result<String> {
    let mut text = String::new();
    stream.set_read_timeout(Some(LONG))?;
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn is_reached_from_the_caller_only(test: &str, way: Way) {
    if plays("server") {
        return serve();
    }
    hosted(test, || {
        let Some((bench, namespace, address)) = serving(test, way) else {
            return;
        };
        for _ in 0..20 {
            let stream = namespace.connect(address, LONG).unwrap();
            assert_eq!(greeting(stream).unwrap(), "inside");
        }
        // Somebody else may serve on that port outside; this server does not.
        let outside = TcpStream::connect_timeout(&address, LONG).and_then(greeting);
        assert_ne!(outside.ok().as_deref(), Some("inside"));
        // The thread that entered was another one: this one is where it was.
        let here = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address_here = here.local_addr().unwrap();
        TcpStream::connect_timeout(&address_here, LONG).unwrap();
        let refused = namespace.connect(address_here, LONG).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let members = bench.tree.members();
        assert_eq!(members.len(), 1, "no helper is left: {members:?}");
        bench.tree.end(&Default::default());
        let ended = namespace.connect(address, LONG).unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_server_in_its_own_network_is_reached_from_the_caller_only() {
    let test = "a_server_in_its_own_network_is_reached_from_the_caller_only";
    is_reached_from_the_caller_only(test, Way::Privileged);
}

#[test]
fn a_server_in_a_user_namespace_is_reached_from_the_caller_only() {
    let test = "a_server_in_a_user_namespace_is_reached_from_the_caller_only";
    is_reached_from_the_caller_only(test, Way::UserNamespace);
}

#[test]
fn a_child_in_a_user_namespace_dies_with_its_parent() {
    let test = "a_child_in_a_user_namespace_dies_with_its_parent";
    if plays("shim") {
        let dir = tempfile::tempdir().unwrap();
        let start = spec(dir.path(), &["sleep", "1000"], Some(Way::UserNamespace));
        match Child::start(start) {
            Ok(child) => {
                println!("pid={}", child.pid());
                drop(std::fs::remove_dir_all(dir.path()));
                std::thread::sleep(std::time::Duration::from_secs(1000));
            }
            Err(refused) => {
                robust_needs::skip(refused, remedy(Way::UserNamespace));
                println!("pid=0");
            }
        }
        return;
    }
    let mut shim = common::Other::start(test, "shim", &[]);
    let pid: u32 = shim.said("pid").parse().unwrap();
    if pid == 0 {
        return print!("{}", shim.output());
    }
    shim.kill();
    until("it died with its parent", || common::gone(pid));
}

#[test]
fn what_is_permitted_is_found_without_a_trace() {
    let before = std::fs::read_link("/proc/self/ns/net").unwrap();
    match permitted() {
        Ok(way) => {
            let dir = tempfile::tempdir().unwrap();
            let mut child = Child::start(spec(dir.path(), &["sleep", "1000"], Some(way))).unwrap();
            assert!(child.take_namespace().is_some());
        }
        Err(refused) => robust_needs::skip(refused, robust_needs::ROOT),
    }
    assert_eq!(std::fs::read_link("/proc/self/ns/net").unwrap(), before);
}
