//! A network of the child's own: its loopback is another one than the host's, so that only the
//! caller reaches what the child serves, and two children can serve on the same port.
//!
//! Sockets stay in the network they were made in. So the caller only makes them inside, and then
//! uses them as any other.
mod inside;
mod loopback;

pub(crate) use loopback::loopback_up;

use crate::apart;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// How namespaces can be made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The caller may make one (`CAP_SYS_ADMIN`).
    Privileged,
    /// Everybody may make one within a new user namespace, in which the child's user and group
    /// are those it has outside, and all others are nobody.
    UserNamespace,
}

/// Runs `work` in a forked process that ends without ever running a program.
#[allow(unsafe_code)]
pub(crate) fn within_throw_away(
    mut work: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<()> {
    let mut command = Command::new("/nonexistent");
    let stop = move || match work() {
        Ok(()) => Err(io::Error::from_raw_os_error(libc::ECANCELED)),
        Err(error) => Err(error),
    };
    // SAFETY: `work` is one of `Plan::enter` and `inside::hand_out`, which make async-signal-
    // safe system calls only, and neither allocate nor lock.
    unsafe {
        command.pre_exec(stop);
    }
    // Where the closure fails, the standard library reaps the process before it returns.
    match apart::throw_away(|| command.spawn()) {
        Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(io::ErrorKind::Other.into()),
    }
}

/// The network of a child. It exists for as long as this value or a process in it does.
#[derive(Debug)]
pub struct Namespace {
    network: OwnedFd,
    /// Must be entered first, where the caller has no right of its own to enter the network.
    user: Option<OwnedFd>,
}

impl Namespace {
    /// Of a process that lives.
    pub(crate) fn of(pid: u32, way: Way) -> io::Result<Self> {
        let open = |name: &str| File::open(format!("/proc/{pid}/ns/{name}"));
        let user = match way {
            Way::Privileged => None,
            Way::UserNamespace => Some(open("user")?.into()),
        };
        Ok(Self {
            network: open("net")?.into(),
            user,
        })
    }

    /// An unconnected TCP socket of this network, not blocking and closed on exec.
    pub fn socket(&self, family: AddressFamily) -> io::Result<OwnedFd> {
        match &self.user {
            None => inside::made_by_a_thread(&self.network, family),
            Some(user) => inside::made_by_a_process(&self.network, user, family),
        }
    }

    /// Connects to an address as the child sees it (`127.0.0.1` is its own loopback). Blocks for
    /// `timeout` at most; the stream is a blocking one.
    pub fn connect(&self, address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let socket = self.socket(family)?;
        match connect(&socket, &address) {
            Ok(()) => {}
            Err(Errno::INPROGRESS) => wait_connected(&socket, timeout)?,
            Err(error) => return Err(error.into()),
        }
        rustix::io::ioctl_fionbio(&socket, false)?;
        Ok(socket.into())
    }
}

fn wait_connected(socket: &OwnedFd, timeout: Duration) -> io::Result<()> {
    let timeout = Timespec::try_from(timeout).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut events = [PollFd::new(socket, PollFlags::OUT)];
    // The sockets of a loopback connect at once: an interruption may begin the wait anew.
    let ready = rustix::io::retry_on_intr(|| poll(&mut events, Some(&timeout)))?;
    if ready == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    sockopt::socket_error(socket)??;
    Ok(())
}

/// Makes a TCP socket in the network that the calling thread is in.
fn tcp(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, SocketType::STREAM, flags, None)
}
