//! Phases of every instance over time, a letter for each phase; faults and recoveries as marks.
//!
//! ```text
//!               -2m                                                now
//!   faults                          x~~~~~~~~~+
//!   trainer-0   UUUUUUs.p..UUUUUUUUU!~~~ll....UUUUUUsp..
//!   rollout-0   GGGGGGGGGGwGGGGGGGGGGGGGGGGGGGGGGGGGGwGGG
//! ```
use super::instances;
use crate::console::history::KEPT_MS;
use crate::console::key::{self, Key};
use crate::console::screen::{Effect, Hints, Input, Screen};
use crate::console::state::{Common, Sight};
use crate::console::ui::look::Tone;
use crate::console::ui::{Drawn, Spot, below, lane, line, put, section};
use crate::format::{clock, who};
use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use robust_proto::v1;
use robust_shared::core::IncidentOutcome;
use std::collections::BTreeSet;

/// Cells for the names of instances.
const NAMES: u16 = 13;

/// Time on the timeline, from the shortest window to the longest.
const WINDOWS_MS: [u64; 7] = [10_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000];

const ZOOM: Key = Key::hand("+ -", "+/-", "zoom", "zoom in, out");
const TIME: Key = Key::hand("h l, Left Right", "h/l", "scroll", "scroll in time");
const PRESENT: Key = Key::act("n", KeyCode::Char('n'), "now", "follow the present");

/// Its keys besides those for an instance.
const KEYS: [Key; 3] = [ZOOM, TIME, PRESENT];

/// The screen.
#[derive(Debug, Default)]
pub struct Timeline {
    window: Window,
}

/// The time that is shown.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// From the left edge to the right.
    span_ms: u64,
    /// From the right edge to now; 0 follows it.
    back_ms: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            span_ms: 120_000,
            back_ms: 0,
        }
    }
}

impl Window {
    /// Zooms and scrolls; whether the key does that.
    fn on_key(&mut self, code: KeyCode) -> bool {
        let zoom = |by: isize| {
            let now = WINDOWS_MS.iter().position(|&w| w >= self.span_ms);
            let next = now.unwrap_or(0).saturating_add_signed(by);
            WINDOWS_MS[next.min(WINDOWS_MS.len() - 1)]
        };
        let quarter = self.span_ms / 4;
        match code {
            KeyCode::Char('+') => self.span_ms = zoom(-1),
            KeyCode::Char('-') => self.span_ms = zoom(1),
            KeyCode::Left | KeyCode::Char('h') => {
                self.back_ms = (self.back_ms + quarter).min(KEPT_MS);
            }
            KeyCode::Right | KeyCode::Char('l') => {
                self.back_ms = self.back_ms.saturating_sub(quarter);
            }
            KeyCode::Char('n') => self.back_ms = 0,
            _ => return false,
        }
        true
    }
}

impl Screen for Timeline {
    fn on(&mut self, input: Input, common: &mut Common) -> Vec<Effect> {
        if common.turn_instances(&input).is_some() {
            return Vec::new();
        }
        match input {
            Input::Key(code) if self.window.on_key(code) => Vec::new(),
            Input::Key(KeyCode::Char(key)) => instances::on_key(key, common),
            _ => Vec::new(),
        }
    }

    fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
        let Some(s) = common.job.status() else { return };
        let window = self.window;
        let to = s.now_ms.saturating_sub(window.back_ms);
        let from = to.saturating_sub(window.span_ms);
        let title = format!("TIMELINE, {} wide", clock(window.span_ms as f64 / 1000.0));
        let inner = section(common.look, area, &title, buf);
        if inner.height < 4 {
            return;
        }
        let lanes = Rect {
            x: inner.x + NAMES,
            width: inner.width.saturating_sub(NAMES + 1),
            ..inner
        };
        draw_axis(common, s.now_ms, (window.span_ms, to), line(lanes, 0), buf);
        buf.set_string(inner.x + 2, inner.y + 1, "faults", common.look.faint());
        draw_marks(common, s, (from, to), line(lanes, 1), buf);
        let (table, spec) = (common.instances(), instances::spec(common));
        let (order, chosen) = table.order(spec, &s.roles, common.look);
        let id = table.id();
        let room = usize::from(inner.height - 3);
        let last = order.len().saturating_sub(room);
        let at = chosen.unwrap_or(0);
        let first = common.drawn.first(id);
        let first = first.min(at).max((at + 1).saturating_sub(room)).min(last);
        drawn.table(id, first, room);
        drawn.spot(below(inner, 2), Spot::Body(id));
        let mut seen = BTreeSet::new();
        for (row, &index) in order.iter().skip(first).take(room).enumerate() {
            let role = &s.roles[index];
            let y = row as u16 + 2;
            let here = chosen == Some(first + row);
            let style = if here {
                common.look.selection()
            } else {
                Style::new()
            };
            let mark = |is: bool, fine, plain| {
                if is {
                    common.look.glyph(fine, plain)
                } else {
                    " "
                }
            };
            let marked = mark(table.is_marked(role), "◆", "*");
            let name = format!(
                "{}{marked}{:<10}",
                mark(here, "▶", ">"),
                common.look.fit(&who(&role.role, role.index), 10)
            );
            buf.set_string(inner.x, inner.y + y, name, style);
            let instance = (role.role.as_str(), role.index);
            seen.extend(lane::draw(common, instance, from, to, line(lanes, y), buf));
            drawn.spot(line(inner, y), Spot::Row(id, first + row));
        }
        draw_legend(common, &seen, line(inner, inner.height - 1), buf);
    }

    fn hints<'a>(&'a self, common: &'a Common) -> Hints<'a> {
        Hints {
            own: &[&KEYS, &instances::KEYS],
            most: &[
                ZOOM,
                TIME,
                PRESENT,
                key::FILTER,
                key::PALETTE,
                key::HELP,
                key::QUIT,
            ],
            ..instances::hints(common)
        }
    }

    fn marked(&self, common: &Common) -> usize {
        common.instances().marked_count()
    }

    fn refuses(&self, key: KeyCode, common: &Common) -> Option<String> {
        instances::refuses(key, common)
    }

    fn shows_phases(&self, _common: &Common) -> bool {
        true
    }
}

fn draw_axis(sight: &Sight, now: u64, (span, to): (u64, u64), area: Rect, buf: &mut Buffer) {
    let look = sight.look;
    let ago = |t: u64| match now.saturating_sub(t) {
        0 => "now".to_owned(),
        ms => format!("-{}", clock(ms as f64 / 1000.0)),
    };
    let width = u64::from(area.width);
    if width < 30 {
        return;
    }
    for part in 0..4 {
        let label = ago(to.saturating_sub(span * (4 - part) / 4));
        let x = area.x + (width * part / 4) as u16;
        buf.set_string(
            x,
            area.y,
            look.glyph("│", "|").to_owned() + &label,
            look.faint(),
        );
    }
    let label = ago(to);
    buf.set_string(
        area.right() - label.len() as u16,
        area.y,
        label,
        look.faint(),
    );
}

/// A fault where it was found, the recovery behind it, and its end.
fn draw_marks(sight: &Sight, s: &v1::Status, (from, to): (u64, u64), area: Rect, buf: &mut Buffer) {
    let look = sight.look;
    let width = u64::from(area.width);
    let place = |t: u64| (t.clamp(from, to) - from) * width / (to - from).max(1);
    for i in &s.incidents {
        let began = i.at_ms.saturating_sub(i.detect_ms.max(0.0) as u64);
        let over = i.outcome() != Some(IncidentOutcome::Recovering);
        let ended = if over {
            began + i.total_ms.max(0.0) as u64
        } else {
            s.now_ms
        };
        if ended < from || began > to {
            continue;
        }
        let last = width.saturating_sub(1);
        let (a, b) = (place(began).min(last), place(ended).min(last));
        let mut set = |x: u64, glyph: &str, style| {
            buf.set_string(area.x + x as u16, area.y, glyph, style);
        };
        for x in a..b {
            set(x, look.glyph("─", "~"), look.tone(Tone::Warn));
        }
        if over && b > a {
            let sign = look.sign(&i.outcome).to_string();
            set(b, &sign, look.tone(look.tone_of(&i.outcome)));
        }
        if began >= from {
            set(a, look.glyph("✖", "x"), look.tone(Tone::Bad));
        }
    }
}

fn draw_legend(sight: &Sight, seen: &BTreeSet<u16>, area: Rect, buf: &mut Buffer) {
    let mut spans = vec![Span::raw(" ")];
    for &phase in seen {
        let name = sight.job.history().phase(phase);
        let (letter, style) = sight.look.phase(name);
        let used: usize = spans.iter().map(Span::width).sum();
        let fits = used + name.len() + 4 <= usize::from(area.width);
        if letter != ' ' && fits {
            spans.push(Span::styled(
                format!("{letter} "),
                style.patch(sight.look.strong()),
            ));
            spans.push(Span::styled(format!("{name}  "), sight.look.faint()));
        }
    }
    put(buf, area, 0, Line::from(spans));
}
