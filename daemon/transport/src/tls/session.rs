//! TLS 1.3 of one connection, apart from its socket: bytes in, bytes out.

use rustls::ExtractedSecrets;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};

use super::outbox::Outbox;
use crate::road::Failure;

/// What a record begins with, what it adds to its bytes at most, and how many bytes it has (RFC 8446,
/// section 5.2).
pub(super) const RECORD_HEAD: usize = 5;
const RECORD_OVERHEAD: usize = RECORD_HEAD + 1 + 16;
pub(super) const RECORD: usize = 16 << 10;

/// Either side of a connection.
pub(super) enum Session {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// Who takes bytes once they are opened.
pub(super) type Opened<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), Failure>;

/// What [`Session::take`] made of what came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Taken {
    /// Bytes from the front that are done with.
    pub used: usize,
    /// Whether the handshake is over: bytes can be sealed.
    pub ready: bool,
    /// Whether the peer will send nothing more.
    pub closed: bool,
}

/// Whether more of the same bytes is to be looked at.
#[derive(PartialEq, Eq)]
enum Step {
    On,
    Ready,
    Blocked,
    Closed,
}

impl Session {
    /// Goes on with what came, as far as it is whole: answers of the handshake go to `out`, opened bytes
    /// to `opened`.
    pub fn take(
        &mut self,
        came: &mut [u8],
        out: &mut Outbox,
        opened: Opened<'_>,
    ) -> Result<Taken, Failure> {
        let mut taken = Taken::default();
        loop {
            let rest = came.get_mut(taken.used..).unwrap_or_default();
            let (step, used) = match self {
                Session::Client(session) => step(session.process_tls_records(rest), out, opened)?,
                Session::Server(session) => step(session.process_tls_records(rest), out, opened)?,
            };
            taken.used += used;
            match step {
                Step::On => {}
                Step::Blocked => return Ok(taken),
                Step::Ready => {
                    taken.ready = true;
                    return Ok(taken);
                }
                Step::Closed => {
                    taken.closed = true;
                    return Ok(taken);
                }
            }
        }
    }

    /// Seals bytes behind what is in `out`, after a handshake that is over. `came` is what is not whole
    /// yet of what the peer sent.
    pub fn seal(&mut self, bytes: &[u8], came: &mut [u8], out: &mut Outbox) -> Result<(), Failure> {
        match self {
            Session::Client(session) => seal(session.process_tls_records(came), bytes, out),
            Session::Server(session) => seal(session.process_tls_records(came), bytes, out),
        }
    }
}

impl Session {
    /// The peer's certificates, after a handshake that is over.
    pub fn shown(&self) -> Vec<CertificateDer<'static>> {
        let shown = match self {
            Session::Client(session) => session.peer_certificates(),
            Session::Server(session) => session.peer_certificates(),
        };
        shown.map(<[_]>::to_vec).unwrap_or_default()
    }

    /// Gives the keys up, with the number of the next record of each direction: after a handshake that is
    /// over, and of which nothing is left to be taken.
    pub fn into_secrets(self) -> Result<ExtractedSecrets, rustls::Error> {
        match self {
            Session::Client(session) => Ok(session.dangerous_into_kernel_connection()?.0),
            Session::Server(session) => Ok(session.dangerous_into_kernel_connection()?.0),
        }
    }
}

fn step<D>(
    status: UnbufferedStatus<'_, '_, D>,
    out: &mut Outbox,
    opened: Opened<'_>,
) -> Result<(Step, usize), Failure> {
    let UnbufferedStatus { mut discard, state } = status;
    let step = match state.map_err(Failure::of_tls)? {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record.map_err(Failure::of_tls)?;
                discard += record.discard;
                opened(record.payload)?;
            }
            Step::On
        }
        ConnectionState::EncodeTlsData(mut data) => {
            out.append(0, |space| match data.encode(space) {
                Ok(written) => Ok(written),
                Err(EncodeError::InsufficientSize(needs)) => Err(Some(needs.required_size)),
                Err(EncodeError::AlreadyEncoded) => Err(None),
            })?;
            Step::On
        }
        ConnectionState::TransmitTlsData(sent) => {
            // It is queued: whoever writes `out` transmits it.
            sent.done();
            Step::On
        }
        ConnectionState::WriteTraffic(_) => Step::Ready,
        ConnectionState::BlockedHandshake => Step::Blocked,
        ConnectionState::PeerClosed | ConnectionState::Closed => Step::Closed,
        // Data before the handshake is over is never asked for.
        _ => return Err(Failure::Garbage),
    };
    Ok((step, discard))
}

