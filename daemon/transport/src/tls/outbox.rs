//! Bytes that are on their way into a socket.

use crate::road::Failure;

/// Room that is written over again and again, and not cleared in between: clearing would touch every byte
/// once more.
#[derive(Default)]
pub(super) struct Outbox {
    room: Vec<u8>,
    written: usize,
    filled: usize,
}

impl Outbox {
    /// What is in it and not written yet.
    pub fn waiting(&self) -> &[u8] {
        self.room.get(self.written..self.filled).unwrap_or_default()
    }

    /// How many bytes wait.
    pub fn len(&self) -> usize {
        self.filled - self.written
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first so many are written. Once all are, the room is free.
    pub fn wrote(&mut self, bytes: usize) {
        self.written = self.filled.min(self.written + bytes);
        if self.is_empty() {
            (self.written, self.filled) = (0, 0);
        }
    }

    /// Has `write` write behind what is there; it says how much it wrote, or how much room it needs.
    pub fn append(
        &mut self,
        mut needs: usize,
        mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
    ) -> Result<(), Failure> {
        loop {
            let until = self.filled + needs;
            if self.room.len() < until {
                self.room.resize(until, 0);
            }
            let room = self.room.get_mut(self.filled..until).unwrap_or_default();
            match write(room) {
                Ok(written) => {
                    self.filled += written.min(needs);
                    return Ok(());
                }
                Err(Some(more)) if more > needs => needs = more,
                Err(_) => return Err(Failure::Closed),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn put(outbox: &mut Outbox, bytes: &[u8]) {
        let copy = |room: &mut [u8]| match room.get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                Ok(bytes.len())
            }
            None => Err(Some(bytes.len())),
        };
        outbox.append(1, copy).unwrap();
    }

    #[test]
    fn what_was_put_in_comes_out_in_order_and_nothing_of_what_was_there_before() {
        let mut outbox = Outbox::default();
        put(&mut outbox, b"a long word");
        outbox.wrote(2);
        assert_eq!(outbox.waiting(), b"long word");
        put(&mut outbox, b", and more");
        assert_eq!(outbox.waiting(), b"long word, and more");
        outbox.wrote(outbox.len());
        assert!(outbox.is_empty() && outbox.waiting().is_empty());
        put(&mut outbox, b"short");
        assert_eq!(outbox.waiting(), b"short");
    }

    #[test]
    fn a_writer_that_fails_leaves_what_was_there() {
        let mut outbox = Outbox::default();
        put(&mut outbox, b"before");
        assert_eq!(outbox.append(9, |_| Err(None)), Err(Failure::Closed));
        assert_eq!(outbox.append(9, |_| Err(Some(3))), Err(Failure::Closed));
        assert_eq!(outbox.waiting(), b"before");
    }
}
