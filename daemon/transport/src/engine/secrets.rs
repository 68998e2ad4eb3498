//! Numbers that nobody else can guess.
//!
//! Tokens of reads and links go through here: who does not know a token can neither answer a read
//! nor take a part in a handshake.

use crate::error::TransportError;

/// Drawn once from the system, then expanded: drawing more cannot fail.
pub(super) struct Secrets(blake3::OutputReader);

/// Fresh for each handshake, so that no proof is good twice.
pub(super) type Nonce = [u8; 32];

impl Secrets {
    pub fn new() -> Result<Secrets, TransportError> {
        let mut seed = Nonce::default();
        rustix::rand::getrandom(&mut seed[..], rustix::rand::GetRandomFlags::empty()).map_err(
            |e| TransportError::Io {
                doing: "drawing random numbers",
                source: e.into(),
            },
        )?;
        Ok(Secrets(blake3::Hasher::new_keyed(&seed).finalize_xof()))
    }

    /// The same numbers each time.
    #[cfg(fuzzing)]
    pub fn known(seed: &Nonce) -> Secrets {
        Secrets(blake3::Hasher::new_keyed(seed).finalize_xof())
    }

    pub fn number(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    pub fn nonce(&mut self) -> Nonce {
        let mut nonce = Nonce::default();
        self.0.fill(&mut nonce);
        nonce
    }
}
