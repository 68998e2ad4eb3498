//! The fenced blocks of a page, and what their first lines say to the test that runs them.
//!
//! ````text
//!  ```bash                             a reader gives these commands, so the test does
//!  ```bash exit=1                      the same; the block ends with that exit code
//!  ```bash norun=downloads             a reader gives them and the test does not; the reason is one of NORUN
//!  ```toml file=job.toml               a reader writes this file, so the test does, at this place of the page
//!  ```text                             an output, a drawing
//! ````
//! Only the first word is the language: GitHub and mdBook look at no other.
use std::path::Path;

/// Why a block cannot be run by a test.
pub const NORUN: [(&str, &str); 5] = [
    (
        "downloads",
        "it fetches or builds for minutes what tests find already made",
    ),
    (
        "console",
        "it draws until a key is pressed; tests/tests/console.rs does that",
    ),
    ("root", "it changes the machine"),
    ("framework", "it needs a framework of others, or Ray"),
    ("machines", "it needs another machine, or systemd"),
];

/// A fenced block.
pub struct Fence {
    /// The line of the page that opens it, from 1.
    pub line: usize,
    /// The first word after the ticks; empty where there is none.
    pub language: String,
    /// The other words.
    pub marks: Vec<String>,
    /// What lies between the ticks.
    pub text: String,
}

impl Fence {
    /// Whether these are commands that a reader gives.
    pub fn is_shell(&self) -> bool {
        ["bash", "sh", "shell", "console"].contains(&self.language.as_str())
    }

    /// What a mark `NAME=VALUE` says.
    pub fn mark(&self, name: &str) -> Option<&str> {
        let mut marks = self.marks.iter().filter_map(|mark| mark.split_once('='));
        marks.find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

/// All blocks of a page, in their order.
pub fn fences(page: &Path) -> Vec<Fence> {
    let text = std::fs::read_to_string(page).unwrap();
    let mut found = Vec::new();
    let mut open: Option<Fence> = None;
    for (at, line) in text.lines().enumerate() {
        let info = line.trim_start().strip_prefix("```");
        match (&mut open, info) {
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(fence), None) => fence.text += &format!("{line}\n"),
            (None, Some(info)) => {
                let mut words = info.split_whitespace().map(str::to_owned);
                open = Some(Fence {
                    line: at + 1,
                    language: words.next().unwrap_or_default(),
                    marks: words.collect(),
                    text: String::new(),
                });
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{}: a block is not closed", page.display());
    found
}
