//! What every role program has in common, against a daemon and peers that the tests play themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod faults;
mod fixture;
mod link;
mod program;
mod pull;
mod renewed;
mod serve;
mod snapshot;
