//! Messages between transports; all integers little-endian.
//!
//! | message | bytes |
//! | --- | --- |
//! | Hello, Welcome | `b"RTP1"`, token u64 (chosen by who connects, echoed), owner u64 of the sender |
//! | Read | token u64, region u64, offset u64, len u64 |
//! | Refusal | token u64, reason u8 |
//! | Data | header: token u64; payload: the bytes |
//!
//! A change of meaning changes the magic. What does not parse is ignored: its sender times out.

const MAGIC: &[u8; 4] = b"RTP1";

/// Hello or Welcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handshake {
    pub token: u64,
    pub owner: u64,
}

/// Asks for a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Read {
    pub token: u64,
    pub region: u64,
    pub offset: u64,
    pub len: u64,
}

/// Why a chunk is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    NotExposed = 1,
    OutOfBounds = 2,
}

/// Says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    pub token: u64,
    pub reason: Reason,
}

impl Handshake {
    pub fn to_bytes(self) -> Vec<u8> {
        [
            MAGIC.as_slice(),
            &self.token.to_le_bytes(),
            &self.owner.to_le_bytes(),
        ]
        .concat()
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Handshake> {
        let [token, owner] = numbers(bytes.strip_prefix(MAGIC)?)?;
        Some(Handshake { token, owner })
    }
}

impl Read {
    pub fn to_bytes(self) -> Vec<u8> {
        [self.token, self.region, self.offset, self.len]
            .map(u64::to_le_bytes)
            .concat()
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Read> {
        let [token, region, offset, len] = numbers(bytes)?;
        Some(Read {
            token,
            region,
            offset,
            len,
        })
    }
}

impl Refusal {
    pub fn to_bytes(self) -> Vec<u8> {
        [self.token.to_le_bytes().as_slice(), &[self.reason as u8]].concat()
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Refusal> {
        let (reason, token) = bytes.split_last()?;
        let [token] = numbers(token)?;
        let reason = match reason {
            1 => Reason::NotExposed,
            2 => Reason::OutOfBounds,
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
        }
    }
}

/// Exactly `N` numbers and nothing else.
fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (numbers, rest) = bytes.as_chunks::<8>();
    let numbers: &[[u8; 8]; N] = numbers.try_into().ok()?;
    rest.is_empty().then(|| numbers.map(u64::from_le_bytes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn messages_survive_their_bytes(token: u64, region: u64, offset: u64, len: u64) {
            let hello = Handshake { token, owner: region };
            prop_assert_eq!(Handshake::from_bytes(&hello.to_bytes()), Some(hello));
            let read = Read { token, region, offset, len };
            prop_assert_eq!(Read::from_bytes(&read.to_bytes()), Some(read));
            let refusal = Refusal { token, reason: Reason::OutOfBounds };
            prop_assert_eq!(Refusal::from_bytes(&refusal.to_bytes()), Some(refusal));
        }

        #[test]
        fn garbage_is_no_message_and_no_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..64)
        ) {
            prop_assert_eq!(Handshake::from_bytes(&bytes), None);
            prop_assert_eq!(Read::from_bytes(&bytes).is_some(), bytes.len() == 32);
            let _ = Refusal::from_bytes(&bytes);
        }
    }
}
