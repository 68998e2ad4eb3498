//! What is said to a terminal beside what it shows, as escape sequences.
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use robust_shared::printable::one_line;

/// Ends an operating system command; by itself it is the bell.
const BELL: char = '\x07';
/// Begins an operating system command.
const COMMAND: &str = "\x1b]";
/// A notification is a line in a corner of somebody's desktop.
const LONGEST: usize = 200;

/// The bell, and a notification with these words (OSC 9). Words of others are shown and order nothing: control
/// characters are taken out of them. What begins with a number is an order to some terminals, so a name goes first.
pub fn notification(text: &str) -> String {
    let text: String = one_line(text).chars().take(LONGEST).collect();
    format!("{BELL}{COMMAND}9;robustctl: {text}{BELL}")
}

/// Terminals take no more than this of a clipboard: the least that is told of any is 74,994 bytes of base64.
const CLIPBOARD_BASE64: usize = 74_994;
/// Bytes of text whose base64 is no longer.
const CLIPBOARD: usize = CLIPBOARD_BASE64 / 4 * 3;
/// The end of a text that does not fit.
const CUT: &str = "\n... cut here: a terminal's clipboard takes no more\n";

/// The text as far as a terminal's clipboard takes it, and whether it had to be cut.
pub fn for_clipboard(mut text: String) -> (String, bool) {
    if text.len() <= CLIPBOARD {
        return (text, false);
    }
    text.truncate(text.floor_char_boundary(CLIPBOARD - CUT.len()));
    (text + CUT, true)
}

/// Puts a text into the clipboard of whoever looks at the terminal, also over SSH (OSC 52).
pub fn clipboard(text: &str) -> String {
    format!("{COMMAND}52;c;{}{BELL}", STANDARD.encode(text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_notification_rings_and_says_its_words_and_nothing_that_they_order() {
        assert_eq!(
            notification("4;1;50"),
            "\x07\x1b]9;robustctl: 4;1;50\x07",
            "no progress bar"
        );
        let evil = notification("a\x07\x1b]52;c;cm0gLXJm\x1b\\ b\n\u{9d}c");
        let inside = evil
            .strip_prefix("\x07\x1b]9;")
            .and_then(|rest| rest.strip_suffix('\x07'));
        assert!(inside.is_some_and(|text| !text.contains(char::is_control)));
    }

    #[test]
    fn what_is_copied_comes_out_of_the_sequence_as_it_was() {
        let text = "# Incident 2\n\x1b größer";
        let sequence = clipboard(text);
        let inside = sequence.strip_prefix("\x1b]52;c;").unwrap();
        let inside = inside.strip_suffix('\x07').unwrap();
        assert_eq!(STANDARD.decode(inside).unwrap(), text.as_bytes());
    }

    #[test]
    fn a_clipboard_gets_what_it_takes_and_the_text_says_that_it_was_cut() {
        let fits = "x".repeat(CLIPBOARD);
        assert_eq!(for_clipboard(fits.clone()), (fits.clone(), false));
        assert!(STANDARD.encode(&fits).len() <= CLIPBOARD_BASE64);
        let (cut, is_cut) = for_clipboard("ä".repeat(CLIPBOARD));
        assert!(is_cut && cut.ends_with(CUT));
        assert!(STANDARD.encode(&cut).len() <= CLIPBOARD_BASE64);
    }

    #[test]
    fn a_long_text_is_cut() {
        let long = notification(&"ä".repeat(10_000));
        assert_eq!(long.chars().filter(|&c| c == 'ä').count(), LONGEST);
    }
}
