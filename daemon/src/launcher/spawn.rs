//! Making the process.
use super::forked::{self, NotForked, Stage};
use super::given_up::give_up_now;
use super::{SpawnError, SpawnSpec, inherited};
use robust_tree::Group;
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A process that runs its program.
pub struct Started {
    /// Its id.
    pub pid: u32,
    /// Where its own output begins in the log.
    pub from: u64,
}

/// Starts the process, in its control group if it has one. It reads from `stdin`, or from nobody.
pub fn start(
    spec: &SpawnSpec,
    group: Option<&Group>,
    stdin: Option<&OwnedFd>,
) -> Result<Started, SpawnError> {
    let program = spec.argv.first();
    let program = program.ok_or(SpawnError::NoProgram(spec.incarnation))?;
    let (log, from) = open_log(spec)?;
    let stdin = match stdin {
        Some(stdin) => stdin.try_clone().map(File::from),
        None => File::open("/dev/null"),
    };
    let stdin = stdin.map_err(|source| SpawnError::Exec {
        program: program.clone(),
        source,
    })?;
    let files = Files { stdin, log };
    let pid = match group {
        Some(group) => start_in(spec, files, group, program)?,
        None => start_alone(spec, files, program)?,
    };
    Ok(Started { pid, from })
}

/// What a process is given to read from and to write to.
pub struct Files {
    /// Its input.
    pub stdin: File,
    /// Its output and errors.
    pub log: File,
}

fn start_in(
    spec: &SpawnSpec,
    files: Files,
    group: &Group,
    program: &str,
) -> Result<u32, SpawnError> {
    let door = group.door().map_err(|source| SpawnError::Group {
        incarnation: spec.incarnation,
        source,
    })?;
    forked::start(spec, files, &door).map_err(|NotForked { stage, source }| {
        let program = program.to_owned();
        match stage {
            Stage::Join => SpawnError::Join { program, source },
            Stage::Prepare | Stage::Exec => SpawnError::Exec { program, source },
        }
    })
}

fn start_alone(spec: &SpawnSpec, files: Files, program: &str) -> Result<u32, SpawnError> {
    let Files { stdin, log } = files;
    let errors = log.try_clone().map_err(|source| log_error(spec, source))?;
    let mut command = Command::new(program);
    command
        .args(&spec.argv[1..])
        .env_clear()
        .envs(inherited_environment(spec))
        .stdin(stdin)
        .stdout(log)
        .stderr(errors);
    detach(&mut command);
    let child = command.spawn().map_err(|source| SpawnError::Exec {
        program: program.to_owned(),
        source,
    })?;
    Ok(child.id())
}

/// Its whole environment; a name that is there twice has its last value.
pub fn inherited_environment(spec: &SpawnSpec) -> Vec<(OsString, OsString)> {
    let own = spec.env.iter().map(|(k, v)| (k.into(), v.into()));
    let all = inherited(&spec.passed).chain(own);
    all.collect::<BTreeMap<_, _>>().into_iter().collect()
}

fn log_error(spec: &SpawnSpec, source: io::Error) -> SpawnError {
    SpawnError::Log {
        path: spec.log_path.clone(),
        source,
    }
}

/// Opens the life's log and begins it with its header; where its own output begins.
pub fn open_log(spec: &SpawnSpec) -> Result<(File, u64), SpawnError> {
    begun_log(spec).map_err(|source| log_error(spec, source))
}

fn begun_log(spec: &SpawnSpec) -> io::Result<(File, u64)> {
    if let Some(folder) = spec.log_path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut log = OpenOptions::new()
        .append(true)
        .create(true)
        // A link that somebody laid there would have this user write wherever it leads.
        .custom_flags(libc::O_NOFOLLOW)
        .open(&spec.log_path)?;
    // A disk without room for its log is no reason to leave a role dead.
    let _ = writeln!(log, "{}", spec.header);
    let from = log.metadata()?.len();
    Ok((log, from))
}

/// A session and group of its own, what roles give up given up, and no descriptor but 0, 1, 2: what the daemon itself inherited without close-on-exec would else live on in its roles. Makes
/// system calls only, for a forked child.
#[allow(unsafe_code)]
pub fn detach_now() -> io::Result<()> {
    rustix::process::setsid()?;
    give_up_now()?;
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
}

#[allow(unsafe_code)]
fn detach(command: &mut Command) {
    // SAFETY: between fork and exec it makes async-signal-safe system calls only and neither allocates
    // nor locks.
    unsafe {
        command.pre_exec(detach_now);
    }
}
