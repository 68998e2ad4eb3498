//! The names of entries, as they are stored.
use crate::ettr::PartKey;
use crate::ids::{IncidentId, InstanceId, NodeId, Role, TrajectoryId};
use crate::phase::Phase;

/// The name of an entry. Its bytes are a letter and what follows it, numbers big-endian:
///
/// | bytes | entry |
/// | --- | --- |
/// | `a` | the last instant, and what is counted between commits |
/// | `b` | what is known of the job as a whole |
/// | `c` | what is planned: values, restarts one by one, a pause |
/// | `d` | the gang |
/// | `e` node:4 | a node |
/// | `f` node:4 | when it was heard of last, if it was since `e` was written |
/// | `g` role:1 index:4 | an instance |
/// | `h` role:1 index:4 | its phase and what was measured of it, if that changed since `g` was written |
/// | `i` batch:8 | a batch: prompts and responses |
/// | `j` trajectory:8 | a trajectory that is not as when its batch was opened |
/// | `k` incident:8 | an incident |
/// | `l` incident:8 | the recovery of an incident |
/// | `m` | the ledger's sums |
/// | `n` chunk:8 | the ledger: what 16 seconds counted |
/// | `o` chunk:8 | the ledger: what of them was wasted |
/// | `p` number:4 | the ledger: a training-bearing interval of the running step |
/// | `q` number:8 | a step's reward |
/// | `r` | deaths of engines that nobody is blamed for |
/// | `s` role:1 phase | how long a phase took; the phase by its name |
/// | `t` role:1 index:4 | what an engine has of the weights, if it has something |
///
/// Roles are numbered as in [`Role::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryKey {
    /// `a`
    Now,
    /// `b`
    Head,
    /// `c`
    Plans,
    /// `d`
    Gang,
    /// `e`
    Node(NodeId),
    /// `f`
    Beat(NodeId),
    /// `g`
    Instance(InstanceId),
    /// `h`
    Measured(InstanceId),
    /// `i`
    Batch(u64),
    /// `j`
    Trajectory(TrajectoryId),
    /// `k`
    Incident(IncidentId),
    /// `l`
    Recovery(IncidentId),
    /// `m` to `p`
    Ledger(PartKey),
    /// `q`
    Reward(u64),
    /// `r`
    Deaths,
    /// `s`
    Durations(Role, Phase),
    /// `t`
    Holder(InstanceId),
}

