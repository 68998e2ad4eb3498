//! Colour for plain output: only on a terminal and never against NO_COLOR.
use crate::output::mark;
use std::io::IsTerminal as _;

/// Whether and how to colour stdout.
#[derive(Clone, Copy)]
pub struct Paint {
    on: bool,
}

impl Paint {
    /// For stdout as it is.
    pub fn stdout() -> Paint {
        let dumb = std::env::var_os("TERM").is_none_or(|t| t == "dumb");
        Paint {
            on: std::io::stdout().is_terminal() && !no_color() && !dumb,
        }
    }

    /// None at all.
    pub fn plain() -> Paint {
        Paint { on: false }
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.on {
            format!("{}{text}{}", mark(code), mark("0"))
        } else {
            text.to_owned()
        }
    }

    /// Headings.
    pub fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// States, outcomes and severities in the colour of how good they are.
    pub fn word(self, padded: &str) -> String {
        match padded.trim() {
            "running" | "recovered" | "completed" | "done" | "ok" => self.wrap("32", padded),
            "starting" | "stale" | "suspect" | "recovering" | "waiting" | "warn" | "stopped" => {
                self.wrap("33", padded)
            }
            "failed" | "fail" | "down" | "fault" => self.wrap("31", padded),
            _ => padded.to_owned(),
        }
    }
}

/// <https://no-color.org>: set and not empty means no colour.
pub fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
}
