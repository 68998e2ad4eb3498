//! Every key of the database, in one place. Schema [`VERSION`].
//!
//! One sled tree, so that one batch is atomic across everything. Numbers are big-endian, so that
//! keys sort like what they name.
//!
//! | key | value |
//! | --- | --- |
//! | `m` | schema version, u32 big-endian, never split |
//! | `g` | number of the last committed group, u64 big-endian, never split |
//! | `a` | the whole state, as the daemon wrote it until schema 3; the next record replaces it by `c` and `d` |
//! | `c` entry | an [`Entry`](robust_shared::core::Entry) of the core's state; its [`EntryKey`] follows |
//! | `d` `a` | when the state was last written and as what, as the daemon wrote it |
//! | `d` `p` | the newest published version and its digest, as the daemon wrote it |
//! | `d` `s` step:8 rank:4 | where a shard of a snapshot is, as the daemon wrote it |
//! | `l` | where the job's log stands with the last group ([`robust_grouplog::Position`]); only where a log is kept |
//! | `f` name | a file of the state directory that another machine needs, sealed; only where a log is kept |
//! | `j` seq:8 | [`Record`](robust_shared::core::Record), CBOR |
//! | `e` seq:8 | [`Event`](robust_shared::core::Event), CBOR |
//! | `s` step:8 | [`StoredStep`](super::StoredStep), CBOR |
//! | `n` incident:8 | [`Incident`](robust_shared::core::Incident), CBOR, its last state |
//! | `r` incident:8 | what operators wrote beside it: [`StoredNote`](super::StoredNote)s, CBOR, oldest first |
//! | `w` | [`Told`](super::Told), CBOR: what the receiver of the webhook has; only where there is one |
//! | `i` incarnation:8 | [`StoredInstance`](super::StoredInstance), CBOR |
//! | `h` level:1 begin:8 | [`Page`](robust_shared::history::Page) of the history, CBOR |
//! | `k` step:8 | [`StoredCheckpoint`](super::StoredCheckpoint), CBOR |
//! | `t` trajectory:8 `c` | the step that consumed it, u64 big-endian |
//! | `t` trajectory:8 `f` | [`Finish`](super::Finish), CBOR |
//! | `t` trajectory:8 `p` | prompt token ids, u32 little-endian each |
//! | `t` trajectory:8 `s` turn:4 tokens:4 | `robust.v1.Span` of a turn under way, after so many tokens |
//! | `t` trajectory:8 `t` index:4 | `robust.v1.Turn`, protobuf |
//! | `u` trajectory:8 | empty: finished and not consumed |
//! | `x` key part:4 | part of a long value, raw (see [`super::parts`]) |
//!
//! Schema 1 had no spans of turns under way, schema 2 no history, schema 3 one key for the whole state; all
//! else is the same, so that opening one of them writes the new number and is done. `l` and `f` came to schema 4 later: a build that
//! does not know them leaves them alone, and `l` then names another group than `g`, by which the next one sees it. `r` and `w` came later
//! still, and such a build leaves them alone as well.
use robust_shared::core::EntryKey;

/// The schema written by this build; a higher one found on disk is refused.
pub const VERSION: u32 = 4;

/// A key. See the module's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// `m`
    Version,
    /// `g`
    Group,
    /// `a`
    FormerState,
    /// `c`
    Entry(EntryKey),
    /// `da`
    Written,
    /// `dp`
    Published,
    /// `ds`: step and rank
    Shard(u64, u32),
    /// `j`
    Journal(u64),
    /// `e`
    Event(u64),
    /// `o`: of what operators asked for
    Audit(u64),
    /// `s`
    Step(u64),
    /// `l`
    Position,
    /// `f`
    File(String),
    /// `n`
    Incident(u64),
    /// `r`: of that incident
    Notes(u64),
    /// `w`
    Told,
    /// `i`
    Instance(u64),
    /// `h`: level, and the begin in microseconds
    History(u8, u64),
    /// `k`
    Checkpoint(u64),
    /// `t..c`
    Consumed(u64),
    /// `t..f`
    Finish(u64),
    /// `t..p`
    Prompt(u64),
    /// `t..s`
    Span(u64, u32, u32),
    /// `t..t`
    Turn(u64, u32),
    /// `u`
    Unconsumed(u64),
}

