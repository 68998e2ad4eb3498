//! The calculator tool, alone in a process: `robust-calc MEMORY_MB CPU_S EXPRESSION [SLEEP_MS]`.
//!
//! It bounds its own memory, processor time, files and children before it looks at the expression,
//! and dies with the agent worker that started it. The value goes to stdout, a refusal to stderr
//! with exit code 1; 2 is that it could not begin: wrong usage, or a bound that cannot be set. With a
//! time to sleep it answers only after that, for drills of a tool that hangs. It links neither libtorch
//! nor UCX, so it starts in a millisecond.

#[path = "../tool/calc.rs"]
mod calc;

use std::process::ExitCode;
use std::time::Duration;

use nix::sys::resource::{Resource, setrlimit};

/// What the command line asks for.
struct Asked<'a> {
    memory_mb: u64,
    cpu_s: u64,
    expression: &'a str,
    sleep: Duration,
}

fn asked(args: &[String]) -> Option<Asked<'_>> {
    let (first, sleep_ms) = match args {
        [first @ .., sleep] if first.len() == 3 => (first, sleep.parse().ok()?),
        all => (all, 0),
    };
    let [memory_mb, cpu_s, expression] = first else {
        return None;
    };
    Some(Asked {
        memory_mb: memory_mb.parse().ok()?,
        cpu_s: cpu_s.parse().ok()?,
        expression,
        sleep: Duration::from_millis(sleep_ms),
    })
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(asked) = asked(&args) else {
        eprintln!("usage: robust-calc MEMORY_MB CPU_S EXPRESSION [SLEEP_MS]");
        return ExitCode::from(2);
    };
    if let Err(error) = confine(asked.memory_mb, asked.cpu_s) {
        eprintln!("setting limits: {error}");
        return ExitCode::from(2);
    }
    std::thread::sleep(asked.sleep);
    match calc::evaluate(asked.expression) {
        Ok(value) => {
            println!("{value}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(1)
        }
    }
}

fn confine(memory_mb: u64, cpu_s: u64) -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // At the lower bound of processor time comes a signal that says which bound it was.
    setrlimit(Resource::RLIMIT_CPU, cpu_s, cpu_s.saturating_add(1))?;
    let bounds = [
        (Resource::RLIMIT_AS, memory_mb.saturating_mul(1 << 20)),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_NOFILE, 3),
        (Resource::RLIMIT_CORE, 0),
    ];
    for (resource, bound) in bounds {
        setrlimit(resource, bound, bound)?;
    }
    Ok(())
}
