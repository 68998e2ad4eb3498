//! Messages and frames: whatever is read is written as the same bytes again.

use crate::address::Address;
use crate::engine::wire::{
    Hello, Prove, Read, Ready, Refusal, Welcome, note_from_bytes, note_to_bytes, tokens_from_bytes,
    tokens_to_bytes,
};
use crate::key::RegionKey;
use crate::local::frame::Frame;
use crate::road::{Event, Failure, MessageKind, Targets};
use crate::tls::frame::Reader;

/// Reads the bytes as each message of the protocol, as a key and as an address.
pub fn messages(bytes: &[u8]) {
    let same = |written: Option<Vec<u8>>| assert!(written.is_none_or(|written| written == bytes));
    same(Hello::from_bytes(bytes).map(Hello::to_bytes));
    same(Welcome::from_bytes(bytes).map(Welcome::to_bytes));
    same(Prove::from_bytes(bytes).map(Prove::to_bytes));
    same(Ready::from_bytes(bytes).map(Ready::to_bytes));
    same(Read::from_bytes(bytes).map(Read::to_bytes));
    same(Refusal::from_bytes(bytes).map(Refusal::to_bytes));
    same(note_from_bytes(bytes).map(|(session, note)| note_to_bytes(session, note)));
    same(tokens_from_bytes(bytes).map(|tokens| tokens_to_bytes(&tokens)));
    same(RegionKey::from_bytes(bytes).ok().map(|key| key.to_bytes()));
    if let Some(listens) = bytes.first_chunk() {
        let address = Address::from_bytes(*listens);
        assert_eq!(address, address.canonical());
        assert_eq!(Address::from_bytes(address.to_bytes()), address);
        assert_text(address);
    }
    if let Some(address) = std::str::from_utf8(bytes).ok().and_then(|t| t.parse().ok()) {
        assert_text(address);
    }
}

fn assert_text(address: Address) {
    let text = address.to_string();
    // What is listened to nowhere but over RDMA nobody listens to, and no text names it.
    if address.number().is_some() || address.net().is_some() {
        assert_eq!(text.parse::<Address>().ok(), Some(address), "{text}");
    }
}

/// Reads the bytes as frames of both roads that have some, whole and cut.
pub fn frames(bytes: &[u8], cut: usize) {
    let mut rest = bytes;
    while let Ok(Some((frame, len))) = Frame::read(rest) {
        let known = !matches!(frame, Frame::Message(MessageKind::Unknown, _));
        assert!(!known || frame.to_bytes() == rest[..len]);
        rest = &rest[len..];
    }
    let whole = sealed(bytes, bytes.len().max(1));
    let cut = sealed(bytes, cut.max(1));
    assert_eq!(whole, cut, "what is read depends on where the network cuts");
}

type Told = (Vec<(MessageKind, Vec<u8>)>, Result<(), Failure>);

/// What a reader says of the bytes when they come so many at a time.
fn sealed(bytes: &[u8], cut: usize) -> Told {
    let (mut reader, mut events) = (Reader::default(), Vec::new());
    let targets = Targets::default();
    let mut chunks = bytes.chunks(cut);
    let taken = chunks.try_for_each(|chunk| reader.take(chunk, 1, &targets, &mut events));
    let told = events.into_iter().map(|event| match event {
        Event::Message { kind, bytes, .. } => (kind, bytes),
        _ => panic!("a piece arrived that nobody asked for"),
    });
    (told.collect(), taken)
}
