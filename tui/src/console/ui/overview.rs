//! The job at a glance.
//!
//! ```text
//!  charts   sliding ETTR, and beside it from 100 columns on the reward
//!  roles    heading and a line each
//!  bottom   weights of each rollout | incidents
//!  events   the newest last
//! ```
//! On a small screen the charts go first, then the events, then columns by rank.
use super::super::screen::TableId;
use super::super::state::State;
use super::{Drawn, WIDE, bars, charts, grid, incidents, log, roles};
use crate::format::is_engine;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use robust_proto::v1;

/// Draws it.
pub fn draw(state: &State, s: &v1::Status, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
    let engines = s.roles.iter().filter(|r| is_engine(&r.role)).count();
    let parts = Parts::of(area, s.roles.len(), engines);
    charts::draw(state, s, parts.charts, buf);
    let table = (TableId::Roles, roles::spec(state));
    grid::draw(state, table, &s.roles, parts.roles, buf, drawn);
    bars::draw(state, s, parts.weights, buf);
    incidents::draw_newest(state, s, parts.incidents, buf);
    log::draw(state, parts.events, buf);
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
