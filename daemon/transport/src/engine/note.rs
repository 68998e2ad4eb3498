//! Notes: the small messages of `notify`, in order per peer.

use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::time::Instant;

use super::link::LinkEnd;
use super::{Engine, OpKind};
use crate::error::TransportError;
use crate::ucx::{LinkId, MessageKind, Status};

pub(super) struct Note {
    peer: SocketAddr,
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
        peer: SocketAddr,
        message: Vec<u8>,
        reply: Sender<Result<(), TransportError>>,
    ) {
        let link = match self.link_to(peer) {
            Ok(link) => link,
            Err(status) => {
                self.count_error();
                let error = TransportError::Connect {
                    peer,
                    reason: status.text(),
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
        let sent = message.and_then(|bytes| self.send_on(link, MessageKind::Note, bytes));
        if let Some(op) = sent {
            self.ops.insert(op, OpKind::Note { link, note: id });
        }
    }

    /// A failure ends the link, and with it all its notes.
    pub(super) fn on_note_done(&mut self, id: u64, status: Status) {
        if status == Status::OK
            && let Some(note) = self.notes.remove(&id)
        {
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
