//! What a child is started with, and how it ends with its parent.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod common;

use common::{Bench, Other, gone, group, hosted, plays, spec, until};
use robust_tree::{Child, ChildSpec, Policy, Signal, leftovers};
use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};

#[test]
fn a_child_has_its_own_environment_and_no_descriptor_of_the_caller() {
    let test = "a_child_has_its_own_environment_and_no_descriptor_of_the_caller";
    hosted(test, || {
        let leaky = std::fs::File::open("/dev/null").unwrap();
        rustix::io::fcntl_setfd(&leaky, rustix::io::FdFlags::empty()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let child = Child::start(spec(dir.path(), &["sleep", "1000"], None)).unwrap();
        let bench = Bench::watch(child, dir, Policy::default());
        let pid = bench.tree.leader();
        let open = || {
            let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
            let names = open.map(|e| e.unwrap().file_name().into_string().unwrap());
            names.collect::<std::collections::BTreeSet<_>>()
        };
        // The loader has its libraries open for a moment.
        until("three descriptors", || open().iter().eq(["0", "1", "2"]));
        let input = std::fs::read_link(format!("/proc/{pid}/fd/0")).unwrap();
        assert_eq!(input.to_str(), Some("/dev/null"));
        let environment = std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
        let mut names: Vec<_> = environment.split_terminator('\0').collect();
        names.retain(|entry| !entry.starts_with("PATH="));
        names.sort_unstable();
        assert_eq!(names, ["COLOUR=green", "SPT_NOENV=1"]);
        let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
        assert_eq!(cwd, bench.dir.path().canonicalize().unwrap());
        assert_eq!(group(pid), std::process::id(), "the caller's group");
    });
}

#[test]
fn a_child_inherits_the_descriptor_beside_it_under_its_number() {
    let test = "a_child_inherits_the_descriptor_beside_it_under_its_number";
    hosted(test, || {
        let (mut reads, writes) = std::io::pipe().unwrap();
        let beside = OwnedFd::from(writes);
        let script = format!(
            "echo from the child >&{}; exec sleep 1000",
            beside.as_raw_fd()
        );
        let dir = tempfile::tempdir().unwrap();
        let child = Child::start(ChildSpec {
            beside: Some(beside),
            ..spec(dir.path(), &["bash", "-c", &script], None)
        });
        let bench = Bench::watch(child.unwrap(), dir, Policy::default());
        let mut said = [0; 15];
        reads.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"from the child\n");
        // The caller keeps no end of it: that of the child is the last one.
        bench.tree.signal(Signal::KILL);
        assert_eq!(reads.read(&mut said).unwrap(), 0);
    });
}

#[test]
fn what_cannot_start_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let start = |argv: &[&str]| Child::start(spec(dir.path(), argv, None)).unwrap_err();
    let error = start(&["/no/such/program"]).to_string();
    let expected = "cannot start /no/such/program: No such file";
    assert!(error.starts_with(expected), "{error}");
    assert_eq!(
        start(&[]).to_string(),
        "nothing to start: the command line is empty"
    );
}

#[test]
fn a_child_that_nobody_watches_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let child = Child::start(spec(dir.path(), &["sleep", "1000"], None)).unwrap();
    let pid = child.pid();
    assert!(!gone(pid));
    drop(child);
    assert!(gone(pid));
}

#[test]
fn a_child_outlives_the_thread_that_asked_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let spec = spec(dir.path(), &["sleep", "1000"], None);
    let child = std::thread::spawn(|| Child::start(spec)).join().unwrap();
    let child = child.unwrap();
    // A death signal would come with the end of the thread, before `join` returns.
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(!gone(child.pid()));
}

/// The worst case: the host gets SIGKILL while its engine has a process in a session of its own.
/// T-3.
#[test]
fn a_child_dies_with_its_parent_and_the_rest_is_found_by_its_owner() {
    let test = "a_child_dies_with_its_parent_and_the_rest_is_found_by_its_owner";
    if plays("shim") {
        return host_until_killed();
    }
    let owner = format!("/test/{}", std::process::id());
    let mut shim = Other::start(test, "shim", &[owner.as_ref()]);
    let leader: u32 = shim.said("leader").parse().unwrap();
    let escaped: u32 = shim.said("escaped").parse().unwrap();
    shim.kill();
    until("the leader died with its parent", || gone(leader));
    assert!(!gone(escaped), "it has a session of its own");
    let find = |owner: &str, number: &str| {
        leftovers(&[
            ("T_OWNER", OsStr::new(owner)),
            ("T_NUMBER", OsStr::new(number)),
        ])
    };
    let found = find(&owner, "7");
    assert_eq!(found.iter().map(|f| f.pid).collect::<Vec<_>>(), [escaped]);
    assert_eq!(found[0].name, "sleep");
    assert_eq!(find(&owner, "8"), [], "of another incarnation");
    assert_eq!(find("/test/0", "7"), [], "of another owner");
    let mut later = found[0].clone();
    later.start_time += 1;
    assert!(!later.kill().unwrap(), "another process of that id");
    assert!(!gone(escaped));
    assert!(found[0].kill().unwrap());
    until("it is gone", || gone(escaped));
    until("nobody is found", || find(&owner, "7").is_empty());
}

fn host_until_killed() {
    let dir = tempfile::tempdir().unwrap();
    let script = "setsid bash -c 'echo escaped=$$; exec sleep 1000' & exec sleep 1001";
    let mut spec = spec(dir.path(), &["bash", "-c", script], None);
    spec.env
        .push(("T_OWNER".into(), common::argument(0).into()));
    spec.env.push(("T_NUMBER".into(), "7".into()));
    let child = Child::start(spec).unwrap();
    let bench = Bench::watch(child, dir, Policy::default());
    let escaped = bench.pid("escaped");
    // Not before it is the program that the test looks for.
    until("two of them sleep", || {
        bench.names().iter().filter(|n| *n == "sleep").count() == 2
    });
    println!("leader={}\nescaped={escaped}", bench.tree.leader());
    // The folder is removed by nobody when this one is killed.
    drop(std::fs::remove_dir_all(bench.dir.path()));
    bench.tree.signal(Signal::CONT);
    std::thread::sleep(std::time::Duration::from_secs(1000));
}
