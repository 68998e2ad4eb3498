//! What is said to a terminal beside what it shows, as escape sequences.
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

#[cfg(test)]
mod tests {
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
    fn a_long_text_is_cut() {
        let long = notification(&"ä".repeat(10_000));
        assert_eq!(long.chars().filter(|&c| c == 'ä').count(), LONGEST);
    }
}
