//! Who is no member of the job, and who stands between two that are: nothing of theirs has an effect, and
//! callers are counted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use robust_identity::{Authority, Member, Term};
use robust_transport::{
    Address, Buffer, Cancel, Config, Exposed, FetchError, Identity, JobToken, Net, Transport,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use support::{config, holds, member, pattern, token, transport, whole};

const LEN: usize = 3 << 20;
const LIMIT: Duration = Duration::from_secs(10);

struct Victim {
    transport: Transport,
    exposed: Exposed,
}

impl Victim {
    fn new() -> Victim {
        let transport = transport(LIMIT);
        let buffer = Buffer::new(LEN).unwrap();
        buffer.write_at(0, &pattern(3, LEN)).unwrap();
        let exposed = transport.expose(buffer).unwrap();
        Victim { transport, exposed }
    }

    fn at(&self) -> SocketAddr {
        self.transport.addr().net().unwrap()
    }

    /// A member that calls it there.
    fn serves(&self, at: SocketAddr) -> Result<Arc<Buffer>, FetchError> {
        let friend = transport(Duration::from_secs(2));
        let into = Buffer::new(LEN).unwrap();
        let (parts, key) = (whole(LEN), self.exposed.key());
        let cancel = Cancel::new();
        friend.fetch(Address::from(at), key, &parts, &into, &cancel, |_| ())?;
        Ok(into)
    }

    fn assert_unharmed(&self) {
        assert!(holds(&self.serves(self.at()).unwrap(), 3));
        assert!(holds(self.exposed.buffer(), 3));
        assert_eq!(self.transport.try_recv(), None);
    }

    fn wait_refused(&self, count: u64) {
        let until = Instant::now() + LIMIT;
        while self.transport.stats().refused < count {
            assert!(Instant::now() < until, "{:?}", self.transport.stats());
            std::thread::yield_now();
        }
    }
}

/// UCX's first words over TCP, then a PUT to an address of the sender's choice (SECURITY C1).
fn ucx_put() -> Vec<u8> {
    let mut packet = 0xCAFE_BABE_1234_5678_u64.to_le_bytes().to_vec();
    packet.push(33);
    packet.extend(20_u32.to_le_bytes());
    packet.extend(4096_u64.to_le_bytes());
    packet.extend(8_u64.to_le_bytes());
    packet.extend(1_u32.to_le_bytes());
    packet.extend([0xAA; 8]);
    packet
}

#[test]
fn bytes_that_are_no_tls_have_no_effect_and_are_counted() {
    let victim = Victim::new();
    let mut sent = vec![ucx_put(), b"GET / HTTP/1.1\r\n\r\n".to_vec()];
    sent.extend([16, 100, 5000, 300_000].map(|len| pattern(len as u64, len)));
    for (at, bytes) in sent.iter().enumerate() {
        let mut stream = TcpStream::connect(victim.at()).unwrap();
        // It may close before it has read all.
        let _ = stream.write_all(bytes);
        victim.wait_refused(at as u64 + 1);
        // Nothing but an alert, and the end.
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 16, "{answer:?}");
    }
    victim.assert_unharmed();
}

#[test]
fn a_member_of_another_job_neither_calls_nor_is_called() {
    let victim = Victim::new();
    let stranger = Transport::start(Config {
        net: Some(Net::Tls(member(b"another job"))),
        ..config(token())
    })
    .unwrap();
    let error = stranger.notify(victim.transport.addr(), b"let me in");
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no certificate of this job"), "{error}");
    let error = victim.transport.notify(stranger.addr(), b"a secret");
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no certificate of this job"), "{error}");
    assert_eq!(stranger.try_recv(), None);
    victim.assert_unharmed();
}

#[test]
fn a_certificate_without_the_jobs_token_is_not_enough() {
    let victim = Victim::new();
    let stranger = Transport::start(config(JobToken::new(b"another token"))).unwrap();
    let error = stranger.notify(victim.transport.addr(), b"let me in");
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("it does not have this job's token"),
        "{error}"
    );
    victim.assert_unharmed();
}

#[test]
fn a_caller_that_shows_no_certificate_is_turned_away() {
    let victim = Victim::new();
    let authority = robust_identity::Authority::of(b"the job of the tests", "tests").unwrap();
    let pem = authority
        .issue("role/1", robust_identity::Term::unbounded())
        .unwrap();
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificates.last().unwrap().unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![b"robust-rtp/7".to_vec()];
    let name = ServerName::try_from(robust_identity::MEMBER).unwrap();
    let mut session = rustls::ClientConnection::new(Arc::new(client), name).unwrap();
    let mut stream = TcpStream::connect(victim.at()).unwrap();
    // It learns of the refusal when it reads, its own handshake being over by then.
    while session.is_handshaking() {
        session.complete_io(&mut stream).unwrap();
    }
    let _ = session.writer().write_all(b"let me in");
    let _ = session.complete_io(&mut stream);
    victim.wait_refused(1);
    victim.assert_unharmed();
}

