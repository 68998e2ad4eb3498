//! Weights and gradients between processes, point to point over UCX.
//!
//! ```text
//!   callers (any thread)              progress thread, one per Transport
//!   ──────────────────────            ───────────────────────────────────────────────
//!   Transport::fetch ──Command──┐     ┌────────────── turn ──────────────┐
//!   Transport::notify           ├────►│ ucp_worker_progress ─► callbacks │◄──► UCX ◄──► peers
//!   Transport::expose           │     │ commands · events · deadlines    │
//!        ▲   (channel + eventfd)┘     └──┬────────────────────────────▲──┘
//!        └─ Progress, Ended ◄────────────┘  200 idle turns: arm, poll(UCX, eventfd)
//!   Transport::recv ◄── inbox ◄──────────┘
//!
//!   life of a fetch
//!   puller                                    source
//!     │ connect ─ Hello ─────────────────────►│ accepted; who are you?
//!     │◄───────────────────────────── Welcome │ owner number: must be the key's
//!     │ Read x 16 (512 KiB each) ────────────►│ region and bounds checked
//!     │◄─────────────────────── Data, Data... │ sent from where the bytes lie
//!     │   each copied once into its place     │
//!     │ on arrival: next Read, Progress       │
//!     ▼ all here: Ended(Ok)                   │ region withdrawn: Refusal
//!       nothing for stall_timeout, or an error: link closed by force, Ended(Err)
//! ```
//! Happy path: the first call for a peer connects, later ones use the same link; a fetch is cut
//! into chunks of which 16 are under way; the caller's thread only waits and runs its callback.
//!
//! # Rules
//! - **T-1** UCX touches only memory that is held until the operation ended, and after a fetch
//!   was answered nothing is written into its buffer.
//! - **T-2** A worker is used by its progress thread only; callbacks leave events, the engine
//!   decides.
//! - **T-3** Nothing waits for a peer without a deadline. UCX reports no error for a stopped peer
//!   or a cut network. A pause of this process is not held against its peers.
//! - **T-4** Endpoints close before the worker, the worker before its context; what UCX does not
//!   give back is leaked, never freed under it.
//! - **T-5** A source checks every read against its own table, so neither a late, nor a
//!   confused puller, nor one that dies in the middle, can harm it.
//! - **T-6** A buffer's loans exclude fetches into it and conflicting loans. Remote reads are not
//!   excluded: who writes to an exposed buffer is caught by the reader's digest.
//! - **T-7** A link that failed is out of the cache before anyone hears of it.
//! - **T-8** A key is good only at the transport that issued it: a successor on the same address
//!   has another owner number.
//!
//! # Two things deliberately not used
//! - **One-sided gets.** Over TCP, UCX emulates them in the source, unchecked: any address a
//!   puller names is read, and with UCX 1.13.1 a source that had been stopped was seen to abort
//!   when it went on after its puller had closed (`uct_tcp_ep_pending_purge`, "Assertion failed"). A read here is a small active
//!   message, answered by one that carries the bytes: as many copies, and none of that.
//! - **Shared memory** (`UCX_MM_ERROR_HANDLING=y`): see `config`. The user may still set it.
//!
//! # Signals
//! UCX's library constructor installs crash handlers before `main`. [`Transport::start`] takes
//! them away again; set `UCX_HANDLE_ERRORS=none` in a child's environment to not have them at all.
mod buffer;
mod command;
mod config;
mod engine;
mod error;
mod inbox;
mod key;
mod stats;
mod transport;
mod ucx;

pub use buffer::Buffer;
pub use config::Config;
pub use error::{BufferError, FetchError, KeyError, TransportError};
pub use key::{Part, RegionKey};
pub use stats::Stats;
pub use transport::{Exposed, MAX_MESSAGE_BYTES, Transport};
