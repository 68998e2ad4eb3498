//! The tokens that TCP clients prove to have: who can read the state directory may command the daemon.
use super::rights::Rights;
use crate::nodes::JoinToken;
use crate::random;
use crate::state::{Readers, StateDirError, read_private, write_private};
use robust_identity::{Door, Holders, IdentityError};
use std::path::Path;
use std::sync::Arc;

/// 32 random bytes in hex.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

impl Token {
    /// Reads the token, or makes one that only its owner can read.
    pub fn load_or_create(path: &Path) -> Result<Self, StateDirError> {
        Self::load(path, Readers::Owner)
    }

    /// The same of a file that somebody may have laid where it is, to be read by whom they like.
    pub fn load_or_create_shared(path: &Path) -> Result<Self, StateDirError> {
        Self::load(path, Readers::Any)
    }

    fn load(path: &Path, readers: Readers) -> Result<Self, StateDirError> {
        if let Some(text) = read_private(path, readers)?
            && text.trim().len() == 64
        {
            return Ok(Self(text.trim().into()));
        }
        let text = random::hex::<32>().map_err(|source| StateDirError::Io {
            doing: "reading",
            path: random::SOURCE.into(),
            source,
        })?;
        write_private(path, format!("{text}\n").as_bytes())?;
        Ok(Self(text.into()))
    }

    /// With which machines become nodes.
    pub fn join_token(&self) -> JoinToken {
        JoinToken::of(&self.0)
    }

    /// Whether a client shows this very token; the time it takes tells nothing of it.
    pub fn matches(&self, shown: &str) -> bool {
        // Compared without an early exit, so that the time taken tells nothing.
        let (a, b) = (self.0.as_bytes(), shown.as_bytes());
        a.len() == b.len() && a.iter().zip(b).fold(0, |diff, (x, y)| diff | (x ^ y)) == 0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The tokens that are taken.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// For everything.
    pub operator: Token,
    /// For looking, if there is one.
    pub viewer: Option<Token>,
    /// For everything, and faults on a protected job besides, if there is one.
    pub break_glass: Option<Token>,
}

impl Tokens {
    /// Where their holders are answered.
    pub fn door(&self) -> Result<Door<Rights>, IdentityError> {
        let tokens = [
            (Some(&self.operator), Rights::Operator),
            (self.viewer.as_ref(), Rights::Viewer),
            (self.break_glass.as_ref(), Rights::BreakGlass),
        ];
        let there = tokens.into_iter();
        let there = there.filter_map(|(token, may)| token.map(|token| (token, may)));
        let holders =
            there.map(|(token, may)| Ok((Holders::with_persons(&token.0, may.kind())?, may)));
        Door::of(holders.collect::<Result<_, IdentityError>>()?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_stays_what_it_is() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("token");
        let token = Token::load_or_create(&path).unwrap();
        assert_eq!(Token::load_or_create(&path).unwrap(), token);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(token.matches(text.trim()) && !token.matches("nonsense"));
    }
}
