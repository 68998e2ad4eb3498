//! Keys, or the answer to the last action.
use super::super::event::Playback;
use super::super::help::{Help, hints};
use super::super::state::{State, Typing};
use super::look::Tone;
use super::{put, put_ends};
use crate::format::clock;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

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
    if let Some(typing) = state.typing {
        let (label, words) = match typing {
            Typing::Filter(id) => ("filter", &state.view(id).filter),
            Typing::Search => ("find in the log", &state.log_words),
        };
        let line = Line::from(vec![
            Span::styled(format!(" {label}: "), look.strong()),
            Span::raw(look.fit(words, 40)),
            Span::styled(look.glyph("▏", "_"), look.accent()),
            Span::styled("  Enter keeps, Esc ends it", look.faint()),
        ]);
        return put(buf, area, 0, line);
    }
    let mut spans = vec![Span::raw(" ")];
    let filter = &state.view(state.focus()).filter;
    if !filter.is_empty() {
        let text = format!("filter: {} (Esc)   ", look.fit(filter, 20));
        spans.push(Span::styled(text, look.tone(Tone::Warn)));
    }
    let protected = state.job.status().is_some_and(|s| s.protected);
    let right = match (&state.playback, state.read_only) {
        (Some(play), _) => playback(play),
        (None, true) => "read-only ".to_owned(),
        (None, false) if protected => "protected ".to_owned(),
        (None, false) => String::new(),
    };
    // What is at the right says more than a hint.
    let room = usize::from(area.width).saturating_sub(right.chars().count());
    for (key, does) in fitting(state, room) {
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

/// The hints that there is room for; help and quit are the last to go.
fn fitting(state: &State, width: usize) -> Vec<Help> {
    let mut kept = hints(state.screen).to_vec();
    let cells = |kept: &[Help]| -> usize {
        let one = |(key, does): &Help| key.len() + does.len() + 4;
        kept.iter().map(one).sum()
    };
    while kept.len() > 2 && cells(&kept) > width + 2 {
        kept.remove(kept.len() - 3);
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
