//! Dialogs and the help, over the middle of the screen.
use super::super::dialog::Overlay;
use super::super::help::help;
use super::super::state::State;
use super::look::Tone;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::symbols::border;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Widget as _, Wrap};

const WIDTH: u16 = 58;
const ASCII: border::Set = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

/// Draws it if there is one.
pub fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    match &state.overlay {
        None => {}
        Some(Overlay::Help) => {
            let title = format!(" Keys on {} ", state.screen.title());
            let keys = help(state.screen, state.playback.is_some());
            let lines: Vec<String> = keys
                .iter()
                .map(|(key, does)| format!("{key:<18} {does}"))
                .collect();
            frame(state, &title, &lines, Style::new(), area, buf);
        }
        Some(Overlay::Ask(ask)) => {
            let title = format!(" {} ", ask.act.question());
            let mut lines = ask.act.consequences(state);
            lines.push(String::new());
            let verb = ask.act.verb();
            match &ask.needs {
                None => lines.push(format!("y Enter: {verb}     n Esc: do nothing")),
                Some(word) => {
                    let cursor = state.look.glyph("▏", "_");
                    lines.push(format!(
                        "Type `{word}` and Enter to {verb}; Esc: do nothing"
                    ));
                    lines.push(format!("> {}{cursor}", ask.typed));
                }
            }
            let style = state.look.tone(Tone::Bad);
            frame(state, &title, &lines, style, area, buf);
        }
        Some(Overlay::Prompt(prompt)) => {
            let cursor = state.look.glyph("▏", "_");
            let lines = [
                prompt.kind.label(),
                format!("> {}{cursor}", prompt.text),
                prompt.problem.clone(),
                "Enter: go on     Esc: do nothing".to_owned(),
            ];
            frame(state, " Change ", &lines, state.look.accent(), area, buf);
        }
    }
}

fn frame(state: &State, title: &str, lines: &[String], style: Style, area: Rect, buf: &mut Buffer) {
    let width = WIDTH.min(area.width);
    let text: Vec<Line> = lines.iter().map(|l| Line::raw(l.clone())).collect();
    // Words wrap at most a line earlier than cells would.
    let wrapped = |l: &Line| {
        let room = usize::from(width - 4);
        if l.width() <= room {
            1
        } else {
            (l.width() + 8).div_ceil(room)
        }
    };
    let rows: usize = text.iter().map(wrapped).sum();
    let height = (rows as u16 + 2).min(area.height);
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    Clear.render(place, buf);
    let set = if state.look.ascii {
        ASCII
    } else {
        border::ROUNDED
    };
    let block = Block::bordered()
        .border_set(set)
        .border_style(style)
        .title(Line::styled(
            title.to_owned(),
            style.patch(state.look.strong()),
        ))
        .padding(ratatui::widgets::Padding::horizontal(1));
    Paragraph::new(text)
        .wrap(Wrap { trim: true })
        .block(block)
        .render(place, buf);
}
