//! How training goes: a row for each figure of the steps, one cursor through all of them, the steps in which a fault was
//! found marked, and the selected figure as a curve.
//!
//! ```text
//!   SERIES           LAST   AT 87  steps 3 to 102
//!   faults                                   x
//! > reward         0.7970   0.7340 ..--~~==++|**##
//!   entropy        1.0210   1.0610 ##**++==~~|--..
//! ```
mod series;

use super::looks::Looks;
use crate::console::event::Action;
use crate::console::key::{self, Key};
use crate::console::names::TableId;
use crate::console::screen::{Effect, Hints, Input, Screen};
use crate::console::state::{Common, Sight};
use crate::console::steps::Steps;
use crate::console::ui::look::Tone;
use crate::console::ui::plot::Plot;
use crate::console::ui::{Drawn, Spot, line, section, split, wrapped};
use crate::format::time_of_day_at;
use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use robust_proto::v1::{Incident, Status};
use series::{SERIES, Series, bounds, columns, figure};

/// Its rows, for the mouse.
const ROWS: TableId = TableId("training");
/// Steps from the left edge to the right.
const SPANS: [u64; 7] = [20, 50, 100, 200, 500, 1_000, 2_000];
/// A young job's curves do not begin as one wide bar.
const FEWEST: u64 = 20;
/// Cells for marker and name, and for each value.
const NAME: u16 = 14;
const VALUE: u16 = 10;
/// Lines of a curve that is worth drawing, its heading among them.
const CURVE: u16 = 4;

const SELECT: Key = Key::hand("j k g G, Up Down", "j/k", "series", "select a series");
const CURSOR: Key = Key::hand("h l, Left Right", "h/l", "cursor", "move the cursor");
const ZOOM: Key = Key::hand("+ -", "+/-", "zoom", "fewer, more steps");
const PRESENT: Key = Key::act("n", KeyCode::Char('n'), "newest", "follow the newest step");

/// Its keys.
const KEYS: [Key; 4] = [SELECT, CURSOR, ZOOM, PRESENT];

/// The screen.
#[derive(Debug)]
pub struct Training {
    looks: Looks,
    /// Of [`SERIES`].
    selected: usize,
    /// Of [`SPANS`].
    span: usize,
    /// The step that values are read at; none: it follows the newest.
    cursor: Option<u64>,
}

impl Default for Training {
    fn default() -> Self {
        Training {
            looks: Looks::default(),
            selected: 0,
            span: 2,
            cursor: None,
        }
    }
}

/// The steps that are shown.
#[derive(Clone, Copy)]
struct Window {
    /// The one at the right edge.
    last: u64,
    /// From the left edge to the right; those before the first step are empty.
    count: u64,
    cursor: Option<u64>,
}

impl Window {
    /// The figure of each step, from the left edge; NaN where there is none.
    fn values(&self, steps: &Steps, of: &Series) -> Vec<f64> {
        let value = |ago| {
            let line = self.last.checked_sub(ago).and_then(|step| steps.get(step));
            line.and_then(of.of).unwrap_or(f64::NAN)
        };
        (0..self.count).rev().map(value).collect()
    }

    /// How far a step is from the right edge; none: it is not shown.
    fn ago(&self, step: u64) -> Option<u64> {
        let ago = self.last.checked_sub(step)?;
        (ago < self.count).then_some(ago)
    }

    /// The cell of a step on a line of so many cells.
    fn cell(&self, step: u64, width: u16) -> Option<u16> {
        let place = self.count - 1 - self.ago(step)?;
        u16::try_from(place * u64::from(width) / self.count).ok()
    }

    fn first(&self) -> u64 {
        (self.last + 1).saturating_sub(self.count).max(1)
    }
}

impl Training {
    /// What is shown of the steps that are known.
    fn window(&self, steps: &Steps) -> Option<Window> {
        let (oldest, newest) = (steps.oldest()?, steps.newest()?);
        let known = newest - oldest + 1;
        let count = SPANS[self.span].min(known.max(FEWEST));
        let cursor = self.cursor.map(|step| step.clamp(oldest, newest));
        let last = match cursor {
            Some(step) if step + count <= newest => (step + count / 2).min(newest),
            _ => newest,
        };
        Some(Window {
            last,
            count,
            cursor,
        })
    }

    /// Moves the cursor by a hundredth of what is shown.
    fn move_cursor(&mut self, steps: &Steps, back: bool) {
        let (Some(window), Some(newest)) = (self.window(steps), steps.newest()) else {
            return;
        };
        let by = (window.count / 100).max(1);
        let at = window.cursor.unwrap_or(newest);
        let oldest = steps.oldest().unwrap_or(newest);
        self.cursor = match back {
            true => Some(at.saturating_sub(by).max(oldest)),
            false => Some(at + by).filter(|step| *step < newest),
        };
    }

