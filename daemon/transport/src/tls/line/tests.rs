#![allow(clippy::unwrap_used, clippy::panic)]
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use robust_identity::Authority;
use rustls::ExtractedSecrets;

use super::*;
use crate::buffer::{Buffer, Served};
use crate::digest::PartDigest;
use crate::road::{Landing, MessageKind, PIECE_BYTES, Target};
use crate::tls::Identity;

const LIMIT: Duration = Duration::from_secs(20);

/// In place of a kernel: bytes go as they are. What is read too early, or sealed too late, is nonsense to
/// the other side.
struct Plain;

impl Records for Plain {
    fn take_over(&self, _: &TcpStream, secrets: ExtractedSecrets) -> Result<(), Failure> {
        // Nothing but the handshake was sealed.
        assert_eq!((secrets.tx.0, secrets.rx.0), (0, 0));
        Ok(())
    }

    fn read(&self, mut socket: &TcpStream, into: &mut [u8]) -> std::io::Result<(Record, usize)> {
        socket.read(into).map(|len| (Record::Data, len))
    }
}

/// The same, but all that comes are records of this type.
struct Only(Record);

impl Records for Only {
    fn take_over(&self, _: &TcpStream, _: ExtractedSecrets) -> Result<(), Failure> {
        Ok(())
    }

    fn read(&self, mut socket: &TcpStream, into: &mut [u8]) -> std::io::Result<(Record, usize)> {
        socket.read(into).map(|len| (self.0, len))
    }
}

fn member() -> Identity {
    let authority = Authority::of(b"one", "tests").unwrap();
    Identity::from_pem(
        &authority
            .issue("role/1", robust_identity::Term::unbounded())
            .unwrap(),
    )
    .unwrap()
}

/// A caller and a callee, each followed by somebody.
fn lines(of: [Option<&'static dyn Records>; 2]) -> [Line; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (callee, _) = listener.accept().unwrap();
    for socket in [&caller, &callee] {
        socket.set_nonblocking(true).unwrap();
    }
    let mut caller = Line::new(caller, member().call().unwrap(), of[0]);
    caller.greet().unwrap();
    [caller, Line::new(callee, member().answer().unwrap(), of[1])]
}

/// Lets a side work as the road does.
fn turn(
    line: &mut Line,
    shakes: bool,
    targets: &Targets,
    events: &mut Vec<Event>,
    ended: &mut Vec<OpId>,
) -> Result<(), Failure> {
    if shakes && !line.ready {
        line.shake()?;
    } else {
        line.take(7, targets, events)?;
    }
    line.flush(ended)
}

#[test]
fn what_is_said_behind_the_handshake_is_whole_on_whichever_side_others_seal() {
    let len = PIECE_BYTES as usize - 3 * 1024 - 5;
    let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + at / 255) as u8).collect();
    let [source, into] = [(); 2].map(|()| Buffer::new(len).unwrap());
    source.write_at(0, &bytes).unwrap();
    let [mut caller, mut callee] = lines([Some(&Plain), Some(&Plain)]);
    let digest = Arc::new(Mutex::new(PartDigest::new(len)));
    let targets = Targets::default();
    targets.expect(
        9,
        Target {
            landing: Landing::Buffer(Arc::clone(&into)),
            offset: 0,
            len,
            digest: Arc::clone(&digest),
            at: 0,
        },
    );
    // Both have something to say before they can, so that it comes right behind the handshake.
    let message = |word: &[u8]| Parcel::Message(MessageKind::Note, word.to_vec());
    caller.push(1, message(b"before"));
    let served = Served::of(&source, 0..len).unwrap();
    caller.push(2, Parcel::Piece(9, served));
    caller.push(3, message(b"behind"));
    callee.push(4, message(b"answer"));
    let (mut of_caller, mut of_callee, mut ended) = (Vec::new(), Vec::new(), [vec![], vec![]]);
    let (none, until) = (Targets::default(), Instant::now() + LIMIT);
    while of_callee.len() < 3 || of_caller.is_empty() {
        assert!(Instant::now() < until, "not all of it came");
        turn(&mut caller, false, &none, &mut of_caller, &mut ended[0]).unwrap();
        turn(&mut callee, true, &targets, &mut of_callee, &mut ended[1]).unwrap();
    }
    assert_eq!(ended, [vec![1, 2, 3], vec![4]]);
    assert!(!caller.is_stuck() && !callee.is_stuck());
    let told = of_callee.into_iter().map(|event| match event {
        Event::Message { link: 7, bytes, .. } => Some(bytes),
        Event::Arrived {
            token: 9,
            fits: true,
            block: None,
        } => None,
        _ => panic!("an event of something that was not sent"),
    });
    let expected = [Some(b"before".to_vec()), None, Some(b"behind".to_vec())];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    assert!(into.with_bytes(|there| there == bytes).unwrap());
    // Taken on the way: so it came in whole blocks of the digest.
    let digest = digest.lock().unwrap().finished();
    assert_eq!(digest, Some(xxhash_rust::xxh3::xxh3_64(&bytes)));
    assert!(matches!(&of_caller[..], [Event::Message { bytes, .. }] if bytes == b"answer"));
}

