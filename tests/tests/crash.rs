//! Kills at random instants with real roles at work: the daemon, alone, with a role, or with all of them
//! and what was in memory alone. The same with roles that are played, and more of it: `daemon/tests/crash`.
//!
//! ```text
//!  wait a random while ─► kill ─► what agents logged as acknowledged is compared with what is stored,
//!        ▲                        and what was seen of steps and versions before with what is now
//!        └──── robustd starts again ◄────┘
//! ```
//! `ROBUST_CRASH_ROUNDS` says how many kills there are, `ROBUST_CRASH_SEED` repeats a run's choices.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod crash_evidence;

use crash_evidence::Evidence;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use robust_tests::{Daemon, JobFile};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Kills, unless the environment names another number: six of each kind.
const ROUNDS: u64 = 24;
/// The longest wait for the next kill: some meet a job at work, some one that is recovering.
const LULLS_MS: [u64; 2] = [500, 3000];
/// After so many kills the job must come to another step: that it lives is a promise too.
const BREATH: u64 = 3;

/// What is killed.
#[derive(Clone, Copy, Debug)]
enum Blow {
    Daemon,
    /// And, before it or after it, one of the roles.
    WithARole {
        first: bool,
    },
    /// Everything that runs, and what was in shared memory.
    Machine,
}

const BLOWS: [Blow; 4] = [
    Blow::WithARole { first: true },
    Blow::Daemon,
    Blow::Machine,
    Blow::WithARole { first: false },
];

/// The same numbers for the same seed.
struct Dice {
    seed: u64,
    drawn: u64,
}

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.drawn += 1;
        xxhash_rust::xxh3::xxh3_64_with_seed(&self.drawn.to_le_bytes(), self.seed) % n
    }
}

fn job() -> JobFile {
    // Kills come faster than any budget allows; that they end is another test's matter (I-7).
    JobFile::small()
        .set("job", "steps", 100_000)
        .set("agent", "durable_every_ms", 20)
        .set("restart", "max", 1000)
        .set("restart", "max_task_restarts", 1000)
        .set("restart", "backoff_ms", 1)
}

fn strike(daemon: &mut Daemon, blow: Blow, dice: &mut Dice) {
    let processes = daemon.processes();
    let is_daemon = |line: &str| line.split(' ').any(|word| word.ends_with("/robustd"));
    let roles = processes.iter().filter(|(_, line)| !is_daemon(line));
    let roles: Vec<i32> = roles.map(|(pid, _)| *pid).collect();
    let chosen = dice.below(64) as usize;
    let kill_a_role = || {
        // It may have ended by itself, and none may be there yet.
        if let Some(pid) = roles.get(chosen % roles.len().max(1)) {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
    };
    match blow {
        Blow::Daemon => daemon.kill_daemon(),
        Blow::WithARole { first } => {
            if first {
                kill_a_role();
            }
            daemon.kill_daemon();
            if !first {
                kill_a_role();
            }
        }
        Blow::Machine => daemon.end_machine(),
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The job comes to a step that it had not come to.
fn breathe(daemon: &mut Daemon, seen: &Evidence) {
    daemon.until_step(seen.step() + 1);
}

#[test]
fn whenever_a_daemon_with_real_roles_is_killed_what_was_acknowledged_is_there_and_nothing_is_used_twice()
 {
    let rounds = number("ROBUST_CRASH_ROUNDS").unwrap_or(ROUNDS);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = number("ROBUST_CRASH_SEED").unwrap_or(now.as_nanos() as u64);
    let mut dice = Dice { seed, drawn: 0 };
    println!("{rounds} kills, ROBUST_CRASH_SEED={seed}");
    let log = [("RUST_LOG", "info,robust_role::turns=debug")];
    let mut daemon = Daemon::start_with(&job(), &log);
    let mut evidence = Evidence::default();
    daemon.until_step(1);
    let began = Instant::now();
    for round in 0..rounds {
        let longest = LULLS_MS[dice.below(2) as usize];
        let lull = Duration::from_millis(dice.below(longest));
        std::thread::sleep(lull);
        evidence.see(&daemon.status());
        let blow = BLOWS[round as usize % BLOWS.len()];
        strike(&mut daemon, blow, &mut dice);
        let what = format!("seed {seed}, kill {round}, {blow:?} after {lull:?}");
        evidence.check(&daemon, &what);
        daemon.launch();
        if (round + 1) % BREATH == 0 {
            breathe(&mut daemon, &evidence);
        }
    }
    breathe(&mut daemon, &evidence);
    daemon.kill_daemon();
    evidence.check(&daemon, &format!("seed {seed}, the end"));
    println!("{rounds} kills in {:.1?}: {evidence}", began.elapsed());
    if rounds >= ROUNDS {
        evidence.assert_it_is_some();
    }
}