    fn on_key(&mut self, code: KeyCode, steps: &Steps) {
        let last = SERIES.len() - 1;
        match code {
            KeyCode::Char('j') | KeyCode::Down => self.selected = (self.selected + 1).min(last),
            KeyCode::Char('k') | KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Char('g') | KeyCode::Home => self.selected = 0,
            KeyCode::Char('G') | KeyCode::End => self.selected = last,
            KeyCode::Char('h') | KeyCode::Left => self.move_cursor(steps, true),
            KeyCode::Char('l') | KeyCode::Right => self.move_cursor(steps, false),
            KeyCode::Char('+') => self.span = self.span.saturating_sub(1),
            KeyCode::Char('-') => self.span = (self.span + 1).min(SPANS.len() - 1),
            KeyCode::Char('n') => self.cursor = None,
            _ => {}
        }
    }
}

impl Screen for Training {
    fn on(&mut self, input: Input, common: &mut Common) -> Vec<Effect> {
        let last = SERIES.len() - 1;
        match input {
            Input::Key(code) => self.on_key(code, common.job.steps()),
            Input::Click(Spot::Row(ROWS, row)) => self.selected = row.min(last),
            Input::Wheel(Spot::Row(ROWS, _) | Spot::Body(ROWS), by) => {
                self.selected = self.selected.saturating_add_signed(by).min(last);
            }
            Input::Look if self.looks.due(common.now) => {
                self.looks.taken(common.now);
                let lacking = common.job.steps().lacking().zip(common.job.status());
                let read = lacking.map(|(after, status)| Action::ReadSteps {
                    after,
                    started_ms: status.started_ms,
                });
                return read.map(Effect::Do).into_iter().collect();
            }
            _ => {}
        }
        Vec::new()
    }

    fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
        let Some(status) = common.job.status() else {
            return;
        };
        let steps = common.job.steps();
        let Some(window) = self.window(steps) else {
            return draw_nothing(common, status, area, buf);
        };
        let inner = section(common.look, area, &heading(common, &window), buf);
        let rows = SERIES.len() as u16 + 2;
        // The curve gives way first, then the rows around the selected one.
        let (above, below) = match inner.height < rows + CURVE {
            true => (inner, Rect::default()),
            false => split(inner, rows),
        };
        self.draw_rows(common, status, window, above, buf, drawn);
        draw_curve(common, status, window, &SERIES[self.selected], below, buf);
    }

    fn hints<'a>(&'a self, _: &'a Common) -> Hints<'a> {
        Hints {
            own: &[&KEYS],
            most: &[
                SELECT,
                CURSOR,
                ZOOM,
                PRESENT,
                key::PALETTE,
                key::HELP,
                key::QUIT,
            ],
            ..Hints::default()
        }
    }
}

/// The step that was under way when a fault struck: the one after the last that was committed then.
fn struck(incident: &Incident) -> u64 {
    incident.step + 1
}

fn heading(sight: &Sight, window: &Window) -> String {
    let shown = format!("TRAINING, steps {} to {}", window.first(), window.last);
    let line = window.cursor.and_then(|step| sight.job.steps().get(step));
    match line {
        Some(line) => {
            let at = time_of_day_at(line.at_ms, sight.zone);
            format!("{shown}; at step {}, committed {at}", line.step)
        }
        None => shown,
    }
}

fn draw_nothing(sight: &Sight, status: &Status, area: Rect, buf: &mut Buffer) {
    let inner = section(sight.look, area, "TRAINING", buf);
    let text = match status.step {
        0 => "No step is committed yet.",
        _ => "The daemon does not say it: it is of an older build, or this recording is.",
    };
    let lines = wrapped(text, usize::from(inner.width).saturating_sub(2));
    for (row, text) in (0..inner.height).zip(lines) {
        let text = format!(" {text}");
        buf.set_string(inner.x, inner.y + row, text, sight.look.faint());
    }
}

