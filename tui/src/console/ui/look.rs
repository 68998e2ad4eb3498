//! Glyphs and colours. Every state is also a word, so neither carries meaning alone.
use crate::cli::ThemeName;
use ratatui::style::{Color, Modifier, Style};
use robust_shared::phase::Phase;
use robust_shared::printable;
use robust_shared::wire::{InstanceState, Word as _};

/// How good a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Good,
    /// On its way, or worth a look.
    Warn,
    /// Broken.
    Bad,
    /// Neither.
    Plain,
}

/// Glyphs and colours of a console.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// ASCII only.
    pub ascii: bool,
    theme: ThemeName,
    colour: bool,
}

impl Look {
    /// For a terminal.
    pub fn new(theme: ThemeName, colour: bool, ascii: bool) -> Look {
        Look {
            ascii,
            theme,
            colour,
        }
    }

    fn fg(self, dark: Color, light: Color) -> Style {
        if !self.colour {
            return Style::new();
        }
        Style::new().fg(if self.theme == ThemeName::Dark {
            dark
        } else {
            light
        })
    }

    /// Text in the colour of how good it is.
    pub fn tone(self, tone: Tone) -> Style {
        match tone {
            Tone::Good => self.fg(Color::LightGreen, Color::Green),
            Tone::Warn => self.fg(Color::LightYellow, Color::Magenta),
            Tone::Bad => self
                .fg(Color::LightRed, Color::Red)
                .add_modifier(Modifier::BOLD),
            Tone::Plain => Style::new(),
        }
    }

    /// Curves and gauges.
    pub fn accent(self) -> Style {
        self.fg(Color::LightCyan, Color::Blue)
    }

    /// One of several of a kind that follow each other: neighbours can be told apart.
    pub fn one_of(self, n: usize) -> Style {
        match n % 5 {
            0 => self.fg(Color::LightCyan, Color::Blue),
            1 => self.fg(Color::LightYellow, Color::Magenta),
            2 => self.fg(Color::LightGreen, Color::Green),
            3 => self.fg(Color::LightMagenta, Color::Cyan),
            _ => self.fg(Color::LightBlue, Color::Red),
        }
    }

    /// What matters less.
    pub fn faint(self) -> Style {
        if self.colour {
            self.fg(Color::Gray, Color::DarkGray)
        } else {
            Style::new().add_modifier(Modifier::DIM)
        }
    }

    /// Headings of sections and tables.
    pub fn heading(self) -> Style {
        self.accent()
            .add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
    }

    /// What must be read first.
    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The selected row.
    pub fn selection(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// The banner and dialogs' frames.
    pub fn alarm(self) -> Style {
        self.tone(Tone::Bad).add_modifier(Modifier::REVERSED)
    }

    /// How good a state, severity or outcome is.
    pub fn tone_of(self, word: &str) -> Tone {
        match word {
            "running" | "recovered" | "completed" | "done" => Tone::Good,
            "here" | "complete" | "passed" => Tone::Good,
            "starting" | "stale" | "suspect" | "recovering" | "waiting" | "warn" | "stopped"
            | "quarantined" | "cordoned" | "awaited" | "draining" | "paused" => Tone::Warn,
            "failed" | "down" | "fault" | "lost" => Tone::Bad,
            _ => Tone::Plain,
        }
    }

    /// A sign that goes with a state's word.
    pub fn sign(self, word: &str) -> char {
        let (fine, plain) = match word {
            "running" | "here" => ('●', '*'),
            "starting" => ('◌', '.'),
            "waiting" | "awaited" | "left" => ('○', 'o'),
            "quarantined" | "cordoned" | "draining" => ('◌', '%'),
            "stale" => ('◌', ':'),
            "suspect" => ('◍', '?'),
            "recovering" => ('◐', '~'),
            "down" | "failed" | "fault" | "lost" => ('✖', 'x'),
            "done" | "completed" | "recovered" | "complete" | "passed" => ('✔', '+'),
            "stopped" | "paused" => ('■', '#'),
            "warn" => ('▲', '!'),
            _ => ('·', '-'),
        };
        if self.ascii { plain } else { fine }
    }

    /// The letter of a phase on the timeline, and its colour: no two phases that the same role goes
    /// through have the same letter.
    pub fn phase(self, name: &str) -> (char, Style) {
        let (letter, dark, light) = match Phase::known(name) {
            Some(Phase::Init) => ('i', Color::Magenta, Color::Magenta),
            Some(Phase::LoadCheckpoint) => ('l', Color::Magenta, Color::Magenta),
            Some(Phase::AwaitBatch) => ('.', Color::Gray, Color::DarkGray),
            Some(Phase::ContextSwitch) => ('x', Color::Yellow, Color::Magenta),
            Some(Phase::Reshard) => ('r', Color::Yellow, Color::Magenta),
            Some(Phase::RefLogprob) => ('f', Color::LightBlue, Color::Blue),
            Some(Phase::OldLogprob) => ('o', Color::LightBlue, Color::Blue),
            Some(Phase::Advantage) => ('a', Color::LightBlue, Color::Blue),
            Some(Phase::Update) => ('U', Color::LightCyan, Color::Cyan),
            Some(Phase::Snapshot) => ('s', Color::Yellow, Color::Magenta),
            Some(Phase::Publish) => ('p', Color::Yellow, Color::Magenta),
            Some(Phase::PullWeights) => ('w', Color::Yellow, Color::Magenta),
            Some(Phase::Idle) => ('.', Color::Gray, Color::DarkGray),
            Some(Phase::Generating) => ('G', Color::LightGreen, Color::Green),
            Some(Phase::AwaitingTool) => ('t', Color::Green, Color::Green),
            Some(Phase::Paused) => ('-', Color::Gray, Color::DarkGray),
            Some(Phase::Loop) => ('?', Color::Gray, Color::DarkGray),
            // Of a process that is gone its state is told instead.
            None => match InstanceState::known(name) {
                Some(InstanceState::Recovering) => ('~', Color::LightYellow, Color::Red),
                Some(InstanceState::Down) => ('!', Color::LightRed, Color::Red),
                Some(InstanceState::Done) => (' ', Color::Gray, Color::DarkGray),
                _ => ('?', Color::Gray, Color::DarkGray),
            },
        };
        (letter, self.fg(dark, light))
    }

    /// One of two glyphs, by what the terminal can show.
    pub fn glyph(self, fine: &'static str, plain: &'static str) -> &'static str {
        if self.ascii { plain } else { fine }
    }

    /// The daemon's text made fit for one line of this terminal, at most `width` cells.
    pub fn fit(self, text: &str, width: usize) -> String {
        let room = width.saturating_sub(1);
        // Nearly all there is: the longest table is drawn many times a second.
        if text.bytes().all(|b| (b' '..=b'~').contains(&b)) {
            return match text.len() <= width {
                true => text.to_owned(),
                false if width == 0 => String::new(),
                false => text[..room].to_owned() + self.glyph("…", "~"),
            };
        }
        let clean: String = text
            .chars()
            .map(|c| match c {
                c if c.is_control() => ' ',
                c if self.ascii && !c.is_ascii() => '?',
                c => printable::character(c),
            })
            .collect();
        let wide = |s: &str| ratatui::text::Span::raw(s).width();
        if wide(&clean) <= width {
            return clean;
        }
        let mut cut = String::new();
        let mut used = 0;
        for c in clean.chars() {
            used += wide(c.encode_utf8(&mut [0; 4]));
            if used > room {
                break;
            }
            cut.push(c);
        }
        if width > 0 {
            cut + self.glyph("…", "~")
        } else {
            cut
        }
    }
}
