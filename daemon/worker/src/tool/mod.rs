//! Runs a conversation's tool call in a process of its own.
//!
//! The child gets the expression on its input, which no other user of the machine reads, no environment and
//! no open files, its own process group, bounds on memory and processor time, and a deadline that is kept here: at the end of it the whole group is
//! killed. Whose doing it is when there is no value then: [`outcome`].

mod calc;
mod group;
pub mod outcome;

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use rustix::process;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};

pub use calc::{CalcError, evaluate};
use group::Group;
pub use outcome::{CallError, Infrastructure, ToolError};
use outcome::{End, MAX_OUTPUT_BYTES, Seen};

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

/// What befalls a call, for drills.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drilled {
    /// It does not answer for so long.
    pub sleep: Duration,
    /// It is killed before it answers.
    pub killed: bool,
}

/// A tool that is to be killed is still there when it is.
const NOT_YET: Duration = Duration::from_secs(3600);

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
        self.run_drilled(expression, Drilled::default()).await
    }

    /// The same by a tool that something befalls.
    pub async fn run_drilled(
        &self,
        expression: &str,
        drilled: Drilled,
    ) -> Result<String, ToolError> {
        let mut child =
            self.command(drilled)
                .spawn()
                .map_err(|source| Infrastructure::NotStarted {
                    program: self.program.clone(),
                    source,
                })?;
        let group = Group::of(child.id());
        self.bound(child.id()).map_err(Infrastructure::Unread)?;
        if drilled.killed {
            group.kill();
        }
        let seen = match tokio::time::timeout(self.timeout, seen(&mut child, expression)).await {
            Ok(seen) => seen.map_err(Infrastructure::Unread)?,
            Err(_) => {
                let computed = group.computed();
                group.kill();
                // Reaped here, so that no zombie stays; a killed process ends by itself.
                let _ = child.wait().await;
                Seen {
                    end: End::Overdue(computed),
                    stdout: Vec::new(),
                    stderr: Vec::new(),
                }
            }
        };
        seen.judge(self.timeout)
    }

    fn command(&self, drilled: Drilled) -> Command {
        let sleep = match drilled.killed {
            true => NOT_YET,
            false => drilled.sleep,
        };
        let sleep_ms = (!sleep.is_zero()).then(|| sleep.as_millis().to_string());
        let mut command = Command::new(&self.program);
        command
            .args([self.memory_mb.to_string(), self.cpu_s().to_string()])
            .args(sleep_ms)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command
    }

    /// Processor time is counted in whole seconds; the deadline is the finer bound.
    fn cpu_s(&self) -> u64 {
        self.timeout.as_secs() + 1
    }

    /// Bounds the child from outside as well: also a program that does not do it itself is bounded,
    /// and its children with it.
    fn bound(&self, child: Option<u32>) -> io::Result<()> {
        let pid = child
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(process::Pid::from_raw);
        // Without a pid the call would bound this process.
        let Some(pid) = pid else { return Ok(()) };
        let memory = self.memory_mb.saturating_mul(1 << 20);
        let bounds = [
            (process::Resource::As, memory, memory),
            // At the lower one comes a signal that says which bound it was.
            (process::Resource::Cpu, self.cpu_s(), self.cpu_s() + 1),
        ];
        for (resource, current, maximum) in bounds {
            let bound = process::Rlimit {
                current: Some(current),
                maximum: Some(maximum),
            };
            match process::prlimit(Some(pid), resource, bound) {
                // It has ended already.
                Err(rustix::io::Errno::SRCH) => return Ok(()),
                result => drop(result?),
            }
        }
        Ok(())
    }
}

/// Gives a child its expression, and waits for its end and what it said.
async fn seen(child: &mut Child, expression: &str) -> io::Result<Seen> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let given = give(child.stdin.take(), expression);
    let ((), stdout, stderr) = tokio::join!(given, read(stdout), read(stderr));
    let end = end(child.wait().await?);
    Ok(Seen {
        end,
        stdout: stdout?,
        stderr: stderr?,
    })
}

fn end(status: ExitStatus) -> End {
    use std::os::unix::process::ExitStatusExt;
    let signal = status.signal().and_then(|s| Signal::try_from(s).ok());
    match (status.code(), signal) {
        (Some(code), _) => End::Exited(code),
        (None, Some(signal)) => End::Killed(signal),
        // A real-time signal, which has no name; it killed all the same.
        (None, None) => End::Killed(Signal::SIGKILL),
    }
}

/// A tool that ends without reading all of it says by its end what that means.
async fn give(pipe: Option<ChildStdin>, expression: &str) {
    if let Some(mut pipe) = pipe {
        let _ = pipe.write_all(expression.as_bytes()).await;
    }
}

/// All that is said, or one byte more than is read of it.
async fn read(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let most = MAX_OUTPUT_BYTES as u64 + 1;
        pipe.take(most).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}
