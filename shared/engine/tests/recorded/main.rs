//! Exchanges recorded from the real engines, read as they were said.
#![allow(clippy::unwrap_used, clippy::panic)]

mod control;
mod exchange;
mod replies;