/// What the callee's turn says once something came in a record of another type.
fn said(record: &'static Only) -> Failure {
    let [mut caller, mut callee] = lines([Some(&Plain), Some(record)]);
    caller.push(1, Parcel::Message(MessageKind::Note, b"x".to_vec()));
    let (mut events, mut ended) = (Vec::new(), Vec::new());
    let (targets, until) = (Targets::default(), Instant::now() + LIMIT);
    loop {
        assert!(Instant::now() < until, "nothing came");
        turn(&mut caller, false, &targets, &mut events, &mut ended).unwrap();
        let took = turn(&mut callee, true, &targets, &mut events, &mut ended);
        assert!(events.is_empty());
        if let Err(failure) = took {
            return failure;
        }
    }
}

#[test]
fn an_alert_is_an_end_and_new_keys_are_not_taken() {
    assert_eq!(said(&Only(Record::Alert)), Failure::Gone);
    assert_eq!(said(&Only(Record::NewKeys)), Failure::Worn);
    assert_eq!(said(&Only(Record::Other)), Failure::Garbage);
}

#[test]
fn keys_that_sealed_enough_seal_no_more() {
    let [mut line, _callee] = lines([None, None]);
    line.sealed.wrote(line.sealed.len());
    line.sealing = Sealing::Kernel(&Plain, RECORDS_OF_A_KEY - 1);
    for op in [1, 2] {
        line.push(op, Parcel::Message(MessageKind::Note, b"x".to_vec()));
    }
    let mut ended = Vec::new();
    assert_eq!(line.flush(&mut ended), Err(Failure::Worn));
    assert_eq!(ended, [1]);
}

proptest! {
    #[test]
    fn a_handshake_is_read_to_the_end_of_a_record_and_no_further(
        lens in proptest::collection::vec(0usize..300, 1..5), more in 0usize..400,
    ) {
        let mut bytes = Vec::new();
        let mut bounds = vec![0];
        for len in &lens {
            bytes.extend([22, 3, 3]);
            bytes.extend((*len as u16).to_be_bytes());
            bytes.extend(vec![1; *len]);
            bounds.push(bytes.len());
        }
        let came = &bytes[..more.min(bytes.len())];
        let (whole, until) = ends(came);
        prop_assert_eq!(whole, bounds.contains(&came.len()));
        let start = bounds.iter().copied().filter(|bound| *bound <= came.len()).max().unwrap();
        let expected = match came.len() - start {
            0..RECORD_HEAD => start + RECORD_HEAD,
            _ => bounds.iter().copied().find(|bound| *bound > start).unwrap(),
        };
        prop_assert_eq!(until, expected);
    }
}
