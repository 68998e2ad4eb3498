//! Making a network namespace, between fork and exec.
use super::Way;
use rustix::fs::{Mode, OFlags, open};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::ffi::CStr;
use std::io;
use std::os::fd::AsRawFd;

/// What the forked child needs, made before the fork since it may not allocate.
pub(crate) struct Plan {
    way: Way,
    user_map: String,
    group_map: String,
}

impl Plan {
    pub fn new(way: Way) -> Self {
        let user = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        Self {
            way,
            user_map: format!("{user} {user} 1"),
            group_map: format!("{group} {group} 1"),
        }
    }

    /// Puts the calling process, which has one thread, into a new network whose loopback is up.
    /// Async-signal-safe.
    #[allow(unsafe_code)]
    pub fn enter_new(&self) -> io::Result<()> {
        let flags = match self.way {
            Way::Privileged => UnshareFlags::NEWNET,
            Way::UserNamespace => UnshareFlags::NEWNET | UnshareFlags::NEWUSER,
        };
        // SAFETY: the descriptor table stays shared with nobody: `FILES` is not among the flags.
        unsafe { unshare_unsafe(flags)? };
        if self.way == Way::UserNamespace {
            // Without the first, the kernel takes no map of groups from the unprivileged.
            write(c"/proc/self/setgroups", "deny")?;
            write(c"/proc/self/uid_map", &self.user_map)?;
            write(c"/proc/self/gid_map", &self.group_map)?;
        }
        loopback_up()
    }
}

fn write(path: &CStr, text: &str) -> io::Result<()> {
    let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text.as_bytes())?;
    Ok(())
}

#[allow(unsafe_code)]
fn loopback_up() -> io::Result<()> {
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: all zeroes is a value of this struct of integers and arrays.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    let up = libc::IFF_UP | libc::IFF_RUNNING;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(up).unwrap_or(libc::c_short::MAX);
    // SAFETY: the descriptor is open and `request` is the struct that this request reads.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
