//! What a child has for itself: a network, and a view of the file system. Made between fork and exec.
//!
//! ```text
//!  unshare ──► user map, where there is a new user namespace ──► loopback up ──► folders covered ──► another user
//! ```
use crate::hidden;
use crate::maps::Maps;
use crate::netns::{Way, loopback_up};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::io;

/// What the forked child needs, made before the fork since it may not allocate.
pub(crate) struct Plan {
    way: Way,
    network: bool,
    hidden: Option<hidden::Plan>,
    maps: Maps,
}

impl Plan {
    /// A network of its own, and nothing else.
    pub fn network(way: Way) -> Self {
        Self::new(way, true, None)
    }

    pub fn new(way: Way, network: bool, hidden: Option<hidden::Plan>) -> Self {
        let user = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        Self {
            way,
            network,
            hidden,
            maps: Maps::of(user, group),
        }
    }

    /// Puts the calling process, which has one thread, into all that. Async-signal-safe.
    #[allow(unsafe_code)]
    pub fn enter(&mut self) -> io::Result<()> {
        let mut flags = UnshareFlags::empty();
        flags.set(UnshareFlags::NEWNET, self.network);
        flags.set(UnshareFlags::NEWNS, self.hidden.is_some());
        flags.set(UnshareFlags::NEWUSER, self.way == Way::UserNamespace);
        // SAFETY: the descriptor table stays shared with nobody: `FILES` is not among the flags.
        unsafe { unshare_unsafe(flags)? };
        if self.way == Way::UserNamespace {
            self.maps.write(&Maps::open()?)?;
        }
        if self.network {
            loopback_up()?;
        }
        match &mut self.hidden {
            Some(hidden) => hidden.enter(),
            None => Ok(()),
        }
    }
}