impl EntryKey {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let four = |tag: u8, n: u32| [&[tag][..], &n.to_be_bytes()].concat();
        let eight = |tag: u8, n: u64| [&[tag][..], &n.to_be_bytes()].concat();
        let instance = |tag: u8, id: InstanceId| {
            let index = id.index.to_be_bytes();
            [&[tag, id.role as u8][..], &index].concat()
        };
        match *self {
            EntryKey::Now => vec![b'a'],
            EntryKey::Head => vec![b'b'],
            EntryKey::Plans => vec![b'c'],
            EntryKey::Gang => vec![b'd'],
            EntryKey::Node(node) => four(b'e', node.0),
            EntryKey::Beat(node) => four(b'f', node.0),
            EntryKey::Instance(id) => instance(b'g', id),
            EntryKey::Measured(id) => instance(b'h', id),
            EntryKey::Batch(batch) => eight(b'i', batch),
            EntryKey::Trajectory(id) => eight(b'j', id.key()),
            EntryKey::Incident(id) => eight(b'k', id.0),
            EntryKey::Recovery(id) => eight(b'l', id.0),
            EntryKey::Ledger(PartKey::Sums) => vec![b'm'],
            EntryKey::Ledger(PartKey::Counted(chunk)) => eight(b'n', chunk),
            EntryKey::Ledger(PartKey::Wasted(chunk)) => eight(b'o', chunk),
            EntryKey::Ledger(PartKey::Training(number)) => four(b'p', number),
            EntryKey::Reward(number) => eight(b'q', number),
            EntryKey::Deaths => vec![b'r'],
            EntryKey::Durations(role, phase) => {
                [&[b's', role as u8][..], phase.name().as_bytes()].concat()
            }
            EntryKey::Holder(id) => instance(b't', id),
        }
    }

    /// The inverse of [`Self::encode`]; none for bytes that name no entry.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first()?;
        let four = || Some(u32::from_be_bytes(rest.try_into().ok()?));
        let eight = || Some(u64::from_be_bytes(rest.try_into().ok()?));
        let role = || Role::ALL.get(usize::from(*rest.first()?)).copied();
        let instance = || {
            let index = u32::from_be_bytes(rest.get(1..)?.try_into().ok()?);
            let role = role()?;
            Some(InstanceId { role, index })
        };
        let alone = |key: EntryKey| rest.is_empty().then_some(key);
        match tag {
            b'a' => alone(EntryKey::Now),
            b'b' => alone(EntryKey::Head),
            b'c' => alone(EntryKey::Plans),
            b'd' => alone(EntryKey::Gang),
            b'e' => four().map(|n| EntryKey::Node(NodeId(n))),
            b'f' => four().map(|n| EntryKey::Beat(NodeId(n))),
            b'g' => instance().map(EntryKey::Instance),
            b'h' => instance().map(EntryKey::Measured),
            b'i' => eight().map(EntryKey::Batch),
            b'j' => eight().map(|n| EntryKey::Trajectory(TrajectoryId::from_key(n))),
            b'k' => eight().map(|n| EntryKey::Incident(IncidentId(n))),
            b'l' => eight().map(|n| EntryKey::Recovery(IncidentId(n))),
            b'm' => alone(EntryKey::Ledger(PartKey::Sums)),
            b'n' => eight().map(|n| EntryKey::Ledger(PartKey::Counted(n))),
            b'o' => eight().map(|n| EntryKey::Ledger(PartKey::Wasted(n))),
            b'p' => four().map(|n| EntryKey::Ledger(PartKey::Training(n))),
            b'q' => eight().map(EntryKey::Reward),
            b'r' => alone(EntryKey::Deaths),
            b's' => {
                let name = std::str::from_utf8(rest.get(1..)?).ok()?;
                Some(EntryKey::Durations(role()?, name.parse().ok()?))
            }
            b't' => instance().map(EntryKey::Holder),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn any_key() -> impl Strategy<Value = EntryKey> {
        let instance = (0..Role::ALL.len(), any::<u32>());
        let instance = instance.prop_map(|(role, index)| InstanceId {
            role: Role::ALL[role],
            index,
        });
        let durations = (0..Role::ALL.len(), 0..Phase::ALL.len());
        let durations = durations.prop_map(|(r, p)| (Role::ALL[r], Phase::ALL[p]));
        let alone = [
            EntryKey::Now,
            EntryKey::Head,
            EntryKey::Plans,
            EntryKey::Gang,
            EntryKey::Ledger(PartKey::Sums),
            EntryKey::Deaths,
        ];
        prop_oneof![
            proptest::sample::select(alone.to_vec()),
            any::<u32>().prop_map(|n| EntryKey::Node(NodeId(n))),
            any::<u32>().prop_map(|n| EntryKey::Beat(NodeId(n))),
            instance.clone().prop_map(EntryKey::Instance),
            instance.clone().prop_map(EntryKey::Measured),
            instance.prop_map(EntryKey::Holder),
            any::<u64>().prop_map(EntryKey::Batch),
            any::<u64>().prop_map(|n| EntryKey::Trajectory(TrajectoryId::from_key(n))),
            any::<u64>().prop_map(|n| EntryKey::Incident(IncidentId(n))),
            any::<u64>().prop_map(|n| EntryKey::Recovery(IncidentId(n))),
            any::<u64>().prop_map(|n| EntryKey::Ledger(PartKey::Counted(n))),
            any::<u64>().prop_map(|n| EntryKey::Ledger(PartKey::Wasted(n))),
            any::<u32>().prop_map(|n| EntryKey::Ledger(PartKey::Training(n))),
            any::<u64>().prop_map(EntryKey::Reward),
            durations.prop_map(|(role, phase)| EntryKey::Durations(role, phase)),
        ]
    }

    proptest! {
        #[test]
        fn every_key_reads_back_as_itself(key in any_key()) {
            prop_assert_eq!(EntryKey::decode(&key.encode()), Some(key));
        }

        #[test]
        fn no_key_is_the_begin_of_another(a in any_key(), b in any_key()) {
            let (a_bytes, b_bytes) = (a.encode(), b.encode());
            prop_assert!(a == b || a_bytes != b_bytes, "{:?} {:?}", a, b);
        }
    }

    /// A change here makes every database of before unreadable: a new entry takes a new letter.
    #[test]
    fn keys_have_these_bytes() {
        let id = |role| InstanceId { role, index: 258 };
        let pairs: [(EntryKey, &[u8]); 12] = [
            (EntryKey::Now, b"a"),
            (EntryKey::Gang, b"d"),
            (EntryKey::Node(NodeId(3)), b"e\0\0\0\x03"),
            (EntryKey::Instance(id(Role::Trainer)), b"g\0\0\0\x01\x02"),
            (EntryKey::Instance(id(Role::Hybrid)), b"g\x01\0\0\x01\x02"),
            (EntryKey::Measured(id(Role::Rollout)), b"h\x02\0\0\x01\x02"),
            (EntryKey::Instance(id(Role::Agent)), b"g\x03\0\0\x01\x02"),
            (
                EntryKey::Trajectory(TrajectoryId::from_key(5)),
                b"j\0\0\0\0\0\0\0\x05",
            ),
            (EntryKey::Ledger(PartKey::Sums), b"m"),
            (EntryKey::Ledger(PartKey::Training(1)), b"p\0\0\0\x01"),
            (
                EntryKey::Durations(Role::Rollout, Phase::PullWeights),
                b"s\x02pull_weights",
            ),
            (EntryKey::Holder(id(Role::Hybrid)), b"t\x01\0\0\x01\x02"),
        ];
        for (key, bytes) in pairs {
            assert_eq!(key.encode(), bytes, "{key:?}");
        }
    }

    #[test]
    fn foreign_bytes_name_no_entry() {
        for bytes in [
            &b""[..],
            b"A",
            b"ab",
            b"e123",
            b"g\x04\0\0\0\0",
            b"g\0\0\0\0",
            b"s\0nothing",
        ] {
            assert_eq!(EntryKey::decode(bytes), None, "{bytes:?}");
        }
    }
}
