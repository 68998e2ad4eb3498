//! The folder in which transports of one machine find each other.
//!
//! A socket has the name of its transport's number. The folder is this user's alone: who cannot enter it
//! cannot call, and nobody else's folder is used. Paths go by the folder's descriptor, for a socket's own
//! may have no more than 107 bytes.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with, sockopt,
};

/// Callers that may wait until they are taken, before the kernel turns more away.
const BACKLOG: i32 = 1024;
/// Who is not the user has no right to anything in it.
const PRIVATE: Mode = Mode::RWXU;

/// An open folder.
pub(super) struct Folder(OwnedFd);

impl Folder {
    /// Makes it where it is not there. One that belongs to somebody else, or that others may enter, is
    /// refused.
    pub fn open(path: &Path) -> io::Result<Folder> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        match rustix::fs::mkdir(path, PRIVATE) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&folder)?;
        let mine = stat.st_uid == rustix::process::geteuid().as_raw();
        let open = Mode::from_raw_mode(stat.st_mode).intersects(Mode::RWXG | Mode::RWXO);
        if !mine || open {
            let why = "it is not this user's alone: remove it, or run as the user whose it is";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(Folder(folder))
    }

    /// A socket under this number on which calls are taken. It has its name only once it is ready.
    pub fn listen(&self, number: u64) -> io::Result<OwnedFd> {
        let socket = stream()?;
        let making = format!("{number:016x}.new");
        bind(&socket, &self.at(&making)?)?;
        listen(&socket, BACKLOG)?;
        rustix::fs::renameat(&self.0, making, &self.0, name(number))?;
        Ok(socket)
    }

    /// Whether somebody has this number, or had it and died.
    pub fn has(&self, number: u64) -> bool {
        rustix::fs::statat(&self.0, name(number), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Calls who has this number.
    pub fn call(&self, number: u64) -> Result<OwnedFd, Errno> {
        let socket = stream()?;
        connect(&socket, &self.at(&name(number))?)?;
        Ok(socket)
    }

    /// Takes the next call, if there is one, of a process of this user.
    pub fn take(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
        let socket = accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
        let peer = sockopt::socket_peercred(&socket)?;
        match peer.uid == rustix::process::geteuid() {
            true => Ok(socket),
            false => Err(Errno::PERM),
        }
    }

    /// Nobody is called by this number any more.
    pub fn remove(&self, number: u64) {
        // Whoever clears the job's folder may have been first.
        let _ = rustix::fs::unlinkat(&self.0, name(number), AtFlags::empty());
    }

    fn at(&self, name: &str) -> Result<SocketAddrUnix, Errno> {
        SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", self.0.as_raw_fd()))
    }
}

fn stream() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

fn name(number: u64) -> String {
    format!("{number:016x}.sock")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_folder_that_others_may_enter_and_a_link_to_one_are_refused() {
        let outer = tempfile::tempdir().unwrap();
        let at = |name: &str| outer.path().join(name);
        Folder::open(&at("own")).unwrap();
        let mode = std::fs::metadata(at("own")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        Folder::open(&at("own")).unwrap();
        std::os::unix::fs::symlink(at("own"), at("link")).unwrap();
        assert!(Folder::open(&at("link")).is_err());
        std::fs::set_permissions(at("own"), Permissions::from_mode(0o750)).unwrap();
        let refused = Folder::open(&at("own")).err().unwrap().to_string();
        assert!(refused.contains("not this user's alone"), "{refused}");
    }

    #[test]
    fn a_number_is_there_from_when_calls_are_taken_until_it_is_removed() {
        let outer = tempfile::tempdir().unwrap();
        // Longer than a socket's path may be.
        let folder = Folder::open(&outer.path().join("f".repeat(150))).unwrap();
        assert!(!folder.has(7));
        assert_eq!(folder.call(7).unwrap_err(), Errno::NOENT);
        let listener = folder.listen(7).unwrap();
        let _call = folder.call(7).unwrap();
        assert!(Folder::take(&listener).is_ok() && folder.has(7));
        assert_eq!(Folder::take(&listener).unwrap_err(), Errno::AGAIN);
        drop(listener);
        assert_eq!(folder.call(7).unwrap_err(), Errno::CONNREFUSED);
        folder.remove(7);
        assert!(!folder.has(7));
    }
}
