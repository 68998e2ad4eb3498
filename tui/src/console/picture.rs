//! A frame of a recording as a picture: what a terminal of some size would show at that moment, as an SVG in
//! which text is text. Its colours follow whoever looks at it, light or dark.
//!
//! ```text
//!  Recording ──► Player ──► State ── draw ──► Buffer ── a run of cells of one style ──► <text>, <rect>
//! ```
use super::event::Event;
use super::frame;
use super::record::Recording;
use super::replay::Player;
use super::state::{Settings, State};
use super::ui::look::Look;
use crate::cli::{PictureArgs, ThemeName, TuiArgs};
use crate::error::CliError;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use std::fmt::Write as _;
use std::path::Path;

/// Width and height of a cell, and from its top to the line that letters stand on, in SVG's units.
const CELL: (f64, f64) = (8.4, 18.0);
const BASE: f64 = 13.5;
/// Around the cells.
const MARGIN: f64 = 12.0;

/// Colours by what they mean, on light and on dark. Classes, since not all that draws pictures knows variables.
const STYLE: &str = "\
text{font:14px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace}\
.strong{font-weight:bold}.line{text-decoration:underline}\
.bg{fill:#ffffff}.fg{fill:#1f2328}.good{fill:#1a7f37}.warn{fill:#9a6700}.bad{fill:#cf222e}\
.accent{fill:#0969da}.faint{fill:#656d76}\
@media(prefers-color-scheme:dark){\
.bg{fill:#0d1117}.fg{fill:#e6edf3}.good{fill:#56d364}.warn{fill:#e3b341}.bad{fill:#ff7b72}\
.accent{fill:#79c0ff}.faint{fill:#9198a1}}";

/// Draws a frame of the recording that is to be replayed, and writes it to its file.
pub fn write(args: &TuiArgs, picture: &PictureArgs, to: &Path) -> Result<(), CliError> {
    let Some(recording) = &args.replay else {
        let need = "a picture is drawn of a recording: name one with --replay FILE";
        return Err(CliError::Usage(need.to_owned()));
    };
    let recording = Recording::open(recording).map_err(CliError::Usage)?;
    let drawn = draw(recording, args, picture)?;
    let unwritable = |e| CliError::Failed(format!("{} cannot be written: {e}", to.display()));
    std::fs::write(to, svg(&drawn)).map_err(unwritable)
}

fn draw(recording: Recording, args: &TuiArgs, picture: &PictureArgs) -> Result<Buffer, CliError> {
    let look = Look::new(ThemeName::Dark, true, args.ascii);
    let mut state = State::new(Settings {
        zone: *chrono::Local::now().offset(),
        ..Settings::of(look, recording.place.clone())
    });
    let mut player = Player::new(recording, 0);
    let playback = player.playback();
    let length = (playback.to - playback.from) as f64 / 1000.0;
    let after = picture.frame.unwrap_or(length);
    if !(0.0..=length).contains(&after) {
        return Err(CliError::Usage(format!(
            "the recording is {length:.1} s long and has no frame at {after} s"
        )));
    }
    let _ = state.start(playback.from);
    for (at, said) in player.tick((after * 1000.0) as u64).said {
        let link = state.link_no();
        let _ = state.handle(at, said.event(link));
    }
    let now = player.playback().at;
    let screen = char::from_digit(u32::from(picture.screen), 10).unwrap_or('1');
    let key = KeyEvent::new(KeyCode::Char(screen), KeyModifiers::NONE);
    let _ = state.handle(now, Event::Key(key));
    let _ = state.handle(now, Event::Tick);
    let (width, height) = picture.size;
    // This backend draws into memory, which cannot fail.
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| drop(frame::draw(&state, frame)));
    Ok(terminal.backend().buffer().clone())
}

/// What cells of a run have in common.
#[derive(Clone, Copy, PartialEq)]
struct Style {
    ink: &'static str,
    /// What the cells are filled with; none: as the whole picture.
    fill: Option<&'static str>,
    bold: bool,
    underlined: bool,
}

impl Style {
    fn of(cell: &Cell) -> Style {
        let ink = match cell.fg {
            Color::LightGreen | Color::Green => "good",
            Color::LightYellow | Color::Yellow => "warn",
            Color::LightRed | Color::Red => "bad",
            Color::LightCyan | Color::Cyan => "accent",
            Color::Gray | Color::DarkGray => "faint",
            _ => "fg",
        };
        let reversed = cell.modifier.contains(Modifier::REVERSED);
        Style {
            ink: if reversed { "bg" } else { ink },
            fill: reversed.then_some(ink),
            bold: cell.modifier.contains(Modifier::BOLD),
            underlined: cell.modifier.contains(Modifier::UNDERLINED),
        }
    }

