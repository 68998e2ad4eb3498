//! The UCX worker, its listener, and the operations on its endpoints.
use std::collections::HashMap;
use std::ffi::c_void;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;

use ucx_sys::*;

use super::context::Context;
use super::endpoint::{ConnRequest, Endpoint};
use super::sink::{
    DATA_HEADER_BYTES, Event, KindTag, LinkTag, MessageKind, OpTag, Sink, Target,
    on_connect_request, on_link_error, on_message, on_op_done,
};
use super::sockaddr::{CSockAddr, from_c};
use super::{LinkId, OpId, Status, signals};
use crate::buffer::Buffer;
use crate::error::TransportError;

/// Answer of [`Worker::arm`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Armed {
    /// The event descriptor will wake the sleeper.
    Yes,
    /// Something happened meanwhile: progress again.
    Busy,
}

/// One worker with its context and listener, used by one thread only (T-2).
pub(crate) struct Worker {
    listener: ucp_listener_h,
    worker: ucp_worker_h,
    efd: i32,
    next_op: OpId,
    pending: HashMap<OpId, Pending>,
    // Fields drop in this order: the context after the worker, the callbacks' targets last.
    _context: Context,
    _kinds: Box<[KindTag]>,
    sink: Box<Sink>,
}

/// An operation that UCX has not completed, and what UCX may touch until then.
struct Pending {
    request: *mut c_void,
    _keep: Keep,
}

#[expect(dead_code, reason = "held for their lifetime only")]
enum Keep {
    Bytes(Vec<u8>),
    Chunk(Box<[u8; DATA_HEADER_BYTES]>, Arc<Buffer>),
    Tag(Box<LinkTag>),
}

impl Worker {
    pub fn new(settings: &[(&'static str, &'static str)]) -> Result<Worker, TransportError> {
        signals::restore_crash_signals();
        let context = Context::new(settings)?;
        let params = ucp_worker_params_t {
            field_mask: UCP_WORKER_PARAM_FIELD_THREAD_MODE,
            thread_mode: UCS_THREAD_MODE_SINGLE,
            ..Default::default()
        };
        let mut worker = ptr::null_mut();
        // SAFETY: a live context, parameters valid for their mask.
        Status(unsafe { ucp_worker_create(context.0, &raw const params, &raw mut worker) })
            .check()
            .map_err(|s| s.doing("creating a UCX worker"))?;
        let sink: Box<Sink> = Box::default();
        let tag = |kind| KindTag {
            sink: &raw const *sink,
            kind,
        };
        let kinds: Box<[KindTag]> = MessageKind::ALL.map(tag).into();
        let mut this = Worker {
            listener: ptr::null_mut(),
            worker,
            efd: -1,
            next_op: 1,
            pending: HashMap::new(),
            _context: context,
            _kinds: kinds,
            sink,
        };
        // SAFETY: a live worker of a context with the wake-up feature.
        Status(unsafe { ucp_worker_get_efd(worker, &raw mut this.efd) })
            .check()
            .map_err(|s| s.doing("getting UCX's event descriptor"))?;
        this._kinds
            .iter()
            .try_for_each(|tag| handle_messages(worker, tag))?;
        Ok(this)
    }

    /// Listens on `addr`; answers where, with the port that the system chose.
    pub fn listen(&mut self, addr: SocketAddr) -> Result<SocketAddr, TransportError> {
        let c_addr = CSockAddr::new(addr);
        let params = ucp_listener_params_t {
            field_mask: UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
            sockaddr: c_addr.as_ucs(),
            conn_handler: ucp_listener_conn_handler_t {
                cb: Some(on_connect_request),
                arg: (&raw const *self.sink).cast_mut().cast(),
            },
            ..Default::default()
        };
        // SAFETY: address and sink outlive their use.
        Status(unsafe {
            ucp_listener_create(self.worker, &raw const params, &raw mut self.listener)
        })
        .check()
        .map_err(|s| s.doing("listening"))?;
        let mut attr = ucp_listener_attr_t {
            field_mask: UCP_LISTENER_ATTR_FIELD_SOCKADDR,
            ..Default::default()
        };
        // SAFETY: a live listener.
        Status(unsafe { ucp_listener_query(self.listener, &raw mut attr) })
            .check()
            .map_err(|s| s.doing("asking for the listener's address"))?;
        from_c(&attr.sockaddr)
            .ok_or_else(|| Status(UCS_ERR_INVALID_PARAM).doing("reading the listener's address"))
    }

