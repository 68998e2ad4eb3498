//! The source's side of a fetch: checks each read against its regions and sends the bytes.

use super::link::find_link;
use super::wire::{Read, Reason, Refusal};
use super::{Engine, OpKind};
use crate::ucx::{MessageKind, ReplyTo};

impl Engine {
    pub(super) fn on_read(&mut self, bytes: &[u8], from: Option<ReplyTo>) {
        let (Some(read), Some(from)) = (Read::from_bytes(bytes), from) else {
            return;
        };
        // No link: the puller's is closing, and it knows.
        let Some((link, endpoint)) = find_link(&self.links, from) else {
            return;
        };
        let range = |len: usize| {
            let (offset, wanted) = (
                usize::try_from(read.offset).ok()?,
                read.len.try_into().ok()?,
            );
            offset
                .checked_add(wanted)
                .filter(|end| *end <= len)
                .map(|_| (offset, wanted))
        };
        let checked = match self.regions.get(&read.region) {
            None => Err(Reason::NotExposed),
            Some(buffer) => match range(buffer.len()) {
                Some(range) => Ok((buffer, range)),
                None => Err(Reason::OutOfBounds),
            },
        };
        let op = match checked {
            Ok((buffer, range)) => self.worker.send_data(endpoint, read.token, buffer, range),
            Err(reason) => {
                let refusal = Refusal {
                    token: read.token,
                    reason,
                }
                .to_bytes();
                self.worker.send(endpoint, MessageKind::Refusal, refusal)
            }
        };
        self.ops.insert(op, OpKind::Send { link });
    }
}
