//! The command line against a Control server in this process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod acts;
mod alone;
mod authority;
mod boards;
mod compare;
mod contexts;
mod control;
mod doctor;
mod errors;
mod export;
#[path = "../fake/mod.rs"]
mod fake;
mod follow;
#[path = "../fake/leader.rs"]
mod leader;
mod reads;
mod remote;
mod silent;
mod terminal;

use fake::{Book, Fake, Server};
use robust_proto::v1;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

fn robustctl(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_robustctl"));
    command
        .env("ROBUST_STATE_DIR", dir)
        .env("LC_ALL", "C.UTF-8")
        .args(args);
    command
}

fn run(dir: &Path, args: &[&str]) -> Output {
    robustctl(dir, args).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn daemon(book: Book) -> (TempDir, Fake, Server) {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake(Arc::new(Mutex::new(book)));
    let server = Server::start(dir.path(), &fake);
    (dir, fake, server)
}

fn status() -> v1::Status {
    v1::Status {
        roles: vec![v1::RoleStatus {
            role: "trainer".into(),
            index: 1,
            pid: 4242,
            state: "running".into(),
            phase: "update".into(),
            phase_ms: 340,
            ..Default::default()
        }],
        incidents: vec![incident("recovered")],
        ..fake::running()
    }
}

fn incident(outcome: &str) -> v1::Incident {
    v1::Incident {
        id: 3,
        role: "trainer".into(),
        index: 1,
        rule: "exit".into(),
        reason: "killed by SIGKILL".into(),
        plan: "restart the trainer gang from the snapshot of step 12".into(),
        detect_ms: 12.0,
        restart_ms: 1340.0,
        reconnect_ms: 410.0,
        total_ms: 1762.0,
        outcome: outcome.into(),
        stages: [("exited", 9.0), ("seen", 3.0), ("process start", 900.0)]
            .map(|(name, ms)| v1::Stage {
                name: name.into(),
                ms,
            })
            .into(),
        ..Default::default()
    }
}

fn struck(outcome: &str) -> v1::InjectReply {
    v1::InjectReply {
        role: "trainer".into(),
        index: 1,
        incarnation: 5,
        pid: 4242,
        incident: Some(incident(outcome)),
        ..Default::default()
    }
}
