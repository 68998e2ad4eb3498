//! Making the process.
use super::{SpawnError, SpawnSpec, inherited};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Starts the process; returns it and where its own output begins in the log.
pub fn start(spec: &SpawnSpec) -> Result<(Child, u64), SpawnError> {
    let (program, arguments) = spec
        .argv
        .split_first()
        .ok_or(SpawnError::NoProgram(spec.incarnation))?;
    let log_error = |source| SpawnError::Log {
        path: spec.log_path.clone(),
        source,
    };
    let (log, from) = open_log(spec).map_err(log_error)?;
    let errors = log.try_clone().map_err(log_error)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(inherited(&spec.passed))
        .envs(spec.env.iter().map(|(k, v)| (k, v)))
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors);
    detach(&mut command);
    let child = command.spawn().map_err(|source| SpawnError::Exec {
        program: program.clone(),
        source,
    })?;
    Ok((child, from))
}

fn open_log(spec: &SpawnSpec) -> io::Result<(File, u64)> {
    if let Some(folder) = spec.log_path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&spec.log_path)?;
    // A disk without room for its log is no reason to leave a role dead.
    let _ = writeln!(log, "{}", spec.header);
    let from = log.metadata()?.len();
    Ok((log, from))
}

/// A session and group of its own, no rights that a set-user-ID program would add, and no descriptor but
/// 0, 1, 2: what the daemon itself inherited without close-on-exec would else live on in its roles.
#[allow(unsafe_code)]
fn detach(command: &mut Command) {
    let in_child = || {
        rustix::process::setsid()?;
        rustix::thread::set_no_new_privs(true)?;
        let (first, last) = (3 as libc::c_uint, libc::c_uint::MAX);
        // SAFETY: a plain system call on integers, marking descriptors of the forked child. Before
        // Linux 5.11 it fails, which is fine: Rust opens everything with close-on-exec.
        unsafe {
            libc::syscall(
                libc::SYS_close_range,
                first,
                last,
                libc::CLOSE_RANGE_CLOEXEC,
            );
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes async-signal-safe system calls only and
    // neither allocates nor locks.
    unsafe {
        command.pre_exec(in_child);
    }
}
