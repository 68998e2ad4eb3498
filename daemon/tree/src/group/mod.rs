//! Control groups: a folder of them that belongs to one robustd, and in it a group for each life of a role or
//! service.
//!
//! ```text
//!  version 2                                    version 1, each hierarchy
//!  BASE/                 delegated, or robustd's own      OWN/
//!  ├─ robustd            robustd itself, where controllers ├─ robust-8f3a../
//!  │                     are handed down (see below)       │  └─ rollout-0.17
//!  └─ robust-8f3a../     Groups: of one state directory    └─ ..
//!     ├─ trainer-0.16    Group: a life
//!     └─ rollout-0.17
//! ```
//! Lives are in version 2 wherever that is mounted, for `cgroup.kill`, also where it has no controllers. A limit
//! is set in the version that has its controller. Where there is no version 2, a life is in version 1's freezer.
//!
//! **No processes within.** A group of version 2 that hands controllers down may have no processes of its own
//! (kernel documentation, cgroup-v2, "No Internal Process Constraint"). So where limits want controllers handed
//! down, robustd has to be in a group below BASE. systemd puts it there (`DelegateSubgroup=robustd`); else
//! it goes there itself, but only if nobody else is in BASE: others it must not move.
//!
//! What holds:
//! * G-1: a process is in its life's groups before it runs its program.
//! * G-2: nothing is killed or removed but what is below the folder of this robustd.
//! * G-3: a group that cannot be made whole is not there afterwards.
mod clear;
mod error;
mod life;
mod limits;
mod mounts;
mod place;
#[cfg(test)]
mod tests;

pub use error::{GroupError, GroupsError, HOW_TO_HAVE_GROUPS};
pub use life::{Door, Group, MemoryLimit};
pub use limits::{Controller, GroupLimits};
pub use mounts::Mounts;
pub use place::Groups;
