//! The child that makes tokens, one a tick for each running request.

use super::orphaned;
use crate::crash::Crash;
use crate::engine::Engine;
use crate::protocol::{Boot, Command, Dialect, Report};
use crate::shm;
use crate::weights::Weights;
use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Serves commands until the pipe they come from breaks.
pub fn run(boot: &Boot) -> std::io::Result<()> {
    shm::map(&boot.shared)?;
    let weights = if boot.model.join("model.safetensors").exists() {
        Weights::load(&boot.model, boot.dialect).map_err(std::io::Error::other)?
    } else {
        Weights::dummy()
    };
    let mut engine = Engine::new(boot.clone(), weights);
    let served = serve(
        &mut engine,
        &commands(),
        Duration::from_secs_f64(1.0 / boot.tokens_per_s),
    );
    if let Err(Ended::Crash(Crash(why))) = &served {
        eprintln!("fake-engine: the process that makes tokens dies: {why}");
        let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
    }
    // A worker of vLLM ends with its EngineCore, which outlives the leader.
    if boot.dialect == Dialect::Sglang || boot.quirks.orphan_children {
        orphaned(boot, 0.5);
    }
    Ok(())
}

enum Ended {
    Pipe,
    Crash(Crash),
}

fn commands() -> Receiver<Command> {
    let (send, commands) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            match serde_json::from_str(&line) {
                Ok(command) => {
                    if send.send(command).is_err() {
                        return;
                    }
                }
                Err(error) => eprintln!("fake-engine: a command is unreadable: {error}"),
            }
        }
    });
    commands
}

fn serve(engine: &mut Engine, commands: &Receiver<Command>, tick: Duration) -> Result<(), Ended> {
    let mut next = Instant::now() + tick;
    loop {
        let command = if engine.is_busy() {
            commands.recv_timeout(next.saturating_duration_since(Instant::now()))
        } else {
            let command = commands.recv().map_err(|_| RecvTimeoutError::Disconnected);
            next = Instant::now() + tick;
            command
        };
        match command {
            Ok(command) => tell(engine.handle(command).map_err(Ended::Crash)?)?,
            Err(RecvTimeoutError::Timeout) => {
                tell(engine.step())?;
                next = (next + tick).max(Instant::now());
            }
            Err(RecvTimeoutError::Disconnected) => return Err(Ended::Pipe),
        }
    }
}

fn tell(reports: Vec<Report>) -> Result<(), Ended> {
    let mut out = std::io::stdout().lock();
    for report in reports {
        let line = serde_json::to_string(&report).map_err(|_| Ended::Pipe)?;
        writeln!(out, "{line}")
            .and_then(|()| out.flush())
            .map_err(|_| Ended::Pipe)?;
    }
    Ok(())
}
