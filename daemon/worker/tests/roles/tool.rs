//! The calculator in its process.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use robust_worker::tool::{Calculator, ToolError};

use super::fixture::runtime;

fn calculator() -> Calculator {
    Calculator {
        program: env!("CARGO_BIN_EXE_robust-calc").into(),
        timeout: Duration::from_secs(20),
        memory_mb: 64,
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
        let error = runtime.block_on(tool.run(expression)).unwrap_err();
        assert_eq!(error.to_string(), reason, "{expression}");
    }
    let deep = "(".repeat(3000);
    let error = runtime.block_on(tool.run(&deep)).unwrap_err();
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
    let error = runtime().block_on(tool.run("1")).unwrap_err();
    assert!(matches!(error, ToolError::Timeout(_)), "{error}");
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
                echo no memory >&2; exit 7";
    let tool = Calculator {
        program: script(&folder, text),
        ..calculator()
    };
    let error = runtime().block_on(tool.run("1+1")).unwrap_err();
    assert_eq!(error.to_string(), "no memory");
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
    assert!(runtime().block_on(tool.run("1")).is_err());
}
