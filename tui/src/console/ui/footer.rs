//! Keys, or the answer to the last action.
use super::super::state::State;
use super::look::Tone;
use super::put;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

const KEYS: [(&str, &str); 6] = [
    ("j/k", "select"),
    ("K", "kill"),
    ("H", "hang"),
    ("s", "stop job"),
    ("?", "help"),
    ("q", "quit"),
];

/// One line.
pub fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    let look = state.look;
    if let Some(notice) = &state.notice {
        let (sign, tone) = if notice.good {
            ("done", Tone::Good)
        } else {
            ("failed", Tone::Bad)
        };
        let text = format!(" {} {}", look.sign(sign), notice.text);
        let text = look.fit(&text, usize::from(area.width));
        return put(buf, area, 0, Line::styled(text, look.tone(tone)));
    }
    let mut spans = vec![Span::raw(" ")];
    for (key, does) in KEYS {
        spans.push(Span::styled(key, look.strong().patch(look.accent())));
        spans.push(Span::styled(format!(" {does}   "), look.faint()));
    }
    put(buf, area, 0, Line::from(spans));
}
