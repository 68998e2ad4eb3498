//! Groups: what one commit of the store wrote, as it is kept.
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a group begins with: the format's name and number.
const MAGIC: &[u8; 8] = b"robustG1";
/// Bytes before the first write: magic, epoch, number, the epoch and the digest before, and how many writes there are.
const HEADER: usize = 8 + 8 + 8 + 8 + 32 + 4;

/// BLAKE3 of a group as it is kept, with which it names all that came before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Digest(#[serde(with = "hex")] pub [u8; 32]);

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from(self.0).to_hex()[..12])
    }
}

/// Where a log stands: a group of it, and by its digest everything before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Position {
    /// Who wrote it: the number of a controller's term, which grows with each.
    pub epoch: u64,
    /// The group's number; 0: nothing was written yet.
    pub number: u64,
    /// Of the group, or of the base that the chain begins at.
    pub digest: Digest,
}

impl Position {
    /// Where a chain begins that has a base and no group yet.
    #[must_use]
    pub fn of_base(run: &str, epoch: u64, number: u64) -> Self {
        let mut hash = blake3::Hasher::new_derive_key("robust group log: where a chain begins");
        hash.update(run.as_bytes());
        hash.update(&epoch.to_le_bytes());
        hash.update(&number.to_le_bytes());
        let digest = Digest(*hash.finalize().as_bytes());
        Self {
            epoch,
            number,
            digest,
        }
    }

    /// For a value of the store.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(48);
        bytes.put_u64_le(self.epoch);
        bytes.put_u64_le(self.number);
        bytes.put_slice(&self.digest.0);
        bytes
    }

    /// The inverse; none for bytes that are no position.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (epoch, rest) = bytes.split_first_chunk::<8>()?;
        let (number, rest) = rest.split_first_chunk::<8>()?;
        Some(Self {
            epoch: u64::from_le_bytes(*epoch),
            number: u64::from_le_bytes(*number),
            digest: Digest(rest.try_into().ok()?),
        })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {} of epoch {}", self.number, self.epoch)
    }
}

/// What one commit wrote: keys with their new values, and none for those that were removed. Applied whole or not at all,
/// and applying it again changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Counts the commits of a store.
    pub number: u64,
    /// In the order of their keys.
    pub writes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// A group that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is.
    pub at: Position,
    /// What it follows.
    pub after: Position,
    /// What it wrote.
    pub group: Group,
}

impl Group {
    /// The group as it is kept when it follows `after` in the term `epoch`, and where the log stands with it.
    #[must_use]
    pub fn encode(&self, epoch: u64, after: &Position) -> (Bytes, Position) {
        let length = |(key, value): &(Vec<u8>, Option<Vec<u8>>)| {
            9 + key.len() + value.as_ref().map_or(0, Vec::len)
        };
        let total = HEADER + self.writes.iter().map(length).sum::<usize>();
        let mut bytes = BytesMut::with_capacity(total);
        bytes.put_slice(MAGIC);
        bytes.put_u64_le(epoch);
        bytes.put_u64_le(self.number);
        bytes.put_u64_le(after.epoch);
        bytes.put_slice(&after.digest.0);
        bytes.put_u32_le(count(self.writes.len()));
        for (key, value) in &self.writes {
            bytes.put_u32_le(count(key.len()));
            bytes.put_slice(key);
            bytes.put_u8(u8::from(value.is_some()));
            let value = value.as_deref().unwrap_or_default();
            bytes.put_u32_le(count(value.len()));
            bytes.put_slice(value);
        }
        let digest = Digest(*blake3::hash(&bytes).as_bytes());
        let number = self.number;
        let at = Position {
            epoch,
            number,
            digest,
        };
        (bytes.freeze(), at)
    }
}

