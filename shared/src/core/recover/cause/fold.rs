//! Fold: words without what differs each time. Numbers, addresses, identifiers and the names of temporary
//! files become `#`; white space becomes one blank.

/// A hexadecimal word of so many letters, one of them a digit, is an address, a digest or a part of a UUID.
const HEX: usize = 6;

/// A word that changes so often between letters and digits was drawn by chance.
const CHANGES: usize = 3;

/// Folders in which names are made up.
const TEMPORARY: [&str; 4] = ["/tmp/", "/var/tmp/", "/dev/shm/", "/run/"];

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