#[test]
fn callers_that_say_nothing_keep_no_member_out() {
    let victim = Victim::new();
    let silent: Vec<TcpStream> = (0..300)
        .map(|_| TcpStream::connect(victim.at()).unwrap())
        .collect();
    victim.assert_unharmed();
    // 64 of them may be there still.
    victim.wait_refused(300 - 64);
    drop(silent);
    victim.assert_unharmed();
}

/// Passes bytes on between whoever calls it and the victim; `meddle` sees what the victim sends.
fn between(victim: SocketAddr, meddle: impl Fn(&mut [u8]) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for caller in listener.incoming().flatten() {
            let callee = TcpStream::connect(victim).unwrap();
            let back = (callee.try_clone().unwrap(), caller.try_clone().unwrap());
            let meddle = meddle.clone();
            std::thread::spawn(move || pass(caller, callee, |_: &mut [u8]| ()));
            std::thread::spawn(move || pass(back.0, back.1, meddle));
        }
    });
    address
}

fn pass(mut from: TcpStream, mut to: TcpStream, meddle: impl Fn(&mut [u8])) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        meddle(&mut bytes[..len]);
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

#[test]
fn who_listens_on_the_way_sees_nothing_of_the_bytes() {
    let victim = Victim::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let copy = Arc::clone(&heard);
    let way = between(victim.at(), move |bytes: &mut [u8]| {
        copy.lock().unwrap().extend_from_slice(bytes);
    });
    assert!(holds(&victim.serves(way).unwrap(), 3));
    let heard = heard.lock().unwrap();
    assert!(heard.len() > LEN);
    let weights = pattern(3, LEN);
    for at in (0..LEN - 16).step_by(100_000) {
        let some = &weights[at..at + 16];
        assert!(heard.windows(16).all(|bytes| bytes != some));
    }
}

#[test]
fn who_changes_a_byte_on_the_way_ends_the_link_and_no_wrong_byte_arrives() {
    let victim = Victim::new();
    let passed = Arc::new(Mutex::new(0));
    let way = between(victim.at(), move |bytes: &mut [u8]| {
        let mut passed = passed.lock().unwrap();
        let before = *passed;
        *passed += bytes.len();
        // One byte in the middle of the weights.
        if before < LEN / 2 && *passed >= LEN / 2 {
            bytes[0] ^= 1;
        }
    });
    let error = victim.serves(way).unwrap_err().to_string();
    assert!(error.contains("what no transport sends"), "{error}");
    victim.assert_unharmed();
}

/// A certificate by the first of these, and whom else it is to believe.
fn certified(by: &Authority, beside: &[&Authority]) -> String {
    let others = beside.iter().map(|other| other.certificate());
    let own = by.issue("role/1", Term::unbounded()).unwrap();
    others.fold(own, |pem, other| pem + other)
}

fn transport_of(member: &Member) -> Transport {
    Transport::start(Config {
        net: Some(Net::Tls(Identity::of(member).unwrap())),
        ..config(token())
    })
    .unwrap()
}

#[test]
fn an_open_link_ends_when_the_only_authority_that_certified_its_peer_is_dropped_on_either_side() {
    let [old, new] = [b"old", b"new"].map(|secret| Authority::of(secret, "demo").unwrap());
    for dropped_by_source in [true, false] {
        let of_old = || Member::from_pem(&certified(&old, &[&new])).unwrap();
        let (at_source, at_puller) = (of_old(), of_old());
        let (source, puller) = (transport_of(&at_source), transport_of(&at_puller));
        let buffer = Buffer::new(LEN).unwrap();
        buffer.write_at(0, &pattern(3, LEN)).unwrap();
        let exposed = source.expose(buffer).unwrap();
        let into = Buffer::new(LEN).unwrap();
        let fetch = || {
            let (at, key) = (source.addr(), exposed.key());
            puller.fetch(at, key, &whole(LEN), &into, &Cancel::new(), |_| ())
        };
        fetch().unwrap();
        let (drops, keeps) = match dropped_by_source {
            true => (&at_source, &at_puller),
            false => (&at_puller, &at_source),
        };
        // Nothing is said on the link: it ends all the same.
        drops.renew(&certified(&new, &[])).unwrap();
        let until = Instant::now() + LIMIT;
        while source.stats().endpoints_open + puller.stats().endpoints_open > 0 {
            assert!(Instant::now() < until, "{:?}", source.stats());
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(matches!(fetch(), Err(FetchError::Connect { .. })));
        keeps.renew(&certified(&new, &[])).unwrap();
        fetch().unwrap();
        assert!(holds(&into, 3));
    }
}
