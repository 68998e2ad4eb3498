//! The daemon as a child process.
use crate::cli::RunArgs;
use crate::error::CliError;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// Lines of its log that are shown when it fails.
const LAST_WORDS: usize = 8;

/// What is heard of it.
pub enum News {
    /// It printed this.
    Line(String),
    /// Its exit code, or 128 and the signal that killed it.
    Ended(u8),
}

/// A robustd of our own. It outlives robustctl.
pub struct Robustd {
    child: Child,
    pid: u32,
    lines: Option<Lines<BufReader<ChildStdout>>>,
    log: PathBuf,
    /// Where its own words begin in the log.
    from: u64,
}

impl Robustd {
    /// Starts the one beside this program.
    pub fn start(args: &RunArgs, state: &Path) -> Result<Self, CliError> {
        let own = std::env::current_exe().map_err(io("cannot tell where robustctl is"))?;
        let program = own.with_file_name("robustd");
        if !program.is_file() {
            return Err(CliError::Usage(format!(
                "{} is missing: `run` starts the robustd beside robustctl; build all three \
                 programs with `make build`",
                program.display()
            )));
        }
        let mut folder = DirBuilder::new();
        folder.recursive(true).mode(0o700);
        folder
            .create(state)
            .map_err(io("cannot make the state directory"))?;
        let path = state.join("robustd.log");
        let mut options = OpenOptions::new();
        let log = options.append(true).create(true).mode(0o600).open(&path);
        let log = log.map_err(io("cannot write robustd.log"))?;
        let from = log.metadata().map_or(0, |m| m.len());
        let mut command = command(&program, args, state);
        command.stderr(log);
        if args.detach {
            command.stdout(Stdio::null());
        } else {
            command.stdout(Stdio::piped());
        }
        let mut child = command.spawn().map_err(io("cannot start robustd"))?;
        let lines = child.stdout.take().map(|out| BufReader::new(out).lines());
        Ok(Self {
            pid: child.id().unwrap_or_default(),
            child,
            lines,
            log: path,
            from,
        })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The next line it prints, or its end.
    pub async fn next(&mut self) -> Result<News, CliError> {
        let Self { child, lines, .. } = self;
        tokio::select! {
            line = next_line(lines) => Ok(News::Line(line)),
            ended = child.wait() => {
                let status = ended.map_err(io("cannot wait for robustd"))?;
                let killed = status.signal().map(|signal| 128 + signal);
                let code = status.code().or(killed).unwrap_or(1);
                Ok(News::Ended(u8::try_from(code).unwrap_or(1)))
            }
        }
    }

    /// What it printed before its end.
    pub async fn rest(&mut self) -> Vec<String> {
        let mut rest = Vec::new();
        if let Some(lines) = &mut self.lines {
            while let Ok(Some(line)) = lines.next_line().await {
                rest.push(line);
            }
        }
        rest
    }

    /// Passes a signal on.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            // It is our child: nobody else has this number before we have waited for it.
            let _ = kill_process(pid, signal);
        }
    }

    /// What its exit code means for us.
    pub fn result(&self, code: u8) -> Result<(), CliError> {
        match code {
            0 => Ok(()),
            130 | 143 => Err(CliError::JobEnded {
                code,
                text: "robustd ended in order after a signal; the same command goes on".to_owned(),
            }),
            _ => Err(CliError::JobEnded {
                code,
                text: format!(
                    "robustd ended with exit code {code}:\n{}",
                    self.last_words()
                ),
            }),
        }
    }

    fn last_words(&self) -> String {
        use std::io::{Read as _, Seek as _, SeekFrom};
        let mut said = Vec::new();
        let read = File::open(&self.log).and_then(|mut log| {
            log.seek(SeekFrom::Start(self.from))?;
            log.read_to_end(&mut said)
        });
        if let Err(error) = read {
            return format!("{} cannot be read: {error}", self.log.display());
        }
        let text = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n")
    }
}

/// Never, when it prints no more.
async fn next_line(lines: &mut Option<Lines<BufReader<ChildStdout>>>) -> String {
    if let Some(open) = lines {
        if let Ok(Some(line)) = open.next_line().await {
            return line;
        }
        *lines = None;
    }
    std::future::pending().await
}

fn command(program: &Path, args: &RunArgs, state: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .arg("--job")
        .arg(&args.job)
        .arg("--state-dir")
        .arg(state);
    if let Some(steps) = args.steps {
        command.arg("--steps").arg(steps.to_string());
    }
    if args.fresh {
        command.arg("--fresh");
    }
    command
        .args(&args.options)
        .stdin(Stdio::null())
        .process_group(0);
    command
}

fn io(what: &'static str) -> impl Fn(std::io::Error) -> CliError {
    move |e| CliError::Failed(format!("{what}: {e}"))
}
