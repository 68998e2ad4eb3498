//! Users and groups of a new user namespace.
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open};
use std::io;

/// Who a process is in a new user namespace: who it is outside, and all others are nobody.
#[derive(Default)]
pub(crate) struct Maps {
    user: String,
    group: String,
}

impl Maps {
    pub fn of(user: u32, group: u32) -> Self {
        Self {
            user: format!("{user} {user} 1"),
            group: format!("{group} {group} 1"),
        }
    }

    /// The files of the calling process to which they are written. Async-signal-safe.
    pub fn open() -> io::Result<[OwnedFd; 3]> {
        let open = |path| open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
        Ok([
            open(c"/proc/self/setgroups")?,
            open(c"/proc/self/uid_map")?,
            open(c"/proc/self/gid_map")?,
        ])
    }

    /// Async-signal-safe.
    pub fn write(&self, [groups, users, group]: &[OwnedFd; 3]) -> io::Result<()> {
        // Without the first, the kernel takes no map of groups from the unprivileged.
        rustix::io::write(groups, b"deny")?;
        rustix::io::write(users, self.user.as_bytes())?;
        rustix::io::write(group, self.group.as_bytes())?;
        Ok(())
    }
}
