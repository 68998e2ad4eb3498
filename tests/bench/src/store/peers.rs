//! How long `torch.save` and `torch.distributed.checkpoint.async_save` hold a trainer up.
use super::{BenchError, Report, StoreArgs};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SCRIPT: &str = include_str!("peers.py");

/// A Python that has torch: `ROBUST_BENCH_PYTHON`, or the one on the path.
fn python() -> Option<PathBuf> {
    let named = std::env::var_os("ROBUST_BENCH_PYTHON").map(PathBuf::from);
    let candidates = named.into_iter().chain([PathBuf::from("python3")]);
    candidates.into_iter().find(|python| {
        let mut probe = Command::new(python);
        probe
            .args(["-c", "import torch.distributed.checkpoint"])
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    })
}

pub(super) fn measure(args: &StoreArgs, dir: &Path, report: &mut Report) -> Result<(), BenchError> {
    let missing = "no Python with torch (ROBUST_BENCH_PYTHON names one)";
    let python = python().ok_or_else(|| BenchError::Else(missing.to_owned()))?;
    // Ends also when this process is killed and nobody waits for it.
    let output = Command::new("timeout")
        .arg("600")
        .arg(python)
        .args(["-c", SCRIPT])
        .arg(dir)
        .args([args.mib, args.rounds].map(|n| n.to_string()))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()?;
    let rounds: Vec<[f64; 2]> = serde_json::from_slice(&output.stdout)
        .map_err(|e| BenchError::Else(format!("torch: {}, {e}", output.status)))?;
    for [save, async_save] in rounds {
        report.add("torch_save_s", save);
        report.add("dcp_async_save_s", async_save);
    }
    Ok(())
}
