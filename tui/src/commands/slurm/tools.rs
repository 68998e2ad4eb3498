//! Slurm's own commands, as the user has them.
use crate::error::CliError;
use std::io;
use std::process::{ExitStatus, Output, Stdio};
use tokio::process::Command;

/// What a command of Slurm printed.
pub async fn asked(program: &str, words: &[&str]) -> Result<String, CliError> {
    let mut command = Command::new(program);
    let out = command.args(words).stdin(Stdio::null()).output().await;
    let out = out.map_err(|e| not_started(program, &e))?;
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
        false => Err(CliError::Refused(format!("{program}: {}", said(&out)))),
    }
}

/// Submits a script; Slurm's number of the job.
pub async fn submit(script: &str) -> Result<String, CliError> {
    let answer = asked("sbatch", &["--parsable", script]).await?;
    // With several clusters the cluster's name follows.
    let number = answer.trim().split(';').next().unwrap_or_default();
    match number.parse::<u64>() {
        Ok(_) => Ok(number.to_owned()),
        Err(_) => Err(CliError::Protocol(format!(
            "sbatch answers {:?}",
            answer.trim()
        ))),
    }
}

/// A step of a running job on one of its machines.
pub struct Step<'a> {
    /// Slurm's number of the job.
    pub slurm_job: &'a str,
    /// The machine.
    pub host: &'a str,
}

impl Step<'_> {
    fn command(&self, words: &[String]) -> Command {
        let mut command = Command::new("srun");
        let (job, host) = (
            format!("--jobid={}", self.slurm_job),
            format!("--nodelist={}", self.host),
        );
        let shape = [
            "--quiet",
            "--overlap",
            "--nodes=1",
            "--ntasks=1",
            "--input=none",
        ];
        command.args([job, host]).args(shape).args(words);
        command.stdin(Stdio::null());
        command
    }

    /// Runs it; what it wrote.
    pub async fn output(&self, words: &[String]) -> Result<Output, CliError> {
        let out = self.command(words).output().await;
        out.map_err(|e| not_started("srun", &e))
    }

    /// Runs it, with what it writes going where ours does.
    pub async fn shown(&self, words: &[String]) -> Result<ExitStatus, CliError> {
        let status = self.command(words).status().await;
        status.map_err(|e| not_started("srun", &e))
    }
}

/// What a command said that did not do it.
pub fn said(out: &Output) -> String {
    let text = String::from_utf8_lossy(&out.stderr);
    match text.trim() {
        "" => out.status.to_string(),
        text => text.to_owned(),
    }
}

fn not_started(program: &str, error: &io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::NotFound => CliError::Usage(format!(
            "there is no `{program}` on the search path: this is for a machine of a Slurm cluster with Slurm's client \
             commands (load its module, or add their folder to PATH); `--print` shows the script without them"
        )),
        _ => CliError::Failed(format!("{program} cannot be started: {error}")),
    }
}
