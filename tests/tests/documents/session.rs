//! One shell session in which the commands of a page are given, as by a reader who copies them in.
//!
//! ```text
//!  HOME/                        a temporary folder, also TMPDIR; every process of that home ends with the session
//!    .cache/robust ──► the cache with the python of `make python`
//!    checkout/       ──► docs, examples, fixtures, .. of this checkout, and what the page writes beside them
//!      target/release ──► the programs under test
//! ```
//! The page's text is run as it stands, but for ports of 127.0.0.1, which are free ones.
use super::fences::Fence;
use super::root;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use robust_tests::{bin, cache, end_processes_naming};
use std::fmt::Write as _;
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long the commands of one page may take. The longest takes a minute and a half on two idle cores.
const PATIENCE: Duration = Duration::from_secs(540);

/// Runs the blocks of a page, and gives what they printed.
///
/// # Panics
/// Where a command fails, where the page takes too long, and where it leaves a process behind.
pub fn run(page: &str, fences: &[Fence]) -> String {
    let home = tempfile::Builder::new().prefix("page.").tempdir().unwrap();
    let checkout = lay_out(home.path());
    let script = with_free_ports(&script(page, fences));
    let said = home.path().join("said");
    let log = File::create(&said).unwrap();
    let mut shell = Command::new("bash");
    shell
        .args(["-c", &script])
        .current_dir(&checkout)
        .env("PWD", &checkout)
        .env("HOME", home.path())
        .env("TMPDIR", home.path())
        .env("ROBUST_CACHE", cache())
        .env("PATH", path_with(&checkout.join("target/release")))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .process_group(0);
    for set in [
        "ROBUST_STATE_DIR",
        "XDG_RUNTIME_DIR",
        "XDG_STATE_HOME",
        "XDG_CACHE_HOME",
        "RUST_LOG",
        "TORCH_PYTHON",
    ] {
        shell.env_remove(set);
    }
    let status = wait(shell);
    let left = left_behind(home.path());
    end_all(home.path());
    let said = std::fs::read_to_string(&said).unwrap();
    match status {
        Some(status) if status.success() => {}
        Some(status) => panic!("{page}: {status}\n{said}\n{}", logs(home.path())),
        None => panic!(
            "{page}: not done after {PATIENCE:?}\n{said}\n{}",
            logs(home.path())
        ),
    }
    assert!(left.is_empty(), "{page} leaves {left:?}\n{said}");
    said
}

/// The ends of the logs that daemons and roles wrote.
fn logs(home: &Path) -> String {
    let (mut text, mut folders) = (String::new(), vec![home.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "log") {
                let log = std::fs::read_to_string(&path).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let tail = lines[lines.len().saturating_sub(25)..].join("\n");
                let _ = writeln!(text, "--- {}\n{tail}", path.display());
            }
        }
    }
    text
}

/// The folder in which a reader gives the commands.
fn lay_out(home: &Path) -> std::path::PathBuf {
    let checkout = home.join("checkout");
    std::fs::create_dir_all(checkout.join("target")).unwrap();
    for name in ["docs", "examples", "fixtures", "python", "scripts"] {
        symlink(root().join(name), checkout.join(name)).unwrap();
    }
    let programs = bin("robustctl");
    symlink(programs.parent().unwrap(), checkout.join("target/release")).unwrap();
    std::fs::create_dir(home.join(".cache")).unwrap();
    symlink(robust_needs::cache(), home.join(".cache/robust")).unwrap();
    checkout
}

fn path_with(programs: &Path) -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(programs.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(folders).unwrap()
}

/// The page as one script, which says before each block where it stands.
fn script(page: &str, fences: &[Fence]) -> String {
    let mut script = "set -euo pipefail\n".to_owned();
    for fence in fences {
        if let Some(file) = fence.mark("file") {
            let _ = writeln!(
                script,
                "cat > {file} <<'END OF FILE'\n{}END OF FILE",
                fence.text
            );
        } else if fence.is_shell() && fence.mark("norun").is_none() {
            let _ = writeln!(script, "echo '--- {page}:{}'", fence.line);
            script += &block(fence);
        }
    }
    script
}

