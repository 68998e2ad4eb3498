//! The fault search: one seed, one schedule, one run with every invariant looked at, and then a
//! liveness phase: faults stop, and the job must come to its end.
use super::coverage::Coverage;
use super::faults::Schedule;
use super::world::{Journal, Violation, World};
use robust_shared::core::{CoreConfig, Outcome};
use std::time::Duration;

/// Once faults have stopped the job must end within this virtual time.
const PATIENCE: Duration = Duration::from_secs(1800);

/// After each input a full scan is made in one of so many runs: it takes longer than the run itself.
const CHECKED: u64 = 32;

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// What does not hold; none: all is well.
    pub violation: Option<Violation>,
    /// How the job ended.
    pub outcome: Option<Outcome>,
    /// Virtual time.
    pub took: Duration,
    /// Inputs the core was given.
    pub inputs: u64,
    /// How often a controller took the job over from another one, or from itself.
    pub takeovers: u32,
    /// Which states of which machines they met.
    pub coverage: Coverage,
    /// Every line, if they were asked for.
    pub journal: Vec<String>,
}

/// Runs a schedule to its end.
pub fn run(schedule: &Schedule) -> Run {
    run_as(schedule, schedule.config())
}

/// The same with another idea of the job.
pub fn run_as(schedule: &Schedule, config: CoreConfig) -> Run {
    play(schedule, world(schedule, config, Journal::Off))
}

fn world(schedule: &Schedule, config: CoreConfig, journal: Journal) -> World {
    let (timing, seed) = (schedule.timing(), schedule.seed);
    match (schedule.shape.controllers, journal) {
        (0, Journal::Off) => World::with(config, timing, seed),
        (0, Journal::Lines(_)) => World::journaled(config, timing, seed),
        (count, journal) => {
            let several = (count, schedule.weather.late_per_mille);
            World::of_controllers((config, timing), seed, journal, several)
        }
    }
}

/// The same with every line written down.
pub fn run_journaled(schedule: &Schedule) -> Run {
    let journal = Journal::Lines(Vec::new());
    play(schedule, world(schedule, schedule.config(), journal))
}

fn play(schedule: &Schedule, mut world: World) -> Run {
    let began = world.now;
    world.untouched = true;
    world.program_ends = schedule.shape.steps;
    // A full scan after every input takes a while, so not in every run.
    world.check_core = schedule.seed.is_multiple_of(CHECKED);
    world.check_progress = world.check_core;
    if schedule.shape.nodes > 0 {
        world.run_nodes();
    }
    for timed in &schedule.faults {
        world.run_for(Duration::from_millis(timed.after_ms));
        if let Some(moment) = &timed.on {
            moment.wait(&mut world);
        }
        if world.outcome.is_some() {
            break;
        }
        world.untouched = false;
        timed.fault.strike(&mut world);
    }
    world.untouched = false;
    world.heal();
    world.check_elected();
    let ended = world.run_until(PATIENCE, |w| w.outcome.is_some());
    if !ended {
        let view = world.core.view(world.now);
        let text = format!(
            "faults stopped {PATIENCE:?} ago and the job is {} at step {}",
            view.state, view.step
        );
        world.checker.broken(world.now, "liveness", &text);
    }
    check_end(schedule, &mut world);
    world.check_log();
    Run {
        violation: world.violation().cloned(),
        outcome: world.outcome.clone(),
        took: world.now.since(began),
        inputs: world.inputs,
        takeovers: world.takeovers().saturating_sub(1),
        coverage: world.coverage.clone(),
        journal: world.journal.lines().to_vec(),
    }
}

fn check_end(schedule: &Schedule, world: &mut World) {
    if schedule.seed.is_multiple_of(8) {
        world.speak_after_the_end();
    }
    let text = match &world.outcome {
        Some(Outcome::Completed) if world.committed() != schedule.shape.steps => {
            format!("the job is over at step {}", world.committed())
        }
        // Deaths from outside are no others than those of poison to the controller: they may take the
        // last of a batch with them. That each was set aside on evidence was checked then.
        Some(Outcome::Failed { .. }) if world.checker.has_nothing_left(world.committed() + 1) => {
            return;
        }
        Some(Outcome::Failed { reason }) if reason.contains("service") => return,
        // That it may end so is checked where it is decided.
        Some(Outcome::Failed { reason }) if reason.starts_with("this will not heal") => return,
        // That it may fail is checked where it is decided; with such a budget it must not.
        Some(Outcome::Failed { reason })
            if schedule.shape.max_task_restarts > 10 && !reason.contains("start-up") =>
        {
            format!("the job failed: {reason}")
        }
        _ => return,
    };
    world.checker.broken(world.now, "liveness", &text);
}

/// Two runs of a schedule: how many lines their journals have, or the first line that differs.
pub fn prove_deterministic(schedule: &Schedule) -> Result<usize, String> {
    let (a, b) = (run_journaled(schedule), run_journaled(schedule));
    match a.journal.iter().zip(&b.journal).position(|(a, b)| a != b) {
        Some(at) => Err(format!(
            "line {at} differs:\n  {}\n  {}",
            a.journal[at], b.journal[at]
        )),
        None if a != b => Err("the runs differ in length or outcome".to_owned()),
        None => Ok(a.journal.len()),
    }
}
