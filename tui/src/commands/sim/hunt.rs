//! Many seeds on all cores, with a report that does not depend on how many cores there are.
//!
//! ```text
//!  seeds ──► parts ──► a thread a core runs one after the other ──► parts, in any order
//!                                                                      │ taken in the order of seeds
//!                       enough kinds, or no seed is left: the end ◄────┴──► failures by kind
//! ```
//! A thread may be ahead of the seed at which the search ends; what it found there is dropped.
use robust_shared::core::Cell;
use robust_sim::coverage::Coverage;
use robust_sim::world::Violation;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Seeds that a thread takes at once.
const PART: u64 = 64;

/// What is to be searched.
#[derive(Clone, Debug)]
pub struct Search {
    /// The seeds.
    pub seeds: Range<u64>,
    /// The search ends at so many kinds of failures.
    pub most_kinds: usize,
    /// Threads that run seeds.
    pub threads: usize,
}

/// What came of one seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// Inputs that the controller was given.
    pub inputs: u64,
    /// How often a controller took the job over.
    pub takeovers: u32,
    /// Virtual time.
    pub took: Duration,
    /// Which states of which machines they met.
    pub coverage: Coverage,
    /// What does not hold.
    pub violation: Option<Violation>,
}

/// A seed that met a state with an input that no seed before it met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The seed.
    pub seed: u64,
    /// What it met first.
    pub cells: Vec<Cell>,
}

/// All failures of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// The first seed that fails so.
    pub seed: u64,
    /// How many do, of those that were run.
    pub seeds: u64,
    /// What the first one breaks.
    pub violation: Violation,
}

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Seeds that were run, from the first without a gap.
    pub seeds: u64,
    /// Inputs of all of them.
    pub inputs: u64,
    /// Takeovers in all of them.
    pub takeovers: u64,
    /// Virtual time of all of them.
    pub took: Duration,
    /// Failures, in the order of their first seeds.
    pub kinds: Vec<Kind>,
    /// What they met in all.
    pub coverage: Coverage,
    /// Seeds that are worth keeping for what they cover.
    pub kept: Vec<Kept>,
}

impl Report {
    /// Takes in the next seed.
    fn add(&mut self, seed: u64, ran: Ran) {
        self.seeds += 1;
        self.inputs += ran.inputs;
        self.takeovers += u64::from(ran.takeovers);
        self.took += ran.took;
        let cells = ran.coverage.beyond(&self.coverage);
        if !cells.is_empty() {
            self.kept.push(Kept { seed, cells });
        }
        self.coverage.merge(&ran.coverage);
        let Some(violation) = ran.violation else {
            return;
        };
        let kind = violation.kind();
        match self.kinds.iter_mut().find(|k| k.violation.kind() == kind) {
            Some(known) => known.seeds += 1,
            None => self.kinds.push(Kind {
                seed,
                seeds: 1,
                violation,
            }),
        }
    }
}

/// Runs the seeds; `tick` hears how many more are taken in.
pub fn hunt(search: &Search, run: impl Fn(u64) -> Ran + Sync, tick: impl Fn(u64)) -> Report {
    let (next, stop) = (AtomicU64::new(search.seeds.start), AtomicBool::new(false));
    let (done, parts) = mpsc::channel::<(u64, Vec<Ran>)>();
    std::thread::scope(|scope| {
        for _ in 0..search.threads.max(1) {
            let (done, run, next, stop) = (done.clone(), &run, &next, &stop);
            scope.spawn(move || {
                while let Some(part) = next_part(next, search.seeds.end) {
                    let ran = part.clone().take_while(|_| !stop.load(Ordering::Relaxed));
                    let ran: Vec<Ran> = ran.map(run).collect();
                    if stop.load(Ordering::Relaxed) || done.send((part.start, ran)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
        let report = take_in(search, &parts, tick);
        stop.store(true, Ordering::Relaxed);
        report
    })
}

fn next_part(next: &AtomicU64, end: u64) -> Option<Range<u64>> {
    let take = |at: u64| (at < end).then(|| at.saturating_add(PART).min(end));
    let from = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
    from.ok()
        .map(|from| from..from.saturating_add(PART).min(end))
}

/// Puts the parts into the order of their seeds and counts what they hold, until it is enough.
fn take_in(search: &Search, parts: &mpsc::Receiver<(u64, Vec<Ran>)>, tick: impl Fn(u64)) -> Report {
    let (mut report, mut early) = (Report::default(), BTreeMap::new());
    let mut seed = search.seeds.start;
    for (start, ran) in parts {
        early.insert(start, ran);
        while let Some(part) = early.remove(&seed) {
            tick(part.len() as u64);
            for ran in part {
                report.add(seed, ran);
                if report.kinds.len() >= search.most_kinds {
                    return report;
                }
                seed += 1;
            }
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use robust_shared::time::Time;

    /// Every 100th seed breaks one thing, every 70th another; later seeds are faster.
    fn run(seed: u64) -> Ran {
        std::thread::sleep(Duration::from_micros(300 - seed.min(300)));
        let invariant = match (seed % 100, seed % 70) {
            (99, _) => Some("I-1"),
            (_, 69) => Some("I-8"),
            _ => None,
        };
        Ran {
            inputs: seed,
            takeovers: 0,
            took: Duration::from_secs(1),
            coverage: Coverage::default(),
            violation: invariant.map(|invariant| Violation {
                at: Time(seed),
                invariant: invariant.to_owned(),
                text: format!("seed {seed}"),
            }),
        }
    }

    fn hunted(most_kinds: usize, threads: usize) -> Report {
        let search = Search {
            seeds: 10..1010,
            most_kinds,
            threads,
        };
        hunt(&search, run, |_| {})
    }

    #[test]
    fn the_report_is_the_same_on_any_number_of_threads() {
        let one = hunted(5, 1);
        assert_eq!(one.seeds, 1000);
        let seen: Vec<(u64, u64)> = one.kinds.iter().map(|k| (k.seed, k.seeds)).collect();
        assert_eq!(seen, [(69, 13), (99, 10)], "699 counts for I-1");
        assert_eq!(hunted(5, 4), one);
        assert_eq!(hunted(2, 1), hunted(2, 4));
    }

    #[test]
    fn a_search_that_found_enough_says_how_many_seeds_it_ran() {
        let stopped = hunted(2, 3);
        assert_eq!((stopped.seeds, stopped.kinds.len()), (90, 2), "10 to 99");
        assert_eq!(stopped.inputs, (10..100).sum::<u64>());
        assert_eq!(hunted(1, 3).seeds, 60, "10 to 69");
    }
}
