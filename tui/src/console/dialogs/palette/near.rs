//! How near a text is to what was typed.

/// A word that is not in the text as it is costs more than any that is.
const SCATTERED: u32 = 10;

/// How far a text is from what was typed, 0 being nearest; none: not every word of it is meant there. The words may come
/// in any order, and each is found as a part of the text, or its letters are, one after the other. Case is no matter.
pub fn distance(typed: &str, text: &str) -> Option<u32> {
    let text = text.to_lowercase();
    let typed = typed.to_lowercase();
    typed.split_whitespace().map(|word| of(word, &text)).sum()
}

/// Begins the text, begins a word of it, is within one, or is scattered over it.
fn of(word: &str, text: &str) -> Option<u32> {
    let begins = |at: usize| {
        let before = text[..at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric())
    };
    if text.starts_with(word) {
        return Some(1);
    }
    let found: Vec<usize> = text.match_indices(word).map(|(at, _)| at).collect();
    match found.is_empty() {
        false if found.iter().copied().any(begins) => Some(2),
        false => Some(4),
        true => scattered(word, text).map(|gaps| SCATTERED.saturating_add(gaps)),
    }
}

/// Letters of the text between the first and the last of the word's, where they come one after the other.
fn scattered(word: &str, text: &str) -> Option<u32> {
    let mut wanted = word.chars().peekable();
    let (mut gaps, mut begun) = (0, false);
    for letter in text.chars() {
        match wanted.peek() {
            None => break,
            Some(&next) if next == letter => {
                wanted.next();
                begun = true;
            }
            Some(_) if begun => gaps += 1,
            Some(_) => {}
        }
    }
    wanted.peek().is_none().then_some(gaps)
}

#[cfg(test)]
mod tests {
    use super::distance;

    const KILL: &str = "kill kill the selected instance";

    #[test]
    fn nothing_typed_is_near_to_everything() {
        assert_eq!(distance("", KILL), Some(0));
        assert_eq!(distance("  ", KILL), Some(0));
    }

    #[test]
    fn words_are_found_in_any_order_and_case_and_each_must_be_there() {
        assert_eq!(distance("instance kill", KILL), distance("KILL inst", KILL));
        assert_eq!(distance("kill node", KILL), None);
    }

    #[test]
    fn the_begin_is_nearer_than_a_word_a_word_than_a_part_and_a_part_than_scattered_letters() {
        let found = ["kil", "sel", "lect", "klsd"].map(|typed| distance(typed, KILL));
        assert!(found.iter().all(Option::is_some), "{found:?}");
        assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
    }

    #[test]
    fn letters_close_to_each_other_are_nearer() {
        assert!(distance("rsk", "restart task") < distance("rtk", "restart the whole task"));
        assert_eq!(distance("ksat", "task"), None, "not in this order");
    }
}
