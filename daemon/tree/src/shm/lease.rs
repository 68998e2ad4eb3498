//! The kernel's own word on whether a file is in use.
use super::Segment;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, fstat, openat};
use std::io;
use std::os::fd::AsRawFd;

/// As in asm-generic/fcntl.h; `libc` has no name for it.
const F_SETSIG: libc::c_int = 10;

/// Whether somebody has a file open or maps it.
pub enum Use {
    /// Nobody. Whoever opens it while the descriptor is open waits until it is closed.
    Nobody(#[expect(dead_code, reason = "held, and closed with the lease")] OwnedFd),
    /// Some process, which may be one that `/proc` hides.
    Somebody,
    /// The kernel does not say: the file system has no leases, or the file is another user's.
    Untold,
}

/// Asks for a write lease, which is only given on a file that nobody else has open or maps.
#[allow(unsafe_code)]
pub fn ask(folder: &OwnedFd, segment: &Segment) -> Use {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(folder, segment.name.as_str(), flags, Mode::empty()) else {
        return Use::Untold;
    };
    if fstat(&file).map(|stat| stat.st_ino) != Ok(segment.inode) {
        return Use::Untold;
    }
    let set = |command, argument: libc::c_int| {
        // SAFETY: commands on an open descriptor that take an integer.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error().kind()),
        }
    };
    // Who opens the file meanwhile has a signal sent: the usual one would end this process, this
    // one is ignored by default.
    let leased = set(F_SETSIG, libc::SIGURG).and_then(|()| set(libc::F_SETLEASE, libc::F_WRLCK));
    match leased {
        Ok(()) => Use::Nobody(file),
        Err(io::ErrorKind::WouldBlock) => Use::Somebody,
        Err(_) => Use::Untold,
    }
}
