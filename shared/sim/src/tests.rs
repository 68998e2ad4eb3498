//! The fault search itself, and what it once found.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::coverage::{Coverage, cells, named, unreachable};
use super::faults::Schedule;
use super::fixture::Fixture;
use super::{search, shrink};
use robust_shared::core::{CELL_TABLES, Cell};
use robust_shared::verbs::{self, Searched, Verb};

fn hold(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let schedule = Schedule::of(seed);
        if let Some(found) = search::run(&schedule).violation {
            let shrunk = shrink::shrink(&schedule).unwrap();
            let fixture = Fixture::new(shrunk.schedule, shrunk.violation);
            panic!("seed {seed}: {found}\n{}", fixture.to_json().unwrap());
        }
    }
}

macro_rules! seeds {
    ($($name:ident: $from:literal to $to:literal),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                hold($from..$to);
            }
        )*
    };
}

// In parts, so that they run side by side.
seeds! {
    whatever_fails_the_invariants_hold_and_the_job_ends_seeds_0: 0 to 250,
    whatever_fails_the_invariants_hold_and_the_job_ends_seeds_250: 250 to 500,
    whatever_fails_the_invariants_hold_and_the_job_ends_seeds_500: 500 to 750,
    whatever_fails_the_invariants_hold_and_the_job_ends_seeds_750: 750 to 1000,
    whatever_fails_the_invariants_hold_and_the_job_ends_seeds_1000: 1000 to 1250,
    whatever_fails_the_invariants_hold_and_the_job_ends_seeds_1250: 1250 to 1500,
    whatever_fails_the_invariants_hold_and_the_job_ends_seeds_1500: 1500 to 1750,
    whatever_fails_the_invariants_hold_and_the_job_ends_seeds_1750: 1750 to 2000,
}

fn hold_above(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let schedule = Schedule::of_controllers(seed, 3);
        if let Some(found) = search::run(&schedule).violation {
            let shrunk = shrink::shrink(&schedule).unwrap();
            let fixture = Fixture::new(shrunk.schedule, shrunk.violation);
            panic!("seed {seed}: {found}\n{}", fixture.to_json().unwrap());
        }
    }
}

macro_rules! seeds_above {
    ($($name:ident: $from:literal to $to:literal),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                hold_above($from..$to);
            }
        )*
    };
}

seeds_above! {
    whatever_befalls_three_controllers_the_invariants_hold_and_one_leads_to_the_end_seeds_0: 0 to 150,
    whatever_befalls_three_controllers_the_invariants_hold_and_one_leads_to_the_end_seeds_150: 150 to 300,
    whatever_befalls_three_controllers_the_invariants_hold_and_one_leads_to_the_end_seeds_300: 300 to 450,
    whatever_befalls_three_controllers_the_invariants_hold_and_one_leads_to_the_end_seeds_450: 450 to 600,
}

#[test]
fn leaders_are_replaced_in_most_runs_of_several_controllers() {
    let runs: Vec<_> = (0..60)
        .map(|seed| search::run(&Schedule::of_controllers(seed, 3)))
        .collect();
    let replaced = runs.iter().filter(|run| run.takeovers > 0).count();
    assert!(replaced > 30, "{replaced} of {}", runs.len());
    let done = runs
        .iter()
        .filter(|run| run.outcome == Some(robust_shared::core::Outcome::Completed));
    assert!(done.count() > 50, "most jobs come to their end");
}

#[test]
fn two_runs_of_one_seed_give_identical_journals() {
    for seed in [1, 7, 42] {
        for schedule in [Schedule::of(seed), Schedule::of_controllers(seed, 3)] {
            let lines = search::prove_deterministic(&schedule).unwrap();
            assert!(lines > 100, "seed {seed}: {lines} lines");
        }
    }
}

#[test]
fn failures_that_differ_in_numbers_only_are_of_one_kind() {
    let found = |invariant: &str, text: &str| {
        let violation = super::world::Violation {
            at: robust_shared::time::Time(1),
            invariant: invariant.to_owned(),
            text: text.to_owned(),
        };
        violation.kind()
    };
    let one = found("I-1", "trainer-2 #16 is alive beside #7");
    assert_eq!(one, found("I-1", "trainer-10 #3 is alive beside #9"));
    assert_ne!(one, found("I-8", "trainer-2 #16 is alive beside #7"));
    assert_ne!(one, found("I-1", "rollout-2 #16 is alive beside #7"));
}

#[test]
fn a_schedule_survives_its_file() {
    for seed in 0..50 {
        let schedule = Schedule::of(seed);
        let found = super::world::Violation {
            at: robust_shared::time::Time(1),
            invariant: "I-1".to_owned(),
            text: "two".to_owned(),
        };
        let fixture = Fixture::new(schedule, found);
        let text = fixture.to_json().unwrap();
        assert_eq!(Fixture::from_json(&text).unwrap(), fixture);
    }
    let newer = Fixture::from_json("{\"version\": 99}").unwrap_err();
    assert_eq!(
        newer.to_string(),
        "it has version 99, this program knows 1; use the newer one"
    );
}

