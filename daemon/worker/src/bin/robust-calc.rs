//! The calculator tool, alone in a process: `robust-calc MEMORY_MB CPU_S EXPRESSION`.
//!
//! It bounds its own memory, processor time, files and children before it looks at the expression,
//! and dies with the agent worker that started it. The value goes to stdout, a refusal to stderr
//! with exit code 1; 2 is wrong usage. It links neither libtorch nor UCX, so it starts in a
//! millisecond.

#[path = "../tool/calc.rs"]
mod calc;

use std::process::ExitCode;

use nix::sys::resource::{Resource, setrlimit};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [memory_mb, cpu_s, expression] = args.as_slice() else {
        eprintln!("usage: robust-calc MEMORY_MB CPU_S EXPRESSION");
        return ExitCode::from(2);
    };
    let (Ok(memory_mb), Ok(cpu_s)) = (memory_mb.parse(), cpu_s.parse()) else {
        eprintln!("usage: robust-calc MEMORY_MB CPU_S EXPRESSION");
        return ExitCode::from(2);
    };
    if let Err(error) = confine(memory_mb, cpu_s) {
        eprintln!("setting limits: {error}");
        return ExitCode::from(2);
    }
    match calc::evaluate(expression) {
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
    let bounds = [
        (Resource::RLIMIT_AS, memory_mb.saturating_mul(1 << 20)),
        (Resource::RLIMIT_CPU, cpu_s),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_NOFILE, 3),
        (Resource::RLIMIT_CORE, 0),
    ];
    for (resource, bound) in bounds {
        setrlimit(resource, bound, bound)?;
    }
    Ok(())
}