/// The commands of a block; one that is to fail does so in a shell of its own.
fn block(fence: &Fence) -> String {
    match fence.mark("exit") {
        None => fence.text.clone(),
        Some(code) => format!(
            "set +e\n(set -e\n{}\n)\ncode=$?\nset -e\n\
             [ $code = {code} ] || {{ echo \"exit code $code, not {code}\"; exit 1; }}\n",
            fence.text
        ),
    }
}

/// The script with another port, which is free, for each one of loopback.
fn with_free_ports(script: &str) -> String {
    const LOOPBACK: &str = "127.0.0.1:";
    let mut ports: Vec<&str> = script
        .split(LOOPBACK)
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap())
        .filter(|port| !port.is_empty() && *port != "0")
        .collect();
    ports.sort_unstable();
    ports.dedup();
    // All are held until all are known, so that no two are the same.
    let held: Vec<TcpListener> = ports
        .iter()
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let mut script = script.to_owned();
    for (port, free) in ports.iter().zip(&held) {
        let free = free.local_addr().unwrap().port();
        script = script.replace(
            &format!("{LOOPBACK}{port}"),
            &format!("{LOOPBACK}\u{0}{free}"),
        );
    }
    script.replace('\u{0}', "")
}

/// Waits for the shell's end; none where it took too long, and was ended.
fn wait(mut shell: Command) -> Option<ExitStatus> {
    let mut shell = shell.spawn().unwrap();
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(status) = shell.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = killpg(
        Pid::from_raw(shell.id().try_into().unwrap()),
        Signal::SIGKILL,
    );
    shell.wait().unwrap();
    None
}

/// Processes that a page started and did not end, but for those that are just ending. Nobody is left when two looks in a
/// row found nobody: a process that is just becoming another program has no environment to be known by.
fn left_behind(home: &Path) -> Vec<(i32, String)> {
    let (start, mut was_empty) = (Instant::now(), false);
    loop {
        let left = at_home(home);
        let over = start.elapsed() > Duration::from_secs(10);
        if over || was_empty && left.is_empty() {
            return left;
        }
        was_empty = left.is_empty();
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Living processes of this home, which all that the shell starts inherit: (pid, command line).
fn at_home(home: &Path) -> Vec<(i32, String)> {
    let mine = format!("HOME={}", home.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let read = |name| std::fs::read(entry.path().join(name)).unwrap_or_default();
        if read("environ")
            .split(|byte| *byte == 0)
            .any(|set| set == mine.as_bytes())
        {
            let line = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
            found.push((pid, line));
        }
    }
    found
}

/// Ends whatever is left of a page.
fn end_all(home: &Path) {
    // First those whose snapshots go with them.
    end_processes_naming(home);
    for (pid, _) in at_home(home) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// A page of one block.
fn page_of(info: &str, text: &str) -> Vec<Fence> {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.md");
    std::fs::write(&page, format!("```{info}\n{text}\n```\n")).unwrap();
    super::fences::fences(&page)
}

#[test]
fn commands_are_given_in_one_shell_with_the_files_and_ports_of_the_page() {
    let page = [
        page_of("toml file=job.toml", "a = 1"),
        page_of("bash", "export A=2; cat job.toml"),
        page_of("bash norun=root", "false"),
        page_of("bash exit=3", "exit 3"),
        page_of(
            "bash",
            "echo $A 127.0.0.1:1 127.0.0.1:1; robustctl --version",
        ),
    ];
    let said = run("page", &page.into_iter().flatten().collect::<Vec<_>>());
    assert!(said.contains("a = 1"), "{said}");
    let line = said.lines().find(|line| line.starts_with("2 ")).unwrap();
    let ports: Vec<&str> = line.split(' ').skip(1).collect();
    assert_eq!(ports[0], ports[1], "one port stays one");
    assert_ne!(ports[0], "127.0.0.1:1", "another one, which is free");
    assert!(said.contains("robustctl 0"), "{said}");
}

#[test]
#[should_panic(expected = "exit status: 1")]
fn a_command_that_fails_in_the_middle_of_a_block_fails_its_page() {
    run("page", &page_of("bash", "true\nfalse\ntrue"));
}

#[test]
#[should_panic(expected = "exit code 0, not 3")]
fn a_block_that_should_fail_and_does_not_fails_its_page() {
    run("page", &page_of("bash exit=3", "true"));
}

#[test]
#[should_panic(expected = "page leaves")]
fn a_process_that_is_left_behind_fails_its_page() {
    run("page", &page_of("bash", "sleep 60 &"));
}
