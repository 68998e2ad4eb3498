//! The calculator in its process.

use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use robust_worker::tool::{Calculator, CallError, Drilled, Infrastructure, ToolError};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use super::fixture::runtime;

fn calculator() -> Calculator {
    Calculator {
        program: env!("CARGO_BIN_EXE_robust-calc").into(),
        timeout: Duration::from_secs(20),
        memory_mb: 64,
    }
}

#[track_caller]
fn by_the_model(result: Result<String, ToolError>) -> CallError {
    match result {
        Err(ToolError::Call(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn infrastructure(result: Result<String, ToolError>) -> Infrastructure {
    match result {
        Err(ToolError::Infrastructure(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

fn script(folder: &tempfile::TempDir, text: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.path().join("tool.sh");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_call_gives_the_value_and_a_bad_one_the_reason() {
    let (runtime, tool) = (runtime(), calculator());
    assert_eq!(runtime.block_on(tool.run("12+34")).unwrap(), "46");
    assert_eq!(runtime.block_on(tool.run("-2*3")).unwrap(), "-6");
    for (expression, reason) in [
        ("1+", "syntax error at character 2"),
        ("9^9^9^9", "too large"),
        ("--help", "syntax error at character 2"),
        ("", "syntax error at character 0"),
    ] {
        let error = by_the_model(runtime.block_on(tool.run(expression)));
        assert_eq!(error.to_string(), reason, "{expression}");
    }
    let deep = "(".repeat(3000);
    let error = by_the_model(runtime.block_on(tool.run(&deep)));
    assert_eq!(error.to_string(), "nested deeper than 200");
}

#[test]
fn a_tool_that_hangs_is_killed_with_its_whole_group_at_the_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let marker = folder.path().join("child");
    let text = format!("/bin/sleep 1000 & echo $! > {}\nwait", marker.display());
    let tool = Calculator {
        program: script(&folder, &text),
        timeout: Duration::from_millis(500),
        ..calculator()
    };
    let began = Instant::now();
    let failure = infrastructure(runtime().block_on(tool.run("1")));
    assert!(
        matches!(failure, Infrastructure::Silent { .. }),
        "{failure}"
    );
    assert!(began.elapsed() < Duration::from_secs(30));
    let child = std::fs::read_to_string(marker).unwrap();
    let state = format!("/proc/{}/stat", child.trim());
    let deadline = Instant::now() + Duration::from_secs(30);
    // Its parent is gone: it is reaped by init, or stays a zombie where there is none.
    while std::fs::read_to_string(&state).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(Instant::now() < deadline, "the tool's child lives on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn memory_beyond_the_bound_is_refused_by_the_system() {
    let folder = tempfile::tempdir().unwrap();
    let text = "while /bin/dd if=/dev/zero of=/dev/null bs=200M count=1; do :; done 2>/dev/null\n\
                echo no memory >&2; exit 1";
    let tool = Calculator {
        program: script(&folder, text),
        ..calculator()
    };
    let refused = CallError::Refused("no memory".to_owned());
    assert_eq!(by_the_model(runtime().block_on(tool.run("1+1"))), refused);
    assert_eq!(runtime().block_on(calculator().run("1+1")).unwrap(), "2");
}

#[test]
fn endless_output_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let program = script(&folder, "exec /usr/bin/yes");
    let tool = Calculator {
        program,
        timeout: Duration::from_secs(2),
        ..calculator()
    };
    let error = by_the_model(runtime().block_on(tool.run("1")));
    assert_eq!(error, CallError::Verbose);
}

#[test]
fn an_expression_of_any_bytes_and_length_is_answered() {
    let (runtime, tool) = (runtime(), calculator());
    for (expression, reason) in [
        ("1\0+1", "syntax error at character 1"),
        ("1+ä", "syntax error at character 2"),
        (&"1+".repeat(1_000_000), "longer than 4096 characters"),
    ] {
        let error = by_the_model(runtime.block_on(tool.run(expression)));
        assert_eq!(error, CallError::Refused(reason.to_owned()));
    }
}

/// A calculator that was started by hand, and what the kernel says of it.
struct Started(std::process::Child);

impl Started {
    fn new() -> Self {
        Self::of(Command::new(env!("CARGO_BIN_EXE_robust-calc")))
    }

    /// Below a filter that lets everything through, as a container has one.
    #[allow(unsafe_code)]
    fn filtered() -> Self {
        let calls = [(nix::libc::SYS_reboot, Vec::new())].into();
        let (lets, ends) = (SeccompAction::Allow, SeccompAction::KillProcess);
        let here = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(calls, lets, ends, here).unwrap();
        let filter: BpfProgram = filter.try_into().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_robust-calc"));
        let apply = move || seccompiler::apply_filter(&filter).map_err(std::io::Error::other);
        // SAFETY: between fork and exec it makes two system calls, and allocates only where they fail.
        unsafe { command.pre_exec(apply) };
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(pipes.args(["64", "20"]).spawn().unwrap())
    }

    fn says(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.0.id())).unwrap()
    }
}

#[test]
fn a_tool_is_confined_before_it_reads_its_expression_and_nobody_else_reads_that() {
    is_confined_and_answers(Started::new(), 1);
    is_confined_and_answers(Started::filtered(), 2);
}

/// How many filters of system calls this process of the tests has itself, as in a container; none before Linux 5.9.
fn own_filters() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix("Seccomp_filters:"));
    line.map(|count| count.trim().parse().unwrap())
}

fn is_confined_and_answers(mut tool: Started, filters: u32) {
    let deadline = Instant::now() + Duration::from_secs(30);
    let count = own_filters().map(|own| format!("Seccomp_filters:\t{}\n", own + filters));
    let confined = ["Seccomp:\t2\n".to_owned()].into_iter().chain(count);
    let confined: Vec<String> = confined.collect();
    let is_confined = |status: &str| confined.iter().all(|line| status.contains(line.as_str()));
    while !is_confined(&tool.says("status")) {
        assert!(Instant::now() < deadline, "{}", tool.says("status"));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(tool.says("status").contains("NoNewPrivs:\t1"));
    let limits = tool.says("limits");
    for (name, bound) in [
        ("Max processes", "0"),
        ("Max open files", "3"),
        ("Max core file size", "0"),
        ("Max file size", "0"),
        ("Max cpu time", "20"),
        ("Max address space", "67108864"),
    ] {
        let line = limits.lines().find(|l| l.starts_with(name)).unwrap();
        let value = line[name.len()..].split_whitespace().next();
        assert_eq!(value, Some(bound), "{line}");
    }
    tool.0.stdin.take().unwrap().write_all(b"20+22").unwrap();
    assert!(!tool.says("cmdline").contains("20+22"));
    let mut value = String::new();
    tool.0
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut value)
        .unwrap();
    assert_eq!(value, "42\n");
    assert_eq!(tool.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_call_that_computes_until_its_deadline_is_over_its_bound_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    // So many that they get half a core together also where others compute.
    let text = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (while :; do :; done) & done; wait";
    let tool = Calculator {
        program: script(&folder, text),
        timeout: Duration::from_secs(2),
        ..calculator()
    };
    let error = by_the_model(runtime().block_on(tool.run("1")));
    assert!(matches!(error, CallError::Computes(_)), "{error}");
}

#[test]
fn a_tool_that_is_killed_or_breaks_or_cannot_be_started_says_nothing_of_its_expression() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let drilled = Drilled {
        killed: true,
        ..Drilled::default()
    };
    let killed = runtime.block_on(calculator().run_drilled("12+34", drilled));
    let killed = infrastructure(killed).to_string();
    assert_eq!(killed, "the tool was killed by SIGKILL");
    let by = |text: &str| {
        let program = script(&folder, text);
        let tool = Calculator {
            program,
            ..calculator()
        };
        infrastructure(runtime.block_on(tool.run("12+34"))).to_string()
    };
    assert_eq!(by("kill -ABRT $$"), "the tool was killed by SIGABRT");
    assert_eq!(
        by("echo no bounds >&2; exit 2"),
        "the tool broke with exit code 2: no bounds"
    );
    let missing = Calculator {
        program: folder.path().join("no such tool"),
        ..calculator()
    };
    let missing = infrastructure(runtime.block_on(missing.run("12+34")));
    assert!(
        matches!(missing, Infrastructure::NotStarted { .. }),
        "{missing}"
    );
}
