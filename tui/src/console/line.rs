//! A line that is typed.
use crossterm::event::KeyCode;

/// A key's effect on a line.
pub fn edit(line: &mut String, code: KeyCode) {
    /// Longer is no name, number or value.
    const LONGEST: usize = 120;
    match code {
        KeyCode::Backspace => {
            line.pop();
        }
        KeyCode::Char(c) if line.len() < LONGEST => line.push(c),
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