fn seal<D>(
    status: UnbufferedStatus<'_, '_, D>,
    bytes: &[u8],
    out: &mut Outbox,
) -> Result<(), Failure> {
    match status.state.map_err(Failure::of_tls)? {
        ConnectionState::WriteTraffic(mut traffic) => {
            let records = bytes.len().div_ceil(RECORD);
            let needs = bytes.len() + records * RECORD_OVERHEAD;
            out.append(needs, |space| match traffic.encrypt(bytes, space) {
                Ok(written) => Ok(written),
                Err(EncryptError::InsufficientSize(needs)) => Err(Some(needs.required_size)),
                Err(EncryptError::EncryptExhausted) => Err(None),
            })
        }
        _ => Err(Failure::Garbage),
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use robust_identity::{Authority, Term};

    use super::*;
    use crate::tls::Identity;

    fn member(secret: &[u8]) -> Identity {
        let authority = Authority::of(secret, "tests").unwrap();
        let pem = authority.issue("role/1", Term::unbounded()).unwrap();
        Identity::from_pem(&pem).unwrap()
    }

    /// Two sides whose handshake is over.
    pub(in crate::tls) fn linked() -> (Session, Session) {
        let (a, b) = (member(b"one"), member(b"one"));
        let (mut a, mut b) = (a.call().unwrap(), b.answer().unwrap());
        shake(&mut a, &mut b).unwrap();
        (a, b)
    }

    /// What a side sends for these bytes.
    pub(in crate::tls) fn sealed(side: &mut Session, bytes: &[u8]) -> Vec<u8> {
        let mut sent = Outbox::default();
        side.seal(bytes, &mut [], &mut sent).unwrap();
        sent.waiting().to_vec()
    }

    impl Session {
        /// The bytes of whole records.
        pub(in crate::tls) fn opened(&mut self, records: &[u8]) -> Vec<u8> {
            let (mut wire, mut got) = (records.to_vec(), Vec::new());
            let mut take = |bytes: &[u8]| {
                got.extend_from_slice(bytes);
                Ok(())
            };
            let taken = self.take(&mut wire, &mut Outbox::default(), &mut take);
            assert_eq!(taken.unwrap().used, records.len());
            got
        }
    }

    /// Both sides' messages until nobody has any more; the first failure, and on which side.
    fn shake(a: &mut Session, b: &mut Session) -> Result<(), (char, Failure)> {
        let (mut of_a, mut of_b) = (Outbox::default(), Outbox::default());
        loop {
            let moved = pass('a', a, &mut of_b, &mut of_a)?;
            if !(pass('b', b, &mut of_a, &mut of_b)? || moved) {
                return Ok(());
            }
        }
    }

    fn pass(
        name: char,
        side: &mut Session,
        came: &mut Outbox,
        out: &mut Outbox,
    ) -> Result<bool, (char, Failure)> {
        let held = out.len();
        let mut nothing = |_: &[u8]| panic!("bytes in a handshake");
        let taken = side.take(&mut came.waiting().to_vec(), out, &mut nothing);
        let used = taken.map_err(|failure| (name, failure))?.used;
        came.wrote(used);
        Ok(used > 0 || out.len() > held)
    }

    #[test]
    fn two_members_exchange_bytes_of_any_length() {
        let (mut a, mut b) = linked();
        for len in [1, 100, RECORD - 1, RECORD, RECORD + 1, 70_000] {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let (mut answer, mut got) = (Outbox::default(), Vec::new());
            let mut wire = sealed(&mut a, &bytes);
            // As it comes from a network: in two parts.
            let (first, half) = (wire.len() / 2, wire.len());
            let mut opened = |bytes: &[u8]| {
                got.extend_from_slice(bytes);
                Ok(())
            };
            let taken = b.take(&mut wire[..first], &mut answer, &mut opened);
            let used = taken.unwrap().used;
            let taken = b.take(&mut wire[used..half], &mut answer, &mut opened);
            assert_eq!(used + taken.unwrap().used, half);
            assert!(answer.is_empty());
            assert_eq!(got, bytes);
        }
    }

    #[test]
    fn neither_side_believes_a_member_of_another_job() {
        let (ours, theirs) = (member(b"one"), member(b"two"));
        let (mut a, mut b) = (ours.call().unwrap(), theirs.answer().unwrap());
        let (side, failure) = shake(&mut a, &mut b).unwrap_err();
        assert_eq!((side, failure), ('a', Failure::Stranger));
        // A caller that does not look at all whom it calls is not taken either.
        let (mut a, mut b) = (theirs.call().unwrap(), ours.answer().unwrap());
        assert!(shake(&mut a, &mut b).is_err());
    }

    #[test]
    fn a_certificate_that_is_over_is_named_as_such_at_both_sides() {
        let authority = Authority::of(b"one", "tests").unwrap();
        // Of 1970.
        let term = Term::of(0, std::time::Duration::from_secs(60));
        let over = Identity::from_pem(&authority.issue("role/2", term).unwrap()).unwrap();
        let (mut a, mut b) = (member(b"one").call().unwrap(), over.answer().unwrap());
        assert_eq!(shake(&mut a, &mut b).unwrap_err(), ('a', Failure::Over));
        let (mut a, mut b) = (over.call().unwrap(), member(b"one").answer().unwrap());
        assert_eq!(shake(&mut a, &mut b).unwrap_err(), ('b', Failure::Over));
    }

    #[test]
    fn one_changed_byte_ends_it() {
        let (mut a, mut b) = linked();
        let mut wire = sealed(&mut a, b"weights");
        let last = wire.len() - 1;
        wire[last] ^= 1;
        let mut opened = |_: &[u8]| panic!("opened what was changed");
        let taken = b.take(&mut wire, &mut Outbox::default(), &mut opened);
        assert_eq!(taken.unwrap_err(), Failure::Garbage);
    }
}
