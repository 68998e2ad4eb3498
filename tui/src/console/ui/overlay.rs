//! Dialogs and the help, over the middle of the screen.
use super::super::event::{Fault, Strike};
use super::super::keys::HELP;
use super::super::state::{Overlay, State};
use crate::format::who;
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
            let lines: Vec<String> = HELP
                .iter()
                .map(|(key, does)| format!("{key:<13} {does}"))
                .collect();
            frame(state, " Keys ", &lines, Style::new(), area, buf);
        }
        Some(Overlay::Inject(strike)) => {
            let title = format!(
                " {} {}? ",
                verb(strike.fault),
                who(&strike.role, strike.index)
            );
            let lines = consequences(state, strike);
            frame(
                state,
                &title,
                &lines,
                state.look.tone(super::look::Tone::Bad),
                area,
                buf,
            );
        }
        Some(Overlay::Stop) => {
            let lines = [
                "The job ends at its last committed step, every role and the daemon with it."
                    .to_owned(),
                String::new(),
                "y Enter: end the job     n Esc: leave it running".to_owned(),
            ];
            let style = state.look.tone(super::look::Tone::Bad);
            frame(state, " End the job? ", &lines, style, area, buf);
        }
    }
}

fn verb(fault: Fault) -> &'static str {
    match fault {
        Fault::Kill => "Kill",
        Fault::Hang => "Hang",
    }
}

fn consequences(state: &State, strike: &Strike) -> Vec<String> {
    let signal = match strike.fault {
        Fault::Kill => "SIGKILL goes",
        Fault::Hang => "SIGSTOP goes",
    };
    let whom = format!(
        "{signal} to pid {} (incarnation {}).",
        strike.pid, strike.incarnation
    );
    let found = match strike.fault {
        Fault::Kill => "",
        Fault::Hang => " It is found when the silence outlasts its rule's window.",
    };
    let policy = state.status.as_ref().map_or("", |s| &s.policy);
    let ranks = state.roles().iter().filter(|r| r.role == "trainer").count();
    let then = match (policy, strike.role.as_str()) {
        ("task", _) => "Policy task: the whole job is restarted.".to_owned(),
        (_, "trainer") => format!(
            "All {ranks} trainer ranks restart from the last snapshot; rollouts go on generating."
        ),
        (_, "rollout" | "hybrid") => {
            "Its requests go on elsewhere; a new replica pulls the weights and \
                           is routed to once it verified them."
                .to_owned()
        }
        _ => "Its conversations resume from their last stored turn.".to_owned(),
    };
    vec![
        format!("{whom}{found}"),
        then,
        String::new(),
        format!("y Enter: {}     n Esc: do nothing", strike.fault.name()),
    ]
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
