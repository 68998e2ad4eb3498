//! Messages between transports; all integers little-endian.
//!
//! | message | bytes |
//! | --- | --- |
//! | Hello | `b"RTP7"`, token u64 (chosen by the caller), owner u64 of the caller, its address 44, nonce 32 |
//! | Welcome | `b"RTP7"`, token u64, owner u64 of the callee, nonce 32, proof 32 |
//! | Prove | token u64, proof 32 |
//! | Ready | token u64 |
//! | Note | session u64, the message |
//! | Read | session u64, token u64, region u64, offset u64, len u64 |
//! | Refusal | token u64, reason u8 |
//! | Wait, Forget | token u64, once or more: reads that wait at the source; reads given up |
//! | Data | header: token u64; payload: the bytes |
//!
//! The bytes of an address: see [`Address::to_bytes`]. A change of meaning changes the magic. What does
//! not parse closes the link.

use super::secrets::Nonce;
use crate::address::Address;
use crate::road::numbers;

const MAGIC: &[u8; 4] = b"RTP7";

/// An address in a message.
pub(super) type AddrBytes = [u8; Address::BYTES];

/// First message of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    pub token: u64,
    pub owner: u64,
    /// Where the caller itself can be called: its name to those who know it by that.
    pub listens: AddrBytes,
    pub nonce: Nonce,
}

/// The callee's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Welcome {
    pub token: u64,
    pub owner: u64,
    pub nonce: Nonce,
    pub proof: blake3::Hash,
}

/// The caller's proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prove {
    pub token: u64,
    pub proof: blake3::Hash,
}

/// The callee is satisfied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ready {
    pub token: u64,
}

/// Asks for a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Read {
    pub session: u64,
    pub token: u64,
    pub region: u64,
    pub offset: u64,
    pub len: u64,
}

/// Why a piece is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    NotExposed = 1,
    OutOfBounds = 2,
    TooManyWaiting = 3,
    TooLong = 4,
    Unreadable = 5,
}

/// Says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    pub token: u64,
    pub reason: Reason,
}

