//! What members of one job know and strangers do not.

/// Shared secret of a job. Only transports with the same token talk to each other (T-9).
#[derive(Clone, PartialEq, Eq)]
pub struct JobToken([u8; 32]);

impl JobToken {
    /// Derives a key from secret bytes of any length; the same bytes give the same token.
    pub fn new(bytes: &[u8]) -> JobToken {
        JobToken(blake3::derive_key("robust transport token v1", bytes))
    }

    pub(crate) fn key(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Debug for JobToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JobToken(..)")
    }
}
