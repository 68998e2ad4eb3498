//! UCX as a road.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use ucx_sys::{UCS_ERR_BUSY, UCS_OK, ucp_worker_arm, ucp_worker_progress};

use super::sink::Event as Told;
use super::worker::Worker;
use crate::address::Address;
use crate::road::{Armed, CallId, Event, Failure, LinkId, OpId, Parcel, Road, RoadKind};
use crate::status::Status;

impl Road for Worker {
    fn kind(&self) -> RoadKind {
        RoadKind::Ucx
    }

    fn reaches(&self, peer: &Address) -> bool {
        self.address_of(peer).is_some()
    }

    fn may_be_a_dead_end(&self) -> bool {
        self.beside
    }

    fn connect(&mut self, peer: &Address, link: LinkId) -> Result<(), Failure> {
        let at = self.address_of(peer).ok_or(Failure::NoRoad)?;
        Ok(self.call(at, link)?)
    }

    fn accept(&mut self, call: CallId, link: LinkId) -> Result<(), Failure> {
        let request = self.calls.remove(&call).ok_or(Failure::Gone)?;
        Ok(self.take(request, link)?)
    }

    fn reject(&mut self, call: CallId) {
        if let Some(request) = self.calls.remove(&call) {
            self.refuse(request);
        }
    }

    fn send(&mut self, link: LinkId, op: OpId, parcel: Parcel) {
        let Some(endpoint) = self.links.get(&link).map(|endpoint| endpoint.handle) else {
            return self.fail(op);
        };
        match parcel {
            Parcel::Message(kind, bytes) => self.send_message(op, endpoint, kind, bytes),
            Parcel::Piece(token, served) => self.send_piece(op, endpoint, token, served),
            Parcel::Block(token, block, len) => self.send_block(op, endpoint, token, block, len),
        }
    }

    fn close(&mut self, link: LinkId, op: OpId) {
        match self.links.remove(&link) {
            Some(endpoint) => {
                self.by_name.remove(&endpoint.name());
                self.close_endpoint(op, endpoint);
            }
            None => self.fail(op),
        }
    }

    fn cancel(&mut self, op: OpId) {
        self.cancel_request(op);
    }

    fn progress(&mut self) -> bool {
        // SAFETY: a live worker on its own thread.
        unsafe { ucp_worker_progress(self.worker) != 0 }
    }

    fn take_events(&mut self) -> Vec<Event> {
        let told = self.sink.take();
        told.into_iter()
            .filter_map(|told| self.event(told))
            .collect()
    }

    fn arm(&mut self) -> Result<Armed, Failure> {
        // SAFETY: a live worker.
        match unsafe { ucp_worker_arm(self.worker) } {
            UCS_OK => Ok(Armed::Yes),
            UCS_ERR_BUSY => Ok(Armed::Busy),
            other => Err(Status(other).into()),
        }
    }

    fn wakes(&self) -> BorrowedFd<'_> {
        self.event_fd()
    }

    fn stop_listening(&mut self) {
        for (_, request) in std::mem::take(&mut self.calls) {
            self.refuse(request);
        }
        self.end_listener();
    }

    fn pending(&self) -> usize {
        self.pending.len()
    }
}

impl Worker {
    fn address_of(&self, peer: &Address) -> Option<SocketAddr> {
        if self.beside { peer.rdma() } else { peer.net() }
    }

    fn event(&mut self, told: Told) -> Option<Event> {
        Some(match told {
            Told::ConnectRequest(request) => {
                let call = self.next_call;
                self.next_call += 1;
                self.calls.insert(call, request);
                Event::Called(call)
            }
            Told::LinkFailed { link, status } => {
                let failure = status.into();
                Event::LinkFailed { link, failure }
            }
            Told::OpDone { op, status } => {
                self.forget(op);
                let result = status.check().map_err(Failure::from);
                Event::OpDone { op, result }
            }
            // One that names no link of ours: that link is closing, or its sender lies.
            Told::Message { kind, bytes, from } => {
                let link = *self.by_name.get(&from?)?;
                Event::Message { link, kind, bytes }
            }
            Told::Landed(event) => event,
        })
    }

    fn fail(&mut self, op: OpId) {
        let status = Status(ucx_sys::UCS_ERR_NOT_CONNECTED);
        self.sink.push(Told::OpDone { op, status });
    }
}
