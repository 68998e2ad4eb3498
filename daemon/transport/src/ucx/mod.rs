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
