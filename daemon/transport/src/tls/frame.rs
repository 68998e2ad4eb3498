//! What goes through a connection once it is sealed.
//!
//! A frame is a length u32 of all that follows, what it is u8, and its body; integers little-endian.
//!
//! | frame | body |
//! | --- | --- |
//! | 0, a message | kind u32, its bytes |
//! | 1, a piece | token u64, len u64; the piece's bytes come behind the frame |

use crate::digest::BLOCK;
use crate::road::{
    Event, Failure, LinkId, MESSAGE_LIMIT, MessageKind, PIECE_BYTES, Targets, numbers,
};

const LENGTH: usize = 4;
/// Longest frame of ours, without its length.
const LONGEST: usize = MESSAGE_LIMIT + 16;

/// A message with its length.
pub(crate) fn message(kind: MessageKind, bytes: &[u8]) -> Vec<u8> {
    frame(0, &[&(kind as u32).to_le_bytes(), bytes])
}

/// What comes before the bytes of a piece.
pub(crate) fn piece(token: u64, len: usize) -> Vec<u8> {
    frame(1, &[&token.to_le_bytes(), &(len as u64).to_le_bytes()])
}

fn frame(what: u8, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let length = (body.len() + 1) as u32;
    [&length.to_le_bytes()[..], &[what], &body].concat()
}

/// Reads frames from bytes as they come.
#[derive(Default)]
pub(crate) struct Reader {
    /// Of a frame that is not whole.
    held: Vec<u8>,
    /// The piece whose bytes are coming.
    piece: Option<Coming>,
}

struct Coming {
    token: u64,
    len: usize,
    here: usize,
}

impl Reader {
    /// Takes the next bytes: pieces go to their targets, and what happened to `events`.
    pub fn take(
        &mut self,
        bytes: &[u8],
        link: LinkId,
        targets: &Targets,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        self.take_grains(1, bytes, link, (targets, events))
            .map(drop)
    }

    /// The same with bytes that end anywhere and can be kept: of a piece that goes on behind them, only whole
    /// blocks of its digest are taken. Answers with how many bytes were.
    pub fn take_blocks(
        &mut self,
        bytes: &[u8],
        link: LinkId,
        targets: &Targets,
        events: &mut Vec<Event>,
    ) -> Result<usize, Failure> {
        self.take_grains(BLOCK, bytes, link, (targets, events))
    }

    fn take_grains(
        &mut self,
        grain: usize,
        bytes: &[u8],
        link: LinkId,
        (targets, events): (&Targets, &mut Vec<Event>),
    ) -> Result<usize, Failure> {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = match &mut self.piece {
                Some(piece) => {
                    let (at, left) = (piece.here, piece.len - piece.here);
                    let now = match rest.len() < left {
                        true => rest.len() - rest.len() % grain,
                        false => left,
                    };
                    if now == 0 {
                        break;
                    }
                    let (now, behind) = rest.split_at(now);
                    piece.here += now.len();
                    events.extend(targets.land(piece.token, piece.len, at, now));
                    if piece.here == piece.len {
                        self.piece = None;
                    }
                    behind
                }
                None => self.take_head(rest, link, events)?,
            };
        }
        Ok(bytes.len() - rest.len())
    }

    /// Takes bytes until a frame is whole; what is behind it is left.
    fn take_head<'a>(
        &mut self,
        bytes: &'a [u8],
        link: LinkId,
        events: &mut Vec<Event>,
    ) -> Result<&'a [u8], Failure> {
        let bytes = self.hold(bytes, LENGTH);
        let Some(length) = self.held.first_chunk::<LENGTH>() else {
            return Ok(bytes);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > LONGEST {
            return Err(Failure::Garbage);
        }
        let bytes = self.hold(bytes, LENGTH + length);
        if self.held.len() == LENGTH + length {
            let body = self.held.get(LENGTH..).unwrap_or_default();
            match parse(body).ok_or(Failure::Garbage)? {
                Head::Message(kind, bytes) => {
                    events.push(Event::Message { link, kind, bytes });
                }
                Head::Piece(piece) => self.piece = Some(piece),
            }
            self.held.clear();
        }
        Ok(bytes)
    }

    fn hold<'a>(&mut self, bytes: &'a [u8], until: usize) -> &'a [u8] {
        let wanted = until.saturating_sub(self.held.len()).min(bytes.len());
        let (now, rest) = bytes.split_at(wanted);
        self.held.extend_from_slice(now);
        rest
    }
}

