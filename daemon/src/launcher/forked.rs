//! Making a process in a control group.
//!
//! ```text
//!  clone3, into the group of version 2 ─┬─ child: into those of version 1 ─► session, descriptors ─► exec
//!                                       │    └── what fails ──► a pipe that the exec closes
//!                                       └─ parent: reads the pipe to its end
//! ```
//! The standard library can only move a process into a group when it is there, for which the kernel
//! waits until nobody forks: 12 ms at each start. One that is made in its group waits for nothing, and is in it from its first
//! instruction on.
use super::SpawnSpec;
use super::spawn::{Files, detach_now, inherited_environment};
use robust_tree::Door;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, PipeReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::ptr;

/// Where programs are looked for that are named without a folder and get no `PATH`.
const PATH: &str = "/bin:/usr/bin";

/// `CLONE_INTO_CGROUP` of linux/sched.h, which the library has in a type that is too short for it.
const INTO_CGROUP: u64 = 0x2_0000_0000;

/// What failed in the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is not in its group.
    Join = 1,
    /// Its session or descriptors.
    Prepare = 2,
    /// Its program.
    Exec = 3,
}

/// A process that was not started.
#[derive(Debug)]
pub struct NotForked {
    /// Where it failed.
    pub stage: Stage,
    /// The system's words.
    pub source: io::Error,
}

/// Everything that the child needs, made before it is: it may not allocate.
struct Plan {
    programs: Vec<CString>,
    /// These own what the two lists of pointers point to.
    _argv: Vec<CString>,
    _environment: Vec<CString>,
    argv: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    files: Files,
}

impl Plan {
    fn new(spec: &SpawnSpec, files: Files) -> io::Result<Self> {
        let text = |text: &OsStr| CString::new(text.as_bytes()).map_err(io::Error::from);
        let environment = inherited_environment(spec);
        let argv = spec.argv.iter().map(|a| text(a.as_ref()));
        let argv = argv.collect::<io::Result<Vec<_>>>()?;
        let program = spec.argv.first().map_or("", String::as_str);
        let path = environment.iter().find(|(name, _)| name == "PATH");
        let path = path.map_or(OsStr::new(PATH), |(_, path)| path);
        let programs = match program.contains('/') {
            true => vec![text(program.as_ref())?],
            false => std::env::split_paths(path)
                .map(|folder| text(folder.join(Path::new(program)).as_os_str()))
                .collect::<io::Result<_>>()?,
        };
        let pair = |(name, value): &(OsString, OsString)| {
            let bytes = [name.as_bytes(), b"=", value.as_bytes()].concat();
            text(&OsString::from_vec(bytes))
        };
        let environment = environment
            .iter()
            .map(pair)
            .collect::<io::Result<Vec<_>>>()?;
        let pointers = |of: &[CString]| {
            let all = of.iter().map(|text| text.as_ptr());
            all.chain([ptr::null()]).collect()
        };
        Ok(Self {
            programs,
            argv: pointers(&argv),
            environment: pointers(&environment),
            _argv: argv,
            _environment: environment,
            files,
        })
    }
}

/// Starts a process in a group; returns its id. Blocks until it runs its program.
pub fn start(spec: &SpawnSpec, files: Files, door: &Door) -> Result<u32, NotForked> {
    start_into(spec, files, door, door.unified())
}

/// The same, where the kernel may make it in that group; without one it goes in by itself.
pub(super) fn start_into(
    spec: &SpawnSpec,
    files: Files,
    door: &Door,
    into: Option<BorrowedFd<'_>>,
) -> Result<u32, NotForked> {
    let prepared = |source| NotForked {
        stage: Stage::Prepare,
        source,
    };
    let plan = Plan::new(spec, files).map_err(prepared)?;
    let (reads, writes) = io::pipe().map_err(prepared)?;
    let (pid, joined) = fork(into).map_err(prepared)?;
    if pid == 0 {
        run(&plan, door, joined, writes.as_fd());
    }
    drop(writes);
    match said(reads) {
        None => Ok(pid),
        Some(not_forked) => {
            reap(pid);
            Err(not_forked)
        }
    }
}

