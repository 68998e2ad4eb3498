//! Dialogs and the help, over the middle of the screen.
use super::super::dialog::{Menu, Overlay, Prompt};
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
/// A list has names and what they mean side by side.
const WIDE: u16 = 76;
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
            frame(state, (&title, WIDTH), &lines, Style::new(), area, buf);
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
            frame(state, (&title, WIDTH), &lines, style, area, buf);
        }
        Some(Overlay::Menu(menu)) => draw_menu(state, menu, area, buf),
        Some(Overlay::Prompt(prompt)) => draw_prompt(state, prompt, area, buf),
    }
}

fn draw_menu(state: &State, menu: &Menu, area: Rect, buf: &mut Buffer) {
    let whom = match &menu.life {
        Some(life) => crate::format::who(&life.role, life.index),
        None => format!("node {} and the leader", menu.node),
    };
    let room = usize::from(WIDE.min(area.width)).saturating_sub(4);
    let line = |(i, kind): (usize, &robust_shared::fault::Kind)| {
        let mark = match i == menu.at {
            true => state.look.glyph("▶", ">"),
            false => state.look.glyph("·", "-"),
        };
        let text = format!("{mark} {:<18} {}", kind.name(), kind.help());
        state.look.fit(&text, room)
    };
    let mut lines: Vec<String> = menu.kinds.iter().enumerate().map(line).collect();
    lines.push(String::new());
    lines.push("j k: select     Enter: go on     Esc: do nothing".to_owned());
    let title = format!(" A fault for {whom} ");
    let style = state.look.tone(Tone::Bad);
    frame(state, (&title, WIDE), &lines, style, area, buf);
}

fn draw_prompt(state: &State, prompt: &Prompt, area: Rect, buf: &mut Buffer) {
    let cursor = state.look.glyph("▏", "_");
    let mut lines = vec![
        prompt.kind.label(),
        format!("> {}{cursor}", prompt.text),
        prompt.problem.clone(),
    ];
    let hint = prompt.kind.hint();
    if !hint.is_empty() {
        lines.push(hint);
    }
    lines.push("Enter: go on     Esc: do nothing".to_owned());
    let style = state.look.accent();
    frame(state, (" Change ", WIDTH), &lines, style, area, buf);
}

fn frame(
    state: &State,
    (title, width): (&str, u16),
    lines: &[String],
    style: Style,
    area: Rect,
    buf: &mut Buffer,
) {
    let width = width.min(area.width);
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
