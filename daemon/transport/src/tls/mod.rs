//! The road between machines: TCP with TLS 1.3 on both sides' certificates.
//!
//! ```text
//!  puller                                               source
//!    │ TCP connect ──────────────────────────────────────►│ 64 at a time, for connect_timeout
//!    │ TLS 1.3: both show a certificate of the job's     │ wrong or none: closed, and counted
//!    │ authority, ALPN robust-rtp/7 ◄────────────────────►│ Called: the protocol sees members only
//!    │ messages of the protocol, both ways               │
//!    │◄────────────────────── piece: token, len, its bytes│ sealed as there is room, 256 KiB at a time
//!    │ opened record by record, copied once to its place  │ written: OpDone
//! ```
//! Whoever is not believed any more, because this process was told other authorities, is found when its link is
//! next looked at ([`Event::Unbelieved`]).
//!
//! Of the source: one copy into the cache, the seal, the kernel's copy. Of the puller: the kernel's copy,
//! the opening, and one copy to its place that takes the digest on its way. All in the progress thread, but
//! where the kernel seals and opens: then as it copies (see `kernel`).

mod callers;
pub(crate) mod frame;
mod identity;
mod kernel;
mod line;
mod outbox;
mod outgoing;
mod session;

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use rustls::{AlertDescription, CertificateError};

use self::callers::Callers;
pub use self::identity::Identity;
use self::kernel::Records;
use self::line::Line;
use crate::address::Address;
use crate::error::TransportError;
use crate::loopback::tune_for_loopback;
use crate::road::{
    Armed, CallId, Event, Failure, LinkId, OpId, Parcel, Road, RoadKind, Sockets, Targets,
};

/// Calls taken before links have their turn.
const CALLS: usize = 16;
/// How long a link on which nothing is said outlives whom its peer was believed by.
const JUDGED_EVERY: Duration = Duration::from_secs(1);
/// Marks the number of a call among sockets; links of the engine's never have it.
const CALL: u64 = 1 << 63;

/// Links to transports of other machines.
pub(crate) struct TlsRoad {
    identity: Identity,
    /// For how many renewals of whom it believes the links were judged.
    judged: u64,
    listener: Option<TcpListener>,
    /// A descriptor to give up when there are no others.
    spare: Option<OwnedFd>,
    links: Sockets<Line>,
    /// Those that called and have not shown their certificate.
    callers: Callers,
    /// Those that have, and are neither taken nor refused.
    calls: HashMap<CallId, SocketAddr>,
    next_call: CallId,
    on_loopback: bool,
    /// Who seals and opens records once a handshake is over, if not rustls.
    follows: Option<&'static dyn Records>,
    targets: Targets,
    events: Vec<Event>,
}

impl TlsRoad {
    /// Takes calls at `at`; answers with the address that it got. A handshake may take so long.
    pub fn open(
        (identity, within): (Identity, Duration),
        at: SocketAddr,
        targets: Targets,
    ) -> Result<(TlsRoad, SocketAddr), TransportError> {
        let io = |doing| move |source| TransportError::Io { doing, source };
        let listener = TcpListener::bind(at).map_err(io("listening for other machines"))?;
        let nonblocking = listener.set_nonblocking(true);
        let address = nonblocking.and_then(|()| listener.local_addr());
        let address = address.map_err(io("listening for other machines"))?;
        let road = TlsRoad {
            judged: identity.renewals(),
            identity,
            links: Sockets::new(&listener)?,
            listener: Some(listener),
            spare: spare(),
            callers: Callers::new(within),
            calls: HashMap::new(),
            next_call: CALL,
            on_loopback: at.ip().is_loopback(),
            follows: kernel::records(),
            targets,
            events: Vec::new(),
        };
        Ok((road, address))
    }

    fn take_calls(&mut self) {
        for _ in 0..CALLS {
            let Some(listener) = &self.listener else {
                return;
            };
            match listener.accept() {
                Ok((socket, from)) => {
                    if let Err(failure) = self.take_call(socket, from) {
                        tracing::warn!(%from, reason = failure.text(), "a call could not be taken");
                    }
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    // One that was gone before it was taken is none.
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                    _ => return self.turn_away(&error),
                },
            }
        }
    }

