//! UCX behind safe calls: the only code that passes memory to UCX.
//!
//! ```text
//!  engine ──connect/send/expect/close─► Worker ──► UCX
//!         ◄────────── Event ─────────── Sink ◄──── callbacks
//!                                     └─ arrived chunk ─► its buffer
//! ```
//! Every operation gets an [`OpId`] and is answered by exactly one [`Event::OpDone`], also when
//! UCX finishes it at once. Until then the worker keeps alive what UCX may touch (T-1).
#![allow(unsafe_code)]

mod context;
mod devices;
mod endpoint;
mod handlers;
mod ops;
mod signals;
mod sink;
mod sockaddr;
mod survey;
mod worker;

pub(crate) use devices::NET_DEVICES;
pub(crate) use endpoint::{ConnRequest, Endpoint};
pub(crate) use sink::{Event, Landing, MessageKind, ReplyTo, Target};
pub use survey::Survey;
pub(crate) use worker::{Armed, Worker};

use crate::error::TransportError;

/// Names one operation; never reused within a worker.
pub(crate) type OpId = u64;
/// Names one endpoint; never reused within a worker, unlike UCX's pointers.
pub(crate) type LinkId = u64;

/// A UCX status code, good or bad.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Status(pub i8);

impl Status {
    pub const OK: Status = Status(ucx_sys::UCS_OK);
    /// There is no way to the peer.
    pub const UNREACHABLE: Status = Status(ucx_sys::UCS_ERR_UNREACHABLE);

    pub fn text(self) -> String {
        // SAFETY: returns a static or thread-local C string for any code, unknown ones included.
        let text = unsafe { std::ffi::CStr::from_ptr(ucx_sys::ucs_status_string(self.0)) };
        text.to_string_lossy().into_owned()
    }

    pub fn check(self) -> Result<(), Status> {
        if self == Status::OK {
            Ok(())
        } else {
            Err(self)
        }
    }

    pub fn doing(self, doing: &'static str) -> TransportError {
        TransportError::Ucx {
            doing,
            status: self.0,
            text: self.text(),
        }
    }
}
