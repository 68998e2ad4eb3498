//! A direction's keys as the kernel takes them: `struct tls12_crypto_info_aes_gcm_128` and `_256` of
//! `linux/tls.h`, which TLS 1.3 has too.
//!
//! ```text
//!  version u16 │ cipher u16 │ iv 8 │ key 16 or 32 │ salt 4 │ rec_seq 8        40 or 56 bytes
//! ```
//! The two numbers are the machine's own, the sequence number is big-endian. Of the 12 bytes of TLS 1.3's
//! IV the kernel has the first four as the salt; a record's nonce is all of them with its number XORed
//! into the last eight.

use rustls::ConnectionTrafficSecrets;
use zeroize::Zeroizing;

/// TLS 1.3 as a record's version has it.
const TLS_1_3_VERSION: u16 = 0x0304;
const TLS_CIPHER_AES_GCM_128: u16 = 51;
const TLS_CIPHER_AES_GCM_256: u16 = 52;
const SALT: usize = 4;

/// The bytes of such a structure; gone from memory when dropped.
pub(super) struct CryptoInfo(Zeroizing<Vec<u8>>);

impl CryptoInfo {
    /// Of one direction's secrets, `sequence` being the number of its next record; none if it is no cipher
    /// that we hand over.
    pub fn new(secrets: &ConnectionTrafficSecrets, sequence: u64) -> Option<CryptoInfo> {
        let (cipher, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (TLS_CIPHER_AES_GCM_128, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (TLS_CIPHER_AES_GCM_256, key, iv),
            _ => return None,
        };
        Self::of(cipher, (key.as_ref(), iv.as_ref()), sequence)
    }

    /// Of keys that protect nothing: to see whether the kernel would take such.
    pub fn trial() -> Option<CryptoInfo> {
        Self::of(TLS_CIPHER_AES_GCM_128, (&[0; 16], &[0; 12]), 0)
    }

    fn of(cipher: u16, (key, iv): (&[u8], &[u8]), sequence: u64) -> Option<CryptoInfo> {
        let (salt, iv) = iv.split_at_checked(SALT)?;
        // At once as long as it gets: a vector that grows leaves keys behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(4 + iv.len() + key.len() + SALT + 8));
        bytes.extend_from_slice(&TLS_1_3_VERSION.to_ne_bytes());
        bytes.extend_from_slice(&cipher.to_ne_bytes());
        bytes.extend_from_slice(iv);
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(salt);
        bytes.extend_from_slice(&sequence.to_be_bytes());
        Some(CryptoInfo(bytes))
    }

    /// As `setsockopt` takes it.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::mem::offset_of;

    use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    use rustls::crypto::cipher::AeadKey;

    use super::*;
    use crate::tls::session::tests::{linked, sealed};

    /// As linux/tls.h has it.
    #[repr(C)]
    struct Header<const KEY: usize> {
        version: u16,
        cipher_type: u16,
        iv: [u8; 8],
        key: [u8; KEY],
        salt: [u8; 4],
        rec_seq: [u8; 8],
    }

    fn assert_laid_out<const KEY: usize>(cipher: u16) {
        let key: Vec<u8> = (0..KEY as u8).map(|at| 0x80 + at).collect();
        let iv: [u8; 12] = std::array::from_fn(|at| 0x40 + at as u8);
        let info = CryptoInfo::of(cipher, (&key, &iv), 0x0102_0304_0506_0708).unwrap();
        let bytes = info.bytes();
        assert_eq!(bytes.len(), size_of::<Header<KEY>>());
        let field = |at: usize, len: usize| bytes[at..at + len].to_vec();
        let number = |at| u16::from_ne_bytes(field(at, 2).try_into().unwrap());
        assert_eq!(number(offset_of!(Header<KEY>, version)), 0x0304);
        assert_eq!(number(offset_of!(Header<KEY>, cipher_type)), cipher);
        assert_eq!(field(offset_of!(Header<KEY>, iv), 8), iv[4..]);
        assert_eq!(field(offset_of!(Header<KEY>, key), KEY), key);
        assert_eq!(field(offset_of!(Header<KEY>, salt), 4), iv[..4]);
        let sequence = field(offset_of!(Header<KEY>, rec_seq), 8);
        assert_eq!(sequence, [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn keys_are_laid_out_as_the_kernels_header_has_them() {
        assert_laid_out::<16>(51);
        assert_laid_out::<32>(52);
        // TLS_CIPHER_AES_GCM_*_*_SIZE added up.
        assert_eq!(size_of::<Header<16>>(), 40);
        assert_eq!(size_of::<Header<32>>(), 56);
    }

    #[test]
    fn a_cipher_that_is_not_handed_over_has_no_layout() {
        let key = AeadKey::from([0; 32]);
        let iv = [0; 12].into();
        let secrets = ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv };
        assert!(CryptoInfo::new(&secrets, 0).is_none());
    }

    /// What the kernel does with such bytes (`net/tls/tls_sw.c`): one key, and of each record its nonce.
    struct Kernel {
        key: LessSafeKey,
        iv: [u8; 12],
        sequence: u64,
    }

    const HEAD: usize = 5;
    const TAG: usize = 16;

    impl Kernel {
        fn told(info: &CryptoInfo) -> Kernel {
            let bytes: [u8; 40] = info.bytes().try_into().unwrap();
            let key = UnboundKey::new(&AES_128_GCM, &bytes[12..28]).unwrap();
            let iv = [&bytes[28..32], &bytes[4..12]].concat();
            Kernel {
                key: LessSafeKey::new(key),
                iv: iv.try_into().unwrap(),
                sequence: u64::from_be_bytes(bytes[32..].try_into().unwrap()),
            }
        }

        fn nonce(&mut self) -> Nonce {
            let mut nonce = self.iv;
            let sequence = self.sequence.to_be_bytes();
            nonce[4..]
                .iter_mut()
                .zip(sequence)
                .for_each(|(n, s)| *n ^= s);
            self.sequence += 1;
            Nonce::assume_unique_for_key(nonce)
        }

        fn seal(&mut self, kind: u8, bytes: &[u8]) -> Vec<u8> {
            let mut inner = [bytes, &[kind]].concat();
            let mut record = vec![23, 3, 3];
            record.extend(((inner.len() + TAG) as u16).to_be_bytes());
            let (nonce, aad) = (self.nonce(), Aad::from(record.clone()));
            self.key
                .seal_in_place_append_tag(nonce, aad, &mut inner)
                .unwrap();
            record.extend(inner);
            record
        }

        fn open(&mut self, record: &[u8]) -> (u8, Vec<u8>) {
            let (head, sealed) = record.split_at(HEAD);
            let (nonce, mut sealed) = (self.nonce(), sealed.to_vec());
            let opened = self.key.open_in_place(nonce, Aad::from(head), &mut sealed);
            let (kind, bytes) = opened.unwrap().split_last().unwrap();
            (*kind, bytes.to_vec())
        }
    }

    #[test]
    fn who_is_told_the_keys_goes_on_where_rustls_stopped_in_both_directions() {
        let (mut a, mut b) = linked();
        // Records before the keys are handed over: their numbers count.
        assert_eq!(b.opened(&sealed(&mut a, b"first")), b"first");
        assert_eq!(a.opened(&sealed(&mut b, b"second")), b"second");
        assert_eq!(a.opened(&sealed(&mut b, b"third")), b"third");
        let secrets = a.into_secrets().unwrap();
        let info = |(sequence, secrets)| CryptoInfo::new(&secrets, sequence).unwrap();
        let mut tx = Kernel::told(&info(secrets.tx));
        let mut rx = Kernel::told(&info(secrets.rx));
        assert_eq!((tx.sequence, rx.sequence), (1, 2));
        for words in [&b"fourth"[..], b"fifth"] {
            assert_eq!(b.opened(&tx.seal(23, words)), words);
            assert_eq!(rx.open(&sealed(&mut b, words)), (23, words.to_vec()));
        }
    }
}
