//! Clients before engines that fail in every way, over real sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod broken;
mod fixture;
mod refused;
mod retried;
