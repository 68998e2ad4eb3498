//! UCX behind safe calls: the only code that passes memory to UCX.
//!
//! ```text
//!  engine ──connect/send/close─► Worker ──► UCX
//!         ◄────── Event ──────── Sink ◄──── callbacks
//!                              └─ arrived piece ─► its place
//! ```
//! An operation that UCX finishes at once is answered as one that takes its time.
#![allow(unsafe_code)]

mod context;
mod devices;
mod endpoint;
mod handlers;
mod ops;
mod road;
mod signals;
mod sink;
mod sockaddr;
mod survey;
mod worker;

pub(crate) use devices::NET_DEVICES;
pub use survey::Survey;
pub(crate) use worker::Worker;

use crate::error::TransportError;

/// A UCX status code, good or bad.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Status(pub i8);

impl Status {
    pub const OK: Status = Status(ucx_sys::UCS_OK);

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
