//! Where the job's time went, by the ledger: the slices of a window as a waterfall, and below what the selected one is
//! made of.
//!
//! ```text
//!    SLICE                     TIME  SHARE
//!  > useful                   2m02s  61.0% ###################
//!    trainer waits for data   48.0s  24.0%                    #######
//!    restart                  1.34s   0.7%                           #
//! ```
mod rows;

use crate::cascade;
use crate::console::key::{self, Key};
use crate::console::names::{ScreenId, TableId};
use crate::console::screen::{Effect, Hints, Input, Screen};
use crate::console::state::{Common, Sight};
use crate::console::table::Table;
use crate::console::ui::scroll::Scroll;
use crate::console::ui::{Drawn, put, section, split, wrapped};
use crate::format::{clock, millis, time_of_day_at, who};
use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use robust_proto::v1::{Incident, Status, TimeStretch, TimeWindow};
use robust_shared::core::IncidentOutcome;
use robust_shared::ettr::Slice;
use robust_shared::ids::Role;
use robust_shared::wire::{JobState, Window};
use rows::Row;

/// The windows by the daemon's names, shortest first; a job that is younger has only the last.
const WINDOWS: [&str; 4] = ["5m", "10m", "30m", "job"];

/// Its keys.
const KEYS: [Key; 2] = [WINDOW, OPEN];
const WINDOW: Key = Key::hand("+ -, h l", "+/-", "window", "a shorter, a longer window");
const OPEN: Key = Key::act(
    "Enter",
    KeyCode::Enter,
    "incidents",
    "the incidents, where the slice comes of any",
);

/// The screen.
#[derive(Debug)]
pub struct Spent {
    table: Table<Row>,
    /// Of [`WINDOWS`], the one that is wanted.
    wanted: usize,
    /// Of what the selected slice is made of.
    scroll: Scroll,
}

impl Default for Spent {
    fn default() -> Self {
        Spent {
            table: Table::new(TableId("time"), rows::spec(80)),
            wanted: 0,
            scroll: Scroll::default(),
        }
    }
}

impl Spent {
    /// The window that is wanted; the whole job's where it is not that old.
    fn window<'a>(&self, status: &'a Status) -> Option<&'a TimeWindow> {
        let windows = &status.time_spent.as_ref()?.windows;
        let wanted = windows.iter().find(|w| w.name == WINDOWS[self.wanted]);
        wanted.or(windows.last())
    }

    fn rows(&self, sight: &Sight) -> Vec<Row> {
        let window = sight.job.status().and_then(|s| self.window(s));
        window.map(rows::of).unwrap_or_default()
    }

    /// Whether the key takes another window.
    fn on_window(&mut self, code: KeyCode) -> bool {
        match code {
            KeyCode::Char('-' | 'l') | KeyCode::Right => {
                self.wanted = (self.wanted + 1).min(WINDOWS.len() - 1);
            }
            KeyCode::Char('+' | 'h') | KeyCode::Left => {
                self.wanted = self.wanted.saturating_sub(1);
            }
            _ => return false,
        }
        self.scroll.reset();
        true
    }

    /// To the incidents that the selected slice comes of.
    fn open(&self, sight: &Sight, rows: &[Row]) -> Vec<Effect> {
        let Some((window, row)) = sight
            .job
            .status()
            .and_then(|s| self.window(s))
            .zip(self.table.chosen(rows, sight.look))
        else {
            return Vec::new();
        };
        match incidents(sight, window, row).next() {
            Some(_) => vec![Effect::Show(ScreenId::Incidents)],
            None => {
                let title = rows::title(&row.slice);
                vec![Effect::refuse(format!("`{title}` comes of no incident"))]
            }
        }
    }
}

