//! The newest events.
use crate::console::state::Sight;
use crate::console::ui::{put, section};
use crate::format::{time_of_day_at, who};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use robust_proto::v1;

/// As many as fit, the newest last.
pub fn draw(sight: &Sight, area: Rect, buf: &mut Buffer) {
    let inner = section(sight.look, area, "EVENTS", buf);
    let room = usize::from(inner.height);
    let first = sight.job.events().len().saturating_sub(room);
    for (row, event) in sight.job.events().iter().skip(first).enumerate() {
        put(
            buf,
            inner,
            row as u16,
            line(sight, event, usize::from(inner.width)),
        );
    }
}

fn line(sight: &Sight, e: &v1::Event, width: usize) -> Line<'static> {
    let look = sight.look;
    let time = time_of_day_at(e.at_ms, sight.zone);
    let time = time.split('.').next().unwrap_or_default().to_owned();
    let tone = look.tone(look.tone_of(&e.severity));
    let head = format!("{time} ");
    let mark = format!("{} {:<5} ", look.sign(&e.severity), e.severity);
    let subject = format!("{:<10} ", look.fit(&who(&e.role, e.index), 10));
    let used = head.len() + mark.chars().count() + subject.len();
    Line::from(vec![
        Span::styled(head, look.faint()),
        Span::styled(mark, tone),
        Span::raw(subject),
        Span::raw(look.fit(
            &format!("{}: {}", e.kind, e.text),
            width.saturating_sub(used),
        )),
    ])
}
