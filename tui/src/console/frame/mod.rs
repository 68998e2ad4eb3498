//! A whole frame, drawn from `&State`; nothing here changes anything. What was drawn where is handed back
//! ([`Drawn`]), which is what the mouse is held against.
//!
//! ```text
//!  tabs     1 line: the screens and their keys
//!  header   2 lines: job, state, age of data; step gauge, version, reward
//!  banner   0 or 1: daemon lost, job over, an alarm, what an operator left behind, an advice
//!  body     the screen (`Screen::draw`), and a dialog over all of it
//!  footer   keys, what is being typed, or the answer to the last action
//! ```
mod empty;
mod footer;
mod header;
mod tabs;

use super::state::State;
use super::ui::{Drawn, below, line, put, split};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// Below this nothing useful fits.
const SMALLEST: (u16, u16) = (60, 16);

/// Whether nothing useful fits, which is said then.
pub fn is_too_small(area: Rect, buf: &mut Buffer) -> bool {
    let (w, h) = SMALLEST;
    let is_small = area.width < w || area.height < h;
    if is_small {
        let text = format!(
            "robustctl: {}x{} is too small, {w}x{h} needed",
            area.width, area.height
        );
        put(buf, area, 0, Line::raw(text));
    }
    is_small
}

/// Draws a frame.
pub fn draw(state: &State, frame: &mut Frame) -> Drawn {
    let area = frame.area();
    let buf = frame.buffer_mut();
    let common = state.common();
    let mut drawn = common.drawn.next();
    if is_too_small(area, buf) {
        return drawn;
    }
    tabs::draw(common.look, state.shown(), line(area, 0), buf, &mut drawn);
    let rest = below(area, 1);
    let (above, last) = split(rest, rest.height - 1);
    let body = match common.job.status() {
        None if state.shown().needs_no_daemon() => Some(above),
        None => {
            empty::draw(common, above, buf);
            None
        }
        Some(status) => {
            let banner = u16::from(header::has_banner(common));
            let (head, rest) = split(above, 2);
            let (alarm, body) = split(rest, banner);
            header::draw(common, status, head, buf);
            header::draw_banner(common, status, alarm, buf);
            Some(body)
        }
    };
    if let Some(body) = body {
        state.screen().draw(common, body, buf, &mut drawn);
    }
    footer::draw(state, last, buf);
    if let Some(dialog) = state.dialog() {
        dialog.draw(common, area, buf, &mut drawn);
    }
    drawn
}
