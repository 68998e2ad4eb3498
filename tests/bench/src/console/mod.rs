//! `robust-bench console`: what the console costs with a large job.
//!
//! Frames are drawn as the console draws them - layout, comparison with the last frame, escape
//! sequences - into memory, 200x60, another status before each: every screen, Roles as a table, and the
//! cells of a fleet of 10,000 instances. CPU is that of a real `robustctl tui` in a pseudo-terminal,
//! connected to a server that sends a whole status four times a second, and, while the timeline is
//! shown, everyone's phases as they end.
mod idle;
mod job;
mod server;

use crate::goals::{put_json, write};
use crate::machine::loads;
use crossterm::event::KeyCode;
use robustctl::measuring::{CliError, Offscreen, Paint, ScreenId, Stored, Table, put, seconds};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// What is drawn, and how often.
#[derive(Debug, clap::Args)]
pub struct ConsoleArgs {
    /// Instances of the job that is shown
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    instances: u32,
    /// Frames of each screen
    #[arg(long, value_name = "N", default_value_t = 500)]
    frames: u32,
    /// How long the idle console is watched
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    idle: f64,
    /// Write the result as JSON to this file too
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The size that the goals speak of.
const SIZE: (u16, u16) = (200, 60);
/// A frame shall take less than this, in ms.
const FRAME_GOAL: f64 = 4.0;
/// Instances of the fleet whose cells are drawn.
const FLEET: u32 = 10_000;
/// A frame of them shall take less than this, in ms: a sixtieth of a second.
const FLEET_GOAL: f64 = 16.0;
/// The idle console shall need less than this of a core, in percent.
const IDLE_GOAL: f64 = 2.0;

/// What is drawn again and again.
#[derive(Clone, Copy)]
struct Scene {
    screen: ScreenId,
    instances: u32,
    /// Statuses before the first frame.
    warm: u64,
    /// As the screen begins; else as it is once Enter was pressed, with which Roles becomes its table.
    as_it_begins: bool,
}

impl Scene {
    /// A screen, with two minutes' worth of phases before the first frame.
    fn of(screen: ScreenId, instances: u32) -> Scene {
        Scene {
            screen,
            instances,
            warm: 480,
            as_it_begins: screen != ScreenId::Roles,
        }
    }

    /// The cells of a large fleet, which show nothing of the past.
    fn fleet() -> Scene {
        Scene {
            screen: ScreenId::Roles,
            instances: FLEET,
            warm: 4,
            as_it_begins: true,
        }
    }
}

/// Times of one screen's frames, in ms.
struct Times {
    screen: ScreenId,
    sorted: Vec<f64>,
}

impl Times {
    fn at(&self, share: f64) -> f64 {
        let last = self.sorted.len().saturating_sub(1);
        let at = (self.sorted.len() as f64 * share).ceil() as usize;
        self.sorted
            .get(at.saturating_sub(1).min(last))
            .copied()
            .unwrap_or(f64::NAN)
    }

