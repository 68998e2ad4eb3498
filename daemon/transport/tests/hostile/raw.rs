//! A peer that speaks UCX, knows the wire format and keeps no rule: its own thread drives it.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::net::{Ipv4Addr, SocketAddr};
use std::ptr;
use std::time::{Duration, Instant};

use robust_transport::Address;
use ucx_sys::*;

pub const REPLY: u32 = UCP_AM_SEND_FLAG_REPLY;
pub const EAGER: u32 = UCP_AM_SEND_FLAG_EAGER;
/// `UCP_AM_SEND_FLAG_RNDV`, which the transport never sets.
pub const RENDEZVOUS: u32 = 1 << 2;

/// The kinds on the wire.
pub const KINDS: std::ops::RangeInclusive<u32> = 0..=14;
/// Numbers far from those of ours, the last one that fits included.
pub const FAR_KINDS: [u32; 8] = [63, 64, 65, 100, 127, 128, 1000, 65_535];
pub const HELLO: u32 = 1;
pub const WELCOME: u32 = 2;
pub const NOTE: u32 = 3;
pub const READ: u32 = 4;
pub const REFUSAL: u32 = 5;
pub const DATA: u32 = 6;
pub const WAIT: u32 = 7;
pub const FORGET: u32 = 8;
pub const PROVE: u32 = 9;
pub const READY: u32 = 10;

/// What UCX told.
#[derive(Default)]
struct Heard {
    messages: RefCell<Vec<(u32, Vec<u8>)>>,
    requests: RefCell<Vec<ucp_conn_request_h>>,
    failures: Cell<usize>,
}

struct Handler {
    heard: *const Heard,
    kind: u32,
}

/// One endpoint of [`Raw`].
#[derive(Clone, Copy)]
pub struct Ep(ucp_ep_h);

/// A worker with the endpoints it made.
pub struct Raw {
    context: ucp_context_h,
    worker: ucp_worker_h,
    listener: ucp_listener_h,
    endpoints: Vec<ucp_ep_h>,
    /// UCX may read what was sent until the worker is gone.
    sent: Vec<Vec<u8>>,
    _handlers: Box<[Handler]>,
    heard: Box<Heard>,
}

unsafe extern "C" fn on_message(
    tag: *mut c_void,
    _header: *const c_void,
    _header_len: usize,
    data: *mut c_void,
    len: usize,
    param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: the tag lives as long as the worker; eager data is readable until we return.
    unsafe {
        let tag = &*tag.cast::<Handler>();
        let eager = (*param).recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV == 0;
        let bytes = match len {
            1.. if eager => std::slice::from_raw_parts(data.cast::<u8>(), len).to_vec(),
            _ => Vec::new(),
        };
        (*tag.heard).messages.borrow_mut().push((tag.kind, bytes));
    }
    UCS_OK
}

unsafe extern "C" fn on_failure(heard: *mut c_void, _ep: ucp_ep_h, _status: ucs_status_t) {
    // SAFETY: lives longer than the worker.
    let heard = unsafe { &*heard.cast::<Heard>() };
    heard.failures.set(heard.failures.get() + 1);
}

unsafe extern "C" fn on_request(request: ucp_conn_request_h, heard: *mut c_void) {
    // SAFETY: lives longer than the worker.
    let heard = unsafe { &*heard.cast::<Heard>() };
    heard.requests.borrow_mut().push(request);
}

fn address(addr: SocketAddr) -> sockaddr_storage {
    let (SocketAddr::V4(v4), mut bytes) = (addr, [0; 128]) else {
        panic!("IPv4 only");
    };
    bytes[..2].copy_from_slice(&2u16.to_ne_bytes());
    bytes[2..4].copy_from_slice(&v4.port().to_be_bytes());
    bytes[4..8].copy_from_slice(&v4.ip().octets());
    sockaddr_storage { bytes }
}

