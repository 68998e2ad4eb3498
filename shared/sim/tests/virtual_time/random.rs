//! Random schedules of crashes, hangs, daemon restarts and late duplicates, each ending with a
//! liveness phase: once the faults stop, the job completes. Invariants are checked all along.
use super::*;
use proptest::prelude::*;

fn disturb(w: &mut World) {
    let mut roles = Role::ALL.to_vec();
    roles.retain(|role| w.config.count(*role) > 0);
    let role = roles[w.random(roles.len() as u64) as usize];
    let who = id(role, w.random(u64::from(w.config.count(role))) as u32);
    match w.random(10) {
        0..=4 => w.kill(who),
        5 | 6 => {
            if let Some(p) = w.proc(who) {
                p.stopped = true;
            }
        }
        7 => {
            let soon = 1 + w.random(40);
            w.crash_daemon_after(soon);
        }
        _ => w.crash_daemon(),
    }
}

fn schedule(seed: u64, faults: u64, mode: Mode, policy: Policy) {
    let config = CoreConfig {
        max_task_restarts: 100,
        policy,
        hybrids: match mode {
            Mode::Sync => 2 * (seed % 2) as u32,
            Mode::SemiSync => 2 * (seed % 3).min(1) as u32,
            Mode::Async => 0,
        },
        rollouts: 2 + u32::try_from(seed % 3).unwrap(),
        ..small(mode, 6)
    };
    let mut w = World::new(config, seed);
    w.timing.duplicate_per_mille = 150;
    w.check_core = true;
    for _ in 0..faults {
        let pause = w.random(2500);
        w.run_for(ms(pause));
        if w.outcome.is_none() {
            disturb(&mut w);
        }
    }
    w.run_to_end();
    assert_eq!(w.outcome, Some(Outcome::Completed), "seed {seed}");
    assert_eq!(w.committed(), 6, "seed {seed}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn whatever_fails_in_whatever_order_the_job_completes(
        seed in 1u64..1_000_000,
        faults in 0u64..8,
        mode in prop::sample::select(vec![Mode::Sync, Mode::SemiSync, Mode::Async]),
        task: bool,
    ) {
        let policy = if task { Policy::Task } else { Policy::Role };
        schedule(seed, faults, mode, policy);
    }
}

/// More of the same, for whoever changed the core: `SEEDS=2000 cargo test .. -- --ignored soak`.
#[test]
#[ignore = "minutes of random schedules; set SEEDS"]
#[allow(
    clippy::disallowed_methods,
    reason = "a tool: it is asked by a variable"
)]
fn soak() {
    let seeds = std::env::var("SEEDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(200);
    for seed in 1..=seeds {
        schedule(
            seed,
            seed % 12,
            [Mode::Sync, Mode::SemiSync, Mode::Async][(seed % 3) as usize],
            [Policy::Role, Policy::Task][(seed / 3 % 2) as usize],
        );
    }
}
/// A stopped agent worker that is given a trajectory long after is found at once, by a timeout that was
/// due before the one that gave it.
#[test]
fn a_timeout_that_makes_another_one_due_is_followed_by_it() {
    schedule(701320, 7, Mode::Async, Policy::Role);
}
