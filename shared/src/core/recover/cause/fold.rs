//! Fold: words without what differs each time. Numbers, addresses, identifiers and the names of temporary
//! files become `#`; white space becomes one blank.

/// A hexadecimal word of so many letters, one of them a digit, is an address, a digest or a part of a UUID.
const HEX: usize = 6;

/// A word that changes so often between letters and digits was drawn by chance.
const CHANGES: usize = 3;

/// Folders in which names are made up.
const TEMPORARY: [&str; 4] = ["/tmp/", "/var/tmp/", "/dev/shm/", "/run/"];

/// The lines as a terminal shows them: without escapes of colours, and of a progress bar that is drawn
/// over the last drawing.
pub(super) fn bare(text: &str) -> String {
    let shown = |line: &str| {
        let line = line.trim_end_matches('\r').rsplit('\r').next();
        uncoloured(line.unwrap_or_default())
    };
    let lines: Vec<String> = text.split('\n').map(shown).collect();
    lines.join("\n")
}

/// An escape is ESC, `[`, and what follows up to a letter (ECMA-48, CSI).
fn uncoloured(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let first = parts.next().unwrap_or_default();
    let ends = |c: char| ('@'..='~').contains(&c);
    let rest = parts.map(|part| match part.split_once(ends) {
        Some((_, text)) => text,
        None => "",
    });
    let all = std::iter::once(first).chain(rest);
    let visible = |c: &char| *c == '\t' || !c.is_control();
    all.flat_map(str::chars).filter(visible).collect()
}

/// The words without what differs each time.
pub(super) fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    let mut rest = text.trim();
    while let Some(first) = rest.chars().next() {
        let taken = if first.is_ascii_alphanumeric() {
            let taken = word(rest);
            folded.push_str(&fold_word(&rest[..taken]));
            taken
        } else if let Some(folder) = TEMPORARY.iter().find(|folder| rest.starts_with(**folder)) {
            folded.push_str(folder);
            folded.push('#');
            folder.len() + name(&rest[folder.len()..])
        } else if first.is_whitespace() {
            if !folded.ends_with(' ') {
                folded.push(' ');
            }
            first.len_utf8()
        } else {
            folded.push(first);
            first.len_utf8()
        };
        rest = &rest[taken..];
    }
    folded
}

/// Bytes of the word that a text begins with.
fn word(text: &str) -> usize {
    let inside = |c: char| c.is_ascii_alphanumeric();
    text.find(|c| !inside(c)).unwrap_or(text.len())
}

/// Bytes of the file's name that a text begins with.
fn name(text: &str) -> usize {
    let ends = |c: char| c.is_whitespace() || "/'\"`:,;)]}>".contains(c);
    text.find(ends).unwrap_or(text.len())
}

fn fold_word(word: &str) -> String {
    let digit = |c: char| c.is_ascii_digit();
    if !word.contains(digit) {
        return word.to_owned();
    }
    let hex = |text: &str| text.chars().all(|c| c.is_ascii_hexdigit());
    let address = word.strip_prefix("0x").is_some_and(hex);
    let all: Vec<bool> = word.chars().map(digit).collect();
    let changes = all.windows(2).filter(|two| two[0] != two[1]).count();
    if address || word.len() >= HEX && (hex(word) || changes >= CHANGES) {
        return "#".to_owned();
    }
    let mut folded = String::with_capacity(word.len());
    for c in word.chars() {
        match digit(c) {
            false => folded.push(c),
            true if folded.ends_with('#') => {}
            true => folded.push('#'),
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_as_a_terminal_shows_it() {
        let log = "\u{1b}[1;31mKeyError\u{1b}[0m: 'a'\u{7}\r\n 3%|#  |\r99%|###|\tdone";
        assert_eq!(bare(log), "KeyError: 'a'\n99%|###|\tdone");
    }

    #[test]
    fn what_differs_each_time_is_folded_and_the_rest_stays() {
        for (text, folded) in [
            ("rank 3 of step 128 failed", "rank # of step # failed"),
            ("  at 0x7ffd5a10,  thread 140221 ", "at #, thread #"),
            ("2026-11-25 17:44:43.120 INFO", "#-#-# #:#:#.# INFO"),
            (
                "request cmpl-9f86d081884c7d65 on trainer-1 g12",
                "request cmpl-# on trainer-# g#",
            ),
            ("id 8fK2xQ9a of bfloat16", "id # of bfloat#"),
            (
                "no file /tmp/tmpab_xy9z/model.py: gone",
                "no file /tmp/#/model.py: gone",
            ),
            (
                "cannot open '/dev/shm/nccl-kQwErT'",
                "cannot open '/dev/shm/#'",
            ),
            ("KeyError: 'prompt'", "KeyError: 'prompt'"),
            ("größer als 5 µs", "größer als # µs"),
            ("", ""),
        ] {
            assert_eq!(fold(text), folded, "{text}");
        }
    }
}
