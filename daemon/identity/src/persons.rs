//! Tokens of persons. One is made of the token that all operators (or viewers) of a daemon have, so nothing is stored of
//! it: any daemon that has that one knows it.
//!
//! ```text
//!  all operators' token ── derived with kind, name and end ──► operator.alice.1790000000.SECRET
//!
//!  tool ── operator.alice.1790000000.person.robust.internal, in clear ──► daemon, which derives the same
//!       ◄─ from there on as with any other token (see `holders`)
//! ```
//! Who has the one that it is made of can make one in anybody's name; who has one can make none. Before its end it is
//! taken back by its id, which is all of it but the secret, or with the one that it is made of.

use rustls::pki_types::UnixTime;

/// Names are a label of a DNS name, as TLS wants it.
const LONGEST_NAME: usize = 32;
const DOMAIN: &str = "person.robust.internal";
const CONTEXT: &str = "RobustRL 2026 token of a person version 1";

/// Why there is no token for somebody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no name for a token: it has 1 to {LONGEST_NAME} of a-z, 0-9 and -, and neither begins nor ends with -"
)]
pub struct NoPerson(String);

/// Somebody who has a token of his own, as the daemon knows him.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// What the token is for: `operator`, `viewer`.
    kind: String,
    name: String,
    until_s: u64,
}

impl Person {
    /// Of this name, until then (Unix time in seconds), with what those of `kind` may.
    pub fn new(kind: &str, name: &str, until_s: u64) -> Result<Self, NoPerson> {
        let is_name = is_label(name) && is_label(kind);
        is_name
            .then(|| Self {
                kind: kind.to_owned(),
                name: name.to_owned(),
                until_s,
            })
            .ok_or_else(|| NoPerson(name.to_owned()))
    }

    /// What the token is for.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Whose it is.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When it ends, in seconds of Unix time.
    pub fn until_s(&self) -> u64 {
        self.until_s
    }

    /// What tells his token from all others, and is no secret: kind, name and end.
    pub fn id(&self) -> String {
        self.words()
    }

    /// Whose token has this id; none: it is no such id.
    pub fn of_id(id: &str) -> Option<Self> {
        Self::of_words(id)
    }

    /// Whether that is past.
    pub fn is_over(&self) -> bool {
        self.until_s <= UnixTime::now().as_secs()
    }

    /// His token, made of the one that all of his kind have.
    pub fn token(&self, of_all: &str) -> String {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        let own = self.words();
        // What follows the last NUL has none itself, so no two pairs are hashed alike.
        hasher.update(of_all.trim().as_bytes());
        hasher.update(b"\0").update(own.as_bytes());
        format!("{own}.{}", hasher.finalize().to_hex())
    }

    /// Whose a token is, by its text; none: it is nobody's own.
    pub fn of_token(text: &str) -> Option<Self> {
        let (own, secret) = text.trim().rsplit_once('.')?;
        let is_secret = secret.len() == 64 && secret.bytes().all(|byte| byte.is_ascii_hexdigit());
        Self::of_words(own).filter(|_| is_secret)
    }

    /// By what his tool calls the daemon.
    pub(crate) fn called(&self) -> String {
        format!("{}.{DOMAIN}", self.words())
    }

    pub(crate) fn of_call(name: &str) -> Option<Self> {
        Self::of_words(name.strip_suffix(DOMAIN)?.strip_suffix('.')?)
    }

    fn words(&self) -> String {
        format!("{}.{}.{}", self.kind, self.name, self.until_s)
    }

    fn of_words(words: &str) -> Option<Self> {
        let (kind, rest) = words.split_once('.')?;
        let (name, until) = rest.split_once('.')?;
        let until_s = until.parse().ok()?;
        let person = Self::new(kind, name, until_s).ok()?;
        // Of several ways to write a number one is ours.
        (person.words() == words).then_some(person)
    }
}

fn is_label(text: &str) -> bool {
    let fits = (1..=LONGEST_NAME).contains(&text.len());
    let is_one = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    fits && text.bytes().all(is_one) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn alice() -> Person {
        Person::new("operator", "alice", 1_790_000_000).unwrap()
    }

    #[test]
    fn the_id_of_a_token_is_all_of_it_but_the_secret() {
        let id = alice().id();
        assert_eq!(id, "operator.alice.1790000000");
        assert!(alice().token("a secret").starts_with(&format!("{id}.")));
        assert_eq!(Person::of_id(&id), Some(alice()));
        assert_eq!(Person::of_id("5f3c0001"), None);
    }

    #[test]
    fn a_token_says_whose_it_is_and_is_another_for_every_name_end_kind_and_root() {
        let token = alice().token("of all");
        assert_eq!(Person::of_token(&format!("{token}\n")), Some(alice()));
        assert_eq!(alice().token("of all\n"), token);
        let others = [
            Person::new("operator", "bob", 1_790_000_000)
                .unwrap()
                .token("of all"),
            Person::new("operator", "alice", 1_790_000_001)
                .unwrap()
                .token("of all"),
            Person::new("viewer", "alice", 1_790_000_000)
                .unwrap()
                .token("of all"),
            alice().token("another of all"),
        ];
        let secret = |token: &str| token.rsplit_once('.').unwrap().1.to_owned();
        let mut all: Vec<_> = others.iter().chain([&token]).map(|t| secret(t)).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 5);
    }

    #[test]
    fn a_call_says_who_calls() {
        let called = alice().called();
        assert_eq!(called, "operator.alice.1790000000.person.robust.internal");
        assert_eq!(Person::of_call(&called), Some(alice()));
        for other in [
            "0123456789abcdef.token.robust.internal",
            "alice.1790000000.person.robust.internal",
            "operator.alice.01.person.robust.internal",
            "operator.alice.+1.person.robust.internal",
            "operator..1.person.robust.internal",
            "person.robust.internal",
            "",
        ] {
            assert_eq!(Person::of_call(other), None, "{other}");
        }
    }

    #[test]
    fn names_are_labels() {
        for bad in ["", "Alice", "a.b", "a b", "-a", "a-", "ä", &"a".repeat(33)] {
            let refused = Person::new("operator", bad, 1).unwrap_err();
            assert!(refused.to_string().contains(bad), "{refused}");
        }
        Person::new("viewer", "on-call-2", 1).unwrap();
    }

    #[test]
    fn tokens_of_all_are_nobodys_own() {
        for text in ["", "f", &"f".repeat(64), "operator.alice.1.short"] {
            assert_eq!(Person::of_token(text), None, "{text}");
        }
    }
}
