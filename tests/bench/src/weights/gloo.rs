//! `torch.distributed` with gloo, as a peer to be measured against.
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context;

use super::netns::Host;

const SCRIPT: &str = include_str!("gloo.py");

/// A Python that has torch: `ROBUST_BENCH_PYTHON`, or the one on the path.
pub(crate) fn python() -> Option<PathBuf> {
    let named = std::env::var_os("ROBUST_BENCH_PYTHON").map(PathBuf::from);
    let candidates = named.into_iter().chain([PathBuf::from("python3")]);
    candidates.into_iter().find(|python| {
        let mut probe = Command::new(python);
        probe
            .args(["-c", "import torch.distributed"])
            .stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    })
}

/// Seconds of each broadcast from one process to `receivers` others; on hosts, or all here.
pub(crate) fn broadcast(
    python: &Path,
    receivers: usize,
    bytes: u64,
    rounds: usize,
    hosts: &[Host],
) -> anyhow::Result<Vec<f64>> {
    let addr = hosts.first().map_or("127.0.0.1", |host| &host.ip);
    let port = match hosts.is_empty() {
        true => std::net::TcpListener::bind("127.0.0.1:0")?
            .local_addr()?
            .port(),
        false => 29_500,
    };
    let start = |rank: usize| -> anyhow::Result<Child> {
        let mut words: Vec<String> = hosts.get(rank).map(Host::wrap).unwrap_or_default();
        // Ends also when this process is killed and nobody waits for it.
        words.extend(["timeout".into(), "120".into()]);
        words.extend([python.display().to_string(), "-c".into(), SCRIPT.into()]);
        words.extend([rank, receivers + 1].map(|number| number.to_string()));
        words.extend([addr.to_owned(), port.to_string()]);
        words.extend([bytes.to_string(), rounds.to_string()]);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        let device = if hosts.is_empty() { "lo" } else { "eth0" };
        command.env("GLOO_SOCKET_IFNAME", device);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(command.stderr(Stdio::null()).spawn()?)
    };
    let processes: anyhow::Result<Vec<Child>> = (0..=receivers).map(start).collect();
    let mut times = None;
    for (rank, process) in processes?.into_iter().enumerate() {
        let output = process.wait_with_output()?;
        anyhow::ensure!(output.status.success(), "gloo's rank {rank} failed");
        times = times.or_else(|| serde_json::from_slice(&output.stdout).ok());
    }
    times.context("gloo told no times")
}
