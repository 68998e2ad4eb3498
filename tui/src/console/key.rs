//! The keys as words. Each key is one value, with the screen that has it or in here for those that every screen has:
//! the help, the last line and the palette (`:`) all read it, so that none of them says what another does not know.
//! What a key does is written where it is pressed: in `state/keys.rs`, and in each screen's `on`.
use crossterm::event::KeyCode;
use robust_shared::verbs;

/// A key, or keys that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    name: &'static str,
    does: &'static str,
    short: (&'static str, &'static str),
    press: Option<KeyCode>,
}

impl Key {
    /// One that the palette offers too, and presses in the operator's place. The word is what the last line and the
    /// palette call it.
    pub const fn act(
        name: &'static str,
        press: KeyCode,
        word: &'static str,
        does: &'static str,
    ) -> Key {
        Key {
            name,
            does,
            short: (name, word),
            press: Some(press),
        }
    }

    /// Some that move something about, which is nothing to look up in a palette: their names, the same as short as the
    /// last line has them, a word, and what they do.
    pub const fn hand(
        name: &'static str,
        short: &'static str,
        word: &'static str,
        does: &'static str,
    ) -> Key {
        Key {
            name,
            does,
            short: (short, word),
            press: None,
        }
    }

    /// As the help writes it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// A line on what it does.
    pub fn does(&self) -> &'static str {
        self.does
    }

    /// Key and word for the last line.
    pub fn short(&self) -> (&'static str, &'static str) {
        self.short
    }

    /// What the palette presses; none: it does not offer it.
    pub fn press(&self) -> Option<KeyCode> {
        self.press
    }
}

/// The other screens.
pub const SCREENS: Key = Key::hand("1 to 9, 0, Tab", "0-9", "screen", "another screen");
/// Rows of a table.
pub const SELECT: Key = Key::hand("j k g G PgUp PgDn", "j/k", "select", "select a row");
/// Which rows a table shows.
pub const FILTER: Key = Key::act(
    "/",
    KeyCode::Char('/'),
    "filter",
    "filter the table; Esc ends it",
);
/// In which order.
pub const SORT: Key = Key::hand("< > =", "< >", "sort", "sort by another column, turn");
/// A row of a table whose keys act on several. In a recording, in which nothing can be done, Space holds that.
pub const MARK: Key = Key::hand(
    "Space",
    "Space",
    "mark",
    "mark the selected row, or unmark it: acts are for all that are marked",
);
/// All of them.
pub const MARK_ALL: Key = Key::act(
    "a",
    KeyCode::Char('a'),
    "mark all",
    "mark all rows that are shown; Esc unmarks them",
);
/// What lies below a table.
pub const SCROLL: Key = Key::hand("[ ]", "[ ]", "scroll", "scroll the lower half");
/// The palette itself.
pub const PALETTE: Key = Key::hand(":", ":", "acts", "find a screen or an act by its words");
/// The job held back, or not.
pub const PAUSE: Key = Key::act(
    "P",
    KeyCode::Char('P'),
    verbs::pause::YES,
    "pause the job, or resume it",
);
/// All of the job anew.
pub const TASK: Key = Key::act(
    "T",
    KeyCode::Char('T'),
    "restart task",
    "restart the whole task",
);
/// The end of the job.
pub const STOP: Key = Key::act(
    "s",
    KeyCode::Char('s'),
    "stop job",
    "end the job and its daemon",
);
/// The jobs of all contexts.
pub const JOBS: Key = Key::act(
    "J",
    KeyCode::Char('J'),
    "all jobs",
    "the jobs of all contexts side by side",
);
/// A lost daemon, sooner.
pub const REACH: Key = Key::act(
    "r",
    KeyCode::Char('r'),
    "reconnect",
    "reach for a lost daemon now",
);
/// In dialogs.
pub const ANSWER: Key = Key::hand("y Enter, n Esc", "y/n", "answer", "yes, no in a dialog");
/// What needs no key.
pub const MOUSE: Key = Key::hand("mouse", "mouse", "point", "tabs, rows, headings, wheel");
/// The help.
pub const HELP: Key = Key::act("?", KeyCode::Char('?'), "help", "the keys of this screen");
/// The end of the console.
pub const QUIT: Key = Key {
    name: "q Ctrl-C",
    does: "leave the console; the job goes on",
    short: ("q", "quit"),
    press: Some(KeyCode::Char('q')),
};

/// Those of every screen.
pub static EVERYWHERE: [Key; 15] = [
    SCREENS, SELECT, FILTER, SORT, SCROLL, PALETTE, PAUSE, TASK, STOP, REACH, JOBS, ANSWER, MOUSE,
    HELP, QUIT,
];

/// Those of a recording.
pub static PLAYING: [Key; 5] = [
    Key::act(
        "Space",
        KeyCode::Char(' '),
        "hold",
        "pause the recording, or go on",
    ),
    Key::act(
        "{",
        KeyCode::Char('{'),
        "back",
        "10 s back in the recording",
    ),
    Key::act("}", KeyCode::Char('}'), "on", "10 s on in the recording"),
    Key::act("(", KeyCode::Char('('), "slower", "half the speed"),
    Key::act(")", KeyCode::Char(')'), "faster", "twice the speed"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_is_written_is_what_is_pressed_and_no_key_of_every_screen_is_there_twice() {
        let offered = EVERYWHERE.iter().chain(&PLAYING);
        let pressed: Vec<(&str, char)> = offered
            .filter_map(|key| match key.press()? {
                KeyCode::Char(letter) => Some((key.short().0, letter)),
                _ => None,
            })
            .collect();
        for (name, letter) in &pressed {
            let name = if *name == "Space" { " " } else { name };
            assert_eq!(name, letter.to_string());
        }
        let letters: BTreeSet<char> = pressed.iter().map(|(_, letter)| *letter).collect();
        assert_eq!(letters.len(), pressed.len());
    }
}
