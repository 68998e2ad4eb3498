//! The terminal: taken, and given back however the console ends.
use super::escapes;
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::execute;
use ratatui::DefaultTerminal;
use std::io::{Write as _, stdout};

/// The terminal while the console has it; dropping this gives it back.
pub struct Terminal {
    /// What is drawn on.
    pub screen: DefaultTerminal,
}

impl Terminal {
    /// Takes it. A panic gives it back before its message is printed: first the mouse, then, by the
    /// hook that ratatui installs, modes and screen.
    pub fn take(mouse: bool) -> std::io::Result<Terminal> {
        let screen = ratatui::try_init()?;
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let _ = execute!(stdout(), DisableMouseCapture);
            hook(panic);
        }));
        if mouse {
            execute!(stdout(), EnableMouseCapture)?;
        }
        Ok(Terminal { screen })
    }

    /// Rings, and has the terminal notify whoever does not look at it.
    pub fn ring(&mut self, text: &str) {
        say(&escapes::notification(text));
    }

    /// Puts a text into the clipboard of whoever looks at it.
    pub fn copy(&mut self, text: &str) {
        say(&escapes::clipboard(text));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = execute!(stdout(), DisableMouseCapture);
        ratatui::restore();
    }
}

/// Between two frames, which are written whole. A terminal that cannot be written to is found out by the next one.
fn say(sequence: &str) {
    let mut out = stdout();
    let _ = out.write_all(sequence.as_bytes());
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::Terminal;
    use std::process::Command;
    use std::time::{Duration, Instant};

    /// What the test below runs in a terminal of its own; it means nothing without one.
    #[test]
    #[ignore = "is run by the_terminal_is_given_back_before_a_panic_is_told"]
    fn a_console_that_panics() {
        let _terminal = Terminal::take(true).unwrap();
        panic!("the console met something unforeseen");
    }

    #[test]
    fn the_terminal_is_given_back_before_a_panic_is_told() {
        if robust_needs::program("tmux").is_none() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("tmux");
        let tmux = |arguments: &[&str]| {
            let mut command = Command::new("tmux");
            command.arg("-S").arg(&socket).args(arguments);
            command.env_remove("TMUX").env("LC_ALL", "C.UTF-8").output()
        };
        let own = std::env::current_exe().unwrap();
        let test = "console::terminal::tests::a_console_that_panics";
        let arguments = "--ignored --nocapture --test-threads 1 --exact";
        let shell = format!("{} {arguments} {test}; echo over; exec cat", own.display());
        let begin = [
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "120",
            "-y",
            "30",
        ];
        let begun = tmux(&[&begin[..], &["sh", "-c", &shell]].concat()).unwrap();
        assert!(begun.status.success(), "{begun:?}");
        let show = |arguments: &[&str]| {
            let shown = tmux(arguments).unwrap().stdout;
            String::from_utf8(shown).unwrap()
        };
        let patience = Instant::now() + Duration::from_secs(30);
        let screen = loop {
            let screen = show(&["capture-pane", "-p", "-t", "0"]);
            if screen.contains("over") || Instant::now() > patience {
                break screen;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let modes = "#{alternate_on} #{mouse_any_flag} #{cursor_flag}";
        let modes = show(&["display-message", "-p", "-t", "0", modes]);
        let _ = tmux(&["kill-server"]);
        // On the other screen its words would be gone with it.
        assert!(screen.contains("met something unforeseen"), "{screen}");
        assert_eq!(modes.trim(), "0 0 1", "{screen}");
    }
}
