//! Keys, or the answer to the last action.
use crate::console::event::Playback;
use crate::console::key::Key;
use crate::console::state::State;
use crate::console::ui::look::Tone;
use crate::console::ui::{put, put_ends};
use crate::format::clock;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// One line.
pub fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    let common = state.common();
    let look = common.look;
    if let Some(notice) = state.notice() {
        let (sign, tone) = if notice.good {
            ("done", Tone::Good)
        } else {
            ("failed", Tone::Bad)
        };
        let text = format!(" {} {}", look.sign(sign), notice.text);
        let text = look.fit(&text, usize::from(area.width));
        return put(buf, area, 0, Line::styled(text, look.tone(tone)));
    }
    let hints = state.screen().hints(common);
    if let Some((label, words)) = hints.typing {
        let line = Line::from(vec![
            Span::styled(format!(" {label}: "), look.strong()),
            Span::raw(look.fit(words, 40)),
            Span::styled(look.glyph("▏", "_"), look.accent()),
            Span::styled("  Enter keeps, Esc ends it", look.faint()),
        ]);
        return put(buf, area, 0, line);
    }
    let mut spans = vec![Span::raw(" ")];
    if !hints.filter.is_empty() {
        let text = format!("filter: {} (Esc)   ", look.fit(hints.filter, 20));
        spans.push(Span::styled(text, look.tone(Tone::Warn)));
    }
    let marked = state.screen().marked(common);
    if marked > 0 {
        let text = format!("{marked} marked (Esc)   ");
        spans.push(Span::styled(text, look.tone(Tone::Warn)));
    }
    let said: usize = spans.iter().map(Span::width).sum();
    let protected = common.job.status().is_some_and(|s| s.protected);
    let right = match (&common.playback, common.read_only) {
        (Some(play), _) => playback(play),
        (None, true) => "read-only ".to_owned(),
        (None, false) if protected => "protected ".to_owned(),
        (None, false) => String::new(),
    };
    // What is at the right says more than a hint, and stands apart from the last one.
    let taken = match right.chars().count() {
        0 => 0,
        cells => cells + 5,
    };
    let room = usize::from(area.width).saturating_sub(taken + said.saturating_sub(1));
    for (key, does) in fitting(hints.most, room).iter().map(Key::short) {
        spans.push(Span::styled(key, look.strong().patch(look.accent())));
        spans.push(Span::styled(format!(" {does}   "), look.faint()));
    }
    put_ends(
        buf,
        area,
        0,
        Line::from(spans),
        Line::styled(right, look.strong()),
    );
}

/// The hints that there is room for; palette, help and quit are the last to go.
fn fitting(hints: &[Key], width: usize) -> Vec<Key> {
    const KEPT: usize = 3;
    let mut kept = hints.to_vec();
    let cells = |kept: &[Key]| -> usize {
        let one = |(key, does): (&str, &str)| key.len() + does.len() + 4;
        kept.iter().map(|key| one(key.short())).sum()
    };
    while kept.len() > KEPT && cells(&kept) > width + 2 {
        kept.remove(kept.len() - KEPT - 1);
    }
    kept
}

/// Where a recording is and how it runs.
fn playback(play: &Playback) -> String {
    let time = |ms: u64| clock(ms.saturating_sub(play.from) as f64 / 1000.0);
    let how = match play.paused {
        true => "paused".to_owned(),
        false => format!("{}x", play.speed),
    };
    format!("recording {} of {}, {how} ", time(play.at), time(play.to))
}