impl Raw {
    pub fn new() -> Raw {
        let params = ucp_params_t {
            field_mask: UCP_PARAM_FIELD_FEATURES,
            features: UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
            ..Default::default()
        };
        let worker_params = ucp_worker_params_t {
            field_mask: UCP_WORKER_PARAM_FIELD_THREAD_MODE,
            thread_mode: UCS_THREAD_MODE_SINGLE,
            ..Default::default()
        };
        let (mut config, mut context, mut worker) =
            (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let heard: Box<Heard> = Box::default();
        // SAFETY: valid out pointers and parameters; the handlers' tags are kept by `Raw`.
        unsafe {
            assert_eq!(
                ucp_config_read(ptr::null(), ptr::null(), &raw mut config),
                UCS_OK
            );
            ucp_config_modify(config, c"NET_DEVICES".as_ptr(), c"lo".as_ptr());
            let (major, minor) = (UCP_API_MAJOR, UCP_API_MINOR);
            let status =
                ucp_init_version(major, minor, &raw const params, config, &raw mut context);
            assert_eq!(status, UCS_OK);
            ucp_config_release(config);
            let status = ucp_worker_create(context, &raw const worker_params, &raw mut worker);
            assert_eq!(status, UCS_OK);
        }
        let handler = |kind| Handler {
            heard: &raw const *heard,
            kind,
        };
        let handlers: Box<[Handler]> = KINDS.map(handler).collect();
        for handler in &handlers {
            handle(worker, handler);
        }
        Raw {
            context,
            worker,
            listener: ptr::null_mut(),
            endpoints: Vec::new(),
            sent: Vec::new(),
            _handlers: handlers,
            heard,
        }
    }

    /// Listens on loopback.
    pub fn listen(&mut self) -> Address {
        let any = address((Ipv4Addr::LOCALHOST, 0).into());
        let params = ucp_listener_params_t {
            field_mask: UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
            sockaddr: ucs_sock_addr_t {
                addr: (&raw const any).cast(),
                addrlen: 16,
            },
            conn_handler: ucp_listener_conn_handler_t {
                cb: Some(on_request),
                arg: (&raw const *self.heard).cast_mut().cast(),
            },
            ..Default::default()
        };
        let mut attr = ucp_listener_attr_t {
            field_mask: UCP_LISTENER_ATTR_FIELD_SOCKADDR,
            ..Default::default()
        };
        // SAFETY: parameters outlive the calls.
        unsafe {
            let status =
                ucp_listener_create(self.worker, &raw const params, &raw mut self.listener);
            assert_eq!(status, UCS_OK);
            assert_eq!(ucp_listener_query(self.listener, &raw mut attr), UCS_OK);
        }
        let port = u16::from_be_bytes([attr.sockaddr.bytes[2], attr.sockaddr.bytes[3]]);
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()
    }

    pub fn connect(&mut self, to: Address) -> Ep {
        let c_addr = address(to.net().unwrap());
        self.endpoint(ucp_ep_params_t {
            field_mask: UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
            flags: UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
            sockaddr: ucs_sock_addr_t {
                addr: (&raw const c_addr).cast(),
                addrlen: 16,
            },
            ..Default::default()
        })
    }

    /// Takes the next caller.
    pub fn accept(&mut self, limit: Duration) -> Ep {
        assert!(
            self.drive(limit, |raw| !raw.heard.requests.borrow().is_empty()),
            "nobody called"
        );
        let conn_request = self.heard.requests.borrow_mut().remove(0);
        self.endpoint(ucp_ep_params_t {
            field_mask: UCP_EP_PARAM_FIELD_CONN_REQUEST,
            conn_request,
            ..Default::default()
        })
    }

    fn endpoint(&mut self, mut params: ucp_ep_params_t) -> Ep {
        params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler = ucp_err_handler_t {
            cb: Some(on_failure),
            arg: (&raw const *self.heard).cast_mut().cast(),
        };
        let mut ep = ptr::null_mut();
        // SAFETY: a live worker; parameters outlive the call.
        let status = unsafe { ucp_ep_create(self.worker, &raw const params, &raw mut ep) };
        assert_eq!(status, UCS_OK);
        self.endpoints.push(ep);
        Ep(ep)
    }

    /// Sends anything at all.
    pub fn send(&mut self, ep: Ep, kind: u32, header: &[u8], payload: &[u8], flags: u32) {
        let first = self.sent.len();
        self.sent.extend([header.to_vec(), payload.to_vec()]);
        let param = ucp_request_param_t {
            op_attr_mask: UCP_OP_ATTR_FIELD_FLAGS,
            flags,
            ..Default::default()
        };
        let (head, data) = (&self.sent[first], &self.sent[first + 1]);
        // SAFETY: both are kept until the worker is gone; a request that is released early goes on.
        unsafe {
            let (head_at, data_at) = (head.as_ptr().cast(), data.as_ptr().cast());
            let (head_len, data_len) = (head.len(), data.len());
            let request = ucp_am_send_nbx(
                ep.0,
                kind,
                head_at,
                head_len,
                data_at,
                data_len,
                &raw const param,
            );
            if ucs_ptr_is_ptr(request) {
                ucp_request_free(request);
            }
        }
    }

    /// Lets UCX work until `done` or for `limit`; whether it was done.
    pub fn drive(&mut self, limit: Duration, done: impl Fn(&Raw) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        while !done(self) {
            if Instant::now() > deadline {
                return false;
            }
            // SAFETY: a live worker on its own thread.
            if unsafe { ucp_worker_progress(self.worker) } == 0 {
                std::thread::yield_now();
            }
        }
        true
    }

    /// Whether a message of this kind came and was not taken.
    pub fn has(&self, kind: u32) -> bool {
        self.heard.messages.borrow().iter().any(|(k, _)| *k == kind)
    }

    /// Waits for a message of this kind and takes the first.
    pub fn expect(&mut self, kind: u32, limit: Duration) -> Vec<u8> {
        let there = |raw: &Raw| raw.has(kind);
        assert!(self.drive(limit, there), "no message of kind {kind}");
        let mut messages = self.heard.messages.borrow_mut();
        let at = messages.iter().position(|(k, _)| *k == kind).unwrap();
        messages.remove(at).1
    }

    /// How many endpoints the other side closed so far.
    pub fn failures(&self) -> usize {
        self.heard.failures.get()
    }

    /// Whether the other side closes one more endpoint within the time.
    pub fn is_cut(&mut self, limit: Duration) -> bool {
        let before = self.failures();
        self.drive(limit, |raw| raw.failures() > before)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let param = ucp_request_param_t {
            op_attr_mask: UCP_OP_ATTR_FIELD_FLAGS,
            flags: UCP_EP_CLOSE_FLAG_FORCE,
            ..Default::default()
        };
        // SAFETY: everything is released once, in UCX's order.
        unsafe {
            for request in self.heard.requests.borrow_mut().drain(..) {
                ucp_listener_reject(self.listener, request);
            }
            for ep in &self.endpoints {
                let request = ucp_ep_close_nbx(*ep, &raw const param);
                if ucs_ptr_is_ptr(request) {
                    ucp_request_free(request);
                }
            }
            for _ in 0..1000 {
                ucp_worker_progress(self.worker);
            }
            if !self.listener.is_null() {
                ucp_listener_destroy(self.listener);
            }
            ucp_worker_destroy(self.worker);
            ucp_cleanup(self.context);
        }
    }
}

fn handle(worker: ucp_worker_h, handler: &Handler) {
    let param = ucp_am_handler_param_t {
        field_mask: UCP_AM_HANDLER_PARAM_FIELD_ID
            | UCP_AM_HANDLER_PARAM_FIELD_FLAGS
            | UCP_AM_HANDLER_PARAM_FIELD_CB
            | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        id: handler.kind,
        flags: UCP_AM_FLAG_WHOLE_MSG,
        cb: Some(on_message),
        arg: (&raw const *handler).cast_mut().cast(),
    };
    // SAFETY: a live worker; the handler is boxed and lives longer.
    let status = unsafe { ucp_worker_set_am_recv_handler(worker, &raw const param) };
    assert_eq!(status, UCS_OK);
}
