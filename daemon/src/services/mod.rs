//! The services of a job, carried out: real processes, ports, probes and a file that is remembered.
//! What becomes of them is decided by [`robust_shared::service`].
//!
//! ```text
//!  driver ── heard, on_time ──► Services ──► machine ── Start, Kill ──► launcher ──► robust-shim service
//!    ▲                            │            │                           │            └─ argv
//!    └── poll: Effect (say,       │            └── Probe ──► GET, connect  │
//!        fail, hold, release)     └── book: STATE/services.json            │
//!    ▲                                                                     │
//!    └── ServiceEvent ◄── probed ◄── gone: nothing of it is left ◄── ended
//! ```
//! An instance's ports are lent once and kept over its restarts and the daemon's, so that whoever was
//! told an address can keep it. A life is on record before it is started: a daemon that is killed in
//! between finds the process by its environment. Those that it finds and has not on record are killed.
mod book;
mod checks;
mod edge;
mod end;
mod shim;

pub use checks::{ServicesError, check};
pub use edge::{ServiceEvent, Services};
pub use end::end_strangers;
