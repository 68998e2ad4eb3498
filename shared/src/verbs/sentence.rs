//! Sentences with words left open, which are counted when the program is compiled.

/// A sentence in which so many words are left open: each is a name in braces, `Cordon {node}?`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sentence<const OPEN: usize>(&'static str);

impl<const OPEN: usize> Sentence<OPEN> {
    /// The sentence. As a constant it does not compile with another number of open words than its type says.
    pub const fn new(text: &'static str) -> Self {
        assert!(
            open(text) == OPEN,
            "as many words are left open as the type says"
        );
        Self(text)
    }

    /// As it is written, with the names of the open words.
    pub const fn text(&self) -> &'static str {
        self.0
    }

    /// With these words in their places, in their order.
    pub fn say(&self, words: [&str; OPEN]) -> String {
        let mut rest = self.0;
        let mut said = String::new();
        for word in words {
            let (before, after) = rest.split_once('{').unwrap_or((rest, ""));
            said.push_str(before);
            said.push_str(word);
            rest = after.split_once('}').map_or("", |(_, after)| after);
        }
        said + rest
    }
}

const fn open(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut count) = (0, 0);
    while at < bytes.len() {
        if bytes[at] == b'{' {
            count += 1;
        }
        at += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_to_their_places_in_their_order_and_are_no_places_themselves() {
        let two: Sentence<2> = Sentence::new("Restore slot {index} of {pool}?");
        assert_eq!(two.say(["0", "a {b}"]), "Restore slot 0 of a {b}?");
        let first: Sentence<1> = Sentence::new("{node} may be used again");
        assert_eq!(first.say(["node-b"]), "node-b may be used again");
        let none: Sentence<0> = Sentence::new("Pause the job?");
        assert_eq!(
            (none.say([]), none.text()),
            (none.text().to_owned(), "Pause the job?")
        );
    }
}
