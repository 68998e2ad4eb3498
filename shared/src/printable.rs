//! Text of others, such as a role's log or a model's answer: a terminal shows it and does nothing that it says.

/// As one line: orders, line ends among them, become U+FFFD, as in [`character`].
pub fn one_line(text: &str) -> String {
    without_colours(text).chars().map(character).collect()
}

/// As lines: of the orders only line ends and tabs stay.
pub fn lines(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => c,
        c => character(c),
    };
    without_colours(text).chars().map(shown).collect()
}

/// One character of it, where there are no lines to be kept: those that are orders, also to write in the other direction or to
/// show nothing, become U+FFFD.
pub fn character(c: char) -> char {
    match c {
        '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => '\u{fffd}',
        '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// Programs colour their logs, and nobody misses it where colours cannot be told from other orders.
fn without_colours(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\x1b[") {
        clean.push_str(&rest[..at]);
        let parameters = &rest[at + 2..];
        let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';' && c != ':');
        rest = match end {
            Some(end) if parameters[end..].starts_with('m') => &parameters[end + 1..],
            _ => {
                clean.push('\u{fffd}');
                &rest[at + 1..]
            }
        };
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_order_to_a_terminal_is_left_in_a_text() {
        let title = "a\x1b]0;owned\x07b";
        assert_eq!(one_line(title), "a\u{fffd}]0;owned\u{fffd}b");
        let clipboard = "\x1b]52;c;cm0gLXJm\x1b\\";
        assert!(!lines(clipboard).contains('\x1b'));
        // The same introducer as one character, and a line that is overwritten.
        assert_eq!(lines("\u{9b}2J\rok"), "\u{fffd}2J\u{fffd}ok");
        assert_eq!(lines("\x1b[2Jx\x1b[1;"), "\u{fffd}[2Jx\u{fffd}[1;");
        assert_eq!(lines("\u{7f}\u{8}"), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_character_that_turns_the_direction_of_others_or_is_not_seen_is_replaced() {
        let said: String = "a\u{202e}b\u{2066}\x1b\u{9b}\n\u{e0041}é漢"
            .chars()
            .map(character)
            .collect();
        assert_eq!(
            said,
            "a\u{fffd}b\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}é漢"
        );
    }

    #[test]
    fn colours_go_and_the_words_stay() {
        assert_eq!(lines("\x1b[1;31mE\x1b[0m: größer\n\tb"), "E: größer\n\tb");
        assert_eq!(one_line("a\nb\tc"), "a\u{fffd}b\u{fffd}c");
    }
}
