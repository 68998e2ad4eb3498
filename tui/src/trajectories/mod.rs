//! What commands and console say of a trajectory alike: its name, what all records tell of it, the text of its tokens.
mod text;
pub mod witness;

pub use text::{Part, Text, Token, Whose};

use robust_proto::v1;
use robust_shared::ids::TrajectoryId;

/// Its name: BATCH.GROUP.MEMBER.
pub fn name(t: &v1::Trajectory) -> String {
    id(t).to_string()
}

/// What it is called by.
pub fn id(t: &v1::Trajectory) -> TrajectoryId {
    TrajectoryId {
        batch: t.batch,
        group: t.group,
        member: t.member,
    }
}

/// Reads a name.
pub fn parse(name: &str) -> Option<TrajectoryId> {
    let mut parts = name.split('.');
    let id = TrajectoryId {
        batch: parts.next()?.parse().ok()?,
        group: parts.next()?.parse().ok()?,
        member: parts.next()?.parse().ok()?,
    };
    parts.next().is_none().then_some(id)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_trajectorys_name_reads_back_and_nothing_else_does() {
        let id = parse("12.3.4").unwrap();
        assert_eq!((id.batch, id.group, id.member), (12, 3, 4));
        assert_eq!(id.to_string(), "12.3.4");
        for wrong in ["", "1", "1.2", "1.2.3.4", "a.b.c", "1.-2.3"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
