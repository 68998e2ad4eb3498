//! Runs a conversation's tool call in a process of its own.
//!
//! The child gets no input, no environment and no open files, its own process group, bounds on
//! memory and processor time that it sets itself, and a deadline that is kept here: at the end of
//! it the whole group is killed.

mod calc;

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::process;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

pub use calc::{CalcError, evaluate};

/// Bytes of output that are read; more counts as an error.
const MAX_OUTPUT_BYTES: u64 = 4096;

/// The calculator and its bounds.
#[derive(Debug, Clone)]
pub struct Calculator {
    /// The program, see `robust-calc`.
    pub program: PathBuf,
    /// How long a call may take.
    pub timeout: Duration,
    /// Address space of the child.
    pub memory_mb: u64,
}

/// Why a tool call has no value. The conversation goes on with an empty result.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The program could not be started or waited for.
    #[error("running {program}: {source}")]
    Run {
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The deadline passed; the process group was killed.
    #[error("no result after {0:?}")]
    Timeout(Duration),
    /// The tool refused the expression or was killed by a bound.
    #[error("{0}")]
    Failed(String),
}

impl Calculator {
    /// The calculator beside this executable.
    pub fn beside_executable(timeout: Duration, memory_mb: u64) -> io::Result<Self> {
        let program = std::env::current_exe()?.with_file_name("robust-calc");
        if !program.is_file() {
            let text = format!("{} is missing", program.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        Ok(Self {
            program,
            timeout,
            memory_mb,
        })
    }

    /// The value of an expression, as text.
    pub async fn run(&self, expression: &str) -> Result<String, ToolError> {
        self.run_after(expression, Duration::ZERO).await
    }

    /// For drills: the same by a tool that does not answer for so long.
    pub async fn run_after(&self, expression: &str, sleep: Duration) -> Result<String, ToolError> {
        let failed = |source| ToolError::Run {
            program: self.program.clone(),
            source,
        };
        // Processor time is counted in whole seconds; the deadline is the finer bound.
        let cpu_s = self.timeout.as_secs() + 1;
        let sleep_ms = (!sleep.is_zero()).then(|| sleep.as_millis().to_string());
        let mut child = Command::new(&self.program)
            .args([
                self.memory_mb.to_string(),
                cpu_s.to_string(),
                expression.to_owned(),
            ])
            .args(sleep_ms)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let group = child.id();
        self.bound(group).map_err(failed)?;
        match tokio::time::timeout(self.timeout, output(&mut child)).await {
            Ok(Ok((true, text, _))) => Ok(text),
            Ok(Ok((false, _, reason))) => Err(ToolError::Failed(reason)),
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => {
                kill(group);
                // Reaped here, so that no zombie stays; a killed process ends by itself.
                let _ = child.wait().await;
                Err(ToolError::Timeout(self.timeout))
            }
        }
    }
}

impl Calculator {
    /// Bounds the child's memory from outside as well: also a program that does not do it itself
    /// is bounded, and its children with it.
    fn bound(&self, child: Option<u32>) -> io::Result<()> {
        let pid = child
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(process::Pid::from_raw);
        // Without a pid the call would bound this process.
        let Some(pid) = pid else { return Ok(()) };
        let bytes = Some(self.memory_mb.saturating_mul(1 << 20));
        let bound = process::Rlimit {
            current: bytes,
            maximum: bytes,
        };
        match process::prlimit(Some(pid), process::Resource::As, bound) {
            // It has ended already.
            Err(rustix::io::Errno::SRCH) => Ok(()),
            result => result.map(|_| ()).map_err(io::Error::from),
        }
    }
}

async fn output(child: &mut Child) -> io::Result<(bool, String, String)> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (text, reason) = tokio::join!(read(stdout), read(stderr));
    let status = child.wait().await?;
    let reason = match reason?.as_str() {
        "" => status.to_string(),
        reason => reason.to_owned(),
    };
    Ok((status.success(), text?, reason))
}

async fn read(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

fn kill(group: Option<u32>) {
    if let Some(group) = group.and_then(|pid| i32::try_from(pid).ok()) {
        // It may just have ended by itself.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}