    /// Takes a call for which there was no descriptor, by the one that is kept for that, and closes it: the
    /// listener would wake this thread for ever, and the caller wait.
    fn turn_away(&mut self, error: &std::io::Error) {
        tracing::warn!(%error, "a call could not be taken");
        self.spare = None;
        if let Some(listener) = &self.listener {
            drop(listener.accept());
        }
        self.spare = spare();
    }

    fn take_call(&mut self, socket: TcpStream, from: SocketAddr) -> Result<(), Failure> {
        self.tune(&socket)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        let session = self.identity.answer().map_err(Failure::of_tls)?;
        let call = self.next_call;
        self.next_call += 1;
        let line = Line::new(socket, session, self.follows);
        self.links.add(call, line)?;
        self.calls.insert(call, from);
        if let Some(oldest) = self.callers.add(call, from.ip(), Instant::now()) {
            self.refuse(oldest, "too many callers that say nothing");
        }
        Ok(())
    }

    /// Settings of both sides' sockets.
    fn tune(&self, socket: &impl AsFd) -> Result<(), Failure> {
        sockopt::set_tcp_nodelay(socket, true)?;
        if self.on_loopback {
            tune_for_loopback(socket)?;
        }
        Ok(())
    }

    /// One that has not shown that it is a member.
    fn refuse(&mut self, call: CallId, why: &str) {
        self.callers.remove(call);
        self.links.remove(call);
        if let Some(from) = self.calls.remove(&call) {
            self.events.push(Event::Refused);
            tracing::warn!(%from, why, "a caller that is no member of this job");
        }
    }

    /// A turn of a connection.
    fn turn(&mut self, number: u64) {
        if self.callers.has(number) {
            return self.shake(number);
        }
        if number & CALL != 0 && self.calls.contains_key(&number) {
            // Waits to be taken; what it said stays where it is.
            return;
        }
        let Some(line) = self.links.get_mut(number) else {
            return;
        };
        let was_ready = line.is_ready();
        let took = line.take(number, &self.targets, &mut self.events);
        if line.is_ready() && !was_ready && !self.identity.believes(line.shown()) {
            // Others are believed than when it showed its certificate.
            return self.fail(number, Failure::Stranger);
        }
        match took {
            Ok(true) => self.links.turn_again(number),
            Ok(false) => {}
            Err(failure) => return self.fail(number, failure),
        }
        // Answers of the handshake, or of changed keys.
        self.write(number);
    }

    /// Judges all links again where others are believed than before.
    fn judge(&mut self) {
        let renewals = self.identity.renewals();
        if std::mem::replace(&mut self.judged, renewals) == renewals {
            return;
        }
        let links = self.links.numbered();
        let links = links.filter(|(number, line)| number & CALL == 0 && line.is_ready());
        let unbelieved = links.filter(|(_, line)| !self.identity.believes(line.shown()));
        let unbelieved: Vec<LinkId> = unbelieved.map(|(link, _)| link).collect();
        self.events
            .extend(unbelieved.into_iter().map(Event::Unbelieved));
    }

    /// Goes on with a caller's handshake.
    fn shake(&mut self, call: CallId) {
        let Some(line) = self.links.get_mut(call) else {
            return;
        };
        let shaken = line.shake();
        let written = self.links.write(call, &mut self.events);
        match shaken.and_then(|over| written.map(|()| over)) {
            Ok(true) => {
                self.callers.remove(call);
                self.events.push(Event::Called(call));
            }
            Ok(false) => {}
            // A member that was killed, or did not want to wait for a source that stood still.
            Err(Failure::Gone | Failure::System(Errno::CONNRESET | Errno::PIPE)) => {
                tracing::debug!("a caller went before it had shown its certificate");
                self.callers.remove(call);
                self.reject(call);
            }
            Err(failure) => self.refuse(call, &failure.text()),
        }
    }

    fn write(&mut self, number: u64) {
        if let Err(failure) = self.links.write(number, &mut self.events) {
            self.fail(number, failure);
        }
    }

    /// Nothing goes over this link any more; the engine closes it.
    fn fail(&mut self, link: LinkId, failure: Failure) {
        if self.links.fail(link) {
            self.events.push(Event::LinkFailed { link, failure });
        }
    }
}

impl Road for TlsRoad {
    fn kind(&self) -> RoadKind {
        RoadKind::Tls
    }

