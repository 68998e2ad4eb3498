//! Every instance, and below all about the selected one: facts, its phases, the end of its log. Or all of them as cells
//! ([`fleet`]), with which it begins where there are many.
mod facts;
mod fleet;
mod log;

use super::instances;
use super::looks::Looks;
use crate::console::event::{Action, Event};
use crate::console::history::Span as Phase;
use crate::console::key::{self, Key};
use crate::console::logs::Tail;
use crate::console::screen::{Effect, Hints, Input, Screen};
use crate::console::state::{Common, Sight};
use crate::console::table::Turned;
use crate::console::ui::{Drawn, lane, put, section, split};
use crate::format::{millis_tight, time_of_day_at, who};
use crossterm::event::KeyCode;
use fleet::Fleet;
use log::Log;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use robust_proto::v1::RoleStatus;

/// From this width on phases and log stand side by side.
const BESIDE: u16 = 110;
/// What the strip of phases covers.
const STRIP_MS: u64 = 120_000;

/// Its keys besides those for an instance, while it is a table.
const KEYS: [Key; 2] = [
    Key::act("f", KeyCode::Char('f'), "find", "find words in the log"),
    Key::act(
        "v",
        KeyCode::Char('v'),
        "fleet",
        "all instances as cells, and who stands out",
    ),
];

static OF_TABLE: [&[Key]; 2] = [&KEYS, &instances::KEYS];
static OF_FLEET: [&[Key]; 2] = [&fleet::KEYS, &instances::KEYS];

/// The screen.
#[derive(Debug, Default)]
pub struct Roles {
    log: Log,
    looks: Looks,
    fleet: Fleet,
    /// Cells instead of a table; none: it was not looked at yet.
    as_fleet: Option<bool>,
}

impl Roles {
    /// Whether all instances are shown as cells.
    fn is_fleet(&self, common: &Common) -> bool {
        self.as_fleet
            .unwrap_or(common.job.roles().len() > fleet::MANY)
    }

    /// It is looked at: what it begins with it keeps, however the job grows under the operator's hands.
    fn begin(&mut self, common: &Common) {
        if !common.job.roles().is_empty() {
            self.as_fleet = Some(self.is_fleet(common));
        }
    }

    /// Cells instead of the table, or the table, with the log of whoever is selected by now.
    fn turn(&mut self, common: &Common) {
        self.as_fleet = Some(!self.is_fleet(common));
        self.log.follow(Turned::Anew);
        self.looks.at_once();
    }

    /// Takes an input for the cells. The filter is the table's, and so is what is typed into it.
    fn on_fleet(&mut self, input: Input, common: &mut Common) -> Vec<Effect> {
        let is_typed = common.instances().typing().is_some();
        match input {
            Input::Key(_) if is_typed => {
                common.turn_instances(&input);
            }
            Input::Key(KeyCode::Esc) | Input::Shown => {
                self.log.on(&input);
                common.turn_instances(&input);
            }
            Input::SearchEnded => {
                self.log.on(&input);
            }
            Input::Key(KeyCode::Char('/')) => {
                common.turn_instances(&input);
            }
            Input::Key(KeyCode::Enter) => self.turn(common),
            Input::Key(KeyCode::Char(' ' | 'a')) => {
                // The next row of the table may be far away from the cursor.
                let here = common.chosen_row();
                common.turn_instances(&input);
                if let Some(row) = here {
                    common.choose_instance(row);
                }
            }
            Input::Key(code) if self.fleet.on_key(code, common) => {}
            Input::Key(KeyCode::Char(key)) => return instances::on_key(key, common),
            Input::Click(spot) => self.fleet.on_click(spot, common),
            Input::Wheel(spot, by) => self.fleet.on_wheel(spot, by, common),
            Input::News(Event::LogRead { who, lines }) => self.log.read(Tail { who, lines }),
            _ => {}
        }
        Vec::new()
    }

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
        if matches!(input, Input::Shown | Input::Look) {
            self.begin(common);
        }
        let is_typed = common.instances().typing().or(self.log.typing()).is_some();
        if matches!(input, Input::Key(KeyCode::Char('v'))) && !is_typed {
            self.turn(common);
            return Vec::new();
        }
        if self.is_fleet(common) {
            return self.on_fleet(input, common);
        }
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
        if self.is_fleet(common) {
            return self.fleet.draw(common, area, buf, drawn);
        }
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
        if self.is_fleet(common) {
            return Hints {
                own: &OF_FLEET,
                most: &[
                    fleet::MOVE,
                    fleet::OPEN,
                    fleet::NEXT,
                    fleet::GROUP,
                    fleet::TABLE,
                    key::FILTER,
                    key::PAUSE,
                    key::PALETTE,
                    key::HELP,
                    key::QUIT,
                ],
                ..hints
            };
        }
        Hints {
            own: &OF_TABLE,
            typing: self.log.typing().or(hints.typing),
            ..hints
        }
    }

    fn marked(&self, common: &Common) -> usize {
        common.instances().marked_count()
    }

    fn ends_with_esc(&self) -> bool {
        self.log.is_searched()
    }

    fn refuses(&self, key: KeyCode, common: &Common) -> Option<String> {
        instances::refuses(key, common)
    }

    /// The cells say what everybody does now, and need no past.
    fn shows_phases(&self, common: &Common) -> bool {
        !self.is_fleet(common)
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
