//! Where UCX's callbacks leave what happened; they do nothing else.
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use robust_device::Block;
use ucx_sys::{
    UCP_AM_RECV_ATTR_FIELD_REPLY_EP, UCP_AM_RECV_ATTR_FLAG_RNDV, UCS_OK, ucp_am_recv_param_t,
    ucp_conn_request_h, ucp_ep_h, ucs_status_t,
};

use super::endpoint::ConnRequest;
use super::{LinkId, OpId, Status};
use crate::buffer::Buffer;
use crate::digest::PartDigest;

/// Something that happened in UCX, handled by the engine after `progress` returned.
pub(crate) enum Event {
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
    /// An expected chunk arrived and is in its place, unless its length was wrong.
    Arrived {
        token: u64,
        fits: bool,
        /// The block that it is in, if it is to go on to a device.
        block: Option<Block>,
    },
}

/// Pointer value of an endpoint, only ever compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ReplyTo(pub(super) usize);

/// Active message identifiers on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum MessageKind {
    /// None of ours; never sent.
    Unknown = 0,
    /// First message of whoever connected.
    Hello = 1,
    /// Answer to it.
    Welcome = 2,
    /// A caller's message.
    Note = 3,
    /// Asks for a chunk of a region.
    Read = 4,
    /// Refuses it.
    Refusal = 5,
    /// The chunk: its token as header, its bytes as payload.
    Data = 6,
    /// Reads are waiting at the source for bytes that are not there yet.
    Wait = 7,
    /// Reads are not wanted any more.
    Forget = 8,
    /// The caller's proof that it is of the same job.
    Prove = 9,
    /// The callee believes it.
    Ready = 10,
}

impl MessageKind {
    pub const ALL: [MessageKind; 11] = [
        Self::Unknown,
        Self::Hello,
        Self::Welcome,
        Self::Note,
        Self::Read,
        Self::Refusal,
        Self::Data,
        Self::Wait,
        Self::Forget,
        Self::Prove,
        Self::Ready,
    ];

    /// Whether the message names the endpoint on which it comes, for the receiver to tell whose it
    /// is. Not needed for data, whose token nobody else knows.
    pub fn names_sender(self) -> bool {
        self != Self::Data
    }
}

/// Header of `Data`: the token of the read it answers.
pub(crate) const DATA_HEADER_BYTES: usize = 8;

/// More than any message of ours but `Data`; longer ones are not from us.
const MESSAGE_LIMIT: usize = 16 * 1024;

/// What the bytes of one read are written into.
pub(crate) enum Landing {
    /// Their place in host memory.
    Buffer(Arc<Buffer>),
    /// A pinned block, on their way to a device.
    Block(Block),
}

/// Where the bytes of one read belong.
pub(crate) struct Target {
    pub landing: Landing,
    pub offset: usize,
    pub len: usize,
    /// The digest of the part it belongs to, and its place there.
    pub digest: Arc<Mutex<PartDigest>>,
    pub at: usize,
}

impl Target {
    /// False if these are not as many bytes as expected.
    fn fill(&mut self, data: &[u8]) -> bool {
        if data.len() != self.len {
            return false;
        }
        let mut digest = self.digest.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut self.landing {
            Landing::Buffer(buffer) => {
                let filled = buffer.fill(self.offset, data, (&mut digest, self.at));
                filled.is_ok()
            }
            Landing::Block(block) => match block.bytes_mut().get_mut(..data.len()) {
                Some(to) => {
                    // SAFETY: as long as the piece, and the block's holder's alone.
                    unsafe { digest.copy(self.at, data, to.as_mut_ptr()) };
                    true
                }
                None => false,
            },
        }
    }
}

/// Collects events, and copies arriving chunks to where they are expected: straight from UCX's
/// receive buffer, the only copy in this process. Locked because UCX documents no thread for its
/// callbacks and has one of its own for connection management.
#[derive(Default)]
pub(super) struct Sink {
    events: Mutex<Vec<Event>>,
    targets: Mutex<HashMap<u64, Target>>,
}

impl Sink {
    pub fn push(&self, event: Event) {
        self.events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(event);
    }

    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn targets(&self) -> MutexGuard<'_, HashMap<u64, Target>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A chunk that nobody expects (any more), or of another length, is dropped (T-1).
    fn on_data(&self, header: &[u8], data: &[u8]) {
        let Ok(token) = header.try_into().map(u64::from_le_bytes) else {
            return;
        };
        let Some(mut target) = self.targets().remove(&token) else {
            return;
        };
        let fits = target.fill(data);
        let block = match target.landing {
            Landing::Buffer(_) => None,
            Landing::Block(block) => Some(block),
        };
        self.push(Event::Arrived { token, fits, block });
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
