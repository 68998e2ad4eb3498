//! A real terminal (tmux) that a test types into and reads.
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A tmux server of this test's own.
pub struct Terminal {
    /// Where its socket is: removed after the server that listens there was ended.
    folder: tempfile::TempDir,
    /// What is not on the screen by then never comes.
    patience: Duration,
}

impl Terminal {
    /// Runs a shell command in a terminal of this size; the shell stays when it has ended.
    pub fn start((columns, rows): (u16, u16), command: &str, patience: Duration) -> Terminal {
        let terminal = Terminal {
            folder: tempfile::tempdir().unwrap(),
            patience,
        };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let shell = format!("{command}; echo \"code $?\"; exec cat");
        let arguments = [
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &columns,
            "-y",
            &rows,
        ];
        let begun = terminal.tmux(&[&arguments[..], &["sh", "-c", &shell]].concat());
        assert!(begun.status.success(), "{begun:?}");
        terminal
    }

    /// A command to tmux itself.
    pub fn tmux(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command
            .arg("-S")
            .arg(self.folder.path().join("tmux"))
            .args(arguments);
        command.env_remove("TMUX").env("LC_ALL", "C.UTF-8");
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// Keys by their names.
    pub fn keys(&self, keys: &[&str]) {
        let sent = self.tmux(&[&["send-keys", "-t", "0"], keys].concat());
        assert!(sent.status.success(), "{sent:?}");
    }

    /// Keys by their letters.
    pub fn text(&self, text: &str) {
        self.keys(&["-l", text]);
    }

    /// What is shown.
    pub fn screen(&self) -> String {
        let shown = self.tmux(&["capture-pane", "-p", "-t", "0"]);
        String::from_utf8(shown.stdout).unwrap()
    }

    /// What the terminal is set to: alternate screen, mouse, pointer.
    pub fn modes(&self) -> String {
        let format = "#{alternate_on} #{mouse_any_flag}#{mouse_button_flag} #{cursor_flag}";
        let shown = self.tmux(&["display-message", "-p", "-t", "0", format]);
        String::from_utf8(shown.stdout).unwrap().trim().to_owned()
    }

    /// The screen once it holds these words.
    pub fn wait(&self, words: &str) -> String {
        self.until(words, |screen| screen.contains(words))
    }

    /// The screen once this holds of it.
    pub fn until(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let begin = Instant::now();
        loop {
            let screen = self.screen();
            if holds(&screen) {
                return screen;
            }
            assert!(begin.elapsed() < self.patience, "no `{what}`:\n{screen}");
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}

/// Whether the test can run here; says so when not.
pub fn has_tmux() -> bool {
    robust_needs::program("tmux").is_some()
}
