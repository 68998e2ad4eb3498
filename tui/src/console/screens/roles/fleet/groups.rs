//! In which order the instances of a fleet stand, and which of them stand together.
use robust_proto::v1::RoleStatus;
use robust_shared::ids::Role;
use std::collections::HashMap;

/// What instances that stand together have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Their role.
    #[default]
    Role,
    /// Their node.
    Node,
}

impl By {
    /// The other one.
    pub fn other(self) -> By {
        match self {
            By::Role => By::Node,
            By::Node => By::Role,
        }
    }

    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            By::Role => "role",
            By::Node => "node",
        }
    }
}

/// Instances that stand together.
#[derive(Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// Their role or node; empty: they have no node.
    pub name: &'a str,
    /// How many they are.
    pub count: usize,
}

/// All of them in their order, which is the same whatever becomes of them: roles as the status has them, nodes and instances by
/// their numbers.
#[derive(Debug)]
pub struct Groups<'a> {
    /// One behind the other.
    pub groups: Vec<Group<'a>>,
    /// Where each instance stands in the status, group by group.
    pub rows: Vec<usize>,
}

impl<'a> Groups<'a> {
    /// Of those instances of a status that stand there in it.
    pub fn of(roles: &'a [RoleStatus], mut shown: Vec<usize>, by: By) -> Groups<'a> {
        shown.sort_by_cached_key(|&row| {
            let r = &roles[row];
            (rank(&r.role), r.role.as_str(), r.index)
        });
        let name_of = |row: usize| match by {
            By::Role => roles[row].role.as_str(),
            By::Node => roles[row].node.as_str(),
        };
        let mut numbers: HashMap<&'a str, usize> = HashMap::new();
        let mut members: Vec<(&'a str, Vec<usize>)> = Vec::new();
        for row in shown {
            let name = name_of(row);
            let number = *numbers.entry(name).or_insert(members.len());
            if number == members.len() {
                members.push((name, Vec::new()));
            }
            members[number].1.push(row);
        }
        if by == By::Node {
            members.sort_by_cached_key(|member| natural(member.0));
        }
        let group = |member: &(&'a str, Vec<usize>)| Group {
            name: member.0,
            count: member.1.len(),
        };
        Groups {
            groups: members.iter().map(group).collect(),
            rows: members.into_iter().flat_map(|(_, rows)| rows).collect(),
        }
    }
}

/// Where a role stands among the roles; one that this build does not know comes last.
fn rank(role: &str) -> usize {
    let known = Role::ALL.iter().position(|known| known.name() == role);
    known.unwrap_or(Role::ALL.len())
}

/// By what nodes are ordered: as people count, those without a name last.
fn natural(name: &str) -> (bool, &str, u64, &str) {
    let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name[letters.len()..].parse().unwrap_or(0);
    (name.is_empty(), letters, number, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(role: &str, index: u32, node: &str) -> RoleStatus {
        RoleStatus {
            role: role.into(),
            index,
            node: node.into(),
            ..Default::default()
        }
    }

    fn fleet() -> Vec<RoleStatus> {
        vec![
            instance("agent", 0, ""),
            instance("rollout", 10, "node-2"),
            instance("rollout", 2, "node-10"),
            instance("trainer", 1, "node-10"),
            instance("trainer", 0, "node-2"),
        ]
    }

    fn shown(by: By) -> (Vec<(String, usize)>, Vec<usize>) {
        let fleet = fleet();
        let all = Groups::of(&fleet, (0..fleet.len()).collect(), by);
        let groups = all.groups.iter().map(|g| (g.name.to_owned(), g.count));
        (groups.collect(), all.rows)
    }

    #[test]
    fn roles_stand_as_everywhere_and_their_instances_by_number() {
        let (groups, rows) = shown(By::Role);
        let expected = [("trainer", 2), ("rollout", 2), ("agent", 1)];
        assert_eq!(groups, expected.map(|(name, n)| (name.to_owned(), n)));
        assert_eq!(rows, [4, 3, 2, 1, 0]);
    }

    #[test]
    fn nodes_are_ordered_as_people_count_and_who_has_none_comes_last() {
        let (groups, rows) = shown(By::Node);
        let expected = [("node-2", 2), ("node-10", 2), ("", 1)];
        assert_eq!(groups, expected.map(|(name, n)| (name.to_owned(), n)));
        assert_eq!(rows, [4, 1, 3, 2, 0]);
    }

    #[test]
    fn the_order_of_a_status_moves_nobody() {
        let mut fleet = fleet();
        let names = |fleet: &[RoleStatus], by| {
            let rows = Groups::of(fleet, (0..fleet.len()).collect(), by).rows;
            let name = |&row: &usize| format!("{}-{}", fleet[row].role, fleet[row].index);
            rows.iter().map(name).collect::<Vec<_>>()
        };
        let before = [By::Role, By::Node].map(|by| names(&fleet, by));
        fleet.reverse();
        assert_eq!([By::Role, By::Node].map(|by| names(&fleet, by)), before);
    }
}
