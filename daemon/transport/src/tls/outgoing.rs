//! What waits to go out over a connection.

use robust_device::Block;

use super::frame;
use crate::buffer::Served;
use crate::road::{OpId, Parcel};

/// A parcel: the rest of its head, and its body, of which the first `done` bytes are gone.
pub(super) struct Outgoing {
    pub op: OpId,
    pub head: Vec<u8>,
    body: Body,
    done: usize,
}

enum Body {
    None,
    Served(Served),
    Block(Block, usize),
}

impl Outgoing {
    /// All of a parcel.
    pub fn new(op: OpId, parcel: Parcel) -> Outgoing {
        let (head, body) = match parcel {
            Parcel::Message(kind, bytes) => (frame::message(kind, &bytes), Body::None),
            Parcel::Piece(token, served) => {
                (frame::piece(token, served.len()), Body::Served(served))
            }
            Parcel::Block(token, block, len) => (frame::piece(token, len), Body::Block(block, len)),
        };
        let done = 0;
        Outgoing {
            op,
            head,
            body,
            done,
        }
    }

    /// Bytes of the body that are not gone.
    pub fn left(&self) -> usize {
        let len = match &self.body {
            Body::None => 0,
            Body::Served(served) => served.len(),
            Body::Block(_, len) => *len,
        };
        len - self.done
    }

    /// Whether all of it is gone.
    pub fn is_over(&self) -> bool {
        self.head.is_empty() && self.left() == 0
    }

    /// Shows the next bytes of the body, `len` or what is left.
    pub fn show<R>(&self, len: usize, show: impl FnOnce(&[u8]) -> R) -> R {
        let now = self.done..self.done + len.min(self.left());
        match &self.body {
            Body::None => show(&[]),
            Body::Served(served) => show(served.bytes().get(now).unwrap_or_default()),
            Body::Block(block, _) => show(block.bytes().get(now).unwrap_or_default()),
        }
    }

    /// The next bytes of the body are gone.
    pub fn advance(&mut self, len: usize) {
        self.done += len.min(self.left());
    }
}