enum Head {
    Message(MessageKind, Vec<u8>),
    Piece(Coming),
}

fn parse(body: &[u8]) -> Option<Head> {
    let (what, body) = body.split_first()?;
    Some(match what {
        0 => {
            let (kind, bytes) = body.split_first_chunk()?;
            let kind = MessageKind::from_number(u32::from_le_bytes(*kind));
            Head::Message(kind, bytes.to_vec())
        }
        1 => {
            let [token, len] = numbers(body)?;
            let len = usize::try_from(len).ok()?;
            let possible = (1..=PIECE_BYTES as usize).contains(&len);
            let here = 0;
            Head::Piece(possible.then_some(Coming { token, len, here })?)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::sync::{Arc, Mutex};

    use proptest::prelude::*;

    use super::*;
    use crate::buffer::Buffer;
    use crate::digest::PartDigest;
    use crate::road::{Landing, Target};

    proptest! {
        #[test]
        fn frames_are_read_however_the_network_cuts_them(
            messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..5),
            len in 1usize..5000, cuts in proptest::collection::vec(1usize..400, 1..30),
            in_blocks: bool,
        ) {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
            let buffer = Buffer::new(len).unwrap();
            let targets = Targets::default();
            targets.expect(9, Target {
                landing: Landing::Buffer(Arc::clone(&buffer)),
                offset: 0,
                len,
                digest: Arc::new(Mutex::new(PartDigest::new(len))),
                at: 0,
            });
            let mut wire = Vec::new();
            for message in &messages {
                wire.extend(super::message(MessageKind::Note, message));
            }
            wire.extend(piece(9, len));
            wire.extend(&bytes);
            wire.extend(super::message(MessageKind::Wait, b"after"));
            let (mut reader, mut events, mut rest) = (Reader::default(), Vec::new(), &wire[..]);
            // With blocks, more is shown each time that not all is taken, as by who keeps what is left.
            let mut shown = 0;
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                shown = rest.len().min(shown + cut);
                let now = &rest[..shown];
                let took = match in_blocks {
                    true => reader.take_blocks(now, 3, &targets, &mut events).unwrap(),
                    false => reader.take(now, 3, &targets, &mut events).map(|()| shown).unwrap(),
                };
                rest = &rest[took..];
                shown -= took;
            }
            let told = events.into_iter().map(|event| match event {
                Event::Message { link: 3, kind, bytes } => Some((kind, bytes)),
                Event::Arrived { token: 9, fits: true, block: None } => None,
                _ => panic!("an event of something that was not sent"),
            });
            let notes = messages.into_iter().map(|bytes| Some((MessageKind::Note, bytes)));
            let after = Some((MessageKind::Wait, b"after".to_vec()));
            let expected: Vec<_> = notes.chain([None, after]).collect();
            prop_assert_eq!(told.collect::<Vec<_>>(), expected);
            prop_assert!(buffer.with_bytes(|there| there == bytes).unwrap());
        }

        #[test]
        fn garbage_is_no_panic_and_nothing_long_is_held(
            bytes in proptest::collection::vec(any::<u8>(), 0..300)
        ) {
            let mut reader = Reader::default();
            let taken = reader.take(&bytes, 1, &Targets::default(), &mut Vec::new());
            prop_assert!(taken.is_err() || reader.held.len() <= LENGTH + LONGEST);
        }
    }
}
