//! The programs that are measured, or that measure: those of the folder that `ROBUST_PROGRAMS` names, as `robustctl bench`
//! does, else those beside this one.
use robustctl::measuring::CliError;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Names the folder with the programs.
const FOLDER: &str = "ROBUST_PROGRAMS";

/// The folder with the programs.
pub fn folder() -> Result<PathBuf, CliError> {
    if let Some(named) = std::env::var_os(FOLDER) {
        return Ok(PathBuf::from(named));
    }
    let unknown = |e| CliError::Failed(format!("cannot tell where robust-bench is: {e}"));
    let own = std::env::current_exe().map_err(unknown)?;
    Ok(own.parent().map(PathBuf::from).unwrap_or_default())
}

/// One of them.
pub fn path(name: &str) -> Result<PathBuf, CliError> {
    let path = folder()?.join(name);
    match path.is_file() {
        true => Ok(path),
        false => Err(CliError::Usage(format!(
            "{} is not there; build it with `make build`, or name the folder with the programs by {FOLDER}",
            path.display()
        ))),
    }
}

/// The object that one of them prints as JSON; on standard error it says what it does.
pub fn json_of(name: &str, words: &[&str]) -> Result<Map<String, Value>, CliError> {
    let path = path(name)?;
    let ran = Command::new(&path)
        .args(words)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| CliError::Usage(format!("{} cannot be run: {e}", path.display())))?;
    if !ran.status.success() {
        return Err(CliError::Failed(format!("{name}: {}", ran.status)));
    }
    serde_json::from_slice(&ran.stdout)
        .map_err(|e| CliError::Protocol(format!("{name} printed no JSON: {e}")))
}
