//! `robustctl bench console`: what the console costs with a large job.
//!
//! Frames are drawn as the console draws them - layout, comparison with the last frame, escape
//! sequences - into memory, 200x60, another status before each: every screen, Roles as a table, and the
//! cells of a fleet of 10,000 instances. CPU is that of a real `robustctl tui` in a pseudo-terminal,
//! connected to a server that sends a whole status four times a second, and, while the timeline is
//! shown, everyone's phases as they end.
mod idle;
mod job;
mod server;

use super::event::Event;
use super::frame;
use super::names::ScreenId;
use super::state::{Settings, State};
use super::stored::Stored;
use super::ui::look::Look;
use crate::cli::{BenchConsoleArgs, ThemeName};
use crate::error::CliError;
use crate::machine::load;
use crate::output;
use crate::paint::Paint;
use crate::table::Table;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

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
pub async fn run(args: &BenchConsoleArgs, json: bool) -> Result<(), CliError> {
    let result = measure(args).await?;
    if let Some(path) = &args.out {
        std::fs::write(path, format!("{result:#}\n"))
            .map_err(|e| CliError::Failed(format!("{} cannot be written: {e}", path.display())))?;
    }
    let said = match json {
        true => format!("{result}\n"),
        false => text(&result),
    };
    Ok(output::put(&said)?)
}

/// Measures both; the result as JSON.
async fn measure(args: &BenchConsoleArgs) -> Result<Value, CliError> {
    let before = load();
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
        "load_after": load(),
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
    let mut state = watching(scene);
    let options = TerminalOptions {
        viewport: Viewport::Fixed(Rect::new(0, 0, SIZE.0, SIZE.1)),
    };
    let backend = CrosstermBackend::new(std::io::sink());
    let mut terminal = Terminal::with_options(backend, options).map_err(failed)?;
    let mut sorted = Vec::new();
    for beat in warm..warm + u64::from(frames) {
        // Moving through the rows scrolls all of the table now and then.
        let key = KeyEvent::new(KeyCode::PageDown, KeyModifiers::NONE);
        let status = Box::new(job::status(instances, beat));
        let now = status.now_ms;
        let spans = job::phases(instances, beat);
        let _ = state.handle(now, Event::Status { link: 1, status });
        let _ = state.handle(now, Event::Phases { link: 1, spans });
        let _ = state.handle(now, Event::Key(key));
        let mut drawn = None;
        let begin = Instant::now();
        terminal
            .draw(|frame| drawn = Some(frame::draw(&state, frame)))
            .map_err(failed)?;
        sorted.push(begin.elapsed().as_secs_f64() * 1e3);
        state.set_drawn(drawn.unwrap_or_default());
    }
    sorted.sort_by(f64::total_cmp);
    Ok(Times { screen, sorted })
}

/// A console that has watched a job for a while.
fn watching(scene: Scene) -> State {
    let instances = scene.instances;
    let look = Look::new(ThemeName::Dark, true, false);
    let mut state = State::new(Settings::of(look, "bench".to_owned()));
    let _ = state.start(job::BEGIN_MS);
    for beat in 0..scene.warm {
        let status = Box::new(job::status(instances, beat));
        let spans = job::phases(instances, beat);
        let now = status.now_ms;
        let _ = state.handle(now, Event::Status { link: 1, status });
        let _ = state.handle(now, Event::Phases { link: 1, spans });
    }
    let now = state.common().now;
    for event in job::events() {
        let event = Box::new(event);
        let _ = state.handle(now, Event::Logged { link: 1, event });
    }
    let digit = KeyCode::Char(scene.screen.key());
    let enter = (!scene.as_it_begins).then_some(KeyCode::Enter);
    for code in [digit].into_iter().chain(enter) {
        let key = KeyEvent::new(code, KeyModifiers::NONE);
        let _ = state.handle(now, Event::Key(key));
    }
    let stored = Stored {
        at: state.common().now,
        checkpoints: Ok(job::checkpoints()),
        trajectories: Ok(job::trajectories(instances)),
        cut: false,
    };
    let _ = state.handle(now, Event::StoreRead(Box::new(stored)));
    let chosen = state.common().chosen_instance();
    let who = chosen.map_or_else(String::new, |r| crate::format::who(&r.role, r.index));
    let lines = Ok(job::log());
    let _ = state.handle(now, Event::LogRead { who, lines });
    state
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ratatui::backend::TestBackend;

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
        let text = |scene: Scene| {
            let state = watching(Scene { warm: 2, ..scene });
            let mut terminal = Terminal::new(TestBackend::new(SIZE.0, SIZE.1)).unwrap();
            let draw = |frame: &mut ratatui::Frame| drop(frame::draw(&state, frame));
            terminal.draw(draw).unwrap();
            terminal.backend().to_string()
        };
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
