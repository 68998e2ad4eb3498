//! A job without faults.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::{Daemon, JobFile};

#[test]
fn a_job_runs_to_its_end_and_leaves_no_process_behind() {
    let mut daemon = Daemon::start(&JobFile::small().set("job", "steps", 4));
    daemon.until_step(2);
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    assert!(
        daemon.stdout().contains("job test completed after 4 steps"),
        "{}",
        daemon.stdout()
    );
    assert_eq!(daemon.processes(), vec![], "processes were left behind");
}

#[test]
fn a_job_runs_where_the_system_has_no_certificates() {
    let none = tempfile::tempdir().unwrap();
    let none = none.path().to_str().unwrap();
    let empty = "/dev/null";
    let env = [("SSL_CERT_DIR", none), ("SSL_CERT_FILE", empty)];
    let mut daemon = Daemon::start_with(&JobFile::small().set("job", "steps", 2), &env);
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
}

#[test]
fn an_interrupted_job_ends_in_order_and_goes_on_where_it_was() {
    let mut daemon = Daemon::start(&JobFile::small().set("job", "steps", 6));
    let before = daemon.until_step(2)["step"].as_u64().unwrap();
    assert!(daemon.ctl(&["stop"]).status.success());
    daemon.finish();
    assert_eq!(daemon.processes(), vec![], "processes were left behind");

    daemon.launch();
    let after = daemon.status();
    assert!(after["step"].as_u64().unwrap() >= before, "{after}");
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
}
