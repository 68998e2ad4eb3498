//! Records that the kernel seals and opens, where it has the module `tls` (kTLS).
//!
//! ```text
//!  rustls: the handshake, of which no byte too many is read ─► its last word is written ─► the keys go
//!  to the kernel ─► pieces are written from where they lie, and what is read is open already
//! ```
//! Bytes are sealed as they are copied to the socket, or by a network card that can: no thread of ours does
//! it, and nothing is copied twice. Whether the kernel takes keys is tried once a process, on a connection of
//! that process with itself: keys that were given up for a connection do not come back, were it refused then.

mod info;
mod sys;

use std::io::{Error, ErrorKind};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustls::{ConnectionTrafficSecrets, ContentType, ExtractedSecrets};

use self::info::CryptoInfo;
use self::sys::Direction;
use crate::road::Failure;

/// Set to this, records stay in this process: a kernel's AES may be slower than ours.
const SWITCH: (&str, &str) = ("ROBUST_WEIGHTS_KTLS", "off");

/// Most records that one key seals (`confidentiality_limit` of rustls's AES-GCM suites): 256 GiB of whole
/// ones. rustls changes keys then; a connection whose keys the kernel has ends, and the next one has others.
pub(super) const RECORDS_OF_A_KEY: u64 = 1 << 24;

/// Whether the kernel seals and opens records.
#[derive(Debug)]
pub(super) enum Kernel {
    Has,
    /// For this reason.
    Lacks(String),
}

/// Whoever seals and opens a connection's records once it is told the keys.
pub(super) trait Records: Sync {
    /// Takes an established connection over, in both directions; to the byte where rustls stopped.
    fn take_over(&self, socket: &TcpStream, secrets: ExtractedSecrets) -> Result<(), Failure>;

    /// Reads bytes of records of one type, as many as have room.
    fn read(&self, socket: &TcpStream, into: &mut [u8]) -> std::io::Result<(Record, usize)>;
}

/// What came in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Record {
    /// Bytes of the protocol above.
    Data,
    /// An end, as a rule.
    Alert,
    /// New keys, from a peer whose own process seals: rustls changes them when they have sealed what they may.
    NewKeys,
    /// What no member sends.
    Other,
}

/// Set when the kernel took no keys of a connection though it had taken those of the trial: that connection
/// is lost, and the next ones stay in this process.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// The kernel, if it takes keys. The first call tries it.
pub(super) fn records() -> Option<&'static dyn Records> {
    static FOUND: OnceLock<Kernel> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let found = find();
        match &found {
            Kernel::Has => tracing::info!("the kernel seals and opens TLS records (kTLS)"),
            Kernel::Lacks(reason) => {
                tracing::info!(reason, "TLS records are sealed and opened in this process");
            }
        }
        found
    });
    match found {
        Kernel::Has if !REFUSED.load(Ordering::Relaxed) => Some(&InKernel),
        Kernel::Has => None,
        Kernel::Lacks(_) => None,
    }
}

fn find() -> Kernel {
    if std::env::var(SWITCH.0).is_ok_and(|value| value == SWITCH.1) {
        return Kernel::Lacks(format!("{} is {}", SWITCH.0, SWITCH.1));
    }
    match with_itself() {
        Ok(socket) => offer(&socket),
        Err(error) => Kernel::Lacks(format!("it could not be tried: {error}")),
    }
}

/// A connection of this process with itself.
fn with_itself() -> std::io::Result<TcpStream> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    TcpStream::connect(listener.local_addr()?)
}

/// Whether the kernel takes keys for a connection, which is of no use afterwards.
fn offer(socket: &TcpStream) -> Kernel {
    if let Err(error) = sys::attach(socket) {
        return Kernel::Lacks(match error.kind() {
            ErrorKind::NotFound => "the kernel has no module `tls`".to_owned(),
            _ => format!("the kernel's module `tls`: {error}"),
        });
    }
    let Some(keys) = CryptoInfo::trial() else {
        return Kernel::Lacks("there are no keys to try it with".to_owned());
    };
    for direction in [Direction::Sending, Direction::Receiving] {
        if let Err(error) = sys::give_keys(socket, direction, keys.bytes()) {
            return Kernel::Lacks(format!("the kernel does not take AES-GCM's keys: {error}"));
        }
    }
    Kernel::Has
}

