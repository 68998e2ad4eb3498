//! Crash signals belong to the process. A file of its own: the handlers are the process's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use robust_transport::{Config, JobToken, Transport};

/// Whether a handler is installed, by signal number.
fn is_caught(signal: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal - 1)) != 0
}

#[test]
fn a_started_transport_leaves_crashes_to_the_system() {
    if std::env::var_os("UCX_HANDLE_ERRORS").is_some() {
        // The user decided.
        return robust_needs::skip("UCX_HANDLE_ERRORS is set", "unset it");
    }
    let transport = Transport::start(Config::new(JobToken::new(b"signals"))).unwrap();
    for signal in [4, 7, 8, 11] {
        assert!(!is_caught(signal), "signal {signal} is caught");
    }
    drop(transport);
}