impl Hello {
    pub fn to_bytes(self) -> Vec<u8> {
        let numbers = words([self.token, self.owner]);
        [MAGIC, &numbers[..], &self.listens, &self.nonce].concat()
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Hello> {
        let (rest, nonce) = bytes.strip_prefix(MAGIC)?.split_last_chunk()?;
        let (rest, listens) = rest.split_last_chunk()?;
        let [token, owner] = numbers(rest)?;
        Some(Hello {
            token,
            owner,
            listens: *listens,
            nonce: *nonce,
        })
    }
}

impl Welcome {
    pub fn to_bytes(self) -> Vec<u8> {
        let numbers = words([self.token, self.owner]);
        [MAGIC, &numbers[..], &self.nonce, self.proof.as_bytes()].concat()
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Welcome> {
        let (rest, proof) = bytes.strip_prefix(MAGIC)?.split_last_chunk()?;
        let (rest, nonce) = rest.split_last_chunk()?;
        let [token, owner] = numbers(rest)?;
        Some(Welcome {
            token,
            owner,
            nonce: *nonce,
            proof: blake3::Hash::from_bytes(*proof),
        })
    }
}

impl Prove {
    pub fn to_bytes(self) -> Vec<u8> {
        [&words([self.token])[..], self.proof.as_bytes()].concat()
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Prove> {
        let (rest, proof) = bytes.split_last_chunk()?;
        let [token] = numbers(rest)?;
        Some(Prove {
            token,
            proof: blake3::Hash::from_bytes(*proof),
        })
    }
}

impl Ready {
    pub fn to_bytes(self) -> Vec<u8> {
        words([self.token])
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Ready> {
        let [token] = numbers(bytes)?;
        Some(Ready { token })
    }
}

impl Read {
    pub fn to_bytes(self) -> Vec<u8> {
        let Read {
            session,
            token,
            region,
            offset,
            len,
        } = self;
        words([session, token, region, offset, len])
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Read> {
        let [session, token, region, offset, len] = numbers(bytes)?;
        Some(Read {
            session,
            token,
            region,
            offset,
            len,
        })
    }
}

impl Refusal {
    pub fn to_bytes(self) -> Vec<u8> {
        [&words([self.token])[..], &[self.reason as u8]].concat()
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Refusal> {
        let (reason, token) = bytes.split_last()?;
        let [token] = numbers(token)?;
        let reason = match reason {
            1 => Reason::NotExposed,
            2 => Reason::OutOfBounds,
            3 => Reason::TooManyWaiting,
            4 => Reason::TooLong,
            5 => Reason::Unreadable,
            _ => return None,
        };
        Some(Refusal { token, reason })
    }
}

impl Reason {
    pub fn text(self) -> &'static str {
        match self {
            Reason::NotExposed => "the region is not exposed any more",
            Reason::OutOfBounds => "the range is beyond the region",
            Reason::TooManyWaiting => "too many reads wait there already",
            Reason::TooLong => "more bytes at once than it has staging for",
            Reason::Unreadable => "its device failed",
        }
    }
}

/// Body of Note.
pub(super) fn note_to_bytes(session: u64, message: &[u8]) -> Vec<u8> {
    [&session.to_le_bytes(), message].concat()
}

pub(super) fn note_from_bytes(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (session, message) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*session), message))
}

/// Body of Wait and Forget.
pub(super) fn tokens_to_bytes(tokens: &[u64]) -> Vec<u8> {
    let bytes = tokens.iter().flat_map(|token| token.to_le_bytes());
    bytes.collect()
}

pub(super) fn tokens_from_bytes(bytes: &[u8]) -> Option<Vec<u64>> {
    let (tokens, rest) = bytes.as_chunks::<8>();
    let whole = rest.is_empty() && !tokens.is_empty();
    whole.then(|| {
        tokens
            .iter()
            .map(|token| u64::from_le_bytes(*token))
            .collect()
    })
}

fn words<const N: usize>(numbers: [u64; N]) -> Vec<u8> {
    numbers.map(u64::to_le_bytes).concat()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn messages_survive_their_bytes(
            numbers in any::<[u64; 5]>(), nonce in any::<Nonce>(), proof in any::<[u8; 32]>(),
            message in proptest::collection::vec(any::<u8>(), 0..50),
            listens in proptest::collection::vec(any::<u8>(), Address::BYTES),
        ) {
            let listens = AddrBytes::try_from(listens).unwrap();
            let [token, owner, region, offset, len] = numbers;
            let proof = blake3::Hash::from_bytes(proof);
            let hello = Hello { token, owner, listens, nonce };
            prop_assert_eq!(Hello::from_bytes(&hello.to_bytes()), Some(hello));
            let welcome = Welcome { token, owner, nonce, proof };
            prop_assert_eq!(Welcome::from_bytes(&welcome.to_bytes()), Some(welcome));
            let prove = Prove { token, proof };
            prop_assert_eq!(Prove::from_bytes(&prove.to_bytes()), Some(prove));
            let ready = Ready { token };
            prop_assert_eq!(Ready::from_bytes(&ready.to_bytes()), Some(ready));
            let read = Read { session: owner, token, region, offset, len };
            prop_assert_eq!(Read::from_bytes(&read.to_bytes()), Some(read));
            let refusal = Refusal { token, reason: Reason::OutOfBounds };
            prop_assert_eq!(Refusal::from_bytes(&refusal.to_bytes()), Some(refusal));
            let note = note_to_bytes(owner, &message);
            prop_assert_eq!(note_from_bytes(&note), Some((owner, &message[..])));
            prop_assert_eq!(tokens_from_bytes(&tokens_to_bytes(&numbers)), Some(numbers.to_vec()));
        }

        #[test]
        fn garbage_is_no_message_and_no_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..130)
        ) {
            prop_assert_eq!(Hello::from_bytes(&bytes), None);
            prop_assert_eq!(Welcome::from_bytes(&bytes), None);
            prop_assert_eq!(Prove::from_bytes(&bytes).is_some(), bytes.len() == 40);
            prop_assert_eq!(Ready::from_bytes(&bytes).is_some(), bytes.len() == 8);
            prop_assert_eq!(Read::from_bytes(&bytes).is_some(), bytes.len() == 40);
            prop_assert_eq!(note_from_bytes(&bytes).is_some(), bytes.len() >= 8);
            let _ = Refusal::from_bytes(&bytes);
            let whole = !bytes.is_empty() && bytes.len() % 8 == 0;
            prop_assert_eq!(tokens_from_bytes(&bytes).is_some(), whole);
        }
    }
}
