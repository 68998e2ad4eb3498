//! Operations on endpoints: each is answered by one event, and keeps until then what UCX may touch.
use std::ffi::c_void;
use std::ptr;

use robust_device::Block;
use ucx_sys::*;

use super::endpoint::Endpoint;
use super::sink::{DATA_HEADER_BYTES, Event, LinkTag, OpTag, names_sender, on_op_done};
use super::worker::Worker;
use crate::buffer::Served;
use crate::road::{MessageKind, OpId};
use crate::status::Status;

/// An operation that UCX has not completed, and what UCX may touch until then.
pub(super) struct Pending {
    request: *mut c_void,
    _keep: Keep,
}

#[expect(dead_code, reason = "held for their lifetime only")]
enum Keep {
    Bytes(Vec<u8>),
    Chunk(Box<[u8; DATA_HEADER_BYTES]>, Served),
    Block(Box<[u8; DATA_HEADER_BYTES]>, Block),
    Tag(Box<LinkTag>),
}

impl Worker {
    /// Closes an endpoint by force: operations under way end with an error, nothing is flushed.
    pub(super) fn close_endpoint(&mut self, op: OpId, endpoint: Endpoint) {
        let Endpoint { handle, tag } = endpoint;
        self.start(op, UCP_EP_CLOSE_FLAG_FORCE, Keep::Tag(tag), |param| {
            // SAFETY: an open endpoint, closed once since `Endpoint` is consumed.
            unsafe { ucp_ep_close_nbx(handle, param) }
        });
    }

    /// Sends a message of its own bytes.
    pub(super) fn send_message(
        &mut self,
        op: OpId,
        endpoint: ucp_ep_h,
        kind: MessageKind,
        bytes: Vec<u8>,
    ) {
        let payload = (bytes.as_ptr(), bytes.len());
        let keep = Keep::Bytes(bytes);
        self.send_am(op, endpoint, kind, (ptr::null(), 0), payload, keep);
    }

    /// Sends some bytes of a buffer as the answer to the read `token`, from where they lie.
    pub(super) fn send_piece(&mut self, op: OpId, endpoint: ucp_ep_h, token: u64, served: Served) {
        let header: Box<[u8; DATA_HEADER_BYTES]> = Box::new(token.to_le_bytes());
        let payload = (served.bytes().as_ptr(), served.len());
        let head = (header.as_ptr(), header.len());
        let keep = Keep::Chunk(header, served);
        self.send_am(op, endpoint, MessageKind::Data, head, payload, keep);
    }

    /// Sends the first `len` bytes of a block as the answer to the read `token`.
    pub(super) fn send_block(
        &mut self,
        op: OpId,
        endpoint: ucp_ep_h,
        token: u64,
        block: Block,
        len: usize,
    ) {
        let header: Box<[u8; DATA_HEADER_BYTES]> = Box::new(token.to_le_bytes());
        let payload = (block.bytes()[..len].as_ptr(), len);
        let head = (header.as_ptr(), header.len());
        let keep = Keep::Block(header, block);
        self.send_am(op, endpoint, MessageKind::Data, head, payload, keep);
    }

    /// `head` and `payload` must lie in what `keep` holds.
    fn send_am(
        &mut self,
        op: OpId,
        endpoint: ucp_ep_h,
        kind: MessageKind,
        head: (*const u8, usize),
        payload: (*const u8, usize),
        keep: Keep,
    ) {
        let reply = if names_sender(kind) {
            UCP_AM_SEND_FLAG_REPLY
        } else {
            0
        };
        self.start(op, UCP_AM_SEND_FLAG_EAGER | reply, keep, |param| {
            // SAFETY: an open endpoint; header and payload lie on the heap or in a mapping, where
            // moving `keep` into the table left them, and live until the operation ended.
            unsafe {
                let (head, head_len) = (head.0.cast(), head.1);
                let (data, len) = (payload.0.cast(), payload.1);
                ucp_am_send_nbx(endpoint, kind as u32, head, head_len, data, len, param)
            }
        });
    }

    /// Starts an operation; its end is reported as an event, also when it ended at once.
    fn start(
        &mut self,
        op: OpId,
        flags: u32,
        keep: Keep,
        call: impl FnOnce(*const ucp_request_param_t) -> ucs_status_ptr_t,
    ) {
        let tag = Box::into_raw(Box::new(OpTag {
            sink: &raw const *self.sink,
            op,
        }));
        let param = ucp_request_param_t {
            op_attr_mask: UCP_OP_ATTR_FIELD_CALLBACK
                | UCP_OP_ATTR_FIELD_USER_DATA
                | UCP_OP_ATTR_FIELD_FLAGS,
            flags,
            cb_send: Some(on_op_done),
            user_data: tag.cast(),
            ..Default::default()
        };
        let result = call(&raw const param);
        let request = if ucs_ptr_is_ptr(result) {
            result
        } else {
            // SAFETY: ended at once: UCX does not call back, so the tag is ours again.
            drop(unsafe { Box::from_raw(tag) });
            let status = Status(ucs_ptr_raw_status(result));
            self.sink.push(Event::OpDone { op, status });
            ptr::null_mut()
        };
        let pending = Pending {
            request,
            _keep: keep,
        };
        self.pending.insert(op, pending);
    }

    pub(super) fn forget(&mut self, op: OpId) {
        if let Some(pending) = self.pending.remove(&op)
            && !pending.request.is_null()
        {
            // SAFETY: completed, freed once.
            unsafe { ucp_request_free(pending.request) };
        }
    }

    /// Asks UCX to give an operation up that closing its endpoint did not end.
    pub(super) fn cancel_request(&self, op: OpId) {
        let request = self
            .pending
            .get(&op)
            .map_or(ptr::null_mut(), |pending| pending.request);
        if !request.is_null() {
            // SAFETY: not completed, or completed and not yet freed: both are allowed.
            unsafe { ucp_request_cancel(self.worker, request) };
        }
    }
}
