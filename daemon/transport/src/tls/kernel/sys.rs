//! The calls of Linux's TLS sockets (`Documentation/networking/tls.rst`), which no crate that we have makes.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `linux/tcp.h`: has a connection's bytes pass through a module of the kernel.
const TCP_ULP: libc::c_int = 31;
/// `linux/tls.h`.
const TLS_TX: libc::c_int = 1;
const TLS_RX: libc::c_int = 2;
const TLS_RX_EXPECT_NO_PAD: libc::c_int = 4;
const TLS_GET_RECORD_TYPE: libc::c_int = 2;

/// A direction of a connection.
#[derive(Clone, Copy)]
pub(super) enum Direction {
    Sending,
    Receiving,
}

/// Has the module `tls` stand behind an established connection. Until it is given keys it does nothing.
pub(super) fn attach(socket: &impl AsFd) -> io::Result<()> {
    set(socket, (libc::IPPROTO_TCP, TCP_ULP), b"tls\0")
}

/// Gives it the keys of one direction.
pub(super) fn give_keys(
    socket: &impl AsFd,
    direction: Direction,
    crypto_info: &[u8],
) -> io::Result<()> {
    let option = match direction {
        Direction::Sending => TLS_TX,
        Direction::Receiving => TLS_RX,
    };
    set(socket, (libc::SOL_TLS, option), crypto_info)
}

/// Says that the peer pads no records, so that they are opened right into their reader's memory. Known since
/// Linux 6.0; before, they are copied once more.
pub(super) fn expect_no_padding(socket: &impl AsFd) -> io::Result<()> {
    let yes = 1_i32.to_ne_bytes();
    set(socket, (libc::SOL_TLS, TLS_RX_EXPECT_NO_PAD), &yes)
}

fn set(
    socket: &impl AsFd,
    (level, option): (libc::c_int, libc::c_int),
    value: &[u8],
) -> io::Result<()> {
    let (fd, len) = (socket.as_fd().as_raw_fd(), value.len() as libc::socklen_t);
    // SAFETY: the kernel reads `len` bytes from `value`, which are there, and keeps no pointer.
    let done = unsafe { libc::setsockopt(fd, level, option, value.as_ptr().cast(), len) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Room for one control message of a byte, aligned as its header.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Reads bytes of records of one type, as many as there are and have room; and which type that is, none
/// where the kernel did not say.
pub(super) fn receive(socket: &impl AsFd, into: &mut [u8]) -> io::Result<(Option<u8>, usize)> {
    let mut control = Control([0; 64]);
    let mut vector = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    // SAFETY: a structure of numbers and pointers, of which zero is a value of each.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    let (fd, flags) = (socket.as_fd().as_raw_fd(), libc::MSG_DONTWAIT);
    // SAFETY: the kernel writes to `into`, to `control` and to `message` only, within the lengths that
    // `message` says and that are theirs; all three live until it returns.
    let read = unsafe { libc::recvmsg(fd, &raw mut message, flags) };
    let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    let told = control.0.get(..message.msg_controllen as usize);
    Ok((record_type(told.unwrap_or_default()), read))
}

/// The type in a control message of the kernel's: `struct cmsghdr`, and then a byte.
fn record_type(control: &[u8]) -> Option<u8> {
    let (length, rest) = control.split_first_chunk::<{ size_of::<usize>() }>()?;
    let (level, rest) = rest.split_first_chunk()?;
    let (kind, rest) = rest.split_first_chunk()?;
    let header = size_of::<libc::cmsghdr>();
    let long_enough = usize::from_ne_bytes(*length) > header;
    let ours = (i32::from_ne_bytes(*level), i32::from_ne_bytes(*kind));
    let is_it = long_enough && ours == (libc::SOL_TLS, TLS_GET_RECORD_TYPE);
    rest.first().copied().filter(|_| is_it)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn message(length: usize, level: i32, kind: i32, byte: u8) -> Vec<u8> {
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.push(byte);
        bytes
    }

    #[test]
    fn the_record_type_is_read_from_the_kernels_control_message_and_from_no_other() {
        let length = size_of::<libc::cmsghdr>() + 1;
        assert_eq!(record_type(&message(length, 282, 2, 21)), Some(21));
        assert_eq!(record_type(&message(length, 282, 1, 21)), None);
        assert_eq!(record_type(&message(length, libc::SOL_SOCKET, 2, 21)), None);
        assert_eq!(record_type(&message(length - 1, 282, 2, 21)), None);
        let whole = message(length, 282, 2, 21);
        assert_eq!(record_type(&whole[..whole.len() - 1]), None);
        assert_eq!(record_type(&[]), None);
    }

    #[test]
    fn bytes_of_a_socket_without_records_have_no_type() {
        let (mut a, b) = UnixStream::pair().unwrap();
        let mut into = [0; 9];
        let nothing = receive(&b, &mut into).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        a.write_all(b"some").unwrap();
        assert_eq!(receive(&b, &mut into).unwrap(), (None, 4));
        assert_eq!(&into[..4], b"some");
        drop(a);
        assert_eq!(receive(&b, &mut into).unwrap(), (None, 0));
    }
}
