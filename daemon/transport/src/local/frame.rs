//! What goes over the socket between two processes of one machine.
//!
//! A frame is a length u32 of all that follows, what it is u8, and its body; integers little-endian.
//!
//! | frame | body |
//! | --- | --- |
//! | 0, a message | kind u32, its bytes |
//! | 1, a piece | op u64, token u64, memory u64, offset u64, len u64; it lies in memory that was shown |
//! | 2, the same | the same; a descriptor of the memory comes with the frame, its size u64 follows |
//! | 3, taken | op u64: the piece was copied, or is not wanted |
//! | 4, away | memory u64: nothing will be sent from it any more |

use crate::road::{MESSAGE_LIMIT, MessageKind, OpId, numbers};

/// Longest frame of ours, without its length.
const LONGEST: usize = MESSAGE_LIMIT + 16;
const LENGTH: usize = 4;

/// A piece, by where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// The source's operation, to be told when the piece was taken.
    pub op: OpId,
    pub token: u64,
    /// Which memory; the source's number for it.
    pub memory: u64,
    /// Where it begins there.
    pub offset: u64,
    pub len: u64,
}

/// One frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Frame {
    Message(MessageKind, Vec<u8>),
    /// With the size of the memory, if its descriptor comes with the frame.
    Piece(Piece, Option<u64>),
    Taken(OpId),
    Away(u64),
}

impl Frame {
    /// With its length.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; LENGTH];
        match self {
            Frame::Message(kind, bytes) => {
                out.push(0);
                out.extend((*kind as u32).to_le_bytes());
                out.extend(bytes);
            }
            Frame::Piece(piece, size) => {
                out.push(if size.is_some() { 2 } else { 1 });
                let Piece {
                    op,
                    token,
                    memory,
                    offset,
                    len,
                } = piece;
                for number in [op, token, memory, offset, len].into_iter().chain(size) {
                    out.extend(number.to_le_bytes());
                }
            }
            Frame::Taken(op) => {
                out.push(3);
                out.extend(op.to_le_bytes());
            }
            Frame::Away(memory) => {
                out.push(4);
                out.extend(memory.to_le_bytes());
            }
        }
        let length = (out.len() - LENGTH) as u32;
        out[..LENGTH].copy_from_slice(&length.to_le_bytes());
        out
    }

    /// The first frame of these bytes and how long it is; none if there is not all of it yet.
    pub fn read(bytes: &[u8]) -> Result<Option<(Frame, usize)>, Garbage> {
        let Some((length, rest)) = bytes.split_first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| Garbage)?;
        if length > LONGEST {
            return Err(Garbage);
        }
        match rest.get(..length) {
            Some(body) => Ok(Some((Self::parse(body).ok_or(Garbage)?, LENGTH + length))),
            None => Ok(None),
        }
    }

    fn parse(body: &[u8]) -> Option<Frame> {
        let (what, body) = body.split_first()?;
        Some(match what {
            0 => {
                let (kind, bytes) = body.split_first_chunk()?;
                let kind = MessageKind::from_number(u32::from_le_bytes(*kind));
                Frame::Message(kind, bytes.to_vec())
            }
            1 => Frame::Piece(Piece::of(numbers(body)?), None),
            2 => {
                let (rest, size) = body.split_last_chunk()?;
                let size = u64::from_le_bytes(*size);
                Frame::Piece(Piece::of(numbers(rest)?), Some(size))
            }
            3 => Frame::Taken(numbers::<1>(body)?[0]),
            4 => Frame::Away(numbers::<1>(body)?[0]),
            _ => return None,
        })
    }
}

impl Piece {
    fn of([op, token, memory, offset, len]: [u64; 5]) -> Piece {
        Piece {
            op,
            token,
            memory,
            offset,
            len,
        }
    }
}

/// These bytes are no frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Garbage;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn any_frame() -> impl Strategy<Value = Frame> {
        let bytes = proptest::collection::vec(any::<u8>(), 0..60);
        prop_oneof![
            (0u32..11, bytes).prop_map(|(k, b)| Frame::Message(MessageKind::from_number(k), b)),
            (any::<[u64; 5]>(), any::<Option<u64>>())
                .prop_map(|(numbers, size)| Frame::Piece(Piece::of(numbers), size)),
            any::<u64>().prop_map(Frame::Taken),
            any::<u64>().prop_map(Frame::Away),
        ]
    }

    proptest! {
        #[test]
        fn frames_are_read_as_they_were_written_however_they_are_cut(
            frames in proptest::collection::vec(any_frame(), 0..9), cut in 1..50usize
        ) {
            let bytes: Vec<u8> = frames.iter().flat_map(Frame::to_bytes).collect();
            let (mut read, mut held) = (Vec::new(), Vec::new());
            for some in bytes.chunks(cut) {
                held.extend_from_slice(some);
                while let Some((frame, len)) = Frame::read(&held).unwrap() {
                    read.push(frame);
                    held.drain(..len);
                }
            }
            prop_assert_eq!(read, frames);
            prop_assert!(held.is_empty());
        }

        #[test]
        fn garbage_is_no_panic_and_nothing_long_is_waited_for(
            bytes in proptest::collection::vec(any::<u8>(), 0..90)
        ) {
            if let Ok(None) = Frame::read(&bytes) {
                let length = bytes.first_chunk().map(|four| u32::from_le_bytes(*four));
                prop_assert!(length.is_none_or(|length| length as usize <= LONGEST));
            }
        }
    }
}
