//! Kills at random points: the daemon, the trainer, both, or both with the machine's shared memory.
//!
//! ```text
//!  wait a random while ─► kill ─► what was acknowledged, as written down outside, is compared with
//!        ▲                        what is stored ─┬─ wrong: the seed, the logs, a failed test
//!        └──────── robustd is started again ◄─────┘ well
//! ```
//! `ROBUST_CRASH_POINTS` says how many points there are, `ROBUST_CRASH_SEED` repeats a run's choices
//! (the instants are of the machine's making), and `ROBUST_CRASH_JSON` names a file for the figures.
mod evidence;

use super::{Daemon, Site, fake};
pub use evidence::Evidence;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::time::{Duration, Instant};

/// Points in all, unless the environment names another number.
const POINTS: usize = 200;
/// Jobs that run beside each other; each is struck for itself.
const LANES: usize = 4;
/// The longest wait for the next strike: some meet a job at work, some one that is recovering.
const LULLS_MS: [u64; 3] = [100, 400, 2000];
/// After so many points the job must come to another step: that it lives is a promise too.
const BREATH: usize = 5;
/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    Daemon,
    Trainer,
    Both,
    /// Everything that runs, and what was in memory alone.
    Machine,
}

impl Blow {
    fn any(dice: &mut Dice) -> Self {
        match dice.below(4) {
            0 => Self::Daemon,
            1 => Self::Trainer,
            2 => Self::Both,
            _ => Self::Machine,
        }
    }
}

/// splitmix64: the same choices for the same seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// One job, struck again and again.
struct Lane {
    site: Site,
    daemon: Option<Daemon>,
    dice: Dice,
    name: String,
    evidence: Evidence,
}

impl Lane {
    fn new(seed: u64, number: usize) -> Self {
        let site = Site::new(1_000_000);
        let job = fs::read_to_string(site.file("job.toml")).unwrap();
        let job = job.replace(
            "[checkpoint]\nevery = 2\n",
            "[checkpoint]\nevery = 3\nkeep = 2\n",
        );
        // Strikes come faster than any budget allows; that they end is another test's matter (I-7).
        let patient = "[restart]\nmax = 1000\nmax_task_restarts = 1000\nbackoff_ms = 1\n";
        fs::write(site.file("job.toml"), job + patient).unwrap();
        let seed = seed.wrapping_add(number as u64);
        Self {
            daemon: None,
            dice: Dice(seed),
            name: format!("lane {number} of seed {seed}"),
            evidence: Evidence::new(&site),
            site,
        }
    }

    fn launch(&mut self) {
        let log = self.site.file("acknowledged").display().to_string();
        let env = [(fake::LOG, log.as_str()), (fake::UPDATE_MS, "10")];
        self.daemon = Some(self.site.start_env(&env));
    }

    /// Strikes, looks at what is left, and starts again what was struck.
    fn point(&mut self) {
        let longest = LULLS_MS[self.dice.below(3) as usize];
        let lull = Duration::from_millis(self.dice.below(longest));
        std::thread::sleep(lull);
        let blow = Blow::any(&mut self.dice);
        self.strike(blow);
        let what = format!("{}, {blow:?} after {lull:?}", self.name);
        if self.daemon.is_some() {
            return self.evidence.check_outside(&self.site, &what);
        }
        self.evidence.check(&self.site, &what);
        self.launch();
    }

    fn strike(&mut self, blow: Blow) {
        let trainers = || self.site.roles_named("trainer");
        match blow {
            Blow::Trainer => kill_all(&trainers()),
            Blow::Daemon => self.kill_daemon(),
            Blow::Both => {
                let trainers = trainers();
                self.kill_daemon();
                kill_all(&trainers);
            }
            Blow::Machine => {
                self.kill_daemon();
                // One that was being started is seen in the next round.
                while let roles @ [_, ..] = self.site.roles().as_slice() {
                    kill_all(roles);
                }
                let state = fs::canonicalize(self.site.state()).unwrap();
                let _ = fs::remove_dir_all(robustd::state::snapshot_dir(&state));
            }
        }
    }

    fn kill_daemon(&mut self) {
        // Dropping it kills it and waits for its end.
        self.daemon = None;
    }

    /// The job gets on.
    fn breathe(&mut self) {
        let (before, since) = (self.evidence.published(&self.site), Instant::now());
        while self.evidence.published(&self.site) <= before {
            let runs = self.daemon.as_mut().is_some_and(Daemon::is_alive);
            assert!(
                runs && since.elapsed() < PATIENCE,
                "{}: no step after {before}\n{}",
                self.name,
                self.site.log_tail()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// All its points; how many steps it came to, and how many of them it trained again.
    fn run(mut self, points: usize) -> (u64, usize) {
        self.launch();
        self.breathe();
        for point in 1..=points {
            self.point();
            if point % BREATH == 0 {
                self.breathe();
            }
        }
        self.breathe();
        self.kill_daemon();
        self.evidence.check(&self.site, &self.name);
        let log = self.site.log();
        let again = log.lines().filter(|l| l.contains(" trained again, "));
        let again = again.inspect(|l| assert!(l.contains("with the same figures"), "{l}"));
        (self.evidence.published(&self.site), again.count())
    }
}

fn kill_all(pids: &[i32]) {
    for pid in pids {
        // It may have ended by itself.
        let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn whoever_is_killed_at_whatever_point_nothing_acknowledged_is_lost_and_nothing_consumed_twice() {
    let points = number("ROBUST_CRASH_POINTS").map_or(POINTS, |n| n as usize);
    let now = std::time::SystemTime::now();
    let nanos = now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64;
    let seed = number("ROBUST_CRASH_SEED").unwrap_or(nanos);
    println!("{points} points, ROBUST_CRASH_SEED={seed}");
    let began = Instant::now();
    let lanes: Vec<(u64, usize)> = std::thread::scope(|scope| {
        let lane = |number| {
            let share = points / LANES + usize::from(number < points % LANES);
            scope.spawn(move || Lane::new(seed, number).run(share))
        };
        let lanes: Vec<_> = (0..LANES).map(lane).collect();
        let joined = lanes.into_iter().map(|l| l.join());
        joined
            .map(|steps| steps.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let took = began.elapsed().as_secs_f64();
    println!("{points} points in {took:.1} s, nothing lost; steps, trained again: {lanes:?}");
    let again: usize = lanes.iter().map(|(_, again)| again).sum();
    assert!(points < POINTS || again > 0, "no machine's end cost a step");
    if let Some(path) = std::env::var_os("ROBUST_CRASH_JSON") {
        // Whatever is lost fails the test above.
        let json = format!(
            "{{\"crash_points\": {points}, \"lost\": 0, \"seed\": {seed}, \"seconds\": {took:.1}}}\n"
        );
        fs::write(path, json).unwrap();
    }
}
