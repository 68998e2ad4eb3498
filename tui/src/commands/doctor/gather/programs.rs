//! The programs beside this one, and what the worker says of its libraries.
use super::super::facts::{Found, Worker};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that lies where this one does.
pub(super) fn beside(program: &str) -> Found<PathBuf> {
    let own = std::env::current_exe().map_err(|e| format!("where robustctl is: {e}"))?;
    Ok(own.parent().unwrap_or(Path::new(".")).join(program))
}

fn output(program: &Path, arguments: &[&str]) -> Found<String> {
    let said = |e: std::io::Error| format!("{}: {e}", program.display());
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(said)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!(
            "{} {}: {}",
            program.display(),
            arguments.join(" "),
            errors
                .lines()
                .last()
                .unwrap_or("it failed and said nothing")
        )),
    }
}

/// What the worker says of itself, of libtorch and of UCX, and of the job's network devices.
pub(super) fn worker(named: Option<PathBuf>, devices: Option<String>) -> Found<Worker> {
    let program = match named {
        Some(program) => program,
        None => beside("robust-worker")?,
    };
    let devices = devices.map(|list| format!("--net-devices={list}"));
    let arguments = ["doctor"].into_iter().chain(devices.as_deref());
    let said = output(&program, &arguments.collect::<Vec<_>>())?;
    serde_json::from_str(&said).map_err(|e| format!("{} doctor: {e}", program.display()))
}

/// The version of the robustd beside this program.
pub(super) fn robustd() -> Found<String> {
    let said = output(&beside("robustd")?, &["--version"])?;
    let version = said.trim().strip_prefix("robustd ");
    version
        .map(str::to_owned)
        .ok_or_else(|| format!("it says {said:?}"))
}

/// InfiniBand and RoCE devices.
pub(super) fn rdma() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/infiniband")
        .into_iter()
        .flatten();
    let mut names: Vec<String> = entries
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
