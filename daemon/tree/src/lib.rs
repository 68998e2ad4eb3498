//! Hosts a foreign process and everything it starts. Mechanics only: it decides nothing but which
//! deaths are the engine's, and that by a table ([`Policy`]).
//!
//! ```text
//! ChildSpec ──start──► Child ──Tree::watch──► Tree ──end──► Ended ──► Ledger::sweep
//!   argv, env,          its death is     scans find descendants,     what it left
//!   own network?        this process's   pidfds tell of deaths       in /dev/shm
//!                                │
//!                                └─► Namespace::connect, into the child's own network
//! Hidden: folders that the child does not see, though its user may read them
//! Groups: control groups, with which everything ends that a life started, and which limit what it uses
//! ```
//! The child stays in the caller's session and process group, so that who kills that group kills
//! the child too. What leaves the group is found all the same: the caller is its tree's subreaper,
//! so every descendant has it as an ancestor for as long as both live. When the caller itself was
//! killed, [`leftovers`] finds the rest by their environment.
//!
//! What holds:
//! * T-1: the caller itself is never signalled, nor any process that is not in the tree.
//! * T-2: a death is reported at most once, and none after [`Tree::end`] began.
//! * T-3: a signal reaches the process that was meant, never a later one of the same id.
//! * T-4: [`Tree::cpu_time`] never goes back.
//! * T-5: a file in `/dev/shm` that a living process uses is never removed, nor one that was there
//!   before the engine.
mod apart;
mod child;
mod group;
mod handed;
mod hidden;
mod leftovers;
mod maps;
mod netns;
mod permitted;
mod policy;
mod ports;
mod proc;
mod reads;
mod shm;
mod title;
mod tree;
mod unshared;

pub use apart::apart;
pub use child::{Child, ChildSpec, StartError, become_subreaper};
pub use group::{
    Controller, Door, Group, GroupError, GroupLimits, Groups, GroupsError, HOW_TO_HAVE_GROUPS,
    MemoryLimit, Mounts,
};
pub use handed::{NotTold, hand_over};
pub use hidden::{Hidden, NotHidden, User, UserError};
pub use leftovers::{ENGINE_VARIABLE, Leftover, WAITED_FILE, leftovers};
pub use netns::{Namespace, Way};
pub use permitted::{NotPermitted, permitted};
pub use policy::{How, Policy};
pub use ports::{keep_port, lend_ports};
pub use reads::Unreadable;
pub use rustix::process::Signal;
pub use shm::{Kept, Ledger, LedgerError, Removed, Segment, Swept, mapped, sweep};
pub use tree::{Died, EndPlan, Ended, Left, Member, Tree, TreeError};