    fn json(&self) -> Value {
        let (p50, p99, max) = (self.at(0.5), self.at(0.99), self.at(1.0));
        json!({"p50": p50, "p99": p99, "max": max, "frames": self.sorted.len()})
    }
}

/// Measures the console and says what came out.
pub async fn run(args: &ConsoleArgs, json: bool) -> Result<(), CliError> {
    let result = measure(args).await?;
    write(args.out.as_deref(), &result)?;
    match json {
        true => put_json(&result),
        false => put(&text(&result)),
    }
}

/// Measures both; the result as JSON.
async fn measure(args: &ConsoleArgs) -> Result<Value, CliError> {
    let before = loads();
    let screens: Vec<Times> = ScreenId::ALL
        .into_iter()
        .map(|screen| frames(Scene::of(screen, args.instances), args.frames))
        .collect::<Result<_, _>>()?;
    let fleet = frames(Scene::fleet(), args.frames)?;
    let mut all: Vec<f64> = screens.iter().flat_map(|t| t.sorted.clone()).collect();
    all.sort_by(f64::total_cmp);
    let all = Times {
        screen: ScreenId::Overview,
        sorted: all,
    };
    let watched = Duration::from_secs_f64(args.idle);
    let [idle, timeline] = idle::percent(args.instances, SIZE, watched).await?;
    let by_screen = |t: &Times| (t.screen.title().to_lowercase(), t.json());
    Ok(json!({
        "frame_ms_p99": all.at(0.99),
        "frame_ms_p50": all.at(0.5),
        "frame_ms_max": all.at(1.0),
        "frames": all.sorted.len(),
        "fleet_frame_ms_p99": fleet.at(0.99),
        "fleet_frame_ms_p50": fleet.at(0.5),
        "fleet_frame_ms_max": fleet.at(1.0),
        "fleet_instances": FLEET,
        "idle_cpu_percent": idle.percent,
        "idle_seconds": args.idle,
        "idle_bytes_per_s": idle.bytes_per_s,
        "idle_timeline_cpu_percent": timeline.percent,
        "instances": args.instances,
        "columns": SIZE.0,
        "rows": SIZE.1,
        "screens": screens.iter().map(by_screen).collect::<serde_json::Map<_, _>>(),
        "optimised": !cfg!(debug_assertions),
        "load_before": before,
        "load_after": loads(),
    }))
}

/// The result as a table, with what was aimed at.
fn text(result: &Value) -> String {
    let mut table = Table::new(&["FIGURE", ">VALUE", "GOAL", "MET"]);
    let figure = |name: &str| result[name].as_f64().unwrap_or(f64::NAN);
    let goals = [
        ("frame_ms_p99", FRAME_GOAL),
        ("fleet_frame_ms_p99", FLEET_GOAL),
        ("idle_cpu_percent", IDLE_GOAL),
    ];
    for (name, goal) in goals {
        let value = figure(name);
        let met = if value < goal { "yes" } else { "no" };
        let goal = format!("< {goal}");
        table.row([name.to_owned(), format!("{value:.2}"), goal, met.to_owned()]);
    }
    for name in [
        "frame_ms_p50",
        "frame_ms_max",
        "fleet_frame_ms_p50",
        "fleet_frame_ms_max",
        "fleet_instances",
        "idle_bytes_per_s",
        "idle_timeline_cpu_percent",
        "instances",
    ] {
        let dash = || "-".to_owned();
        table.row([
            name.to_owned(),
            format!("{:.2}", figure(name)),
            dash(),
            dash(),
        ]);
    }
    for (screen, times) in result["screens"].as_object().into_iter().flatten() {
        let name = format!("frame_ms_p99 {screen}");
        let value = times["p99"].as_f64().unwrap_or(f64::NAN);
        table.row([name, format!("{value:.2}"), "-".to_owned(), "-".to_owned()]);
    }
    table.render(Paint::stdout())
}

fn frames(scene: Scene, frames: u32) -> Result<Times, CliError> {
    let failed = |e: std::io::Error| CliError::Failed(format!("cannot draw: {e}"));
    let Scene {
        screen,
        instances,
        warm,
        ..
    } = scene;
    let mut console = watching(scene).map_err(failed)?;
    let mut sorted = Vec::new();
    for beat in warm..warm + u64::from(frames) {
        tell(&mut console, instances, beat);
        // Moving through the rows scrolls all of the table now and then.
        console.press(KeyCode::PageDown);
        sorted.push(console.draw().map_err(failed)?.as_secs_f64() * 1e3);
    }
    sorted.sort_by(f64::total_cmp);
    Ok(Times { screen, sorted })
}

/// What a daemon says of the job at this beat.
fn tell(console: &mut Offscreen, instances: u32, beat: u64) {
    console.status(job::status(instances, beat));
    console.phases(job::phases(instances, beat));
}

/// A console that has watched a job for a while.
fn watching(scene: Scene) -> std::io::Result<Offscreen> {
    let instances = scene.instances;
    let mut console = Offscreen::new(SIZE, job::BEGIN_MS)?;
    for beat in 0..scene.warm {
        tell(&mut console, instances, beat);
    }
    job::events().for_each(|event| console.logged(event));
    console.press(KeyCode::Char(scene.screen.key()));
    if !scene.as_it_begins {
        console.press(KeyCode::Enter);
    }
    console.stored(Stored {
        at: console.now_ms(),
        checkpoints: Ok(job::checkpoints()),
        trajectories: Ok(job::trajectories(instances)),
        cut: false,
    });
    console.log_read(job::log());
    Ok(console)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_screen_of_a_large_job_is_drawn_and_the_percentile_is_one_of_the_times() {
        for screen in ScreenId::ALL {
            let times = frames(Scene::of(screen, 60), 3).unwrap();
            assert_eq!(times.sorted.len(), 3);
            assert!(times.sorted.contains(&times.at(0.99)));
            assert!(times.at(0.5) <= times.at(0.99));
        }
    }

    #[test]
    fn roles_is_measured_as_a_table_and_a_large_fleet_as_cells() {
        let text = |scene: Scene| watching(Scene { warm: 2, ..scene }).unwrap().text();
        let table = text(Scene::of(ScreenId::Roles, 1_000));
        assert!(table.contains("trainer-0") && !table.contains("FLEET"));
        assert!(text(Scene::fleet()).contains("FLEET BY ROLE, 10000 instances"));
    }

    #[test]
    fn the_table_says_which_goals_are_met() {
        let result = json!({"frame_ms_p99": 3.1, "idle_cpu_percent": 2.5, "instances": 10});
        let text = text(&result);
        let line = |name: &str| text.lines().find(|l| l.starts_with(name)).unwrap();
        assert!(line("frame_ms_p99").trim_end().ends_with("yes"), "{text}");
        assert!(
            line("idle_cpu_percent").trim_end().ends_with("no"),
            "{text}"
        );
    }
}
