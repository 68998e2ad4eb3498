//! Secrets in the log: whoever reads the object store does not read them.
use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use std::fmt;

/// Bytes of the nonce that stands before what is sealed.
const NONCE: usize = 12;

/// Why something sealed cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It was made with another secret, or was changed.
    #[error(
        "`{name}` of the log does not open with this secret: all controllers of a job have the same `store.secret_file`"
    )]
    Other {
        /// Which.
        name: String,
    },
    /// The secret is too short to be one.
    #[error(
        "a secret has at least {LEAST} bytes; make one with `head -c 32 /dev/urandom | base64`"
    )]
    Short,
    /// The cipher refused.
    #[error("the cipher cannot be set up")]
    Cipher,
}

/// Bytes that a secret has at least.
const LEAST: usize = 32;

/// Seals small files by a secret that every controller of the job has.
pub struct Seal(RandomizedNonceKey);

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    /// Of what is in a secret file.
    ///
    /// # Errors
    /// When it is too short.
    pub fn new(secret: &[u8]) -> Result<Self, SealError> {
        let secret = secret.trim_ascii();
        if secret.len() < LEAST {
            return Err(SealError::Short);
        }
        let key = blake3::derive_key("robust group log: files of a state directory", secret);
        let key = RandomizedNonceKey::new(&AES_256_GCM, &key).map_err(|_| SealError::Cipher)?;
        Ok(Self(key))
    }

    /// The contents of the file `name`, sealed.
    ///
    /// # Errors
    /// When the cipher fails, which it does not for contents of this size.
    pub fn close(&self, name: &str, contents: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut text = contents.to_vec();
        let sealing = self.0.seal_in_place_append_tag(Aad::from(name), &mut text);
        let nonce = sealing.map_err(|_| SealError::Cipher)?;
        Ok([nonce.as_ref().as_slice(), &text].concat())
    }

    /// The inverse.
    ///
    /// # Errors
    /// When it was sealed by another secret or under another name, or was changed.
    pub fn open(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let other = || SealError::Other {
            name: name.to_owned(),
        };
        let (nonce, text) = sealed.split_first_chunk::<NONCE>().ok_or_else(other)?;
        let mut text = text.to_vec();
        let nonce = Nonce::from(nonce);
        let opened = self.0.open_in_place(nonce, Aad::from(name), &mut text);
        Ok(opened.map_err(|_| other())?.to_vec())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef\n";

    #[test]
    fn what_is_sealed_opens_with_the_same_secret_and_name_alone() {
        let seal = Seal::new(SECRET).unwrap();
        let sealed = seal.close("authority.key", b"secret").unwrap();
        assert!(!sealed.windows(6).any(|w| w == b"secret"));
        assert_eq!(seal.open("authority.key", &sealed).unwrap(), b"secret");
        assert!(seal.open("nodes.token", &sealed).is_err());
        let other = Seal::new(&[7; 32]).unwrap();
        assert!(other.open("authority.key", &sealed).is_err());
        for byte in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[byte] ^= 1;
            assert!(seal.open("authority.key", &changed).is_err(), "{byte}");
        }
        assert!(seal.open("authority.key", b"").is_err());
    }

    #[test]
    fn a_secret_that_is_none_is_refused() {
        assert_eq!(Seal::new(b"short\n").unwrap_err(), SealError::Short);
    }
}
