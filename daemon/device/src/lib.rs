//! Device memory, and the pinned host memory that its bytes pass through.
//!
//! ```text
//!   network, disk                    Staging: pinned, bounded                 device
//!   ─────────────     ┌──────────────────────────────────────────────┐      ────────
//!   received bytes ──►│ Purpose::Fetch  half of the blocks           │──┐
//!   sent bytes     ◄──│ Purpose::Serve  the other half               │◄─┤ copies' thread,
//!   a caller's     ◄─►│ Purpose::Local  two, for Staging::read, write│◄─┤ one stream each way
//!                     └──────────────────────────────────────────────┘  └──► Memory
//! ```
//! Happy path: whoever has bytes for a device takes a [`Block`], fills it, and gives it to
//! [`Staging::start`]; the copies' thread hands it to the driver together with all that waits, and
//! gives it back once the bytes are there. Dropped, a block is free for the next one.
//!
//! # Rules
//! - **D-1** The device copies from and to pinned blocks only: a plain pointer would make the driver
//!   copy twice, and wait. What it may touch is held until its stream was synchronised.
//! - **D-2** Staging never grows. Each purpose has blocks of its own, so that nobody who waits for
//!   one waits for somebody who waits for him: a puller that fills its memory from a peer, while
//!   that peer fills its own from here, needs blocks for both.
//! - **D-3** Nobody but the copies' thread and callers of [`Staging::read`] and [`Staging::write`]
//!   waits for the driver. The transport's progress thread does not.
//! - **D-4** The driver's library is loaded when a device is opened. Where it is missing, or too old,
//!   that is one error in words, and no panic later.
//!
//! `Tensor` (feature `snapshots`) is the device's side of a snapshot: a trainer's slot takes it as it takes host memory.
//!
//! Bytes are digested where they lie in a block, in host memory: what the device does to them on the
//! way is its ECC's to find. A direct path (a NIC that writes into device memory) needs a UCX with
//! CUDA support and is not here; staging costs one copy over PCIe more than it would.
#![allow(unsafe_code)] // The driver's calls; each says what it relies on.

mod copies;
mod driver;
mod error;
mod memory;
mod pool;
mod staging;
#[cfg(feature = "snapshots")]
mod tensor;

pub use copies::{Copied, Copy, Way};
pub use driver::Device;
pub use error::DeviceError;
pub use memory::Memory;
pub use pool::{BLOCK_BYTES, Block, Purpose};
pub use staging::{SMALLEST, Staging};
#[cfg(feature = "snapshots")]
pub use tensor::Tensor;
