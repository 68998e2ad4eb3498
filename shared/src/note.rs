//! What an operator writes beside an incident: which texts are taken.
use crate::printable;

/// Characters of a note at most.
pub const MOST_LETTERS: usize = 2_000;

/// Why a text is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// It says nothing.
    #[error("a note without words says nothing: write what you know of the incident")]
    Empty,
    /// It is longer than [`MOST_LETTERS`].
    #[error(
        "a note has at most {MOST_LETTERS} characters, and this one has {letters}: shorten it, or write several"
    )]
    TooLong {
        /// How many it has.
        letters: usize,
    },
    /// It has a character that a terminal would obey, or by which what is read is not what was written.
    #[error(
        "a note is one line of plain text, and this one has the control character U+{code:04X}"
    )]
    Control {
        /// The character's number.
        code: u32,
    },
}

/// The text as it is kept: without blanks at its ends.
///
/// # Errors
/// When it is empty, too long, or more than a line of plain text.
pub fn checked(text: &str) -> Result<String, NoteError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(NoteError::Empty);
    }
    let letters = text.chars().count();
    if letters > MOST_LETTERS {
        return Err(NoteError::TooLong { letters });
    }
    match text.chars().find(|letter| is_order(*letter)) {
        Some(letter) => Err(NoteError::Control {
            code: u32::from(letter),
        }),
        None => Ok(text.to_owned()),
    }
}

/// Control characters, ends of lines and paragraphs, what turns the direction of the text after it, and what is not seen.
fn is_order(letter: char) -> bool {
    letter != '\u{fffd}' && printable::character(letter) == '\u{fffd}'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_plain_text_is_taken_without_the_blanks_around_it() {
        let taken = checked("  the switch in rack 4 lost power; größer, 中文 \n");
        assert_eq!(
            taken.as_deref(),
            Ok("the switch in rack 4 lost power; größer, 中文")
        );
        let longest = "é".repeat(MOST_LETTERS);
        assert_eq!(checked(&longest), Ok(longest.clone()));
    }

    #[test]
    fn what_says_nothing_or_too_much_is_refused_with_a_sentence() {
        assert_eq!(checked(" \t\n"), Err(NoteError::Empty));
        let long = "é".repeat(MOST_LETTERS + 1);
        let refusal = checked(&long).map_err(|e| e.to_string());
        assert_eq!(
            refusal,
            Err(
                "a note has at most 2000 characters, and this one has 2001: shorten it, or write several"
                    .to_owned()
            )
        );
    }

    #[test]
    fn no_order_to_a_terminal_and_no_other_line_is_taken() {
        for (text, code) in [
            ("a\x1b[2Jb", 0x1b),
            ("a\nb", 0x0a),
            ("a\tb", 0x09),
            ("a\u{9b}31mb", 0x9b),
            ("a\u{202e}b", 0x202e),
            ("a\u{2028}b", 0x2028),
        ] {
            assert_eq!(checked(text), Err(NoteError::Control { code }), "{text:?}");
        }
        let refusal = checked("a\nb").map_err(|e| e.to_string());
        let said =
            "a note is one line of plain text, and this one has the control character U+000A";
        assert_eq!(refusal, Err(said.to_owned()));
    }
}
