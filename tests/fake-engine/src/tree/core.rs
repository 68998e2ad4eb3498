//! The children that only pass on: vLLM's EngineCore, SGLang's detokenizer, Python's resource
//! tracker.

use super::spawn::spawn;
use super::{ORPHAN_LIFE, orphaned, scaled};
use crate::protocol::{Boot, Report};
use crate::shm;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

/// EngineCore: passes commands to its worker and reports back, and says when the worker dies.
pub fn run(boot: &Boot) -> std::io::Result<()> {
    shm::map(&boot.shared)?;
    let mut worker = spawn(
        "VLLM::Worker",
        "worker",
        boot,
        Stdio::piped(),
        Stdio::piped(),
    )?;
    let (commands, reports) = (worker.stdin.take(), worker.stdout.take());
    let (Some(commands), Some(reports)) = (commands, reports) else {
        return Err(std::io::Error::other("the worker has no pipes"));
    };
    std::thread::spawn(move || {
        let mut commands = commands;
        let _ = pass(std::io::stdin(), &mut commands);
        // The leader is gone. The worker is not to notice: its pipe stays open.
        std::thread::sleep(ORPHAN_LIFE);
        std::process::exit(0);
    });
    let _ = pass(reports, &mut std::io::stdout());
    let _ = worker.wait();
    let dead = Report::Dead {
        name: "VLLM::Worker".to_owned(),
    };
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&dead)?)?;
    std::thread::sleep(scaled(boot, 4.5));
    Ok(())
}

/// The detokenizer: passes the scheduler's reports on.
pub fn detokenize(boot: &Boot) -> std::io::Result<()> {
    if pass(std::io::stdin(), &mut std::io::stdout()).is_err() {
        orphaned(boot, 0.3);
    }
    Ok(())
}

/// The resource tracker: its pipe breaks when the leader ends.
pub fn track(boot: &Boot) -> std::io::Result<()> {
    let _ = std::io::stdin().read(&mut [0]);
    orphaned(boot, 2.0);
    Ok(())
}

/// Copies line by line until the source ends; an error is the destination's.
fn pass(from: impl Read, to: &mut impl Write) -> std::io::Result<()> {
    for line in BufReader::new(from).lines() {
        let Ok(line) = line else { return Ok(()) };
        to.write_all(line.as_bytes())?;
        to.write_all(b"\n")?;
        to.flush()?;
    }
    Ok(())
}
