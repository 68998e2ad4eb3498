//! Making sockets in another network.
use super::{tcp, within_throw_away};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io;
use std::mem::MaybeUninit;

/// A thread enters the network, makes the socket and ends: no other thread of the caller moves.
pub fn made_by_a_thread(network: &OwnedFd, family: AddressFamily) -> io::Result<OwnedFd> {
    let network = network.as_fd();
    let make = || {
        move_into_link_name_space(network, Some(LinkNameSpaceType::Network))?;
        Ok(tcp(family)?)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, make)?;
        let failed = |_| io::Error::other("the thread that makes sockets failed");
        thread.join().map_err(failed)?
    })
}

/// A forked process enters the user namespace, which a process with threads may not, then the
/// network; it hands the socket out over a socket pair.
pub fn made_by_a_process(
    network: &OwnedFd,
    user: &OwnedFd,
    family: AddressFamily,
) -> io::Result<OwnedFd> {
    let (here, there) = socketpair(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let (network, user) = (network.try_clone()?, user.try_clone()?);
    within_throw_away(move || hand_out(&user, &network, family, there.as_fd()))?;
    take_in(&here)
}

/// Async-signal-safe.
fn hand_out(
    user: &OwnedFd,
    network: &OwnedFd,
    family: AddressFamily,
    to: BorrowedFd<'_>,
) -> io::Result<()> {
    move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
    let socket = tcp(family)?;
    let sockets = [socket.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&sockets));
    sendmsg(
        to,
        &[IoSlice::new(b"s")],
        &mut ancillary,
        SendFlags::empty(),
    )?;
    Ok(())
}

fn take_in(from: &OwnedFd) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    // The process has ended: what it sent is there.
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    recvmsg(
        from,
        &mut [IoSliceMut::new(&mut byte)],
        &mut ancillary,
        flags,
    )?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut sockets) = message
            && let Some(socket) = sockets.next()
        {
            return Ok(socket);
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}
