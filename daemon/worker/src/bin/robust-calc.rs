//! The calculator tool, alone in a process: `robust-calc MEMORY_MB CPU_S [SLEEP_MS]`, with the expression
//! on stdin, where no other user of the machine reads it.
//!
//! ```text
//!  bounds ──► sleep ──► system calls: read, write, exit ──► expression in ──► value out
//! ```
//! It bounds its own memory, processor time, files and children before it looks at the expression, can gain
//! no rights, and dies with the agent worker that started it. Then it gives up every system call but those
//! that it still needs, where the kernel has that. The value goes to stdout, a refusal to stderr with exit
//! code 1; 2 is that it could not begin: wrong usage, or a bound that cannot be set. With a time to sleep it
//! answers only after that, for drills of a tool that hangs. It links neither libtorch nor UCX, so it starts
//! in a millisecond.

#[path = "../tool/calc.rs"]
mod calc;

use std::fmt::{self, Write};
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use nix::libc;
use nix::sys::resource::{Resource, setrlimit};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::thread::set_no_new_privs;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// One byte more than an expression has, so that a longer one is known.
const MOST_BYTES: usize = calc::MAX_LENGTH + 1;

/// What the command line asks for.
struct Asked {
    memory_mb: u64,
    cpu_s: u64,
    sleep: Duration,
}

fn asked(args: &[String]) -> Option<Asked> {
    let (memory_mb, cpu_s, sleep_ms) = match args {
        [memory_mb, cpu_s] => (memory_mb, cpu_s, 0),
        [memory_mb, cpu_s, sleep] => (memory_mb, cpu_s, sleep.parse().ok()?),
        _ => return None,
    };
    Some(Asked {
        memory_mb: memory_mb.parse().ok()?,
        cpu_s: cpu_s.parse().ok()?,
        sleep: Duration::from_millis(sleep_ms),
    })
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(asked) = asked(&args) else {
        eprintln!("usage: robust-calc MEMORY_MB CPU_S [SLEEP_MS], with the expression on stdin");
        return ExitCode::from(2);
    };
    if let Err(error) = confine(asked.memory_mb, asked.cpu_s) {
        eprintln!("setting limits: {error}");
        return ExitCode::from(2);
    }
    std::thread::sleep(asked.sleep);
    // Had before, as that takes memory.
    let (input, out, errors) = (io::stdin(), io::stdout(), io::stderr());
    let few = match few_calls() {
        Ok(few) => few,
        Err(error) => {
            eprintln!("making the filter of system calls: {error}");
            return ExitCode::from(2);
        }
    };
    // A kernel without it leaves the bounds, and an evaluator that makes no system call.
    let _ = seccompiler::apply_filter(&few);
    exit(answer(input.as_fd(), out.as_fd(), errors.as_fd()))
}

/// All calls but these end it. The kernel's own list of these, its strict mode, cannot be had below a filter, as in a
/// container.
fn few_calls() -> Result<BpfProgram, seccompiler::BackendError> {
    let calls = [libc::SYS_read, libc::SYS_write, libc::SYS_exit];
    let with_any_arguments = calls.map(|call| (call, Vec::new()));
    let (ends, lets) = (SeccompAction::KillProcess, SeccompAction::Allow);
    let here = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(with_any_arguments.into(), ends, lets, here)?.try_into()
}

fn confine(memory_mb: u64, cpu_s: u64) -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    set_no_new_privs(true)?;
    // At the lower bound of processor time comes a signal that says which bound it was.
    setrlimit(Resource::RLIMIT_CPU, cpu_s, cpu_s.saturating_add(1))?;
    let bounds = [
        (Resource::RLIMIT_AS, memory_mb.saturating_mul(1 << 20)),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_NOFILE, 3),
        (Resource::RLIMIT_NPROC, 0),
        (Resource::RLIMIT_CORE, 0),
    ];
    for (resource, bound) in bounds {
        setrlimit(resource, bound, bound)?;
    }
    Ok(())
}

/// Reads the expression, says its value, and how to end. Nothing here takes memory from the system: it
/// would be a call that is not permitted any more.
fn answer(input: BorrowedFd<'_>, out: BorrowedFd<'_>, errors: BorrowedFd<'_>) -> u8 {
    let mut bytes = [0; MOST_BYTES];
    let Some(length) = read(input, &mut bytes) else {
        return 2;
    };
    // Other than ASCII is no part of an expression either.
    let expression = str::from_utf8(&bytes[..length]).unwrap_or("?");
    let said = match calc::evaluate(expression) {
        Ok(value) => (writeln!(To(out), "{value}"), 0),
        Err(error) => (writeln!(To(errors), "{error}"), 1),
    };
    match said {
        (Ok(()), code) => code,
        (Err(_), _) => 2,
    }
}

/// Reads until the end or until there is no room; none when it fails.
fn read(from: BorrowedFd<'_>, into: &mut [u8]) -> Option<usize> {
    let mut length = 0;
    while length < into.len() {
        match rustix::io::read(from, &mut into[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    Some(length)
}

/// Writes without a buffer.
struct To<'a>(BorrowedFd<'a>);

impl Write for To<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            match rustix::io::write(self.0, rest) {
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Err(_) => return Err(fmt::Error),
            }
        }
        Ok(())
    }
}

/// Ends this thread, which is the only one, and the process with it: `exit_group`, which all else ends with,
/// is not among the calls that are left.
#[allow(unsafe_code)]
fn exit(code: u8) -> ! {
    loop {
        // SAFETY: a system call on an integer, which does not come back.
        unsafe {
            libc::syscall(libc::SYS_exit, libc::c_int::from(code));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    #[test]
    #[allow(unsafe_code)]
    fn a_call_that_is_not_among_the_few_ends_the_process() {
        let few = few_calls().unwrap();
        let mut command = Command::new("true");
        // SAFETY: between fork and exec it makes two system calls; the exec is the one that is not permitted.
        unsafe {
            command.pre_exec(move || {
                let applied = seccompiler::apply_filter(&few);
                applied.map_err(|_| io::ErrorKind::PermissionDenied.into())
            });
        }
        let ended = command.status().unwrap();
        assert_eq!(ended.signal(), Some(libc::SIGSYS), "{ended}");
    }
}
