//! The links to role processes and what each said of itself.
mod event;

pub use event::{Fenced, LinkEvent, RouteEvent};

use robust_proto::v1::{self, host_message::Body};
use robust_shared::ids::{Incarnation, Role};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// Messages to one role process, in order.
pub type Down = mpsc::UnboundedSender<v1::HostMessage>;

/// The node that a link came through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Via(pub Arc<str>);

/// Names one link; a process that links again gets a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkId(pub u64);

#[derive(Debug)]
struct Peer {
    hello: v1::Hello,
    open: Option<(LinkId, Down)>,
}

/// All links. Shared by the driver, which opens and closes them, and the gang's calls.
#[derive(Clone, Debug, Default)]
pub struct Links {
    peers: Arc<Mutex<HashMap<Incarnation, Peer>>>,
}

impl Links {
    /// Takes a link into use; an older one of the same process is dropped.
    pub fn open(&self, hello: v1::Hello, link: LinkId, down: Down) {
        let peer = Peer {
            open: Some((link, down)),
            hello,
        };
        self.lock()
            .insert(Incarnation(peer.hello.incarnation), peer);
    }

    /// Closes a link unless a newer one replaced it; whether it was the current one.
    pub fn close(&self, incarnation: Incarnation, link: LinkId) -> bool {
        let mut peers = self.lock();
        match peers.get_mut(&incarnation) {
            Some(peer) if peer.open.as_ref().is_some_and(|(id, _)| *id == link) => {
                peer.open = None;
                true
            }
            _ => false,
        }
    }

    /// Whether this link is the process's current one.
    pub fn is_current(&self, incarnation: Incarnation, link: LinkId) -> bool {
        let peers = self.lock();
        let open = peers.get(&incarnation).and_then(|p| p.open.as_ref());
        open.is_some_and(|(id, _)| *id == link)
    }

    /// Whether a process has an open link.
    pub fn is_open(&self, incarnation: Incarnation) -> bool {
        let peers = self.lock();
        peers
            .get(&incarnation)
            .is_some_and(|peer| peer.open.is_some())
    }

    /// Forgets a process that is no more.
    pub fn forget(&self, incarnation: Incarnation) {
        self.lock().remove(&incarnation);
    }

    /// Sends; false when there is no open link.
    pub fn send(&self, to: Incarnation, body: Body) -> bool {
        let peers = self.lock();
        let open = peers.get(&to).and_then(|p| p.open.as_ref());
        open.is_some_and(|(_, down)| down.send(v1::HostMessage { body: Some(body) }).is_ok())
    }

    /// Sends to every open link.
    pub fn send_to_all(&self, body: &Body) {
        for (_, down) in self.lock().values().filter_map(|p| p.open.as_ref()) {
            // A link that just broke needs no goodbye.
            let _ = down.send(v1::HostMessage {
                body: Some(body.clone()),
            });
        }
    }

    /// Sends to every open link of a role.
    pub fn send_to_role(&self, role: Role, body: &Body) {
        let peers = self.lock();
        let of_role = peers.values().filter(|p| p.hello.role == role.name());
        for (_, down) in of_role.filter_map(|p| p.open.as_ref()) {
            // A process that links anew is told what it missed.
            let _ = down.send(v1::HostMessage {
                body: Some(body.clone()),
            });
        }
    }

    /// What a process said when it last linked.
    pub fn hello(&self, incarnation: Incarnation) -> Option<v1::Hello> {
        self.lock().get(&incarnation).map(|p| p.hello.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Incarnation, Peer>> {
        // No code can panic while it holds the lock, so a poisoned table is as good as any.
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::sync::mpsc::unbounded_channel;

    const A: Incarnation = Incarnation(7);

    fn hello() -> v1::Hello {
        v1::Hello {
            incarnation: A.0,
            ..Default::default()
        }
    }

    #[test]
    fn the_end_of_an_old_link_does_not_close_the_new_one() {
        let links = Links::default();
        let (old, _old) = unbounded_channel();
        let (new, mut received) = unbounded_channel();
        links.open(hello(), LinkId(1), old);
        links.open(hello(), LinkId(2), new);
        assert!(!links.close(A, LinkId(1)));
        assert!(links.send(A, Body::Shutdown(v1::Shutdown {})));
        assert!(received.try_recv().is_ok());
        assert!(links.close(A, LinkId(2)));
        assert!(!links.send(A, Body::Shutdown(v1::Shutdown {})));
        assert!(links.hello(A).is_some());
    }
}