#[test]
#[allow(clippy::disallowed_methods, reason = "reads fixtures")]
fn what_was_once_found_holds_now() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/sim");
    for file in std::fs::read_dir(dir).unwrap() {
        let path = file.unwrap().path();
        let fixture = Fixture::from_json(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let run = search::run(&fixture.schedule);
        assert_eq!(run.violation, None, "{}", path.display());
    }
}

/// Whoever adds a state or an input finds seeds for it: `sim search --seeds 40000 --keep FILE`. A change
/// of the controller may lead one of these seeds elsewhere, so a few cells may be missed.
#[test]
#[allow(clippy::disallowed_methods, reason = "reads a fixture")]
fn seeds_that_were_kept_meet_five_in_six_of_what_can_be_met_and_nothing_that_cannot() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fixtures/seeds/covering.json"
    );
    let seeds: Vec<u64> = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let mut met = Coverage::default();
    for seed in seeds {
        let run = search::run(&Schedule::of(seed));
        assert_eq!(run.violation, None, "seed {seed}");
        met.merge(&run.coverage);
    }
    let named = |cells: Vec<_>| cells.into_iter().map(named).collect::<Vec<_>>();
    assert_eq!(named(met.surprising()), [""; 0], "said to be out of reach");
    for (verb, input) in searched() {
        let heard = cells().filter(|cell| is_asked(*cell, input));
        let asked: u64 = heard.map(|cell| met.of(cell)).sum();
        let command = verb.command;
        assert!(asked > 0, "no operator asks for `{command}`: {input}");
    }
    let missed = named(met.missed());
    let reachable = cells().filter(|cell| unreachable(*cell).is_none()).count();
    assert!(missed.len() * 6 <= reachable, "of {reachable}: {missed:?}");
}

/// What the search's operators ask for: each verb, and the inputs of the job that it is.
fn searched() -> impl Iterator<Item = (&'static Verb, &'static str)> {
    verbs::ALL.iter().flat_map(|verb| {
        let inputs: &'static [&'static str] = match verb.searched {
            Searched::As(inputs) => inputs,
            Searched::Never(_) => &[],
        };
        inputs.iter().map(move |input| (verb, *input))
    })
}

/// Whether the job hears this input there before it is over; then every verb is asked for, and refused.
fn is_asked(cell: Cell, input: &str) -> bool {
    let table = CELL_TABLES[cell.table];
    let (heard, state) = (table.inputs[cell.input], table.states[cell.state]);
    table.machine == "job" && heard == input && state != "over"
}

#[test]
fn every_input_of_an_operator_is_a_verbs_and_a_verb_that_is_no_input_says_why() {
    let of_others = [
        "start",
        "timeout",
        "client route requested",
        "route released",
        "service lost",
        "stood still",
    ];
    let job = CELL_TABLES.iter().find(|table| table.machine == "job");
    let inputs = job.unwrap().inputs.iter().copied();
    let mut inputs: Vec<&str> = inputs.filter(|input| !of_others.contains(input)).collect();
    let mut known: Vec<&str> = searched().map(|(_, input)| input).collect();
    inputs.sort_unstable();
    known.sort_unstable();
    assert_eq!(known, inputs);
    for verb in verbs::ALL {
        let said = match verb.searched {
            Searched::As(inputs) => !inputs.is_empty(),
            Searched::Never(why) => !why.is_empty(),
        };
        assert!(said, "{}", verb.command);
    }
}

/// For whoever changed the core: `SEEDS=20000 FROM=5000 cargo test .. -- --ignored soak`; every
/// failure is shrunk and printed. `TRACE=1` also prints the last lines of the shrunk run.
#[test]
#[ignore = "minutes of random schedules; set SEEDS"]
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a tool: it is asked by variables and prints what it found"
)]
fn soak() {
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let (from, seeds) = (number("FROM").unwrap_or(0), number("SEEDS").unwrap_or(1000));
    let controllers = u32::try_from(number("CONTROLLERS").unwrap_or(0)).unwrap();
    let schedule_of = |seed| match controllers {
        0 => Schedule::of(seed),
        several => Schedule::of_controllers(seed, several),
    };
    let mut failed = Vec::new();
    for seed in from..from + seeds {
        let shrunk = std::panic::catch_unwind(|| shrink::shrink(&schedule_of(seed)));
        let Ok(shrunk) = shrunk else {
            println!("seed {seed} panics");
            failed.push(seed);
            continue;
        };
        let Some(shrunk) = shrunk else { continue };
        let fixture = Fixture::new(shrunk.schedule.clone(), shrunk.violation);
        println!("seed {seed}:\n{}", serde_json::to_string(&fixture).unwrap());
        if let Some(lines) = number("TRACE") {
            let journal = search::run_journaled(&shrunk.schedule).journal;
            let dull = ["Interval(", "Sampled", "Timeout"];
            let lively = |l: &&String| dull.iter().all(|d| !l.contains(d));
            let lines_kept: Vec<_> = journal.iter().filter(lively).collect();
            let at = lines_kept
                .len()
                .saturating_sub(usize::try_from(lines).unwrap());
            for line in &lines_kept[at..] {
                println!("  {}", line.chars().take(260).collect::<String>());
            }
        }
        failed.push(seed);
    }
    assert_eq!(failed, [0; 0]);
}
