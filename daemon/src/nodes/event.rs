//! What is heard of the job's other nodes.
use super::service::Joined;
use crate::links::LinkId;
use robust_proto::v1;
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
    /// The job is ending.
    #[error("the job is ending")]
    Ending,
}
