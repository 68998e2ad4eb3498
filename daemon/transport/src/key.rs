//! What a puller must know of a remote region, and which bytes of it it wants.
use crate::error::KeyError;

/// Names a region that a transport exposes. Travels by any means (here: the control plane).
///
/// Byte layout, little-endian: `b"RKY1"`, owner u64, address u64, len u64, rkey length u16, rkey,
/// FNV-1a 64 of all before. The checksum is there because UCX parses a packed rkey without being
/// told its length: damaged bytes must never reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionKey {
    /// Random number of the transport that issued the key; a fetch is refused if another one
    /// listens at the peer's address by now.
    pub owner: u64,
    /// Address of the region in its owner's process.
    pub address: u64,
    /// Length of the region in bytes.
    pub len: u64,
    /// UCX's packed remote key.
    pub rkey: Vec<u8>,
}

/// One range to fetch: `len` bytes from `src` in the region to `dst` in the local buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Offset in the remote region.
    pub src: u64,
    /// Offset in the local buffer.
    pub dst: u64,
    /// Length in bytes; zero is allowed and fetches nothing.
    pub len: u64,
}

const MAGIC: &[u8; 4] = b"RKY1";
const HEAD: usize = 4 + 8 + 8 + 8 + 2;
const SUM: usize = 8;

impl RegionKey {
    /// The key as bytes for [`RegionKey::from_bytes`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + self.rkey.len() + SUM);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.owner.to_le_bytes());
        out.extend_from_slice(&self.address.to_le_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
        // UCX packs about 10 bytes per memory domain: u16 is far beyond what occurs, and a longer
        // one would be cut here and refused by `from_bytes`.
        out.extend_from_slice(&(self.rkey.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.rkey);
        out.extend_from_slice(&fnv1a(&out).to_le_bytes());
        out
    }

    /// Reads what [`RegionKey::to_bytes`] wrote; anything else is an error.
    pub fn from_bytes(bytes: &[u8]) -> Result<RegionKey, KeyError> {
        if bytes.len() < HEAD + SUM {
            return Err(KeyError("too short"));
        }
        let (body, sum) = bytes.split_at(bytes.len() - SUM);
        if !body.starts_with(MAGIC) {
            return Err(KeyError("wrong magic"));
        }
        if u64_at(sum, 0) != Some(fnv1a(body)) {
            return Err(KeyError("checksum differs"));
        }
        let (Some(owner), Some(address), Some(len)) =
            (u64_at(body, 4), u64_at(body, 12), u64_at(body, 20))
        else {
            return Err(KeyError("too short"));
        };
        let rkey_len = usize::from(u16::from_le_bytes([body[28], body[29]]));
        if body.len() - HEAD != rkey_len {
            return Err(KeyError("wrong length"));
        }
        if address.checked_add(len).is_none() {
            return Err(KeyError("region wraps around"));
        }
        Ok(RegionKey { owner, address, len, rkey: body[HEAD..].to_vec() })
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
