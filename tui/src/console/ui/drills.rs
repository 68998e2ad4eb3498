//! The catalogue of drills, what the selected one does, and how the last run went.
use super::super::drills::{DrillFile, DrillRun, verdicts};
use super::super::screen::TableId;
use super::super::state::State;
use super::super::table::{Cell, Column, Spec, figures, words};
use super::{Drawn, grid, section, split, text, wrapped};
use crate::format::clock;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

/// The table.
pub static SPEC: Spec<DrillFile> = Spec {
    columns: &COLUMNS,
    name: |d| d.name.clone(),
    text: |d| format!("{} {}", d.name, d.about),
};

static COLUMNS: [Column<DrillFile>; 4] = [
    words("DRILL", 18, 0, |d, look| (d.name.clone(), look.strong())),
    figures(
        "FAULTS",
        6,
        0,
        |d, _| plain(d.faults.to_string()),
        |d| d.faults as f64,
    ),
    words("FILE", 10, 0, |d, look| {
        let word = if d.plan.is_ok() { "done" } else { "failed" };
        let text = if d.plan.is_ok() { "usable" } else { "refused" };
        (
            format!("{} {text}", look.sign(word)),
            look.tone(look.tone_of(word)),
        )
    }),
    words("ABOUT", 0, 1, |d, _| plain(d.about.clone())),
];

fn plain(text: String) -> Cell {
    (text, Style::new())
}

/// Draws catalogue and details.
pub fn draw(state: &State, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
    let files = state.drill_files();
    let rows = (files.len() as u16).saturating_add(1);
    let (above, below) = split(area, rows.clamp(3, (area.height / 3).max(3)));
    let width = usize::from(area.width.saturating_sub(2));
    if let Err(problem) = &state.drills {
        let inner = section(state, area, "DRILLS", buf);
        let mut lines = wrapped(problem, width);
        lines.push("name their folder with --drills DIR".to_owned());
        let lines = lines.into_iter().map(|l| Line::raw(format!(" {l}")));
        return text(state, lines.collect(), inner, buf, drawn);
    }
    grid::draw(state, (TableId::Drills, &SPEC), files, above, buf, drawn);
    let running = state.drill.as_ref().filter(|run| run.end.is_none());
    let chosen = state.chosen_drill();
    let shown = state
        .drill
        .as_ref()
        .filter(|run| chosen.is_some_and(|c| c.name == run.name));
    let (title, lines) = match (running.or(shown), chosen) {
        (Some(run), _) => (run_title(state, run), run_lines(state, run)),
        (None, Some(file)) => (
            format!("DRILL {}: Enter runs it on jobs of its own", file.name),
            file_lines(file, width),
        ),
        (None, None) => return,
    };
    let inner = section(state, below, &title, buf);
    text(state, lines, inner, buf, drawn);
}

fn file_lines(file: &DrillFile, width: usize) -> Vec<Line<'static>> {
    let mut lines = wrapped(&file.about, width);
    lines.push(String::new());
    match &file.plan {
        Ok(plan) => lines.extend(plan.iter().cloned()),
        Err(problem) => lines.extend(wrapped(problem, width)),
    }
    let lines = lines.into_iter().map(|l| Line::raw(format!(" {l}")));
    lines.collect()
}

fn run_title(state: &State, run: &DrillRun) -> String {
    let until = run.end.as_ref().map_or(state.now, |(at, _)| *at);
    let took = clock(until.saturating_sub(run.since) as f64 / 1000.0);
    match &run.end {
        None => format!("DRILL {} runs for {took}; X ends it", run.name),
        Some(_) => format!("DRILL {} {} after {took}", run.name, run.state()),
    }
}

/// Verdicts once there are any, then what it said, the newest first.
fn run_lines(state: &State, run: &DrillRun) -> Vec<Line<'static>> {
    let look = state.look;
    let result = run.end.as_ref().and_then(|(_, end)| end.result.as_ref());
    let mut lines: Vec<Line> = result
        .map(verdicts)
        .unwrap_or_default()
        .into_iter()
        .map(|(words, held)| {
            let word = if held { "done" } else { "failed" };
            let held = if held { "held" } else { "not met" };
            let text = format!(" {} {held:<8} {}", look.sign(word), look.fit(&words, 150));
            Line::styled(text, look.tone(look.tone_of(word)))
        })
        .collect();
    let said = run.lines.iter().rev();
    lines.extend(said.map(|l| Line::raw(format!(" {}", look.fit(l, 190)))));
    lines
}
