//! Incidents, and below all about the selected one: what was seen, decided, and where the time went.
mod table;

pub use table::draw_newest;

use crate::console::dialogs::prompt::{self, Wanted};
use crate::console::escapes;
use crate::console::event::Action;
use crate::console::key::{self, Key};
use crate::console::names::TableId;
use crate::console::screen::{Effect, Hints, Input, Screen};
use crate::console::state::{Common, Sight};
use crate::console::table::Table;
use crate::console::ui::scroll::Scroll;
use crate::console::ui::{Drawn, section, split, wrapped};
use crate::format::{bar, bytes, millis, time_of_day_at, who};
use crate::postmortem;
use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use robust_proto::v1::Incident;

/// Cells of the longest bar.
const BAR: usize = 30;

/// Its key.
const COPY: Key = Key::act(
    "y",
    KeyCode::Char('y'),
    "copy",
    "copy the incident as Markdown to the clipboard",
);

const NOTE: Key = Key::act(
    "N",
    KeyCode::Char('N'),
    "note",
    "write a line beside the incident",
);

/// The screen.
#[derive(Debug)]
pub struct Incidents {
    table: Table<Incident>,
    /// Of the details.
    scroll: Scroll,
}

impl Default for Incidents {
    fn default() -> Self {
        let table = Table::new(TableId("incidents"), &table::SPEC);
        Incidents {
            // The newest incident is what one looks for.
            table: table.sorted(1, true),
            scroll: Scroll::default(),
        }
    }
}

impl Incidents {
    /// A line beside the selected incident is typed.
    fn noted(&self, sight: &Sight) -> Effect {
        let chosen = self.table.chosen(sight.job.incidents(), sight.look);
        match chosen.map(|incident| incident.id) {
            Some(incident) => prompt::open(Wanted::Note { incident }, sight),
            None => Effect::refuse(NONE),
        }
    }

    /// The selected incident as Markdown into the clipboard.
    fn copied(&self, sight: &Sight) -> Vec<Effect> {
        let chosen = self.table.chosen(sight.job.incidents(), sight.look);
        let (Some(status), Some(incident)) = (sight.job.status(), chosen) else {
            return vec![Effect::refuse(NONE)];
        };
        let (text, is_cut) = escapes::for_clipboard(postmortem::markdown(status, incident));
        let size = bytes(text.len() as u64);
        let cut = if is_cut { ", its end cut off" } else { "" };
        let told = Effect::Tell {
            text: format!(
                "incident {} copied ({size}{cut}); tmux: set -g set-clipboard on",
                incident.id
            ),
            good: true,
        };
        vec![Effect::Do(Action::Copy(text)), told]
    }
}

/// Why nothing is copied, and nothing noted.
const NONE: &str = "there is no incident selected";

impl Screen for Incidents {
    fn on(&mut self, input: Input, common: &mut Common) -> Vec<Effect> {
        if let Some(turned) = self.table.on(&input, common.job.incidents(), common) {
            self.scroll.follow(turned);
            return Vec::new();
        }
        match input {
            _ if self.scroll.on(&input) => Vec::new(),
            Input::Key(KeyCode::Char('y')) => self.copied(common),
            Input::Key(KeyCode::Char('N')) => vec![self.noted(common)],
            _ => Vec::new(),
        }
    }

    fn refuses(&self, key: KeyCode, common: &Common) -> Option<String> {
        let chosen = self.table.chosen(common.job.incidents(), common.look);
        match key {
            KeyCode::Char('y') if chosen.is_none() => Some(NONE.to_owned()),
            KeyCode::Char('N') => self.noted(common).refusal(),
            _ => None,
        }
    }

    fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
        let all = common.job.incidents();
        let rows = (all.len() as u16).saturating_add(1);
        let (above, below) = split(area, rows.clamp(3, (area.height * 2 / 5).max(3)));
        self.table.draw(all, common, above, buf, drawn);
        let Some(incident) = self.table.chosen(all, common.look) else {
            return;
        };
        let title = format!(
            "INCIDENT {}: {} {}",
            incident.id,
            who(&incident.role, incident.index),
            incident.outcome
        );
        let inner = section(common.look, below, &title, buf);
        let lines = lines(common, incident, usize::from(inner.width));
        self.scroll.draw(lines, common.look, inner, buf, drawn);
    }

    fn hints<'a>(&'a self, _: &'a Common) -> Hints<'a> {
        Hints {
            own: &[&[COPY, NOTE]],
            most: &[
                key::SELECT,
                COPY,
                NOTE,
                key::FILTER,
                key::SORT,
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

fn lines(sight: &Sight, i: &Incident, width: usize) -> Vec<Line<'static>> {
    let mut lines = words(sight, i, width);
    lines.push(Line::raw(""));
    let parts = [
        ("detect", i.detect_ms),
        ("restart", i.restart_ms),
        ("reconnect", i.reconnect_ms),
    ];
    lines.extend(parts.map(|(name, ms)| part(sight, name, ms, i.total_ms)));
    let total = format!(" {:<24} {:>8}", "total", millis(i.total_ms));
    lines.push(Line::styled(total, sight.look.strong()));
    if !i.stages.is_empty() {
        lines.push(Line::raw(""));
        let heading = " where the time went".to_owned();
        lines.push(Line::styled(heading, sight.look.faint()));
        let stages = i
            .stages
            .iter()
            .map(|s| part(sight, &s.name, s.ms, i.total_ms));
        lines.extend(stages);
    }
    lines.extend(notes(sight, i, width));
    if !i.evidence.is_empty() {
        lines.push(Line::raw(""));
        let heading = " evidence, taken before anything was killed".to_owned();
        lines.push(Line::styled(heading, sight.look.faint()));
        let room = width.saturating_sub(4);
        let evidence = i
            .evidence
            .lines()
            .map(|l| format!("   {}", sight.look.fit(l, room)));
        lines.extend(evidence.map(Line::raw));
    }
    lines
}

/// What operators wrote beside it, oldest first.
fn notes(sight: &Sight, i: &Incident, width: usize) -> Vec<Line<'static>> {
    if i.notes.is_empty() {
        return Vec::new();
    }
    let heading = Line::styled(" notes of operators", sight.look.faint());
    let mut lines = vec![Line::raw(""), heading];
    let room = width.saturating_sub(4);
    for note in &i.notes {
        let when = time_of_day_at(note.at_ms, sight.zone);
        let by = sight.look.fit(&format!("{when}  {}", note.who), room);
        lines.push(Line::styled(format!("   {by}"), sight.look.faint()));
        // As it is: nobody cuts an operator's words.
        let text = sight.look.fit(&note.text, note.text.len());
        let text = wrapped(&text, room).into_iter();
        lines.extend(text.map(|text| Line::raw(format!("   {text}"))));
    }
    lines
}

/// Rule, reason, plan and what was lost with it.
fn words(sight: &Sight, i: &Incident, width: usize) -> Vec<Line<'static>> {
    let when = time_of_day_at(i.at_ms, sight.zone);
    let all = sight.job.incidents();
    let lost = sight.job.status().map(|s| postmortem::lost(s, i));
    let facts = [
        ("rule", i.rule.clone()),
        ("seen", i.reason.clone()),
        ("cause", postmortem::cause(i)),
        ("root", postmortem::root(i)),
        ("under", postmortem::under(i)),
        ("led to", postmortem::led_to(all, i).join(", ")),
        ("before", postmortem::before(all, i)),
        (
            "at",
            format!(
                "{when}, in step {}, incarnation {}",
                i.step + 1,
                i.incarnation
            ),
        ),
        ("plan", i.plan.clone()),
        ("with it", postmortem::with_it(i)),
        ("lost", lost.unwrap_or_default()),
    ];
    let room = width.saturating_sub(12);
    let mut lines = Vec::new();
    for (name, value) in facts.into_iter().filter(|(_, value)| !value.is_empty()) {
        let mut name = name;
        for text in wrapped(&sight.look.fit(&value, room * 3), room) {
            lines.push(Line::from(vec![
                Span::styled(format!(" {name:<8} "), sight.look.faint()),
                Span::raw(text),
            ]));
            name = "";
        }
    }
    lines
}

fn part(sight: &Sight, name: &str, ms: f64, total: f64) -> Line<'static> {
    let look = sight.look;
    Line::from(vec![
        Span::raw(format!(" {:<24} {:>8}  ", look.fit(name, 24), millis(ms))),
        Span::styled(bar(ms / total.max(1.0), BAR, look.ascii), look.accent()),
    ])
}
