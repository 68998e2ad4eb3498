//! The CUDA driver's C symbols over plain memory: what `cudarc` loads in tests instead of the
//! driver's library.
//!
//! ```text
//!  cudarc ──dlopen("libcuda.so")──► libcuda_fake.so ──► driver: devices, memory, streams
//!                                        ▲                        │ counts, failures, damage
//!  test ──Fake::load, set, count─────────┘ cuda_fake_set/get ─────┘
//! ```
//! Stricter than the driver where that finds mistakes:
//! - device addresses cannot be dereferenced by the processor;
//! - a copy is made when its stream is synchronised, not before;
//! - a copy from or to memory that is not pinned is refused;
//! - every call wants its thread to have entered the context;
//! - what is freed twice, or used after it was freed, is refused.
#![allow(unsafe_code)] // C symbols; every pointer comes from the caller, as CUDA documents.
#![allow(non_snake_case)] // CUDA's names

mod driver;
mod knobs;
mod load;
mod memory;
mod streams;

pub use knobs::{Count, Knob};
pub use load::Fake;
