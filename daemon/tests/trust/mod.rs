//! What a role, a viewer or another user of the machine tries, and does not get.
use super::fake;
use super::site::{Daemon, Site};
use nix::sys::signal::Signal;
use std::fs;

/// What it started with, by the kernel's word.
fn environment(pid: i32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.split('\0').map(str::to_owned).collect()
}

fn end(daemon: Daemon) {
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143);
}

#[tokio::test]
async fn a_role_finds_no_credential_of_the_daemons_in_its_environment() {
    let site = Site::new(1000);
    let secrets = [
        ("AWS_SECRET_ACCESS_KEY", "store-secret"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=trace-secret"),
        ("HF_TOKEN", "hub-secret"),
        ("MY_DEPLOY_NOTES", "shell-secret"),
    ];
    let used = [
        ("NCCL_DEBUG", "WARN"),
        ("HF_HOME", "/models"),
        (fake::UPDATE_MS, "50"),
    ];
    let daemon = site.start_env(&[secrets.as_slice(), &used].concat());
    site.wait_for("first step", |s| s.step >= 1).await;
    let roles = site.roles();
    assert_eq!(roles.len(), 7);
    for pid in roles {
        let has = environment(pid);
        let leaked = has.iter().find(|entry| entry.contains("-secret"));
        assert_eq!(leaked, None, "{pid} may read what only the daemon needs");
        for (name, value) in used {
            assert!(has.contains(&format!("{name}={value}")), "{name}: {has:?}");
        }
        assert!(has.iter().any(|entry| entry.starts_with("PATH=")));
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    }
    let log = site.log();
    for (name, value) in secrets {
        assert!(log.contains(name) && !log.contains(value), "{log}");
    }
    end(daemon);
}
