//! Opaque handles, callback types and parameter structs.
use std::ffi::{c_char, c_int, c_uint, c_void};

pub type ucs_status_t = i8;
pub type ucs_status_ptr_t = *mut c_void;
pub type ucp_datatype_t = u64;

macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident => $handle:ident;)*) => {$(
        #[repr(C)]
        pub struct $name {
            _private: [u8; 0],
            // Not Send, not Sync, not Unpin: a handle belongs to its worker's thread.
            _marker: std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)>,
        }
        pub type $handle = *mut $name;
    )*};
}

opaque! {
    ucp_context => ucp_context_h;
    ucp_config => ucp_config_ptr;
    ucp_worker => ucp_worker_h;
    ucp_ep => ucp_ep_h;
    ucp_listener => ucp_listener_h;
    ucp_conn_request => ucp_conn_request_h;
    ucp_mem => ucp_mem_h;
    ucp_address => ucp_address_ptr;
    sockaddr => sockaddr_ptr;
}

pub type ucp_send_nbx_callback_t =
    unsafe extern "C" fn(request: *mut c_void, status: ucs_status_t, user_data: *mut c_void);
pub type ucp_err_handler_cb_t =
    unsafe extern "C" fn(arg: *mut c_void, ep: ucp_ep_h, status: ucs_status_t);
pub type ucp_listener_conn_callback_t =
    unsafe extern "C" fn(conn_request: ucp_conn_request_h, arg: *mut c_void);
pub type ucp_listener_accept_callback_t = unsafe extern "C" fn(ep: ucp_ep_h, arg: *mut c_void);
pub type ucp_am_recv_callback_t = unsafe extern "C" fn(
    arg: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    param: *const ucp_am_recv_param_t,
) -> ucs_status_t;

/// Only initialised fields named by `field_mask` are read; start from `Default`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ucp_params_t {
    pub field_mask: u64,
    pub features: u64,
    pub request_size: usize,
    pub request_init: Option<unsafe extern "C" fn(*mut c_void)>,
    pub request_cleanup: Option<unsafe extern "C" fn(*mut c_void)>,
    pub tag_sender_mask: u64,
    pub mt_workers_shared: c_int,
    pub estimated_num_eps: usize,
    pub estimated_num_ppn: usize,
    pub name: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ucs_cpu_set_t {
    pub ucs_bits: [u64; 16],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ucp_worker_params_t {
    pub field_mask: u64,
    pub thread_mode: c_uint,
    pub cpu_mask: ucs_cpu_set_t,
    pub events: c_uint,
    pub user_data: *mut c_void,
    pub event_fd: c_int,
    pub flags: u64,
    pub name: *const c_char,
    pub am_alignment: usize,
    pub client_id: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ucs_sock_addr_t {
    pub addr: *const sockaddr,
    pub addrlen: u32,
}

/// `struct sockaddr_storage`: 128 bytes, aligned like a pointer.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct sockaddr_storage {
    pub bytes: [u8; 128],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ucp_listener_accept_handler_t {
    pub cb: Option<ucp_listener_accept_callback_t>,
    pub arg: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ucp_listener_conn_handler_t {
    pub cb: Option<ucp_listener_conn_callback_t>,
    pub arg: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ucp_listener_params_t {
    pub field_mask: u64,
    pub sockaddr: ucs_sock_addr_t,
    pub accept_handler: ucp_listener_accept_handler_t,
    pub conn_handler: ucp_listener_conn_handler_t,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ucp_listener_attr_t {
    pub field_mask: u64,
    pub sockaddr: sockaddr_storage,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ucp_err_handler_t {
    pub cb: Option<ucp_err_handler_cb_t>,
    pub arg: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ucp_ep_params_t {
    pub field_mask: u64,
    pub address: *const ucp_address,
    pub err_mode: c_uint,
    pub err_handler: ucp_err_handler_t,
    pub user_data: *mut c_void,
    pub flags: c_uint,
    pub sockaddr: ucs_sock_addr_t,
    pub conn_request: ucp_conn_request_h,
    pub name: *const c_char,
    pub local_sockaddr: ucs_sock_addr_t,
}

/// The C struct has a union of callbacks here; only send-like operations are used.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ucp_request_param_t {
    pub op_attr_mask: u32,
    pub flags: u32,
    pub request: *mut c_void,
    pub cb_send: Option<ucp_send_nbx_callback_t>,
    pub datatype: ucp_datatype_t,
    pub user_data: *mut c_void,
    pub reply_buffer: *mut c_void,
    pub memory_type: c_uint,
    pub recv_info: *mut c_void,
    pub memh: ucp_mem_h,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ucp_am_handler_param_t {
    pub field_mask: u64,
    pub id: c_uint,
    pub flags: u32,
    pub cb: Option<ucp_am_recv_callback_t>,
    pub arg: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ucp_am_recv_param_t {
    pub recv_attr: u64,
    pub reply_ep: ucp_ep_h,
}

macro_rules! zeroed_default {
    ($($name:ident),* $(,)?) => {$(
        impl Default for $name {
            fn default() -> Self {
                // SAFETY: integers, raw pointers and `Option`s of function pointers only; all
                // bits zero is a valid value of each.
                unsafe { std::mem::zeroed() }
            }
        }
    )*};
}

zeroed_default!(
    ucp_params_t,
    ucp_worker_params_t,
    ucp_listener_params_t,
    ucp_listener_attr_t,
    ucp_ep_params_t,
    ucp_request_param_t,
    ucp_am_handler_param_t,
    sockaddr_storage,
);
