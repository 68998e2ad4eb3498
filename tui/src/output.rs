//! What goes to stdout and stderr. On a terminal control characters that roles and models wrote are not
//! obeyed; who reads it through a pipe or from a file gets it as it is.
//!
//! ```text
//!  text ──┬── a terminal: control characters become U+FFFD, marks become this program's colours
//!         └── else: as it is
//! ```
//! A colour is a mark until then (`paint`). Each mark has a number of this process in it that nobody else
//! knows, so that text of others has none.
use crate::error::CliError;
use robust_shared::printable;
use serde::Serialize;
use std::borrow::Cow;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, IsTerminal, Write as _};
use std::sync::LazyLock;

/// How a mark begins. U+FDD0 and its like are set aside for what a program tells itself.
static BEGIN: LazyLock<String> = LazyLock::new(|| {
    let number = RandomState::new().hash_one(std::process::id());
    format!("\u{fdd0}{number:016x}\u{fdd1}")
});
const END: char = '\u{fdd2}';

/// Sets a colour or another look by the number that terminals know it by.
pub fn mark(code: &str) -> String {
    format!("{}{code}{END}", *BEGIN)
}

/// The text as a terminal may have it.
fn shown(text: &str) -> String {
    let mut parts = text.split(BEGIN.as_str());
    let mut shown = printable::lines(parts.next().unwrap_or_default());
    for part in parts {
        let (code, rest) = part.split_once(END).unwrap_or((part, ""));
        shown += &format!("\x1b[{code}m{}", printable::lines(rest));
    }
    shown
}

/// The text as it may go there.
pub fn fit<'a>(text: &'a str, to: &impl IsTerminal) -> Cow<'a, str> {
    match to.is_terminal() {
        true => shown(text).into(),
        false => text.into(),
    }
}

/// Writes to stdout; a reader that left is [`CliError::OutputClosed`] and no panic.
pub fn put(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    let text = fit(text, &out);
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes a message as one line of JSON to stdout.
pub fn put_json<T: Serialize>(message: &T) -> Result<(), CliError> {
    let text = serde_json::to_string(message).map_err(|e| CliError::unshown(&e))?;
    put(&(text + "\n"))
}

/// Writes a line to stderr; nobody is told when that cannot be.
pub fn say(line: &str) {
    let mut err = io::stderr().lock();
    let line = fit(line, &err);
    let _ = writeln!(err, "{line}");
}

/// Says on stderr what happens on the way: as text, or as one JSON object a line for programs.
pub fn note(text: &str, json: bool) {
    match json {
        true => say(&serde_json::json!({"note": text}).to_string()),
        false => say(&format!("robustctl: {text}")),
    }
}

/// Says on stderr why the program did not succeed: as text, or as one JSON object a line for programs. Nothing where only
/// the reader of the output left.
pub fn print_error(e: &CliError, json: bool) {
    if matches!(e, CliError::OutputClosed) {
        return;
    }
    if json {
        let body = serde_json::json!({"error": {
            "kind": e.kind(), "exit_code": e.exit_code(), "message": e.to_string(),
        }});
        say(&body.to_string());
    } else {
        say(&format!("robustctl: {e}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_this_program_painted_is_in_colour() {
        let painted = format!("{}ok{}\n", mark("32"), mark("0"));
        assert_eq!(shown(&painted), "\x1b[32mok\x1b[0m\n");
        let forged = "\x1b[32mok \u{fdd0}0123456789abcdef\u{fdd1}8\u{fdd2}";
        let seen = shown(&format!("{forged}{painted}"));
        assert_eq!(seen.matches('\x1b').count(), 2, "{seen:?}");
    }
}
