//! What a hung process is doing.
use super::proc_stat::ProcStat;
use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TOOL_LIMIT: Duration = Duration::from_secs(1);
/// Of the whole text: it is stored with the incident and shown to people.
const TEXT_LIMIT: usize = 32 * 1024;
const STATUS_LINES: [&str; 5] = [
    "VmRSS:",
    "SigPnd:",
    "SigBlk:",
    "voluntary_ctxt_switches:",
    "nonvoluntary_ctxt_switches:",
];

/// States, wait channels and stacks of all threads, from `/proc` and, where installed, py-spy or
/// gdb. Blocks for up to about a second; call it where blocking is allowed.
pub fn evidence(pid: u32) -> String {
    let mut text = match ProcStat::read(pid) {
        Ok(stat) => format!("process {pid} ({}) is in state {}\n", stat.name, stat.state),
        Err(e) => return format!("process {pid} cannot be read: {e}\n"),
    };
    let mut threads: Vec<PathBuf> = std::fs::read_dir(format!("/proc/{pid}/task"))
        .map(|entries| entries.flatten().map(|e| e.path()).collect())
        .unwrap_or_default();
    threads.sort();
    for thread in &threads {
        describe_thread(thread, &mut text);
    }
    text.push_str(&debugger_stacks(pid));
    truncate(&mut text, TEXT_LIMIT);
    text
}

fn describe_thread(task: &Path, text: &mut String) {
    let read = |file: &str| std::fs::read_to_string(task.join(file));
    let name = task.file_name().unwrap_or_default().to_string_lossy();
    if let Ok(stat) = ProcStat::read_from(&task.join("stat").to_string_lossy()) {
        let wchan = read("wchan").unwrap_or_else(|e| e.to_string());
        let _ = write!(
            text,
            "thread {name} ({}) state {} wchan {wchan}",
            stat.name, stat.state
        );
        let _ = writeln!(text, " ticks {}+{}", stat.user_ticks, stat.system_ticks);
    }
    if let Ok(status) = read("status") {
        for line in status
            .lines()
            .filter(|l| STATUS_LINES.iter().any(|s| l.starts_with(s)))
        {
            let _ = writeln!(text, "  {line}");
        }
    }
    match read("stack") {
        Ok(stack) => stack.lines().for_each(|line| {
            let _ = writeln!(text, "  {line}");
        }),
        Err(e) => {
            let _ = writeln!(text, "  kernel stack: {e}");
        }
    }
}

fn debugger_stacks(pid: u32) -> String {
    let pid_text = pid.to_string();
    let is_python = std::fs::read_link(format!("/proc/{pid}/exe"))
        .is_ok_and(|exe| exe.to_string_lossy().contains("python"));
    let tool = if is_python { find("py-spy") } else { None };
    let command = match (tool, find("gdb")) {
        (Some(py_spy), _) => {
            let mut command = Command::new(py_spy);
            command.args(["dump", "--nonblocking", "--pid", &pid_text]);
            command
        }
        (None, Some(gdb)) => {
            let mut command = Command::new(gdb);
            command.args([
                "--batch",
                "-nx",
                "-p",
                &pid_text,
                "-ex",
                "thread apply all bt 30",
            ]);
            command
        }
        (None, None) => return "user stacks: neither py-spy nor gdb is installed\n".to_owned(),
    };
    run_limited(command)
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// Runs a tool for [`TOOL_LIMIT`] at most. What it wrote until then is kept.
fn run_limited(mut command: Command) -> String {
    let name = command.get_program().to_string_lossy().into_owned();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => return format!("{name}: {e}\n"),
    };
    let output = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(output) = output {
            // A killed tool ends the pipe; what came before counts.
            let _ = output.take(TEXT_LIMIT as u64).read_to_end(&mut bytes);
        }
        bytes
    });
    let deadline = Instant::now() + TOOL_LIMIT;
    let mut verdict = "";
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() >= deadline {
            verdict = " (cut off after 1 s)";
            let _ = child.kill();
            let _ = child.wait();
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let bytes = reader.join().unwrap_or_default();
    format!("{name}{verdict}:\n{}\n", String::from_utf8_lossy(&bytes))
}

fn truncate(text: &mut String, limit: usize) {
    if text.len() > limit {
        let end = (0..=limit)
            .rev()
            .find(|i| text.is_char_boundary(*i))
            .unwrap_or(0);
        text.truncate(end);
        text.push_str("\n(cut)\n");
    }
}