impl Screen for Spent {
    fn on(&mut self, input: Input, common: &mut Common) -> Vec<Effect> {
        let rows = self.rows(common);
        match self.table.on(&input, &rows, common) {
            Some(turned) => {
                self.scroll.follow(turned);
                return Vec::new();
            }
            None if self.scroll.on(&input) => return Vec::new(),
            None => {}
        }
        match input {
            Input::Key(KeyCode::Enter) => self.open(common, &rows),
            Input::Key(code) => {
                self.on_window(code);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn refuses(&self, key: KeyCode, common: &Common) -> Option<String> {
        if key != KeyCode::Enter {
            return None;
        }
        let mut opened = self.open(common, &self.rows(common)).into_iter();
        opened.find_map(Effect::refusal)
    }

    fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
        let Some(status) = common.job.status() else {
            return;
        };
        let Some(window) = self.window(status) else {
            return draw_unknown(common, status, area, buf);
        };
        let rows = rows::of(window);
        let inner = section(common.look, area, &heading(window, &rows), buf);
        let lines = u16::try_from(rows.len()).unwrap_or(u16::MAX);
        let most = (inner.height * 2 / 3).max(3);
        let (above, below) = split(inner, lines.saturating_add(1).min(most));
        let spec = rows::spec(above.width);
        self.table.draw_as(spec, &rows, common, above, buf, drawn);
        let Some(row) = self.table.chosen(&rows, common.look) else {
            return;
        };
        let title = rows::title(&row.slice).to_uppercase();
        let inner = section(common.look, below, &title, buf);
        let lines = lines_of(common, window, row, usize::from(inner.width));
        self.scroll.draw(lines, common.look, inner, buf, drawn);
    }

    fn hints<'a>(&'a self, _: &'a Common) -> Hints<'a> {
        Hints {
            own: &[&KEYS],
            most: &[
                key::SELECT,
                WINDOW,
                OPEN,
                key::SCROLL,
                key::PALETTE,
                key::HELP,
                key::QUIT,
            ],
            typing: self.table.typing(),
            filter: self.table.filter(),
        }
    }
}

/// Which window, and how much of it was useful.
fn heading(window: &TimeWindow, rows: &[Row]) -> String {
    let long = clock(rows::length(window));
    let which = match window.name() {
        Some(Window::Job) => format!("the whole job, {long}"),
        _ => format!("the last {long}"),
    };
    let useful = rows::share(rows, Slice::Useful) * 100.0;
    format!("WHERE THE TIME WENT, {which}: {useful:.0}% useful")
}

fn draw_unknown(sight: &Sight, status: &Status, area: Rect, buf: &mut Buffer) {
    let look = sight.look;
    let inner = section(look, area, "WHERE THE TIME WENT", buf);
    let text = match (status.state(), &status.time_spent) {
        (Some(JobState::Starting), _) | (_, Some(_)) => {
            "The job has not begun: no time is counted yet."
        }
        _ => "The daemon does not say it: it is of an older build, or this recording is.",
    };
    let lines = wrapped(text, usize::from(inner.width).saturating_sub(2));
    for (row, text) in (0..).zip(lines) {
        put(
            buf,
            inner,
            row,
            Line::styled(format!(" {text}"), look.faint()),
        );
    }
}

/// The incidents that the time of a row in the window comes of, newest first.
fn incidents<'a>(
    sight: &'a Sight,
    window: &'a TimeWindow,
    row: &Row,
) -> impl Iterator<Item = &'a Incident> {
    let wanted = rows::comes_of_faults(&row.slice);
    let all = cascade::firsts(sight.job.incidents()).rev();
    all.filter(move |i| wanted && stops_trainer(i) && ends(i) >= window.from_ms)
}

/// Whether the trainer had to wait for it: an engine or a worker that restarts alone costs none of the job's time.
fn stops_trainer(incident: &Incident) -> bool {
    let whole = ["restart the trainer gang", "restart the whole task"];
    incident.role() == Some(Role::Trainer)
        || whole.iter().any(|plan| incident.plan.starts_with(plan))
}

/// Unix ms; of one that goes on later than everything.
fn ends(incident: &Incident) -> u64 {
    match incident.outcome() {
        Some(IncidentOutcome::Recovering) => u64::MAX,
        _ => {
            let after = incident.total_ms - incident.detect_ms;
            incident.at_ms.saturating_add(after.max(0.0) as u64)
        }
    }
}

/// What a row is, the incidents that it comes of, and its newest stretches.
fn lines_of(sight: &Sight, window: &TimeWindow, row: &Row, width: usize) -> Vec<Line<'static>> {
    let look = sight.look;
    let room = width.saturating_sub(2);
    let meaning = wrapped(rows::meaning(&row.slice), room);
    let mut lines: Vec<Line<'static>> = meaning
        .into_iter()
        .map(|text| Line::styled(format!(" {text}"), look.faint()))
        .collect();
    let incidents = incidents(sight, window, row);
    lines.extend(incidents.map(|i| Line::raw(look.fit(&incident(sight, i), width))));
    let status = sight.job.status();
    let spent = status.and_then(|s| s.time_spent.as_ref());
    let stretches = spent.into_iter().flat_map(|spent| &spent.stretches).rev();
    let here = stretches
        .filter(|s| s.slice == row.slice && s.from_ms.saturating_add(s.ms) > window.from_ms);
    let mut stretches: Vec<Line<'static>> = here
        .map(|s| Line::raw(look.fit(&stretch(sight, s), width)))
        .collect();
    if !stretches.is_empty() {
        let heading = " when, the newest first".to_owned();
        lines.push(Line::styled(heading, look.faint()));
        lines.append(&mut stretches);
    }
    lines
}

fn incident(sight: &Sight, i: &Incident) -> String {
    let sign = sight.look.sign(&i.outcome);
    let parts = [
        ("detect", i.detect_ms),
        ("restart", i.restart_ms),
        ("reconnect", i.reconnect_ms),
    ];
    let parts = parts.map(|(name, ms)| format!("{name} {}", millis(ms)));
    format!(
        " {sign} {} {}, {}: {}",
        i.id,
        who(&i.role, i.index),
        i.rule,
        parts.join(", ")
    )
}

fn stretch(sight: &Sight, s: &TimeStretch) -> String {
    let at = time_of_day_at(s.from_ms, sight.zone);
    // It lies over what was counted then, of which it is a part.
    let over = if s.over { "  within" } else { "" };
    format!("   {at}  {:>8}{over}", millis(s.ms as f64))
}