impl Key {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let numbered = |tag: u8, n: u64| [&[tag][..], &n.to_be_bytes()].concat();
        let of_trajectory = |n: u64, tail: &[u8]| [&b"t"[..], &n.to_be_bytes(), tail].concat();
        match *self {
            Key::Position => vec![b'l'],
            Key::File(ref name) => [&b"f"[..], name.as_bytes()].concat(),
            Key::Version => vec![b'm'],
            Key::Group => vec![b'g'],
            Key::Told => vec![b'w'],
            Key::FormerState => vec![b'a'],
            Key::Entry(entry) => [&b"c"[..], &entry.encode()].concat(),
            Key::Written => b"da".to_vec(),
            Key::Published => b"dp".to_vec(),
            Key::Shard(step, rank) => {
                [&b"ds"[..], &step.to_be_bytes(), &rank.to_be_bytes()].concat()
            }
            Key::Journal(n) => numbered(b'j', n),
            Key::Event(n) => numbered(b'e', n),
            Key::Audit(n) => numbered(b'o', n),
            Key::Step(n) => numbered(b's', n),
            Key::Incident(n) => numbered(b'n', n),
            Key::Notes(n) => numbered(b'r', n),
            Key::Instance(n) => numbered(b'i', n),
            Key::Checkpoint(n) => numbered(b'k', n),
            Key::Unconsumed(n) => numbered(b'u', n),
            Key::History(level, begin) => [&[b'h', level][..], &begin.to_be_bytes()].concat(),
            Key::Consumed(n) => of_trajectory(n, b"c"),
            Key::Finish(n) => of_trajectory(n, b"f"),
            Key::Prompt(n) => of_trajectory(n, b"p"),
            Key::Span(n, turn, offset) => of_trajectory(
                n,
                &[&b"s"[..], &turn.to_be_bytes(), &offset.to_be_bytes()].concat(),
            ),
            Key::Turn(n, index) => of_trajectory(n, &[&b"t"[..], &index.to_be_bytes()].concat()),
        }
    }

    /// The trajectory that it is part of.
    pub fn trajectory(&self) -> Option<u64> {
        match *self {
            Key::Consumed(n)
            | Key::Finish(n)
            | Key::Prompt(n)
            | Key::Span(n, ..)
            | Key::Turn(n, _) => Some(n),
            _ => None,
        }
    }

    /// The inverse of [`Self::encode`]; none for bytes that are no key of this schema.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first()?;
        if rest.is_empty() {
            return match tag {
                b'm' => Some(Key::Version),
                b'g' => Some(Key::Group),
                b'a' => Some(Key::FormerState),
                b'l' => Some(Key::Position),
                b'w' => Some(Key::Told),
                _ => None,
            };
        }
        if let (b'h', [level, begin @ ..]) = (tag, rest) {
            let begin = u64::from_be_bytes(begin.try_into().ok()?);
            return Some(Key::History(*level, begin));
        }
        match (tag, rest) {
            (b'f', name) => return String::from_utf8(name.to_vec()).ok().map(Key::File),
            (b'c', entry) => return EntryKey::decode(entry).map(Key::Entry),
            (b'd', b"a") => return Some(Key::Written),
            (b'd', b"p") => return Some(Key::Published),
            (b'd', [b's', shard @ ..]) => {
                let (step, rank) = shard.split_first_chunk::<8>()?;
                let rank = u32::from_be_bytes(rank.try_into().ok()?);
                return Some(Key::Shard(u64::from_be_bytes(*step), rank));
            }
            _ => {}
        }
        let (number, tail) = rest.split_first_chunk::<8>()?;
        let n = u64::from_be_bytes(*number);
        match (tag, tail) {
            (b'j', []) => Some(Key::Journal(n)),
            (b'e', []) => Some(Key::Event(n)),
            (b'o', []) => Some(Key::Audit(n)),
            (b's', []) => Some(Key::Step(n)),
            (b'n', []) => Some(Key::Incident(n)),
            (b'r', []) => Some(Key::Notes(n)),
            (b'i', []) => Some(Key::Instance(n)),
            (b'k', []) => Some(Key::Checkpoint(n)),
            (b'u', []) => Some(Key::Unconsumed(n)),
            (b't', b"c") => Some(Key::Consumed(n)),
            (b't', b"f") => Some(Key::Finish(n)),
            (b't', b"p") => Some(Key::Prompt(n)),
            (b't', [b's', place @ ..]) => {
                let (turn, offset) = place.split_first_chunk::<4>()?;
                let offset = u32::from_be_bytes(offset.try_into().ok()?);
                Some(Key::Span(n, u32::from_be_bytes(*turn), offset))
            }
            (b't', [b't', index @ ..]) => {
                Some(Key::Turn(n, u32::from_be_bytes(index.try_into().ok()?)))
            }
            _ => None,
        }
    }
}

/// All keys with one first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// That byte.
    pub tag: u8,
    /// Grows with the job, beyond what a start may read.
    pub is_long: bool,
}

/// Every table of the schema.
pub fn tables() -> Vec<Table> {
    let table = |tag: &u8| Table {
        tag: *tag,
        is_long: b"ejthx".contains(tag),
    };
    b"mgacdlfjeosnrwhiktux".iter().map(table).collect()
}

/// The tables that hold what the daemon remembers.
pub const REMEMBERED: [u8; 2] = [b'c', b'd'];

/// The key of one part of a long value.
pub fn part(key: &[u8], index: u32) -> Vec<u8> {
    [&b"x"[..], key, &index.to_be_bytes()].concat()
}

