//! What is heard of the job's other nodes.
use super::service::Joined;
use crate::links::LinkId;
use robust_proto::v1;
use robust_shared::job::POOL_LIMIT;
use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// One thing that happened at a node's stream.
#[derive(Debug)]
pub enum NodeLinkEvent {
    /// A node proved itself and wants to be one of the job.
    Joined {
        /// What it says of itself.
        joined: Box<Joined>,
        /// Told whether it may.
        admitted: oneshot::Sender<Result<(), NodeRefused>>,
    },
    /// A joined node said something.
    Said {
        /// Over which stream.
        link: LinkId,
        /// What.
        body: Box<v1::node_message::Body>,
    },
    /// A joined node's stream ended.
    Gone {
        /// Which.
        link: LinkId,
    },
}

/// Why a node may not join.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeRefused {
    /// The leader's own name.
    #[error("`{name}` is the leader's own name; choose another with --name")]
    Leader {
        /// It.
        name: String,
    },
    /// Another machine has that name and is there.
    #[error("another node named `{name}` is joined; choose another name with --name")]
    Taken {
        /// It.
        name: String,
    },
    /// Nobody said what it has.
    #[error(
        "nobody says which slots `{name}` has: name them with --pools, or give the job file a \
         [[node]] of that name"
    )]
    NoPools {
        /// Its name.
        name: String,
    },
    /// What it has is of no use here.
    #[error("no role uses a pool that `{name}` has ({has}): the job's pools are {pools}")]
    UselessPools {
        /// Its name.
        name: String,
        /// Its pools.
        has: String,
        /// Those of the job's roles.
        pools: String,
    },
    /// It has more slots than a machine can have.
    #[error(
        "`{name}` has {slots} slots in pool `{pool}`; at most {POOL_LIMIT} may be there: see --pools"
    )]
    TooManySlots {
        /// Its name.
        name: String,
        /// The pool.
        pool: String,
        /// How many it says.
        slots: u32,
    },
    /// The job is ending.
    #[error("the job is ending")]
    Ending,
}

impl NodeRefused {
    /// Why pools of this size are none: the controller looks at each of their slots.
    pub fn too_many(name: &str, pools: &BTreeMap<String, u32>) -> Option<Self> {
        let (pool, slots) = pools.iter().find(|(_, slots)| **slots > POOL_LIMIT)?;
        let (name, pool, slots) = (name.to_owned(), pool.clone(), *slots);
        Some(NodeRefused::TooManySlots { name, pool, slots })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_says_it_has_more_slots_than_a_machine_can_have_is_refused() {
        let pools =
            |slots| BTreeMap::from([("train".to_owned(), 2), ("rollout".to_owned(), slots)]);
        assert_eq!(NodeRefused::too_many("b", &pools(POOL_LIMIT)), None);
        let refused = NodeRefused::too_many("b", &pools(u32::MAX)).map(|r| r.to_string());
        let said =
            "`b` has 4294967295 slots in pool `rollout`; at most 65536 may be there: see --pools";
        assert_eq!(refused.as_deref(), Some(said));
    }
}
