//! The UCX worker, its listener and its endpoints.
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr;

use ucx_sys::*;

use super::context::{Context, Settings};
use super::endpoint::{ConnRequest, Endpoint};
use super::ops::Pending;
use super::sink::{KindTag, LinkTag, ReplyTo, Sink, on_connect_request, on_link_error};
use super::sockaddr::{CSockAddr, from_c};
use super::{devices, handlers, signals};
use crate::error::TransportError;
use crate::road::{CallId, LinkId, OpId, Targets};
use crate::status::Status;

/// One worker with its context and listener, used by one thread only (T-2).
pub(crate) struct Worker {
    listener: ucp_listener_h,
    pub(super) worker: ucp_worker_h,
    efd: i32,
    pub(super) pending: HashMap<OpId, Pending>,
    pub(super) links: HashMap<LinkId, Endpoint>,
    /// Links that are not closing; UCX may use an endpoint's name again afterwards.
    pub(super) by_name: HashMap<ReplyTo, LinkId>,
    /// Calls that are neither taken nor refused.
    pub(super) calls: HashMap<CallId, ConnRequest>,
    pub(super) next_call: CallId,
    /// Whether it is a road beside another one, with an address of its own.
    pub(super) beside: bool,
    // Fields drop in this order: the context after the worker, the callbacks' targets last.
    _context: Context,
    kinds: Box<[KindTag]>,
    pub(super) sink: Box<Sink>,
}

impl Worker {
    /// A worker whose pieces go where `targets` says.
    pub fn new(settings: &Settings<'_>, targets: Targets) -> Result<Worker, TransportError> {
        signals::restore_crash_signals();
        let context = Context::new(settings)?;
        if let Some(list) = devices::asked(settings) {
            devices::check(&context, &list)?;
        }
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
        let sink = Box::new(Sink::new(targets));
        let mut this = Worker {
            listener: ptr::null_mut(),
            worker,
            efd: -1,
            pending: HashMap::new(),
            links: HashMap::new(),
            by_name: HashMap::new(),
            calls: HashMap::new(),
            next_call: 1,
            beside: false,
            _context: context,
            kinds: Box::default(),
            sink,
        };
        // SAFETY: a live worker of a context with the wake-up feature.
        Status(unsafe { ucp_worker_get_efd(worker, &raw mut this.efd) })
            .check()
            .map_err(|s| s.doing("getting UCX's event descriptor"))?;
        this.kinds = handlers::register(worker, &raw const *this.sink)?;
        Ok(this)
    }

    /// The same as a second road between machines: it calls peers where they listen for that.
    pub fn beside(mut self) -> Worker {
        self.beside = true;
        self
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
    pub(super) fn end_listener(&mut self) {
        if !self.listener.is_null() {
            // SAFETY: created once, destroyed once.
            unsafe { ucp_listener_destroy(self.listener) };
            self.listener = ptr::null_mut();
        }
    }

    /// Begins to connect.
    pub(super) fn call(&mut self, peer: SocketAddr, link: LinkId) -> Result<(), Status> {
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
    pub(super) fn take(&mut self, request: ConnRequest, link: LinkId) -> Result<(), Status> {
        let params = ucp_ep_params_t {
            field_mask: UCP_EP_PARAM_FIELD_CONN_REQUEST,
            conn_request: request.0,
            ..Default::default()
        };
        self.create(params, link)
    }

    /// Refuses a peer.
    pub(super) fn refuse(&mut self, request: ConnRequest) {
        if !self.listener.is_null() {
            // SAFETY: a request of this listener, answered once.
            let _ = unsafe { ucp_listener_reject(self.listener, request.0) };
        }
    }

    fn create(&mut self, mut params: ucp_ep_params_t, link: LinkId) -> Result<(), Status> {
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
        let endpoint = Endpoint { handle, tag };
        self.by_name.insert(endpoint.name(), link);
        self.links.insert(link, endpoint);
        Ok(())
    }

    /// Readable when UCX wants progress.
    pub(super) fn event_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: UCX keeps it open as long as the worker lives.
        unsafe { BorrowedFd::borrow_raw(self.efd) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end_listener();
        // SAFETY: destroyed once, before its context. The engine leaks the worker instead when
        // operations are still pending.
        unsafe { ucp_worker_destroy(self.worker) };
    }
}
