//! Long values in parts.
//!
//! A value starts with a tag: 0 and the bytes themselves, or 1 and a head (parts: u32, bytes: u64,
//! XXH3-64: u64, little-endian) whose bytes lie in part keys. sled 0.34 keeps up to 16 values in a
//! page and moves pages above a quarter of a segment into blob files, which it never syncs; 16
//! parts of this size stay below that for the segment size in [`super::database`].
use super::error::StoreError;
use super::keys;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// The longest value stored under one key, tag aside.
pub const PART_BYTES: usize = 16 * 1024;

const INLINE: u8 = 0;
const SPLIT: u8 = 1;

/// Reads raw values by key.
pub trait Get {
    /// The raw value.
    fn get_raw(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
    /// The database's path, for errors.
    fn path(&self) -> &Path;

    /// The whole value, joined from its parts.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(raw) = self.get_raw(key)? else {
            return Ok(None);
        };
        let damaged = |what: &str| StoreError::Corrupt {
            path: self.path().to_owned(),
            detail: format!("value of {}: {what}", key.escape_ascii()),
        };
        match raw.split_first() {
            Some((&INLINE, bytes)) => Ok(Some(bytes.to_vec())),
            Some((&SPLIT, head)) => {
                let head = Head::decode(head).ok_or_else(|| damaged("bad head"))?;
                let mut bytes = Vec::new();
                for index in 0..head.parts {
                    let part = self.get_raw(&keys::part(key, index))?;
                    bytes.extend(part.ok_or_else(|| damaged("a part is missing"))?);
                }
                if bytes.len() as u64 != head.bytes || xxh3_64(&bytes) != head.xxh3 {
                    return Err(damaged("its parts do not match its digest"));
                }
                Ok(Some(bytes))
            }
            _ => Err(damaged("unknown tag")),
        }
    }
}

struct Head {
    parts: u32,
    bytes: u64,
    xxh3: u64,
}

impl Head {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (parts, rest) = bytes.split_first_chunk::<4>()?;
        let (len, rest) = rest.split_first_chunk::<8>()?;
        Some(Self {
            parts: u32::from_le_bytes(*parts),
            bytes: u64::from_le_bytes(*len),
            xxh3: u64::from_le_bytes(rest.try_into().ok()?),
        })
    }
}

/// How many parts a raw value says it has besides itself.
pub fn part_count(raw: &[u8]) -> u32 {
    match raw.split_first() {
        Some((&SPLIT, head)) => Head::decode(head).map_or(0, |h| h.parts),
        _ => 0,
    }
}

/// The raw entries that hold a value: the key itself first, then its parts.
pub fn entries(key: &[u8], value: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    if value.len() <= PART_BYTES {
        return vec![(key.to_vec(), [&[INLINE], value].concat())];
    }
    let parts: Vec<_> = (0..)
        .zip(value.chunks(PART_BYTES))
        .map(|(index, bytes)| (keys::part(key, index), bytes.to_vec()))
        .collect();
    let mut head = vec![SPLIT];
    head.extend(u32::try_from(parts.len()).unwrap_or(u32::MAX).to_le_bytes());
    head.extend((value.len() as u64).to_le_bytes());
    head.extend(xxh3_64(value).to_le_bytes());
    std::iter::once((key.to_vec(), head)).chain(parts).collect()
}
