//! Dialogs and the help, over the middle of the screen.
use super::super::dialog::{Ask, Menu, Overlay, Prompt};
use super::super::help::{Help, help};
use super::super::state::State;
use super::look::Tone;
use super::{Drawn, wrapped};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::symbols::border;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Widget as _, Wrap};

const WIDTH: u16 = 58;
/// A list has names, or keys, and what they mean side by side.
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

/// A frame over the middle of the screen.
struct Sheet<'a> {
    title: &'a str,
    /// On the lower edge.
    foot: &'a str,
    width: u16,
    style: Style,
}

/// Draws it if there is one.
pub fn draw(state: &State, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
    match &state.overlay {
        None => {}
        Some(Overlay::Help { first }) => draw_help(state, *first, area, buf, drawn),
        Some(Overlay::Ask(ask)) => draw_ask(state, ask, area, buf),
        Some(Overlay::Menu(menu)) => draw_menu(state, menu, area, buf),
        Some(Overlay::Prompt(prompt)) => draw_prompt(state, prompt, area, buf),
    }
}

/// As many keys as there is room for; the lower edge says how many lines are still to come.
fn draw_help(state: &State, first: usize, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
    let title = format!(" Keys on {} ", state.screen.title());
    let keys = help(state.screen, state.playback.is_some());
    let (room, rows) = inside(WIDE, area);
    let lines: Vec<String> = keys.iter().flat_map(|key| of_key(key, room)).collect();
    let first = first.min(lines.len().saturating_sub(rows));
    let shown = &lines[first..lines.len().min(first + rows)];
    drawn.left = lines.len() - first - shown.len();
    let foot = match (first, drawn.left) {
        (0, 0) => String::new(),
        (_, 0) => " k scrolls back ".to_owned(),
        (_, left) => format!(" {left} more, j k scroll "),
    };
    let sheet = Sheet {
        title: &title,
        foot: &foot,
        width: WIDE,
        style: Style::new(),
    };
    frame(state, &sheet, shown, area, buf);
}

/// A key, and beside it what it does.
fn of_key((key, does): &Help, room: usize) -> Vec<String> {
    let parts = wrapped(does, room.saturating_sub(19));
    let keys = std::iter::once(*key).chain(std::iter::repeat(""));
    let lines = keys.zip(parts);
    lines
        .map(|(key, part)| format!("{key:<18} {part}"))
        .collect()
}

fn draw_ask(state: &State, ask: &Ask, area: Rect, buf: &mut Buffer) {
    let title = format!(" {} ", ask.act.question());
    let mut asked = vec![String::new()];
    let verb = ask.act.verb();
    match &ask.needs {
        None => asked.push(format!("y Enter: {verb}     n Esc: do nothing")),
        Some(word) => {
            let cursor = state.look.glyph("▏", "_");
            asked.push(format!(
                "Type `{word}` and Enter to {verb}; Esc: do nothing"
            ));
            asked.push(format!("> {}{cursor}", ask.typed));
        }
    }
    let mut lines = above(ask.act.consequences(state), &asked, area);
    lines.extend(asked);
    let sheet = Sheet {
        title: &title,
        foot: "",
        width: WIDTH,
        style: state.look.tone(Tone::Bad),
    };
    frame(state, &sheet, &lines, area, buf);
}

/// What it means, cut where what is asked for would not be seen below it: a drain can name hundreds.
fn above(means: Vec<String>, asked: &[String], area: Rect) -> Vec<String> {
    let (room, height) = inside(WIDTH, area);
    let left = height.saturating_sub(rows(asked, room));
    if rows(&means, room) <= left {
        return means;
    }
    let mut lines: Vec<String> = means.iter().flat_map(|m| wrapped(m, room)).collect();
    if lines.len() > left {
        let kept = left.saturating_sub(1);
        let more = lines.len() - kept;
        lines.truncate(kept);
        lines.push(format!("and {more} more lines"));
    }
    lines
}

/// Columns and rows for text within a frame so wide.
fn inside(width: u16, area: Rect) -> (usize, usize) {
    let room = width.min(area.width).saturating_sub(4);
    (
        usize::from(room),
        usize::from(area.height.saturating_sub(2)),
    )
}

/// Rows that lines take. Words wrap at most a line earlier than cells would.
fn rows(lines: &[String], room: usize) -> usize {
    let of = |line: &String| match Line::raw(line.as_str()).width() {
        width if width <= room => 1,
        width => (width + 8).div_ceil(room),
    };
    lines.iter().map(of).sum()
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
    let sheet = Sheet {
        title: &title,
        foot: "",
        width: WIDE,
        style: state.look.tone(Tone::Bad),
    };
    frame(state, &sheet, &lines, area, buf);
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
    let sheet = Sheet {
        title: " Change ",
        foot: "",
        width: WIDTH,
        style: state.look.accent(),
    };
    frame(state, &sheet, &lines, area, buf);
}

fn frame(state: &State, sheet: &Sheet, lines: &[String], area: Rect, buf: &mut Buffer) {
    let width = sheet.width.min(area.width);
    let (room, most) = inside(width, area);
    let height = rows(lines, room).min(most) as u16 + 2;
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
    let strong = sheet.style.patch(state.look.strong());
    let mut block = Block::bordered()
        .border_set(set)
        .border_style(sheet.style)
        .title(Line::styled(sheet.title.to_owned(), strong))
        .padding(ratatui::widgets::Padding::horizontal(1));
    if !sheet.foot.is_empty() {
        let foot = Line::styled(sheet.foot.to_owned(), strong);
        block = block.title_bottom(foot.right_aligned());
    }
    let text: Vec<Line> = lines.iter().map(|l| Line::raw(l.clone())).collect();
    // What fits keeps its indentation, which wrapping takes.
    let fits = text.iter().all(|line| line.width() <= room);
    let text = match fits {
        true => Paragraph::new(text),
        false => Paragraph::new(text).wrap(Wrap { trim: true }),
    };
    text.block(block).render(place, buf);
}
