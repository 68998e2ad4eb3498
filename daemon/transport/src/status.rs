//! UCX's codes for how a call went, which any road's failure may carry.
#![allow(unsafe_code)]

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
