//! Where UCX's callbacks leave what happened; they do nothing else.
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use ucx_sys::{
    UCP_AM_RECV_ATTR_FIELD_REPLY_EP, UCP_AM_RECV_ATTR_FLAG_RNDV, UCS_OK, ucp_am_recv_param_t,
    ucp_conn_request_h, ucp_ep_h, ucs_status_t,
};

use super::endpoint::ConnRequest;
use crate::road::{self, LinkId, MESSAGE_LIMIT, MessageKind, OpId, Targets};
use crate::status::Status;

/// What a callback was told.
pub(super) enum Event {
    /// A peer wants to connect.
    ConnectRequest(ConnRequest),
    /// UCX gave an endpoint up; it must be closed.
    LinkFailed { link: LinkId, status: Status },
    /// An operation ended; its memory is the process's own again.
    OpDone { op: OpId, status: Status },
    /// An active message arrived. `from` is the endpoint on which the sender can be answered.
    Message {
        kind: MessageKind,
        bytes: Vec<u8>,
        from: Option<ReplyTo>,
    },
    /// A piece that somebody waited for.
    Landed(road::Event),
}

/// Pointer value of an endpoint, only ever compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ReplyTo(pub(super) usize);

/// Header of `Data`: the token of the read it answers.
pub(crate) const DATA_HEADER_BYTES: usize = 8;

/// Whether a message names the endpoint on which it comes, for the receiver to tell whose it is. Not
/// needed for data, whose token nobody else knows.
pub(super) fn names_sender(kind: MessageKind) -> bool {
    kind != MessageKind::Data
}

/// Collects events, and copies arriving pieces to where they are expected: straight from UCX's
/// receive buffer, the only copy in this process.
pub(super) struct Sink {
    events: Mutex<Vec<Event>>,
    targets: Targets,
}

impl Sink {
    pub fn new(targets: Targets) -> Sink {
        Sink {
            events: Mutex::default(),
            targets,
        }
    }

    pub fn push(&self, event: Event) {
        self.events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(event);
    }

    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A piece that nobody expects (any more) is dropped (T-1).
    fn on_data(&self, header: &[u8], data: &[u8]) {
        let token = header.try_into().map(u64::from_le_bytes);
        if let Some(landed) = token
            .ok()
            .and_then(|token| self.targets.land(token, data.len(), 0, data))
        {
            self.push(Event::Landed(landed));
        }
    }
}

/// User data of one operation, given back by its completion.
pub(super) struct OpTag {
    pub sink: *const Sink,
    pub op: OpId,
}

/// Argument of one endpoint's error handler; lives until the endpoint is closed.
pub(super) struct LinkTag {
    pub sink: *const Sink,
    pub link: LinkId,
}

/// Argument of one message kind's handler; lives as long as the worker.
pub(super) struct KindTag {
    pub sink: *const Sink,
    pub kind: MessageKind,
}

// In all callbacks below the sink outlives the worker, and thus every callback.

pub(super) unsafe extern "C" fn on_op_done(
    _request: *mut c_void,
    status: ucs_status_t,
    tag: *mut c_void,
) {
    // SAFETY: made by `Box::into_raw` when the operation started; UCX calls back once.
    let tag = unsafe { Box::from_raw(tag.cast::<OpTag>()) };
    // SAFETY: see above.
    unsafe { &*tag.sink }.push(Event::OpDone {
        op: tag.op,
        status: Status(status),
    });
}

pub(super) unsafe extern "C" fn on_link_error(
    tag: *mut c_void,
    _ep: ucp_ep_h,
    status: ucs_status_t,
) {
    // SAFETY: the endpoint's tag lives until its close completed.
    let tag = unsafe { &*tag.cast::<LinkTag>() };
    // SAFETY: see above.
    unsafe { &*tag.sink }.push(Event::LinkFailed {
        link: tag.link,
        status: Status(status),
    });
}

pub(super) unsafe extern "C" fn on_connect_request(request: ucp_conn_request_h, sink: *mut c_void) {
    // SAFETY: see above.
    unsafe { &*sink.cast::<Sink>() }.push(Event::ConnectRequest(ConnRequest(request)));
}

pub(super) unsafe extern "C" fn on_message(
    tag: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: UCX passes a valid parameter block.
    let param = unsafe { &*param };
    // A rendezvous hands over a descriptor, not bytes. Returning OK without receiving it releases
    // it.
    let rendezvous = param.recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV != 0;
    let from = (param.recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP != 0)
        .then_some(ReplyTo(param.reply_ep as usize));
    // SAFETY: the tag lives as long as the worker, the sink longer.
    let (tag, sink) = unsafe {
        let tag = &*tag.cast::<KindTag>();
        (tag, &*tag.sink)
    };
    if tag.kind == MessageKind::Data && !rendezvous && from.is_none() {
        // SAFETY: an eager message: both ranges are readable until we return.
        let (header, data) = unsafe { (bytes(header, header_length), bytes(data, length)) };
        sink.on_data(header, data);
        return UCS_OK;
    }
    let ours = !rendezvous && length <= MESSAGE_LIMIT && tag.kind != MessageKind::Data;
    // What none of ours sends is reported as empty, which is no message of any kind.
    let length = if ours { length } else { 0 };
    // SAFETY: an eager message if it is looked at: readable until we return.
    let bytes = unsafe { bytes(data, length) }.to_vec();
    sink.push(Event::Message {
        kind: tag.kind,
        bytes,
        from,
    });
    UCS_OK
}

/// # Safety
/// `len` bytes at `data` must be readable for `'a`; `data` may be null if `len` is zero.
unsafe fn bytes<'a>(data: *const c_void, len: usize) -> &'a [u8] {
    if len == 0 || data.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(data.cast(), len) }
}
