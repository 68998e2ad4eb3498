//! Exchanges recorded from the real engines, read as they were said.
#![allow(clippy::unwrap_used, clippy::panic)]
#![allow(clippy::disallowed_methods, reason = "reads recordings")]

mod control;
mod exchange;
mod replies;
