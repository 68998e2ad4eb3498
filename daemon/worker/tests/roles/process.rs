//! The real executable: its exit codes, and how fast a killed gang trains again.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use robust_proto::v1::call::Body;
use robust_proto::v1::host_message::Body as Down;
use robust_proto::v1::role_message::Body as Up;
use robust_proto::v1::{Call, Peer, Restore, Sample, Shutdown, Update};
use robust_worker::model::config::Qwen3Config;
use robust_worker::model::hf;
use robust_worker::model::qwen3::Qwen3;

use super::fixture::{TOKEN, args};
use host_fake::FakeHost;

/// A role's process, killed with this value.
pub struct Process(pub Child);

impl Process {
    pub fn wait(&mut self) -> i32 {
        self.0.wait().unwrap().code().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn command(folder: &Path, host: &FakeHost, role: &str, index: u64, generation: u64) -> Command {
    let mut args = args(folder, host, 0, 0);
    args.job.job.daemon_grace_s = 0.5;
    let job = folder.join("job.json");
    std::fs::write(&job, serde_json::to_vec(&args.job).unwrap()).unwrap();
    let incarnation = generation * 10 + index;
    let mut command = Command::new(env!("CARGO_BIN_EXE_robust-worker"));
    command
        .arg(role)
        .args(["--job", job.to_str().unwrap()])
        .args([
            "--index",
            &index.to_string(),
            "--incarnation",
            &incarnation.to_string(),
        ])
        .args(["--generation", &generation.to_string()])
        .args(["--host-socket", host.socket.to_str().unwrap()])
        .args(["--snapshot-dir", args.snapshot_dir.to_str().unwrap()])
        .env("OMP_NUM_THREADS", "1")
        .env(robust_proto::JOB_TOKEN_VARIABLE, TOKEN)
        .env(robust_proto::ROADS_VARIABLE, "ucx")
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

pub fn start(command: &mut Command) -> Process {
    Process(command.spawn().unwrap())
}

fn last_line(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr)
        .lines()
        .last()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn every_role_ends_with_code_0_when_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    for (index, role) in (1..).zip(["trainer", "rollout", "agent", "hybrid"]) {
        let index = if role == "trainer" { 0 } else { index };
        let mut process =
            start(command(folder.path(), &host, role, index, 1).stderr(Stdio::null()));
        let hello = host.hello(10 + index);
        assert_eq!((hello.role.as_str(), hello.pid), (role, process.0.id()));
        host.send(10 + index, Down::Shutdown(Shutdown {}));
        assert_eq!(process.wait(), 0, "{role}");
    }
}

#[test]
fn other_ends_have_codes_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = FakeHost::start(folder.path());
    let usage = Command::new(env!("CARGO_BIN_EXE_robust-worker"))
        .arg("cook")
        .output()
        .unwrap();
    assert_eq!(usage.status.code(), Some(2));
    let mut bad = command(folder.path(), &host, "trainer", 0, 1);
    std::fs::write(folder.path().join("job.json"), "{}").unwrap();
    let output = bad.output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert!(last_line(&output).starts_with("error: "), "{output:?}");
    assert!(
        last_line(&output).contains("job.json is not a resolved job file"),
        "{output:?}"
    );
    host.fence();
    let mut fenced = start(command(folder.path(), &host, "agent", 0, 1).stderr(Stdio::null()));
    assert_eq!(fenced.wait(), 3);
    host.die();
    let mut alone = start(command(folder.path(), &host, "agent", 0, 2).stderr(Stdio::null()));
    assert_eq!(alone.wait(), 5);
}

/// The demo's model under `folder/model`.
fn demo_model(folder: &Path) -> PathBuf {
    let path = folder.join("model");
    hf::save(&Qwen3::random(Qwen3Config::demo(24), 1).unwrap(), &path).unwrap();
    path
}

fn samples() -> Vec<Sample> {
    let ids: Vec<u32> = (0..24).collect();
    let sample = Sample {
        trainable: (0..ids.len()).map(|at| at >= 8).collect(),
        rollout_logprobs: vec![0.0; ids.len()],
        old_logprobs: vec![-3.0; ids.len() - 1],
        advantage: 0.5,
        ids,
        ..Default::default()
    };
    vec![sample; 32]
}

#[test]
fn a_killed_gang_trains_again_within_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    demo_model(folder.path());
    for generation in 1..=3 {
        let began = Instant::now();
        let mut gang: Vec<Process> = (0..2)
            .map(|rank| {
                start(&mut command(
                    folder.path(),
                    &host,
                    "trainer",
                    rank,
                    generation,
                ))
            })
            .collect();
        let mut peers = Vec::new();
        while peers.len() < 2 {
            let (incarnation, hello) = host.wait("hellos", |from, up| match up {
                Up::Hello(hello) => Some((from, hello)),
                _ => None,
            });
            let (rank, transport_addr) = (hello.index, hello.transport_addr);
            peers.push(Peer {
                rank,
                incarnation,
                transport_addr,
                gradients: hello.gradients,
                ..Default::default()
            });
        }
        peers.sort_by_key(|peer| peer.rank);
        let attached = began.elapsed();
        let both = |key: &str, body: Body| {
            for peer in &peers {
                let (key, body) = (key.to_owned(), Some(body.clone()));
                let call = Call {
                    call_id: 1,
                    key,
                    generation,
                    body,
                };
                host.send(peer.incarnation, Down::Call(call));
            }
            for _ in &peers {
                let error = host.wait("replies", |_, up| match up {
                    Up::Reply(reply) => Some(reply.error),
                    _ => None,
                });
                assert_eq!(error, "");
            }
            began.elapsed()
        };
        let peers = peers.clone();
        let restore = Restore {
            step: 0,
            shards: Vec::new(),
            peers,
            own: false,
        };
        let restored = both("restore", Body::Restore(restore));
        let update = Update {
            step: 1,
            samples: samples(),
            batch_trainable_tokens: 64 * 16,
        };
        let updated = both("update", Body::Update(update));
        println!("attached {attached:?}, restored {restored:?}, first update done {updated:?}");
        assert!(updated < Duration::from_secs(30), "{updated:?}");
        for process in &mut gang {
            process.0.kill().unwrap();
            let mut log = String::new();
            std::io::Read::read_to_string(&mut process.0.stderr.take().unwrap(), &mut log).unwrap();
            println!(
                "{}",
                log.lines()
                    .find(|line| line.contains("start:"))
                    .unwrap_or("no line")
            );
        }
    }
}
