//! The job at a glance.
//!
//! ```text
//!  charts   sliding ETTR, and beside it from 100 columns on the reward
//!  roles    heading and a line each
//!  bottom   weights of each rollout | incidents
//!  events   the newest last
//! ```
//! On a small screen the charts go first, then the events, then columns by rank.
mod bars;
mod charts;
mod events;

use super::{incidents, instances};
use crate::console::screen::{Effect, Hints, Input, Screen};
use crate::console::state::Common;
use crate::console::ui::{Drawn, WIDE};
use crate::format::is_engine;
use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};

/// The first screen. Its table is the one of instances, and nothing else of it has a state.
#[derive(Debug)]
pub struct Overview;

impl Screen for Overview {
    fn on(&mut self, input: Input, common: &mut Common) -> Vec<Effect> {
        if common.turn_instances(&input).is_some() {
            return Vec::new();
        }
        match input {
            Input::Key(KeyCode::Char(key)) => instances::on_key(key, common),
            _ => Vec::new(),
        }
    }

    fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
        let Some(s) = common.job.status() else { return };
        let engines = s.roles.iter().filter(|r| is_engine(&r.role)).count();
        let parts = Parts::of(area, s.roles.len(), engines);
        charts::draw(common, s, parts.charts, buf);
        let (table, spec) = (common.instances(), instances::spec(common));
        table.draw_as(spec, &s.roles, common, parts.roles, buf, drawn);
        bars::draw(common, s, parts.weights, buf);
        incidents::draw_newest(common, s, parts.incidents, buf);
        events::draw(common, parts.events, buf);
    }

    fn hints<'a>(&'a self, common: &'a Common) -> Hints<'a> {
        Hints {
            own: &[&instances::KEYS],
            ..instances::hints(common)
        }
    }

    fn marked(&self, common: &Common) -> usize {
        common.instances().marked_count()
    }

    fn refuses(&self, key: KeyCode, common: &Common) -> Option<String> {
        instances::refuses(key, common)
    }
}

struct Parts {
    charts: Rect,
    roles: Rect,
    weights: Rect,
    incidents: Rect,
    events: Rect,
}

impl Parts {
    fn of(area: Rect, roles: usize, engines: usize) -> Parts {
        let lines = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
        let mut left = area.height;
        // A large job's table scrolls rather than pushing out everything else.
        let roles = lines(roles.max(1))
            .saturating_add(1)
            .min((left * 5 / 8).max(5));
        left -= roles;
        let bottom = lines(engines.max(3))
            .saturating_add(1)
            .min(left / 2)
            .max(4)
            .max(left / 5);
        // A single line would hold the events' heading and no event.
        let bottom = if left < bottom + 2 { left } else { bottom };
        left -= bottom;
        let charts = if left < 7 {
            0
        } else {
            (left * 11 / 20).clamp(4, 16)
        };
        let heights = [charts, roles, bottom, left - charts].map(Constraint::Length);
        let [charts, roles, bottom, events] = Layout::vertical(heights).areas(area);
        let share = if area.width < WIDE {
            29
        } else {
            (area.width / 3).min(60)
        };
        let [weights, _, incidents] = Layout::horizontal([
            Constraint::Length(share),
            Constraint::Length(1),
            Constraint::Fill(1),
        ])
        .areas(bottom);
        Parts {
            charts,
            roles,
            weights,
            incidents,
            events,
        }
    }
}
