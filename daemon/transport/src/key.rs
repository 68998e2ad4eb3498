//! What a puller must know of a remote region, and which bytes of it it wants.
use crate::error::KeyError;

/// Names a region that a transport exposes. Travels by any means (here: the control plane).
///
/// 36 bytes, little-endian: `b"RKY1"`, owner u64, region u64, len u64, FNV-1a 64 of all before
/// (against damage and mix-ups, not against malice).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionKey {
    /// Random number of the transport that issued the key; a fetch is refused if another one
    /// listens at the peer's address by now.
    pub owner: u64,
    /// The region's number there, drawn at random from 2^64: whoever was not told of it cannot read it.
    pub region: u64,
    /// Length of the region in bytes.
    pub len: u64,
}

/// One range to fetch: `len` bytes from `src` in the region to `dst` in the local buffer. Reported
/// when all of it is here, so a part is best what is verified as one: a manifest's chunk.
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
const BODY: usize = 4 + 8 + 8 + 8;

impl RegionKey {
    /// Length of [`RegionKey::to_bytes`].
    pub const BYTES: usize = BODY + 8;

    /// The key as bytes for [`RegionKey::from_bytes`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::BYTES);
        out.extend_from_slice(MAGIC);
        for field in [self.owner, self.region, self.len] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&fnv1a(&out).to_le_bytes());
        out
    }

    /// Reads what [`RegionKey::to_bytes`] wrote; anything else is an error.
    pub fn from_bytes(bytes: &[u8]) -> Result<RegionKey, KeyError> {
        let Some((body, sum)) = bytes
            .split_at_checked(BODY)
            .filter(|(_, sum)| sum.len() == 8)
        else {
            return Err(KeyError("wrong length"));
        };
        if !body.starts_with(MAGIC) {
            return Err(KeyError("wrong magic"));
        }
        if u64_at(sum, 0) != Some(fnv1a(body)) {
            return Err(KeyError("checksum differs"));
        }
        match (u64_at(body, 4), u64_at(body, 12), u64_at(body, 20)) {
            (Some(owner), Some(region), Some(len)) => Ok(RegionKey { owner, region, len }),
            _ => Err(KeyError("wrong length")),
        }
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