    fn reaches(&self, peer: &Address) -> bool {
        peer.net().is_some()
    }

    fn connect(&mut self, peer: &Address, link: LinkId) -> Result<(), Failure> {
        let net = peer.net().ok_or(Failure::NoRoad)?;
        let family = match net {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        self.tune(&socket)?;
        match connect(&socket, &net) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno.into()),
        }
        let session = self.identity.call().map_err(Failure::of_tls)?;
        let mut line = Line::new(TcpStream::from(socket), session, self.follows);
        line.greet()?;
        self.links.add(link, line)?;
        self.links.write_soon(link);
        Ok(())
    }

    fn accept(&mut self, call: CallId, link: LinkId) -> Result<(), Failure> {
        self.calls.remove(&call);
        let line = self.links.remove(call).ok_or(Failure::Gone)?;
        // It may have shown its certificate before others were believed.
        if !self.identity.believes(line.shown()) {
            return Err(Failure::Stranger);
        }
        self.links.add(link, line)?;
        // What it said already is here.
        self.links.turn_again(link);
        Ok(())
    }

    fn reject(&mut self, call: CallId) {
        self.calls.remove(&call);
        self.links.remove(call);
    }

    fn send(&mut self, link: LinkId, op: OpId, parcel: Parcel) {
        let Some(line) = self.links.get_mut(link) else {
            let result = Err(Failure::Closed);
            return self.events.push(Event::OpDone { op, result });
        };
        line.push(op, parcel);
        self.links.write_soon(link);
    }

    fn close(&mut self, link: LinkId, op: OpId) {
        let line = self.links.remove(link);
        let unsent = line.as_ref().map(|line| line.unsent().collect());
        drop(line);
        for op in Option::<Vec<OpId>>::unwrap_or_default(unsent) {
            let result = Err(Failure::Closed);
            self.events.push(Event::OpDone { op, result });
        }
        self.events.push(Event::OpDone { op, result: Ok(()) });
    }

    /// Closing ends them all.
    fn cancel(&mut self, _op: OpId) {}

    fn progress(&mut self) -> bool {
        self.judge();
        let found = self.links.look();
        if found.calls {
            self.take_calls();
        }
        let mut worked = found.is_some();
        found.room.into_iter().for_each(|link| self.write(link));
        found.turns.into_iter().for_each(|link| self.turn(link));
        for link in self.links.take_unwritten() {
            worked = true;
            self.write(link);
        }
        // After what came was looked at: this process may have stood still meanwhile.
        for call in self.callers.overdue(Instant::now()) {
            self.refuse(call, "it did not show a certificate in time");
        }
        worked
    }

    fn due(&self) -> Option<Instant> {
        // Nobody wakes this thread when others are believed.
        let judges = self.links.numbered().next().is_some();
        let judges = judges.then(|| Instant::now() + JUDGED_EVERY);
        self.callers.due().into_iter().chain(judges).min()
    }

    fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn arm(&mut self) -> Result<Armed, Failure> {
        Ok(match self.events.is_empty() {
            true => self.links.arm(),
            false => Armed::Busy,
        })
    }

    fn wakes(&self) -> BorrowedFd<'_> {
        self.links.wakes()
    }

    fn stop_listening(&mut self) {
        self.listener = None;
        for call in self.callers.take_all() {
            self.reject(call);
        }
        for call in self.calls.keys().copied().collect::<Vec<CallId>>() {
            self.reject(call);
        }
    }

    fn pending(&self) -> usize {
        self.links.iter().map(|line| line.unsent().count()).sum()
    }
}

/// A descriptor of no use.
fn spare() -> Option<OwnedFd> {
    let null = std::fs::File::open("/dev/null");
    null.ok().map(OwnedFd::from)
}

impl Failure {
    /// What TLS says, in our words; all it says goes to the log.
    fn of_tls(error: rustls::Error) -> Failure {
        use rustls::Error as Tls;
        tracing::debug!(%error, "a connection's TLS failed");
        match error {
            Tls::InvalidCertificate(
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. },
            )
            | Tls::AlertReceived(AlertDescription::CertificateExpired) => Failure::Over,
            Tls::InvalidCertificate(_) | Tls::NoCertificatesPresented => Failure::Stranger,
            Tls::AlertReceived(_) => Failure::Unbelieved,
            _ => Failure::Garbage,
        }
    }
}