    fn classes(self) -> String {
        let mut classes = self.ink.to_owned();
        if self.bold {
            classes += " strong";
        }
        if self.underlined {
            classes += " line";
        }
        classes
    }
}

fn svg(buffer: &Buffer) -> String {
    let area = buffer.area;
    let (width, height) = (
        f64::from(area.width) * CELL.0 + 2.0 * MARGIN,
        f64::from(area.height) * CELL.1 + 2.0 * MARGIN,
    );
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" role=\"img\" \
         aria-label=\"The console of RobustRL\">\n<style>{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" class=\"bg\"/>\n"
    );
    for y in 0..area.height {
        let mut x = 0;
        while x < area.width {
            let style = Style::of(&buffer[(x, y)]);
            let same = |at: &u16| Style::of(&buffer[(*at, y)]) == style;
            let end = (x..area.width).take_while(same).last().map_or(x, |at| at) + 1;
            let text: String = (x..end).map(|at| buffer[(at, y)].symbol()).collect();
            run(&mut out, (x, y), end - x, style, &text);
            x = end;
        }
    }
    out + "</svg>\n"
}

/// Cells of one line and one style.
fn run(out: &mut String, (x, y): (u16, u16), cells: u16, style: Style, text: &str) {
    let left = MARGIN + f64::from(x) * CELL.0;
    let top = MARGIN + f64::from(y) * CELL.1;
    let width = f64::from(cells) * CELL.0;
    if let Some(fill) = style.fill {
        let _ = writeln!(
            out,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{}\" class=\"{fill}\"/>",
            CELL.1
        );
    }
    let written = text.trim();
    if written.is_empty() {
        return;
    }
    // Blanks around it are left out, and the length holds columns together in whatever font there is.
    let blanks = text.len() - text.trim_start().len();
    let around = text.len() - written.len();
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" textLength=\"{:.1}\" lengthAdjust=\"spacingAndGlyphs\" class=\"{}\">{}</text>",
        left + blanks as f64 * CELL.0,
        top + BASE,
        width - around as f64 * CELL.0,
        style.classes(),
        escaped(written)
    );
}

/// Text as it stands between tags. Of ordinary blanks some who draw pictures keep only one.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace(' ', "\u{a0}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Options {
        #[command(flatten)]
        tui: TuiArgs,
    }

    fn picture(options: &[&str]) -> Result<String, CliError> {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("frame.svg");
        let recording =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings/console-v1.jsonl");
        let fixed = ["tui", "--replay", recording.to_str().unwrap(), "--svg"];
        let fixed = fixed.into_iter().chain([to.to_str().unwrap()]);
        let options = Options::parse_from(fixed.chain(options.iter().copied()));
        write(&options.tui, &options.tui.picture, &to)?;
        Ok(std::fs::read_to_string(to).unwrap())
    }

    /// What is written in it, without tags.
    fn words(svg: &str) -> String {
        let texts = svg.split("<text ").skip(1);
        let texts = texts.map(|t| {
            t.split_once('>')
                .unwrap()
                .1
                .split("</text>")
                .next()
                .unwrap()
        });
        texts.collect::<Vec<_>>().join(" ").replace('\u{a0}', " ")
    }

    #[test]
    fn a_frame_shows_what_was_known_then() {
        let early = words(&picture(&["--frame", "1.3"]).unwrap());
        assert!(
            early.contains("recovering") && early.contains("4/40"),
            "{early}"
        );
        let last = words(&picture(&[]).unwrap());
        assert!(last.contains("5/40"), "{last}");
    }

    #[test]
    fn every_screen_is_drawn_in_the_size_that_is_asked_for() {
        for screen in super::super::names::ScreenId::ALL {
            let (title, screen) = (screen.title(), screen.key());
            let svg = picture(&["--screen", &screen.to_string(), "--size", "100x30"]).unwrap();
            let title = format!("{screen} {title}");
            assert!(words(&svg).contains(&title), "{title}: {svg}");
            // 100 cells of 8.4 and 30 of 18, and the margins.
            assert!(svg.contains("viewBox=\"0 0 864.0 564.0\""), "{svg}");
        }
    }

    #[test]
    fn a_frame_that_the_recording_does_not_have_is_refused_with_its_length() {
        let refused = picture(&["--frame", "999"]).unwrap_err().to_string();
        assert!(refused.contains("has no frame at 999 s"), "{refused}");
    }

    #[test]
    fn markup_in_what_is_shown_stays_text() {
        assert_eq!(escaped("a<b &c"), "a&lt;b\u{a0}&amp;c");
    }
}
