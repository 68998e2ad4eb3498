//! The part of UCX's UCP API that `robust-transport` uses, for UCX 1.13 and newer.
//!
//! Written from `ucp/api/ucp.h` and `ucp/api/ucp_def.h` of UCX 1.13.1 and checked against the
//! installed headers by `tests/layout.rs`, so that building needs no libclang. UCX keeps its ABI
//! by field masks and by appending fields: a binary built against these structs runs with later
//! releases unchanged.
//!
//! - Enums are integer constants: UCX may return status codes that a header does not know, and an
//!   unknown discriminant of a Rust enum would be undefined behaviour.
//! - `ucs_status_t` is a packed enum in C, hence one signed byte.
//! - Handles are pointers to opaque types, so that they cannot be mixed up.
#![allow(unsafe_code, non_camel_case_types)]
// The field and function names are UCX's own; its headers are the documentation.
#![allow(missing_docs)]

mod constants;
mod functions;
mod types;

pub use constants::*;
pub use functions::*;
pub use types::*;

/// Whether a returned `ucs_status_ptr_t` is an error code (C macro `UCS_PTR_IS_ERR`).
pub fn ucs_ptr_is_err(ptr: ucs_status_ptr_t) -> bool {
    ptr as usize >= UCS_ERR_LAST as isize as usize
}

/// Whether a returned `ucs_status_ptr_t` is a request in progress (`UCS_PTR_IS_PTR`).
pub fn ucs_ptr_is_ptr(ptr: ucs_status_ptr_t) -> bool {
    !ptr.is_null() && !ucs_ptr_is_err(ptr)
}

/// The status in a `ucs_status_ptr_t` that is not a request (`UCS_PTR_RAW_STATUS`).
pub fn ucs_ptr_raw_status(ptr: ucs_status_ptr_t) -> ucs_status_t {
    ptr as isize as ucs_status_t
}
