//! The keys of a job's engines, which serve HTTP: who may have them generate, pause or say what they serve.
//!
//! ```text
//!  the token of the job's roles ──derive──► EngineKeys ──of_engine(17)──► EngineKey of incarnation 17
//!    (daemons and roles have it)                       ──of_clients()───► EngineKey of programs that are not
//!                                                                         the job's roles
//! ```
//! Each incarnation has a key of its own: an address outlives its engine, and whoever listens there next learns
//! nothing that another engine takes.

use std::fmt;
use std::sync::Arc;

const CONTEXT: &str = "RobustRL 2026 keys of a job's engines version 1";

/// Makes the keys of one job's engines.
#[derive(Clone)]
pub struct EngineKeys([u8; 32]);

/// What a request to an engine has to show.
#[derive(Clone)]
pub struct EngineKey(Arc<str>);

impl EngineKeys {
    /// Of the job whose roles have this token. The same token gives the same keys.
    pub fn of(token: &[u8]) -> Self {
        Self(blake3::derive_key(CONTEXT, token))
    }

    /// The key that one incarnation of an engine takes.
    pub fn of_engine(&self, incarnation: u64) -> EngineKey {
        self.key(&incarnation.to_le_bytes())
    }

    /// The key that every engine takes at its own address from programs that are not the job's roles.
    pub fn of_clients(&self) -> EngineKey {
        self.key(b"clients")
    }

    fn key(&self, whose: &[u8]) -> EngineKey {
        let hash = blake3::keyed_hash(&self.0, whose);
        EngineKey(hash.to_hex().as_str().into())
    }
}

impl EngineKey {
    /// A key that somebody else made, such as the one of a file.
    pub fn known(text: &str) -> Self {
        Self(text.trim().into())
    }

    /// The key itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// As the header `Authorization` has it.
    pub fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Whether a request shows this very key in its header `Authorization`; the time it takes tells nothing of
    /// the key.
    pub fn is_shown_by(&self, authorization: &str) -> bool {
        let shown = authorization.split_once(' ');
        let shown = shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        // Compared as hashes, which is without an early exit and whatever the lengths.
        shown.is_some_and(|(_, key)| {
            blake3::hash(key.trim().as_bytes()) == blake3::hash(self.0.as_bytes())
        })
    }
}

impl fmt::Debug for EngineKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EngineKeys(..)")
    }
}

impl fmt::Debug for EngineKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EngineKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_takes_the_key_of_its_own_life_alone() {
        let (keys, same) = (EngineKeys::of(b"token"), EngineKeys::of(b"token"));
        let key = keys.of_engine(17);
        assert!(key.is_shown_by(&same.of_engine(17).bearer()));
        assert!(key.is_shown_by(&format!("bearer  {}", key.reveal())));
        let others = [
            keys.of_engine(18),
            keys.of_clients(),
            EngineKeys::of(b"another").of_engine(17),
        ];
        for other in others {
            assert!(!key.is_shown_by(&other.bearer()));
        }
        for nonsense in ["", "Bearer", "Bearer ", key.reveal(), "Basic x"] {
            assert!(!key.is_shown_by(nonsense), "{nonsense}");
        }
        assert_eq!(format!("{keys:?} {key:?}"), "EngineKeys(..) EngineKey(..)");
    }
}
