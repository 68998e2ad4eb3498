//! The terminal: taken, and given back however the console ends.
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::execute;
use ratatui::DefaultTerminal;
use std::io::stdout;

/// The terminal while the console has it; dropping this gives it back.
pub struct Screen {
    /// What is drawn on.
    pub terminal: DefaultTerminal,
}

impl Screen {
    /// Takes it. A panic gives it back before its message is printed: first the mouse, then, by the
    /// hook that ratatui installs, modes and screen.
    pub fn take(mouse: bool) -> std::io::Result<Screen> {
        let terminal = ratatui::try_init()?;
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let _ = execute!(stdout(), DisableMouseCapture);
            hook(panic);
        }));
        if mouse {
            execute!(stdout(), EnableMouseCapture)?;
        }
        Ok(Screen { terminal })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(stdout(), DisableMouseCapture);
        ratatui::restore();
    }
}
