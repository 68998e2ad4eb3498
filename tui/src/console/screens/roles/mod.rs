//! Every instance, and below all about the selected one: facts, its phases, the end of its log.
mod facts;
mod log;

use super::instances;
use super::looks::Looks;
use crate::console::event::{Action, Event};
use crate::console::history::Span as Phase;
use crate::console::key::Key;
use crate::console::logs::Tail;
use crate::console::screen::{Effect, Hints, Input, Screen};
use crate::console::state::{Common, Sight};
use crate::console::table::Turned;
use crate::console::ui::{Drawn, lane, put, section, split};
use crate::format::{millis_tight, time_of_day_at, who};
use crossterm::event::KeyCode;
use log::Log;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use robust_proto::v1::RoleStatus;

/// From this width on phases and log stand side by side.
const BESIDE: u16 = 110;
/// What the strip of phases covers.
const STRIP_MS: u64 = 120_000;

/// Its keys besides those for an instance.
const KEYS: [Key; 1] = [Key::act(
    "f",
    KeyCode::Char('f'),
    "find",
    "find words in the log",
)];

/// The screen.
#[derive(Debug, Default)]
pub struct Roles {
    log: Log,
    looks: Looks,
}

impl Roles {
    /// The log of the selected instance. Which machine has it is known from where it runs now: one
    /// that moved left a log of an earlier life behind.
    fn log_wanted(&mut self, common: &Common) -> Option<Effect> {
        let role = common
            .chosen_instance()
            .filter(|_| self.looks.due(common.now))?;
        let leader = common.job.status().map(|s| &s.node);
        self.looks.taken(common.now);
        Some(Effect::Do(Action::ReadLog {
            who: who(&role.role, role.index),
            on_leader: role.node.is_empty() || Some(&role.node) == leader,
        }))
    }
}

impl Screen for Roles {
    fn on(&mut self, input: Input, common: &mut Common) -> Vec<Effect> {
        // While a filter is typed, every key is a letter of it.
        let is_letter = matches!(input, Input::Key(_)) && common.instances().typing().is_some();
        if !is_letter && self.log.on(&input) {
            return Vec::new();
        }
        if let Some(turned) = common.turn_instances(&input) {
            self.log.follow(turned);
            if turned == Turned::Anew {
                self.looks.at_once();
            }
            return Vec::new();
        }
        match input {
            Input::Look => self.log_wanted(common).into_iter().collect(),
            Input::News(Event::LogRead { who, lines }) => {
                self.log.read(Tail { who, lines });
                Vec::new()
            }
            Input::Key(KeyCode::Char(key)) => instances::on_key(key, common),
            _ => Vec::new(),
        }
    }

    fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
        let rows = common.job.roles().len() as u16 + 1;
        let (above, below) = split(area, rows.clamp(4, (area.height / 2).max(4)));
        let (table, spec) = (common.instances(), instances::spec(common));
        table.draw_as(spec, common.job.roles(), common, above, buf, drawn);
        let Some(role) = common.chosen_instance() else {
            return;
        };
        let title = format!("{} {}", who(&role.role, role.index), role.state).to_uppercase();
        let inner = section(common.look, below, &title, buf);
        let lines = facts::facts(common, role);
        let (facts_area, rest) = split(inner, lines.len() as u16);
        for (row, line) in lines.into_iter().enumerate() {
            put(buf, facts_area, row as u16, line);
        }
        let (strip, rest) = split(rest, 1);
        draw_strip(common, role, strip, buf);
        if area.width < BESIDE {
            return self.log.draw(common, rest, buf, drawn);
        }
        let [left, _, right] = Layout::horizontal([
            Constraint::Length(40),
            Constraint::Length(2),
            Constraint::Fill(1),
        ])
        .areas(rest);
        draw_phases(common, role, left, buf);
        self.log.draw(common, right, buf, drawn);
    }

    fn hints<'a>(&'a self, common: &'a Common) -> Hints<'a> {
        let hints = instances::hints(common);
        Hints {
            own: &[&KEYS, &instances::KEYS],
            typing: self.log.typing().or(hints.typing),
            ..hints
        }
    }

    fn refuses(&self, key: KeyCode, common: &Common) -> Option<String> {
        instances::refuses(key, common)
    }
}

/// The last two minutes as letters, as on the timeline.
fn draw_strip(sight: &Sight, r: &RoleStatus, area: Rect, buf: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    const HEAD: &str = " last 2m ";
    buf.set_string(area.x, area.y, HEAD, sight.look.faint());
    let width = HEAD.len() as u16;
    let strip = Rect {
        x: area.x + width,
        width: area.width.saturating_sub(width + 1),
        ..area
    };
    let to = sight.job.status().map_or(0, |s| s.now_ms);
    let who = (r.role.as_str(), r.index);
    lane::draw(sight, who, to.saturating_sub(STRIP_MS), to, strip, buf);
}

fn draw_phases(sight: &Sight, r: &RoleStatus, area: Rect, buf: &mut Buffer) {
    let inner = section(sight.look, area, "PHASES, NEWEST FIRST", buf);
    let newest = sight.job.history().of(&r.role, r.index).rev();
    for (row, span) in newest.take(usize::from(inner.height)).enumerate() {
        put(buf, inner, row as u16, phase_line(sight, r, span));
    }
}

fn phase_line(sight: &Sight, r: &RoleStatus, span: &Phase) -> Line<'static> {
    let look = sight.look;
    let name = sight.job.history().name(span);
    let (letter, style) = look.phase(name);
    let time = time_of_day_at(span.from, sight.zone);
    let life = match span.incarnation == r.incarnation {
        true => String::new(),
        false => format!(" life {}", span.incarnation),
    };
    let took = millis_tight((span.to - span.from) as f64);
    Line::from(vec![
        Span::styled(format!(" {time} "), look.faint()),
        Span::styled(format!("{letter} "), style),
        Span::raw(format!("{:<15} {took:>6}", look.fit(name, 15))),
        Span::styled(life, look.faint()),
    ])
}
