//! Where an instance is to run: its slot if it can be used, a free one, for a rank a rollout's (warm
//! standby, paper 5.2), or nowhere yet.
//!
//! ```text
//!             its slot is usable ──────────────────────────► stays
//!  rank ──┬── a free homogeneous slot of its pool ─────────► moves
//!         ├── a node with such slots is yet to join ────────► homeless: waits for it
//!         │   in mode semi-sync or async, policy role:
//!         ├── a free homogeneous slot of rollouts ──────────► moves
//!         ├── a rollout on a homogeneous slot, and not the
//!         │   last one ────────────────────────────────────► takes it; the rollout is homeless
//!         └── else ────────────────────────────────────────► homeless: waits for a slot
//! ```
//! A rollout whose slot was taken may in turn live in the rank's pool when a slot is free there.
use super::SlotRef;
use crate::ids::InstanceId;
use std::collections::BTreeSet;
use std::fmt;

/// Where an instance is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// Where it was.
    Stays,
    /// In a free slot.
    Moves(SlotRef),
    /// In a rollout's slot.
    Takes {
        /// Whose.
        rollout: InstanceId,
        /// Which.
        slot: SlotRef,
    },
    /// Nowhere until a slot is free.
    Waits(NoHome),
}

/// Why there is no slot for an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHome {
    /// No slot of its pool is free.
    NoneFree,
    /// A node that has slots for it has not joined yet.
    NodeAwaited,
    /// Its rank has none.
    RankHasNone,
    /// Sync mode: every rollout generates the batch that the trainer waits for.
    SyncMode,
    /// The policy is `task`.
    TaskPolicy,
    /// Rollouts' slots are of another kind, or in another data centre.
    NotHomogeneous,
    /// Nobody would generate.
    LastRollout,
}

impl fmt::Display for NoHome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoHome::NoneFree => "no slot is free",
            NoHome::NodeAwaited => "a node with slots for it has not joined yet",
            NoHome::RankHasNone => "its rank has none",
            NoHome::SyncMode => "no rollout gives up its slot in sync mode",
            NoHome::TaskPolicy => "no rollout gives up its slot under policy `task`",
            NoHome::NotHomogeneous => {
                "no rollout has a slot of the same accelerator in the same data centre"
            }
            NoHome::LastRollout => "the last rollout does not give up its slot",
        })
    }
}

/// A change of slots that a restart brings; `Display` is its part of the plan's sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Who has no slot.
    pub who: InstanceId,
    /// What follows.
    pub home: Home,
    /// The slot it gets, with its node's name.
    pub slot: String,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = self.who;
        match &self.home {
            Home::Stays => write!(f, "{who} stays in its slot"),
            Home::Moves(_) => write!(f, "{who} moves to {}", self.slot),
            Home::Takes { rollout, .. } => write!(
                f,
                "{who} takes {rollout}'s {}, {rollout}'s requests go on elsewhere and it starts \
                 again when a slot is free",
                self.slot
            ),
            Home::Waits(why) => write!(f, "{who} waits for a slot: {why}"),
        }
    }
}

/// What is given to others already.
#[derive(Clone, Debug, Default)]
pub(in crate::core) struct Given {
    pub(super) slots: BTreeSet<SlotRef>,
    pub(super) rollouts: BTreeSet<InstanceId>,
}