/// What every key of a trajectory starts with; the end of a range of trajectories too.
pub fn trajectory_prefix(trajectory: u64) -> Vec<u8> {
    [&b"t"[..], &trajectory.to_be_bytes()].concat()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn any_key() -> impl Strategy<Value = Key> {
        prop_oneof![
            Just(Key::Version),
            Just(Key::Group),
            Just(Key::FormerState),
            Just(Key::Entry(EntryKey::Gang)),
            any::<u64>().prop_map(|n| Key::Entry(EntryKey::Batch(n))),
            Just(Key::Written),
            Just(Key::Published),
            Just(Key::Position),
            "[a-z.]{1,20}".prop_map(Key::File),
            any::<(u64, u32)>().prop_map(|(step, rank)| Key::Shard(step, rank)),
            any::<u64>().prop_map(Key::Journal),
            any::<u64>().prop_map(Key::Event),
            any::<u64>().prop_map(Key::Audit),
            any::<u64>().prop_map(Key::Step),
            any::<u64>().prop_map(Key::Incident),
            any::<u64>().prop_map(Key::Notes),
            Just(Key::Told),
            any::<u64>().prop_map(Key::Instance),
            any::<u64>().prop_map(Key::Checkpoint),
            any::<u64>().prop_map(Key::Consumed),
            any::<u64>().prop_map(Key::Finish),
            any::<u64>().prop_map(Key::Prompt),
            any::<u64>().prop_map(Key::Unconsumed),
            (any::<u64>(), any::<u32>()).prop_map(|(n, i)| Key::Turn(n, i)),
            any::<(u8, u64)>().prop_map(|(level, begin)| Key::History(level, begin)),
            any::<(u64, u32, u32)>().prop_map(|(n, t, o)| Key::Span(n, t, o)),
        ]
    }

    proptest! {
        #[test]
        fn every_key_reads_back_as_itself(key in any_key()) {
            prop_assert_eq!(Key::decode(&key.encode()), Some(key));
        }

        #[test]
        fn every_key_belongs_to_a_table(key in any_key()) {
            let tag = key.encode()[0];
            prop_assert_eq!(tables().iter().filter(|t| t.tag == tag).count(), 1);
        }

        #[test]
        fn turns_sort_by_trajectory_then_index(a: (u64, u32), b: (u64, u32)) {
            let (x, y) = (Key::Turn(a.0, a.1).encode(), Key::Turn(b.0, b.1).encode());
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        }
    }

    /// A change here makes every database of schema 4 unreadable: raise [`VERSION`] instead.
    #[test]
    fn the_keys_of_schema_4_have_these_bytes() {
        assert_eq!(VERSION, 4);
        assert_eq!(Key::Version.encode(), b"m");
        assert_eq!(Key::Group.encode(), b"g");
        assert_eq!(Key::FormerState.encode(), b"a");
        assert_eq!(Key::Entry(EntryKey::Gang).encode(), b"cd");
        assert_eq!(Key::Position.encode(), b"l");
        assert_eq!(Key::File("run".to_owned()).encode(), b"frun");
        assert_eq!(Key::Written.encode(), b"da");
        assert_eq!(Key::Published.encode(), b"dp");
        assert_eq!(Key::Shard(1, 2).encode(), b"ds\0\0\0\0\0\0\0\x01\0\0\0\x02");
        assert_eq!(Key::Journal(258).encode(), b"j\0\0\0\0\0\0\x01\x02");
        assert_eq!(Key::Notes(258).encode(), b"r\0\0\0\0\0\0\x01\x02");
        assert_eq!(Key::Told.encode(), b"w");
        assert_eq!(Key::Turn(1, 2).encode(), b"t\0\0\0\0\0\0\0\x01t\0\0\0\x02");
        assert_eq!(
            Key::Span(1, 2, 3).encode(),
            b"t\0\0\0\0\0\0\0\x01s\0\0\0\x02\0\0\0\x03"
        );
        assert_eq!(Key::History(1, 2).encode(), b"h\x01\0\0\0\0\0\0\0\x02");
        assert_eq!(Key::Finish(1).encode(), b"t\0\0\0\0\0\0\0\x01f");
        assert_eq!(part(b"a", 3), b"xa\0\0\0\x03");
    }

    #[test]
    fn foreign_bytes_are_no_key() {
        for bytes in [
            &b""[..],
            b"q",
            b"j",
            b"j123",
            b"t12345678",
            b"t12345678tx",
            b"t12345678s1234567",
            b"x12345678a",
            b"h12345678",
            b"c",
            b"c?",
            b"f",
            b"f\xff",
            b"l1",
            b"w1",
            b"r",
            b"d",
            b"ds1234567",
        ] {
            assert_eq!(Key::decode(bytes), None, "{bytes:?}");
        }
    }
}