/// The kernel of this machine.
struct InKernel;

impl Records for InKernel {
    fn take_over(&self, socket: &TcpStream, secrets: ExtractedSecrets) -> Result<(), Failure> {
        let taken = give(socket, secrets);
        if let Err(failure) = &taken {
            tracing::warn!(reason = failure.text(), "the kernel takes no keys any more");
            REFUSED.store(true, Ordering::Relaxed);
        }
        taken
    }

    fn read(&self, socket: &TcpStream, into: &mut [u8]) -> std::io::Result<(Record, usize)> {
        let (kind, len) = sys::receive(socket, into)?;
        Ok((Record::of(kind), len))
    }
}

fn give(socket: &TcpStream, secrets: ExtractedSecrets) -> Result<(), Failure> {
    let of = |(sequence, secrets): (u64, ConnectionTrafficSecrets)| {
        CryptoInfo::new(&secrets, sequence).ok_or(Failure::System(Errno::NOTSUP))
    };
    let (sending, receiving) = (of(secrets.tx)?, of(secrets.rx)?);
    let refused = |error: Error| match Errno::from_io_error(&error) {
        Some(errno) => Failure::System(errno),
        None => Failure::Gone,
    };
    sys::attach(socket).map_err(refused)?;
    sys::give_keys(socket, Direction::Sending, sending.bytes()).map_err(refused)?;
    sys::give_keys(socket, Direction::Receiving, receiving.bytes()).map_err(refused)?;
    // Members pad nothing; an older kernel copies once more.
    let _ = sys::expect_no_padding(socket);
    Ok(())
}

impl Record {
    /// By its number in TLS; the kernel names none at the end of a connection.
    fn of(number: Option<u8>) -> Record {
        match number.map(ContentType::from) {
            None | Some(ContentType::ApplicationData) => Record::Data,
            Some(ContentType::Alert) => Record::Alert,
            Some(ContentType::Handshake) => Record::NewKeys,
            Some(_) => Record::Other,
        }
    }
}

/// Why reading failed of a connection that the kernel opens: what it says of a record that is none of the
/// peer's (`EBADMSG` for a changed one) is no failure of the network.
pub(super) fn failure(error: &Error) -> Option<Failure> {
    let garbage = [Errno::BADMSG, Errno::MSGSIZE, Errno::INVAL, Errno::IO];
    let errno = Errno::from_io_error(error)?;
    garbage.contains(&errno).then_some(Failure::Garbage)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn the_kernel_is_found_to_have_what_it_says_it_has() {
        let list = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_ulp").unwrap();
        let listed = list.split_whitespace().any(|module| module == "tls");
        match offer(&with_itself().unwrap()) {
            // It may have been loaded just now.
            Kernel::Has => assert!(records().is_some()),
            Kernel::Lacks(reason) => {
                assert!(!listed, "{reason}");
                assert_eq!(reason, "the kernel has no module `tls`");
                assert!(records().is_none());
            }
        }
    }

    #[test]
    fn records_are_told_apart_by_their_numbers() {
        let of = |numbers: [u8; 4]| numbers.map(|number| Record::of(Some(number)));
        let (alert, keys, other) = (Record::Alert, Record::NewKeys, Record::Other);
        assert_eq!(of([21, 20, 22, 24]), [alert, other, keys, other]);
        assert_eq!(Record::of(Some(23)), Record::Data);
        assert_eq!(Record::of(None), Record::Data);
    }

    #[test]
    fn a_changed_record_is_garbage_and_a_cut_connection_is_not() {
        let of = |errno: Errno| failure(&Error::from(errno));
        assert_eq!(of(Errno::BADMSG), Some(Failure::Garbage));
        assert_eq!(of(Errno::CONNRESET), None);
    }
}
