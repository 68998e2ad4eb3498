//! A line that is typed.
use crossterm::event::KeyCode;

/// Bytes of a line: longer is no name, number or value.
pub const LONGEST: usize = 120;

/// A key's effect on a line.
pub fn edit(line: &mut String, code: KeyCode) {
    edit_within(line, code, LONGEST);
}

/// The same on a line that may have so many bytes.
pub fn edit_within(line: &mut String, code: KeyCode, longest: usize) {
    match code {
        KeyCode::Backspace => {
            line.pop();
        }
        KeyCode::Char(c) if line.len() < longest => line.push(c),
        _ => {}
    }
}

/// The same where Enter keeps the line and Esc empties it; whether it goes on.
pub fn edit_until_done(line: &mut String, code: KeyCode) -> bool {
    match code {
        KeyCode::Enter => return false,
        KeyCode::Esc => {
            line.clear();
            return false;
        }
        code => edit(line, code),
    }
    true
}
