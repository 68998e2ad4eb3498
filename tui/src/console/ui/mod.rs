//! Draws the console from `&State`; nothing here changes anything.
//!
//! ```text
//!  header   2 lines: job, state, age of data; step gauge, version, reward
//!  banner   0 or 1: daemon lost, job over, an alarm
//!  charts   sliding ETTR, and beside it from 100 columns on the reward
//!  roles    heading and a line each; the selected one is struck by K and H
//!  bottom   weights of each rollout | incidents
//!  events   the newest last
//!  footer   keys, or the answer to the last action
//! ```
//! On a small screen the charts go first, then the events, then columns by rank.
mod charts;
mod empty;
mod footer;
mod grid;
mod header;
mod incidents;
mod log;
pub mod look;
mod overlay;
mod plot;
mod roles;
mod weights;

use super::state::State;
use crate::format::is_engine;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;

/// Below this nothing useful fits.
const SMALLEST: (u16, u16) = (60, 16);
/// From this width on two charts stand side by side.
const WIDE: u16 = 100;

/// Draws a frame.
pub fn draw(state: &State, frame: &mut Frame) {
    let area = frame.area();
    let buf = frame.buffer_mut();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let (w, h) = SMALLEST;
        let text = format!(
            "robustctl: {}x{} is too small, {w}x{h} needed",
            area.width, area.height
        );
        return put(buf, area, 0, Line::raw(text));
    }
    match &state.status {
        None => empty::draw(state, area, buf),
        Some(status) => {
            let rollouts = status.roles.iter().filter(|r| is_engine(&r.role)).count();
            let parts = Parts::of(
                area,
                status.roles.len(),
                rollouts,
                header::has_banner(state),
            );
            header::draw(state, status, parts.header, buf);
            header::draw_banner(state, status, parts.banner, buf);
            charts::draw(state, status, parts.charts, buf);
            roles::draw(state, parts.roles, buf);
            weights::draw(state, status, parts.weights, buf);
            incidents::draw(state, status, parts.incidents, buf);
            log::draw(state, parts.events, buf);
            footer::draw(state, parts.footer, buf);
        }
    }
    overlay::draw(state, area, buf);
}

struct Parts {
    header: Rect,
    banner: Rect,
    charts: Rect,
    roles: Rect,
    weights: Rect,
    incidents: Rect,
    events: Rect,
    footer: Rect,
}

impl Parts {
    fn of(area: Rect, roles: usize, rollouts: usize, banner: bool) -> Parts {
        let lines = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
        let banner = u16::from(banner);
        let mut left = area.height - 3 - banner;
        // A large job's table scrolls rather than pushing out everything else.
        let roles = lines(roles.max(1))
            .saturating_add(1)
            .min((left * 5 / 8).max(5));
        left -= roles;
        let bottom = lines(rollouts.max(3))
            .saturating_add(1)
            .min(left / 2)
            .max(4)
            .max(left / 5);
        // A single line would hold the events' heading and no event.
        let bottom = if left < bottom + 2 { left } else { bottom };
        left -= bottom;
        let charts = if left < 8 {
            0
        } else {
            (left * 11 / 20).clamp(5, 16)
        };
        let [header, banner, charts, roles, bottom, events, footer] =
            [2, banner, charts, roles, bottom, left - charts, 1]
                .iter()
                .scan(area.y, |y, &height| {
                    let part = Rect {
                        y: *y,
                        height,
                        ..area
                    };
                    *y += height;
                    Some(part)
                })
                .collect::<Vec<_>>()
                .try_into()
                .unwrap_or([Rect::ZERO; 7]);
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
            header,
            banner,
            charts,
            roles,
            weights,
            incidents,
            events,
            footer,
        }
    }
}

/// A line at `row` of the area, cut at its edge.
fn put(buf: &mut Buffer, area: Rect, row: u16, line: Line) {
    if row < area.height {
        buf.set_line(area.x, area.y + row, &line, area.width);
    }
}

/// Text at the left and at the right of one line; the right one gives way when both do not fit.
fn put_ends(buf: &mut Buffer, area: Rect, row: u16, left: Line, right: Line) {
    let (l, r) = (left.width() as u16, right.width() as u16);
    put(buf, area, row, left);
    if l + 2 + r <= area.width && row < area.height {
        buf.set_line(area.right() - r, area.y + row, &right, r);
    }
}

/// A section's heading over the whole width, and the area below it.
fn section(state: &State, area: Rect, title: &str, buf: &mut Buffer) -> Rect {
    if area.is_empty() {
        return area;
    }
    let style = state.look.heading();
    buf.set_style(Rect { height: 1, ..area }, style);
    let title = state.look.fit(title, usize::from(area.width));
    buf.set_string(area.x, area.y, title, style);
    Rect {
        y: area.y + 1,
        height: area.height - 1,
        ..area
    }
}
