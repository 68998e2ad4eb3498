//! The user-space stacks of a process, by py-spy or gdb where they are installed.
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Most of what a tool says.
const OUTPUT_LIMIT: u64 = 32 * 1024;
/// Once the tool is gone its output is there; what still holds its pipe is not waited for.
const DRAIN: Duration = Duration::from_millis(50);

/// The stacks of all threads, or why there are none. Blocks for up to `limit`.
///
/// `gently`: the process is stopped at no time, so what only a debugger can show is not shown.
pub(super) fn stacks(pid: u32, limit: Duration, path: &OsStr, gently: bool) -> String {
    match ask(pid, limit, path, gently) {
        Some(told) => told.text(),
        None if gently => "user stacks: not taken, for the process goes on\n".to_owned(),
        None => "user stacks: neither py-spy nor gdb is installed\n".to_owned(),
    }
}

/// What a tool said of a process.
#[derive(Debug)]
pub(super) struct Told {
    name: String,
    /// As far as it came.
    pub said: String,
    /// How it ended.
    pub end: End,
    /// From its start to its end.
    pub took: Duration,
}

/// How a tool ended.
#[derive(Debug)]
pub(super) enum End {
    /// It said all.
    Well,
    /// It failed, and said this of it.
    Badly(ExitStatus, String),
    /// It had had its time, which was so long.
    CutOff(Duration),
    /// It was not started.
    NotStarted(std::io::Error),
}

impl Told {
    /// All of it, for incidents.
    fn text(&self) -> String {
        let Self { name, said, .. } = self;
        match &self.end {
            End::Well => format!("{name}:\n{said}\n"),
            End::Badly(status, complained) => format!("{name} ({status}):\n{said}{complained}\n"),
            End::CutOff(limit) => {
                let ms = limit.as_millis();
                format!("{name} (cut off after {ms} ms):\n{said}\n")
            }
            End::NotStarted(error) => format!("{name}: {error}\n"),
        }
    }

    /// Why not all of it is there, in a sentence; none: all is.
    pub fn wrong(&self) -> Option<String> {
        let name = &self.name;
        match &self.end {
            End::Well => None,
            End::Badly(status, complained) => {
                let why = complained.lines().rfind(|line| !line.trim().is_empty());
                let why = why.unwrap_or("it does not say why").trim();
                Some(format!("{name} failed ({status}): {why}"))
            }
            End::CutOff(limit) => {
                let ms = limit.as_millis();
                Some(format!(
                    "{name} was cut off after {ms} ms, which is all it may take"
                ))
            }
            End::NotStarted(error) => Some(format!("{name} cannot be started: {error}")),
        }
    }
}

/// The same as a tool says it; none: there is no tool for it. Blocks for up to `limit`.
pub(super) fn ask(pid: u32, limit: Duration, path: &OsStr, gently: bool) -> Option<Told> {
    tool(pid, path, gently).map(|command| run_limited(command, limit))
}

/// Whether it is a Python interpreter.
pub(super) fn is_python(pid: u32) -> bool {
    let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
    exe.is_ok_and(|exe| exe.to_string_lossy().contains("python"))
}

/// py-spy for Python, as gdb would show the interpreter's frames; gdb for all else.
fn tool(pid: u32, path: &OsStr, gently: bool) -> Option<Command> {
    let pid_text = pid.to_string();
    let is_python = is_python(pid);
    if let Some(py_spy) = find("py-spy", path).filter(|_| is_python) {
        let mut command = Command::new(py_spy);
        command.args(["dump", "--nonblocking"]);
        if !gently {
            // Also the frames of native code: a rank hangs in a collective, not in Python.
            command.arg("--native");
        }
        command.args(["--pid", &pid_text]);
        return Some(command);
    }
    if gently {
        return None;
    }
    let mut command = Command::new(find("gdb", path)?);
    // Names from the symbol table only: debug information of gigabytes, or a server asked for it,
    // would take longer than anyone waits before the kill.
    command.args(["--batch", "-nx", "--readnever"]);
    command.args([
        "-iex",
        "set debuginfod enabled off",
        "-iex",
        "set auto-load off",
    ]);
    // The main thread first: what is too long is cut off at its end.
    command.args(["-p", &pid_text, "-ex", "thread apply all -ascending bt 30"]);
    Some(command)
}

fn find(program: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// Runs a tool for `limit` at most. What it wrote until then is kept.
fn run_limited(mut command: Command, limit: Duration) -> Told {
    let began = Instant::now();
    let name = command.get_program().to_string_lossy().into_owned();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            return Told {
                name,
                said: String::new(),
                end: End::NotStarted(error),
                took: Duration::ZERO,
            };
        }
    };
    let (said, complained) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let ended = wait(&mut child, limit);
    let took = began.elapsed();
    let said = drain(&said);
    let end = match ended {
        Some(status) if status.success() => End::Well,
        Some(status) => End::Badly(status, drain(&complained)),
        None => End::CutOff(limit),
    };
    Told {
        name,
        said,
        end,
        took,
    }
}

/// Sends on what comes, so that it can be had also while somebody still holds the pipe.
fn reader(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (to, from) = channel();
    if let Some(pipe) = pipe {
        std::thread::spawn(move || {
            let mut pipe = pipe.take(OUTPUT_LIMIT);
            let mut bytes = vec![0; 4096];
            while let Ok(n @ 1..) = pipe.read(&mut bytes) {
                if to.send(bytes[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
    }
    from
}

fn drain(from: &Receiver<Vec<u8>>) -> String {
    let until = Instant::now() + DRAIN;
    let mut bytes = Vec::new();
    while let Ok(more) = from.recv_timeout(until.saturating_duration_since(Instant::now())) {
        bytes.extend(more);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// How it ended; none: it did not in time, and was killed with all it started.
fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= deadline {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    if let Some(group) = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    {
        // It may just have ended.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
    None
}
