//! Weight synchronisation: how far each rollout is.
use crate::console::state::Sight;
use crate::console::ui::look::Tone;
use crate::console::ui::{put, section};
use crate::format::{bar, bytes, is_engine, rate};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use robust_proto::v1;

/// A line for each rollout.
pub fn draw(sight: &Sight, s: &v1::Status, area: Rect, buf: &mut Buffer) {
    let title = format!("WEIGHTS v{}, {}", s.weight_version, bytes(s.weight_bytes));
    let inner = section(sight.look, area, &title, buf);
    let rollouts: Vec<_> = s.roles.iter().filter(|r| is_engine(&r.role)).collect();
    let room = usize::from(inner.height);
    for (row, r) in rollouts.iter().take(room).enumerate() {
        let last_line = row + 1 == room && rollouts.len() > room;
        let line = if last_line {
            let text = format!("and {} more", rollouts.len() - row);
            Line::styled(text, sight.look.faint())
        } else {
            line(sight, r, usize::from(inner.width))
        };
        put(buf, inner, row as u16, line);
    }
}

fn line(sight: &Sight, r: &v1::RoleStatus, width: usize) -> Line<'static> {
    let look = sight.look;
    let pulling = r.pull_total > 0 && r.pull_bytes < r.pull_total;
    // What a pull has to tell needs the room.
    let gauge_width = match pulling {
        true => width.saturating_sub(45).clamp(4, 24),
        false => width.saturating_sub(23).clamp(4, 24),
    };
    let name = format!("{:<2} ", look.fit(&r.index.to_string(), 3));
    let room = width.saturating_sub(gauge_width + 5);
    let (fraction, text, style) = if pulling {
        let fraction = r.pull_bytes as f64 / r.pull_total as f64;
        let text = pull(r, fraction, room);
        (fraction, text, look.tone(Tone::Warn))
    } else {
        let good = if r.admitted { Tone::Good } else { Tone::Warn };
        let held = if r.admitted { "serves" } else { "not routed" };
        let full = f64::from(u8::from(r.pull_total > 0));
        (
            full,
            format!("{held} v{}", r.weight_version),
            look.tone(good),
        )
    };
    Line::from(vec![
        Span::styled(name, look.strong()),
        Span::styled(bar(fraction, gauge_width, look.ascii), look.accent()),
        Span::raw(" "),
        Span::styled(look.fit(&text, room), style),
    ])
}

/// As much of a pull as there is room for: how far, from whom, how fast.
fn pull(r: &v1::RoleStatus, fraction: f64, room: usize) -> String {
    let (version, percent) = (r.pull_version, fraction * 100.0);
    let rate = rate(r.pull_bytes_per_s);
    let sizes = format!("{}/{}", bytes(r.pull_bytes), bytes(r.pull_total));
    let chunks = format!("chunk {}/{}", r.pull_chunks, r.pull_chunks_total);
    let texts = match r.pull_source.split_once('-') {
        Some((role, index)) => {
            let from = format!("from {role} {index}, {rate}");
            let initial = role.get(..1).unwrap_or_default();
            vec![
                format!("pulls v{version} {sizes}, {chunks} {from}"),
                format!("pulls v{version} {sizes} {from}"),
                format!("pulls v{version} {percent:.0}% {from}"),
                format!("v{version} {percent:.0}% {initial}{index} {rate}"),
                format!("{percent:.0}% {initial}{index} {rate}"),
            ]
        }
        None => vec![format!("pulls v{version} {sizes}")],
    };
    let fits = |text: &String| text.chars().count() <= room;
    let shortest = format!("pulls v{version} {percent:.0}%");
    texts.into_iter().find(fits).unwrap_or(shortest)
}
