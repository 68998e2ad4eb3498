//! Seeds that no run looked at before: 20,000 a commit, from a number that its date gives. Seeds that are
//! always the same would only say that what was found is mended.
#![allow(clippy::unwrap_used, clippy::panic)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::disallowed_types,
    reason = "which seeds these are, the commit says"
)]
use robust_sim::faults::Schedule;
use robust_sim::fixture::Fixture;
use robust_sim::{search, shrink};

/// Seeds of one test; there are eight, so that they run side by side.
const EACH: u64 = 2500;

/// The first seed: what scripts/test.sh says, else a thousand to a second of the commit's date; where no
/// commit is known, always the same.
fn first() -> u64 {
    let told = std::env::var("ROBUST_FRESH_SEEDS").ok();
    let told = told.and_then(|text| text.trim().parse().ok());
    told.or_else(of_commit).unwrap_or(3_000_000)
}

fn of_commit() -> Option<u64> {
    let asked = std::process::Command::new("git")
        .args([
            "-C",
            env!("CARGO_MANIFEST_DIR"),
            "log",
            "-1",
            "--format=%ct",
        ])
        .output();
    let answer = String::from_utf8(asked.ok()?.stdout).ok()?;
    answer.trim().parse::<u64>().ok()?.checked_mul(1000)
}

fn hold(part: u64) {
    let from = first() + part * EACH;
    println!("robustctl sim search --from {from} --seeds {EACH}");
    for seed in from..from + EACH {
        let schedule = Schedule::of(seed);
        let Some(found) = search::run(&schedule).violation else {
            continue;
        };
        let shrunk = shrink::shrink(&schedule).unwrap();
        let fixture = Fixture::new(shrunk.schedule, shrunk.violation);
        panic!("seed {seed}: {found}\n{}", fixture.to_json().unwrap());
    }
}

macro_rules! parts {
    ($($name:ident: $part:literal),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                hold($part);
            }
        )*
    };
}

parts! {
    fresh_seeds_of_this_commit_hold_part_0: 0,
    fresh_seeds_of_this_commit_hold_part_1: 1,
    fresh_seeds_of_this_commit_hold_part_2: 2,
    fresh_seeds_of_this_commit_hold_part_3: 3,
    fresh_seeds_of_this_commit_hold_part_4: 4,
    fresh_seeds_of_this_commit_hold_part_5: 5,
    fresh_seeds_of_this_commit_hold_part_6: 6,
    fresh_seeds_of_this_commit_hold_part_7: 7,
}
