//! Notes: the small messages of `notify`, in order per peer.

use std::sync::mpsc::Sender;
use std::time::Instant;

use super::link::{Breach, FORGED, LinkEnd};
use super::wire::{note_from_bytes, note_to_bytes};
use super::{Engine, OpKind};
use crate::address::Address;
use crate::error::TransportError;
use crate::inbox::MAX_MESSAGE_BYTES;
use crate::road::{LinkId, MessageKind};
use crate::stats::Counters;

pub(super) struct Note {
    peer: Address,
    pub link: LinkId,
    /// Taken when it is sent.
    message: Option<Vec<u8>>,
    pub since: Instant,
    reply: Sender<Result<(), TransportError>>,
}

impl Note {
    pub fn is_sent(&self) -> bool {
        self.message.is_none()
    }
}

impl Engine {
    pub(super) fn begin_note(
        &mut self,
        peer: Address,
        message: Vec<u8>,
        reply: Sender<Result<(), TransportError>>,
    ) {
        let link = match self.link_for_notes(peer) {
            Ok(link) => link,
            Err(failure) => {
                self.count_error();
                let error = TransportError::Connect {
                    peer,
                    reason: failure.text(),
                };
                let _ = reply.send(Err(error));
                return;
            }
        };
        let (id, since) = (self.new_id(), self.clock.now());
        self.notes.insert(
            id,
            Note {
                peer,
                link,
                message: Some(message),
                since,
                reply,
            },
        );
        if self.is_open(link) {
            self.start_note(id);
        }
    }

    /// The link opened: those who waited go, oldest first.
    pub(super) fn start_notes(&mut self, link: LinkId) {
        for id in self.notes_on(link) {
            self.start_note(id);
        }
    }

    fn start_note(&mut self, id: u64) {
        let now = self.clock.now();
        let Some(note) = self.notes.get_mut(&id) else {
            return;
        };
        let (link, message) = (note.link, note.message.take());
        note.since = now;
        let session = self.agreed(link).map(|agreed| agreed.session);
        let bytes = session.zip(message);
        let bytes = bytes.map(|(session, message)| note_to_bytes(session, &message));
        if let Some(bytes) = &bytes
            && self.hold_out(link, MessageKind::Note, bytes)
        {
            // Handed to the network, as far as anyone can tell.
            return self.on_note_done(id);
        }
        let sent = bytes.and_then(|bytes| self.start_send(link, MessageKind::Note, bytes));
        if let Some(op) = sent {
            self.ops.insert(op, OpKind::Note { link, note: id });
        }
    }

    pub(super) fn on_note(&mut self, session: u64, bytes: &[u8]) -> Result<(), Breach> {
        let (claimed, message) = note_from_bytes(bytes).ok_or(Breach("a note that is none"))?;
        if claimed != session {
            return Err(FORGED);
        }
        if message.len() > MAX_MESSAGE_BYTES {
            return Err(Breach("a note that is too long"));
        }
        Counters::add(&self.shared.counters.messages_received, 1);
        if !self.shared.inbox.push(message.to_vec()) {
            tracing::warn!("inbox full: a message was dropped");
            self.count_error();
        }
        Ok(())
    }

    /// It was handed to the network. A failure ends the link instead, and with it all its notes.
    pub(super) fn on_note_done(&mut self, id: u64) {
        if let Some(note) = self.notes.remove(&id) {
            let _ = note.reply.send(Ok(()));
        }
    }

    /// The link ended: answers at once. The bytes of those under way belong to the worker.
    pub(super) fn fail_notes(&mut self, link: LinkId, end: LinkEnd, connecting: bool) {
        for id in self.notes_on(link) {
            let Some(note) = self.notes.remove(&id) else {
                continue;
            };
            let (peer, reason) = (note.peer, end.text(connecting));
            self.count_error();
            let _ = note.reply.send(Err(match end {
                LinkEnd::Shutdown => TransportError::Shutdown,
                _ if connecting => TransportError::Connect { peer, reason },
                _ => TransportError::Peer { peer, reason },
            }));
        }
    }

    /// In the order in which they were given: identifiers only grow.
    fn notes_on(&self, link: LinkId) -> Vec<u64> {
        let on = self.notes.iter().filter(|(_, note)| note.link == link);
        let mut ids: Vec<u64> = on.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }
}