impl Entry {
    /// A group as it is kept.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut rest = bytes;
        if take::<8>(&mut rest)? != *MAGIC {
            return Err("it does not begin as a group does, or is of a later build");
        }
        let epoch = u64::from_le_bytes(take(&mut rest)?);
        let number = u64::from_le_bytes(take(&mut rest)?);
        let before = u64::from_le_bytes(take(&mut rest)?);
        let after = Position {
            epoch: before,
            number: number.checked_sub(1).ok_or("a group's number is above 0")?,
            digest: Digest(take(&mut rest)?),
        };
        let entries = u32::from_le_bytes(take(&mut rest)?);
        // Not reserved by what the bytes claim: each write has some of them.
        let mut writes = Vec::new();
        for _ in 0..entries {
            let key = part(&mut rest)?;
            let [is_put] = take(&mut rest)?;
            let value = part(&mut rest)?;
            let value = match is_put {
                1 => Some(value),
                0 if value.is_empty() => None,
                _ => return Err("a write neither sets nor removes"),
            };
            writes.push((key, value));
        }
        if !rest.is_empty() {
            return Err("it goes on after its last write");
        }
        let digest = Digest(*blake3::hash(bytes).as_bytes());
        let at = Position {
            epoch,
            number,
            digest,
        };
        let group = Group { number, writes };
        Ok(Self { at, after, group })
    }
}

/// A length: nothing that is stored comes near the bound.
fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

const SHORT: &str = "it ends too early";

pub(crate) fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], &'static str> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or(SHORT)?;
    *rest = tail;
    Ok(*head)
}

pub(crate) fn part(rest: &mut &[u8]) -> Result<Vec<u8>, &'static str> {
    let length = u32::from_le_bytes(take(rest)?) as usize;
    let (head, tail) = rest.split_at_checked(length).ok_or(SHORT)?;
    *rest = tail;
    Ok(head.to_vec())
}

mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(digest: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&blake3::Hash::from(*digest).to_hex())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        let hash = blake3::Hash::from_hex(&text).map_err(de::Error::custom)?;
        Ok(*hash.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn any_group() -> impl Strategy<Value = Group> {
        let write = (
            prop::collection::vec(any::<u8>(), 0..20),
            prop::option::of(prop::collection::vec(any::<u8>(), 0..300)),
        );
        (1..u64::MAX, prop::collection::vec(write, 0..20))
            .prop_map(|(number, writes)| Group { number, writes })
    }

    proptest! {
        #[test]
        fn a_group_reads_back_as_itself_with_its_place(group in any_group(), epoch: u64, before: u64) {
            let after = Position::of_base("run", before, group.number - 1);
            let (bytes, at) = group.encode(epoch, &after);
            let read = Entry::decode(&bytes).unwrap();
            prop_assert_eq!((read.at, read.after, read.group), (at, after, group));
        }

        #[test]
        fn a_changed_byte_is_refused_or_gives_another_digest(group in any_group(), place: prop::sample::Index, by in 1..=255u8) {
            let (bytes, at) = group.encode(7, &Position::of_base("run", 7, group.number - 1));
            let mut bytes = bytes.to_vec();
            let place = place.index(bytes.len());
            bytes[place] ^= by;
            if let Ok(read) = Entry::decode(&bytes) {
                prop_assert_ne!(read.at.digest, at.digest);
            }
        }

        #[test]
        fn arbitrary_bytes_are_never_more_than_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Entry::decode(&bytes);
            let _ = Position::from_bytes(&bytes);
        }

        #[test]
        fn a_position_reads_back_as_itself(epoch: u64, number: u64) {
            let at = Position::of_base("run", epoch, number);
            prop_assert_eq!(Position::from_bytes(&at.to_bytes()), Some(at));
            let text = serde_json::to_string(&at).unwrap();
            prop_assert_eq!(serde_json::from_str::<Position>(&text).unwrap(), at);
        }
    }

    #[test]
    fn a_torn_group_is_refused_wherever_it_ends() {
        let writes = vec![
            (b"key".to_vec(), Some(b"value".to_vec())),
            (b"gone".to_vec(), None),
        ];
        let group = Group { number: 3, writes };
        let (bytes, _) = group.encode(1, &Position::of_base("run", 1, 2));
        for end in 0..bytes.len() {
            assert!(Entry::decode(&bytes[..end]).is_err(), "{end}");
        }
    }
}
