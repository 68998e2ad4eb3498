//! What a token is worth against somebody who tries one after the other.
//!
//! Whoever reaches `--listen-nodes` is shown a certificate that is made of the token, as TLS has it, and can try
//! tokens on it at home. So the token has to be one that nobody made up.

/// What a token is to be worth at least, in bits.
pub(super) const MIN_BITS: u32 = 128;
/// A random text of that many bits has this many characters that differ; most have twice as many.
const MIN_DISTINCT: usize = 8;
/// Of a word that somebody chose, in bits: one of 2,048.
const OF_A_WORD: u32 = 11;

/// At most so many bits, by its length and its characters; what is random is worth what is said.
pub(super) fn worth_bits(token: &str) -> u32 {
    let token = token.trim();
    let distinct: std::collections::BTreeSet<char> = token.chars().collect();
    if distinct.len() < MIN_DISTINCT {
        return 0;
    }
    let words = u32::try_from(token.split_whitespace().count()).unwrap_or(u32::MAX);
    if words > 1 {
        return words.saturating_mul(OF_A_WORD);
    }
    let signs = u32::try_from(token.chars().filter(|c| *c != '-').count()).unwrap_or(u32::MAX);
    // In tenths of a bit.
    let of_one = if token.chars().all(|c| c.is_ascii_hexdigit() || c == '-') {
        40
    } else if token.chars().all(char::is_alphabetic) {
        // Most likely words, which English makes guessable at two bits a letter.
        20
    } else if token.chars().any(char::is_uppercase) && token.chars().any(char::is_lowercase) {
        59
    } else {
        51
    };
    signs.saturating_mul(of_one) / 10
}
