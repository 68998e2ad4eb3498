//! The programs that scripts/kubernetes.sh builds, and how they are started.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Signal, set_parent_process_death_signal};

/// The version that scripts/kubernetes.sh builds.
const VERSION: &str = "1.20.2";
/// Where it is built, for some minutes: a run of all tests does not wait for that.
const PLACE: &str = "make test-kubernetes, which builds Debian's source package first";
const ALL: [&str; 3] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
];

/// The folder of the programs; none, which is said, where they were not built.
pub(crate) fn home() -> Option<PathBuf> {
    let home = robust_needs::cache().join(format!("kubernetes-{VERSION}"));
    let is_there = |name: &str| robust_needs::is_program(&home.join(name));
    if home.join(".complete").exists() && ALL.iter().all(|name| is_there(name)) {
        return Some(home);
    }
    let missing = format!(
        "Kubernetes' control plane was not built: it is not in {}",
        home.display()
    );
    robust_needs::elsewhere(missing, PLACE);
    None
}

/// One of them, whose words go to a log.
pub(crate) fn program(home: &Path, name: &str, log: &Path) -> Command {
    let log = std::fs::File::create(log).unwrap();
    let mut command = Command::new(home.join(name));
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    command
}

/// A child that ends with the thread that started it, whatever becomes of that.
pub(crate) fn spawn(command: &mut Command) -> Child {
    let die_with_this = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: one system call, nothing is allocated.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(die_with_this);
    }
    command.spawn().unwrap()
}

/// Runs a command line to its end; why it did not work.
pub(crate) fn run(line: &str) -> Result<(), String> {
    let mut words = line.split_whitespace();
    let program = words.next().unwrap_or_default();
    let out = Command::new(program).args(words).output();
    let out = out.map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&out.stderr);
    let failed = || format!("{line}: {}", said.trim());
    out.status.success().then_some(()).ok_or_else(failed)
}