/// What the child wrote; none where it runs its program.
fn said(mut reads: PipeReader) -> Option<NotForked> {
    let mut word = [0u8; 5];
    // A child that dies before its exec writes nothing either: its end is seen as any other.
    reads.read_exact(&mut word).ok()?;
    let stage = match word[0] {
        1 => Stage::Join,
        2 => Stage::Prepare,
        _ => Stage::Exec,
    };
    let number = i32::from_ne_bytes([word[1], word[2], word[3], word[4]]);
    let source = io::Error::from_raw_os_error(number);
    Some(NotForked { stage, source })
}

fn reap(pid: u32) {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let id = rustix::process::WaitId::Pid(pid);
        let _ = rustix::process::waitid(id, rustix::process::WaitIdOptions::EXITED);
    }
}

/// Forks; 0 in the child, and whether it is in that group already.
#[allow(unsafe_code)]
fn fork(group: Option<BorrowedFd<'_>>) -> io::Result<(u32, bool)> {
    let forked = |result: libc::c_long, joined| match u32::try_from(result) {
        Ok(pid) => Ok((pid, joined)),
        Err(_) => Err(io::Error::last_os_error()),
    };
    if let Some(group) = group {
        // SAFETY: all of it are integers, of which 0 is one.
        let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
        arguments.flags = INTO_CGROUP;
        arguments.exit_signal = libc::SIGCHLD as u64;
        arguments.cgroup = u64::try_from(group.as_raw_fd()).unwrap_or(u64::MAX);
        // SAFETY: the kernel reads the structure, whose length it is told. Without CLONE_VM the child has a
        // copy of this memory and of this stack, as after fork().
        let result = unsafe {
            libc::syscall(
                libc::SYS_clone3,
                &raw const arguments,
                size_of::<libc::clone_args>(),
            )
        };
        if result >= 0 {
            return forked(result, true);
        }
        // Before Linux 5.7, and where a filter of system calls hides it: the child goes in by itself.
    }
    // SAFETY: the child makes async-signal-safe system calls only until it runs another program.
    forked(unsafe { libc::fork() }.into(), false)
}

/// In the child: system calls alone, nothing that allocates or locks.
#[allow(unsafe_code)]
fn run(plan: &Plan, door: &Door, joined: bool, errors: BorrowedFd<'_>) -> ! {
    let enter = || {
        if !joined {
            door.enter_unified()?;
        }
        door.enter_version_1()
    };
    let failed = match enter() {
        Err(error) => (Stage::Join, error),
        Ok(()) => match prepare(plan) {
            Err(error) => (Stage::Prepare, error),
            Ok(()) => (Stage::Exec, execute(plan)),
        },
    };
    let (stage, error) = failed;
    let number = error.raw_os_error().unwrap_or(libc::EIO).to_ne_bytes();
    let word = [stage as u8, number[0], number[1], number[2], number[3]];
    let _ = rustix::io::write(errors, &word);
    // SAFETY: ends the child, and runs nothing of the daemon's that it has a copy of.
    unsafe { libc::_exit(127) }
}

/// As the standard library prepares a child: descriptors, signals; and what [`detach_now`] does.
#[allow(unsafe_code)]
fn prepare(plan: &Plan) -> io::Result<()> {
    let Files { stdin, log } = &plan.files;
    for (file, number) in [(stdin, 0), (log, 1), (log, 2)] {
        // SAFETY: descriptors alone, both of this process.
        if unsafe { libc::dup2(file.as_raw_fd(), number) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    detach_now()?;
    // SAFETY: a set on the stack is emptied and taken for the mask of this only thread.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
    Ok(())
}

/// Returns only where no program can be run.
#[allow(unsafe_code)]
fn execute(plan: &Plan) -> io::Error {
    let mut why = libc::ENOENT;
    for program in &plan.programs {
        // SAFETY: the lists end with a null pointer, and what they point to lives in the plan.
        unsafe {
            libc::execve(
                program.as_ptr(),
                plan.argv.as_ptr(),
                plan.environment.as_ptr(),
            );
        }
        match io::Error::last_os_error().raw_os_error() {
            // The next folder may have it.
            Some(libc::ENOENT | libc::ENOTDIR) | None => {}
            Some(number) => why = number,
        }
    }
    io::Error::from_raw_os_error(why)
}