    /// Ends listening; requests not yet accepted must be rejected before.
    pub fn stop_listening(&mut self) {
        if !self.listener.is_null() {
            // SAFETY: created once, destroyed once.
            unsafe { ucp_listener_destroy(self.listener) };
            self.listener = ptr::null_mut();
        }
    }

    /// Begins to connect; whether it worked is shown by the first answer or by an event.
    pub fn connect(&mut self, peer: SocketAddr, link: LinkId) -> Result<Endpoint, Status> {
        let c_addr = CSockAddr::new(peer);
        let params = ucp_ep_params_t {
            field_mask: UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
            flags: UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
            sockaddr: c_addr.as_ucs(),
            ..Default::default()
        };
        self.create(params, link)
    }

    /// Accepts a peer. Not to be called from within a callback.
    pub fn accept(&mut self, request: ConnRequest, link: LinkId) -> Result<Endpoint, Status> {
        let params = ucp_ep_params_t {
            field_mask: UCP_EP_PARAM_FIELD_CONN_REQUEST,
            conn_request: request.0,
            ..Default::default()
        };
        self.create(params, link)
    }

    /// Refuses a peer.
    pub fn reject(&mut self, request: ConnRequest) {
        if !self.listener.is_null() {
            // SAFETY: a request of this listener, answered once.
            let _ = unsafe { ucp_listener_reject(self.listener, request.0) };
        }
    }

    fn create(&mut self, mut params: ucp_ep_params_t, link: LinkId) -> Result<Endpoint, Status> {
        let tag = Box::new(LinkTag {
            sink: &raw const *self.sink,
            link,
        });
        params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler = ucp_err_handler_t {
            cb: Some(on_link_error),
            arg: (&raw const *tag).cast_mut().cast(),
        };
        let mut handle = ptr::null_mut();
        // SAFETY: pointers in the parameters outlive the call; the tag outlives the endpoint.
        Status(unsafe { ucp_ep_create(self.worker, &raw const params, &raw mut handle) })
            .check()?;
        Ok(Endpoint { handle, tag })
    }

    /// Closes by force: operations under way end with an error, nothing is flushed.
    pub fn close(&mut self, endpoint: Endpoint) -> OpId {
        let Endpoint { handle, tag } = endpoint;
        self.start(UCP_EP_CLOSE_FLAG_FORCE, Keep::Tag(tag), |param| {
            // SAFETY: an open endpoint, closed once since `Endpoint` is consumed.
            unsafe { ucp_ep_close_nbx(handle, param) }
        })
    }

    /// Where the bytes of the chunk `token` are to go when they arrive. Bounds are checked then.
    pub fn expect(&mut self, token: u64, buffer: &Arc<Buffer>, (offset, len): (usize, usize)) {
        let target = Target {
            buffer: Arc::clone(buffer),
            offset,
            len,
        };
        self.sink.targets().insert(token, target);
    }

    /// The chunk `token` is no longer wanted: its bytes will be dropped.
    pub fn unexpect(&mut self, token: u64) {
        self.sink.targets().remove(&token);
    }

    /// Sends a message of its own bytes.
    pub fn send(&mut self, endpoint: &Endpoint, kind: MessageKind, bytes: Vec<u8>) -> OpId {
        let payload = (bytes.as_ptr(), bytes.len());
        self.send_am(
            endpoint,
            kind,
            (ptr::null(), 0),
            payload,
            Keep::Bytes(bytes),
        )
    }

    /// Sends a range of a buffer as the chunk `token`, from where it lies. The caller checked
    /// bounds. Its owner may write to it meanwhile: see [`Buffer`].
    pub fn send_data(
        &mut self,
        endpoint: &Endpoint,
        token: u64,
        buffer: &Arc<Buffer>,
        (offset, len): (usize, usize),
    ) -> OpId {
        let fits = offset
            .checked_add(len)
            .is_some_and(|end| end <= buffer.len());
        assert!(fits, "a read beyond its region was not refused before");
        let header: Box<[u8; DATA_HEADER_BYTES]> = Box::new(token.to_le_bytes());
        let payload = (buffer.as_ptr().wrapping_add(offset).cast_const(), len);
        let head = (header.as_ptr(), header.len());
        let keep = Keep::Chunk(header, Arc::clone(buffer));
        self.send_am(endpoint, MessageKind::Data, head, payload, keep)
    }