impl Training {
    fn draw_rows(
        &self,
        sight: &Sight,
        status: &Status,
        window: Window,
        area: Rect,
        buf: &mut Buffer,
        drawn: &mut Drawn,
    ) {
        let look = sight.look;
        let lead = NAME + 2 * VALUE + 1;
        if area.height < 3 || area.width < lead + FEWEST as u16 {
            return;
        }
        let chart = Rect {
            x: area.x + lead,
            width: area.width - lead,
            ..area
        };
        let at = window.cursor.map(|step| format!("AT {step}"));
        let head = format!(
            "  {:<12}{:>10}{:>10}",
            "SERIES",
            "LAST",
            at.unwrap_or_default()
        );
        buf.set_string(area.x, area.y, head, look.strong());
        buf.set_string(area.x + 2, area.y + 1, "faults", look.faint());
        for incident in &status.incidents {
            if let Some(x) = window.cell(struck(incident), chart.width) {
                let mark = look.glyph("✖", "x");
                buf.set_string(chart.x + x, area.y + 1, mark, look.tone(Tone::Bad));
            }
        }
        let room = usize::from(area.height - 2);
        let first = (self.selected + 1).saturating_sub(room);
        for (row, (number, series)) in (2..).zip(SERIES.iter().enumerate().skip(first).take(room)) {
            let place = line(area, row);
            self.draw_row(sight, window, (number, series), place, buf);
            spark(sight, window, series, line(chart, row), buf);
            drawn.spot(place, Spot::Row(ROWS, number));
        }
        if let Some(x) = window
            .cursor
            .and_then(|step| window.cell(step, chart.width))
        {
            let cursor = Rect::new(chart.x + x, area.y + 1, 1, area.height - 1);
            buf.set_style(cursor.intersection(*buf.area()), look.selection());
        }
    }

    fn draw_row(
        &self,
        sight: &Sight,
        window: Window,
        (number, series): (usize, &Series),
        place: Rect,
        buf: &mut Buffer,
    ) {
        let look = sight.look;
        let (mark, style) = match number == self.selected {
            true => (look.glyph("▶ ", "> "), look.selection()),
            false => ("  ", Style::new()),
        };
        buf.set_string(
            place.x,
            place.y,
            format!("{mark}{:<12}", series.name),
            style,
        );
        let steps = sight.job.steps();
        let value = |step: u64| steps.get(step).and_then(series.of);
        let mut put = |x: u16, value: Option<f64>| {
            let text = value.map_or_else(|| "-".to_owned(), figure);
            let style = match value {
                Some(value) if !value.is_finite() => look.tone(Tone::Bad),
                Some(_) => Style::new(),
                None => look.faint(),
            };
            buf.set_string(place.x + x, place.y, format!("{text:>10}"), style);
        };
        put(NAME, steps.newest().and_then(value));
        if let Some(step) = window.cursor {
            put(NAME + VALUE, value(step));
        }
    }
}

/// A figure as bars in one line, between its least and its greatest value there.
fn spark(sight: &Sight, window: Window, series: &Series, place: Rect, buf: &mut Buffer) {
    const BARS: [(&str, &str); 8] = [
        ("▁", "_"),
        ("▂", "."),
        ("▃", "-"),
        ("▄", "~"),
        ("▅", "="),
        ("▆", "+"),
        ("▇", "*"),
        ("█", "#"),
    ];
    let look = sight.look;
    let values = window.values(sight.job.steps(), series);
    let Some((low, high)) = bounds(&values) else {
        return buf.set_string(place.x, place.y, "nobody says it", look.faint());
    };
    let means = columns(&values, usize::from(place.width));
    for (x, mean) in (place.x..).zip(means) {
        let Some(mean) = mean else { continue };
        let share = match high > low {
            true => (mean - low) / (high - low),
            false => 0.0,
        };
        let (fine, plain) = BARS[(share * 7.0).round().clamp(0.0, 7.0) as usize];
        buf.set_string(x, place.y, look.glyph(fine, plain), look.accent());
    }
}

fn draw_curve(
    sight: &Sight,
    status: &Status,
    window: Window,
    series: &Series,
    area: Rect,
    buf: &mut Buffer,
) {
    let values = window.values(sight.job.steps(), series);
    let known = bounds(&values);
    let within = known.map(|(low, high)| format!(" ({} to {})", figure(low), figure(high)));
    let name = series.name.to_uppercase();
    let title = format!("{name}{}: {}", within.unwrap_or_default(), series.what);
    let inner = section(sight.look, area, &title, buf);
    let Some((low, high)) = known else {
        return;
    };
    let ago = |step| window.ago(step).and_then(|ago| usize::try_from(ago).ok());
    let marks: Vec<usize> = status
        .incidents
        .iter()
        .filter_map(|i| ago(struck(i)))
        .collect();
    let (left, right) = (window.first().to_string(), window.last.to_string());
    let plot = Plot {
        values: &values,
        dotted: &[],
        slots: values.len(),
        low,
        high: if high > low { high } else { low + 1.0 },
        digits: match high - low {
            100.0.. => 0,
            1.0.. => 2,
            _ => 4,
        },
        ends: (&left, &right),
        marks: &marks,
        cursor: window.cursor.and_then(ago),
    };
    plot.draw(sight.look, inner, buf);
}