    /// `head` and `payload` must lie in what `keep` holds.
    fn send_am(
        &mut self,
        endpoint: &Endpoint,
        kind: MessageKind,
        head: (*const u8, usize),
        payload: (*const u8, usize),
        keep: Keep,
    ) -> OpId {
        let reply = if kind.wants_reply() {
            UCP_AM_SEND_FLAG_REPLY
        } else {
            0
        };
        self.start(UCP_AM_SEND_FLAG_EAGER | reply, keep, |param| {
            // SAFETY: an open endpoint; header and payload lie on the heap or in a mapping, where
            // moving `keep` into the table left them, and live until the operation ended.
            unsafe {
                let (head, head_len) = (head.0.cast(), head.1);
                let (data, len) = (payload.0.cast(), payload.1);
                ucp_am_send_nbx(
                    endpoint.handle,
                    kind as u32,
                    head,
                    head_len,
                    data,
                    len,
                    param,
                )
            }
        })
    }

    /// Starts an operation; its end is reported as an event, also when it ended at once.
    fn start(
        &mut self,
        flags: u32,
        keep: Keep,
        call: impl FnOnce(*const ucp_request_param_t) -> ucs_status_ptr_t,
    ) -> OpId {
        let op = self.next_op;
        self.next_op += 1;
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
        self.pending.insert(
            op,
            Pending {
                request,
                _keep: keep,
            },
        );
        op
    }

    /// Lets UCX work once; true if anything moved.
    pub fn progress(&mut self) -> bool {
        // SAFETY: a live worker on its own thread.
        unsafe { ucp_worker_progress(self.worker) != 0 }
    }

    /// What happened since the last call. Ended operations have given up their memory.
    pub fn take_events(&mut self) -> Vec<Event> {
        let events = self.sink.take();
        for event in &events {
            if let Event::OpDone { op, .. } = event {
                self.forget(*op);
            }
        }
        events
    }

    fn forget(&mut self, op: OpId) {
        if let Some(pending) = self.pending.remove(&op)
            && !pending.request.is_null()
        {
            // SAFETY: completed, freed once.
            unsafe { ucp_request_free(pending.request) };
        }
    }

    /// Asks UCX to give an operation up that closing its endpoint did not end.
    pub fn cancel(&self, op: OpId) {
        let request = self
            .pending
            .get(&op)
            .map_or(ptr::null_mut(), |pending| pending.request);
        if !request.is_null() {
            // SAFETY: not completed, or completed and not yet freed: both are allowed.
            unsafe { ucp_request_cancel(self.worker, request) };
        }
    }

    /// Operations that UCX has not ended.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Prepares for sleeping on [`Worker::event_fd`].
    pub fn arm(&mut self) -> Result<Armed, Status> {
        // SAFETY: a live worker.
        match unsafe { ucp_worker_arm(self.worker) } {
            UCS_OK => Ok(Armed::Yes),
            UCS_ERR_BUSY => Ok(Armed::Busy),
            other => Err(Status(other)),
        }
    }

    /// Readable when UCX wants [`Worker::progress`].
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: UCX keeps it open as long as the worker lives.
        unsafe { BorrowedFd::borrow_raw(self.efd) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop_listening();
        // SAFETY: destroyed once, before its context. The engine leaks the worker instead when
        // operations are still pending.
        unsafe { ucp_worker_destroy(self.worker) };
    }
}

/// `tag` must live as long as the worker.
fn handle_messages(worker: ucp_worker_h, tag: &KindTag) -> Result<(), TransportError> {
    let param = ucp_am_handler_param_t {
        field_mask: UCP_AM_HANDLER_PARAM_FIELD_ID
            | UCP_AM_HANDLER_PARAM_FIELD_FLAGS
            | UCP_AM_HANDLER_PARAM_FIELD_CB
            | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        id: tag.kind as u32,
        flags: UCP_AM_FLAG_WHOLE_MSG,
        cb: Some(on_message),
        arg: (&raw const *tag).cast_mut().cast(),
    };
    // SAFETY: a live worker; the caller's promise about the tag.
    Status(unsafe { ucp_worker_set_am_recv_handler(worker, &raw const param) })
        .check()
        .map_err(|s| s.doing("registering a message handler"))
}
