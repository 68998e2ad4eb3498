//! Weights and gradients between processes, point to point, on the road that leads from one to the other.
//!
//! ```text
//!   callers (any thread)              progress thread, one per Transport
//!   ──────────────────────            ───────────────────────────────────────────────
//!   Transport::fetch ──Command──┐     ┌────────────── turn ──────────────┐     ┌ local ┐
//!   Transport::notify           ├────►│ every road progresses            │◄──► │  tls  │ ◄──► peers
//!   Exposed::ready · Cancel     │     │ commands · events · deadlines    │     └─ ucx ─┘
//!        ▲   (channel + eventfd)┘     └──┬────────────────────────────▲──┘
//!        └─ Arrived, Ended ◄─────────────┘  200 idle turns: arm, poll(roads, eventfd)
//!   Transport::recv ◄── inbox ◄──────────┘
//!
//!   the protocol (RTP7), seen from one link
//!   puller                                    source
//!     │ connect ─ Hello: nonce ──────────────►│ Called: 64 at a time, for connect_timeout
//!     │◄────────────── Welcome: nonce, proof  │ owner number: must be the key's
//!     │ Prove: proof ────────────────────────►│ wrong, or anything else: closed
//!     │◄─────────────────────────────── Ready │ Open
//!     │ Read x 8 (to 1023 KiB each) ─────────►│ session, region and bounds checked
//!     │◄─────────────────────── Data, Data... │ ready: sent from where the bytes lie
//!     │   copied once into its place, and     │ not ready: parked
//!     │   digested on the way                 │   │ Exposed::ready: Data
//!     │◄────────── Wait, 4 per stall_timeout ─┼───┤
//!     │   counts as a sign of life            │   │ region withdrawn: Refusal
//!     │ part complete: Arrived to the caller  │   │ Forget, link ended: dropped
//!     │ cancelled: Forget ───────────────────►│
//!     ▼ all here: Ended(Ok)                   │
//!       silence for stall_timeout, or an error: link closed by force, Ended(Err)
//! ```
//! Happy path: the first call for a peer connects, and both sides prove that they have the job's
//! token; later calls use the same link, and fetches that run at once a second one (see
//! `engine::link`). A fetch names *parts*, as a rule a manifest's chunks. They
//! travel in *pieces*, of which 8 are under way, and the caller hears of each part once all of it
//! is there. It verifies the part and, if it is a relay, declares it ready in its own region:
//! readers further down the chain wait there already.
//!
//! # Roads
//! A [`Transport`] has an [`Address`]: a number, by which it is called on its own machine, an address for
//! other machines, or both ([`Config::local`], [`Config::net`]). Who calls it takes the first road that
//! leads there.
//!
//! | road | messages | pieces | who can reach it |
//! | --- | --- | --- | --- |
//! | `local` | a Unix socket in the job's folder | stay where they are: the source hands over a descriptor of its memory, sealed, and the reader copies from it | processes of the same user, which find the folder |
//! | `tls` | TLS 1.3 over TCP, certificates on both sides (`tls`) | sealed from where they lie, opened into their place | members of the job; others are closed before they have said anything |
//! | `ucx` | active messages | active messages | over TCP whoever reaches the port |
//!
//! # Rules
//! - **T-1** A road touches only memory that is held until the operation ended, and after a fetch
//!   was answered nothing is written into its buffer.
//! - **T-2** A road is used by its progress thread only; it leaves events, the engine decides.
//! - **T-3** No caller waits for a peer without a deadline. No road reports an error for a
//!   stopped peer, nor UCX for a cut network. A pause of this process is not held against its peers, nor is a source
//!   blamed that says it waits itself, or that sends what was asked for before. Answers that a
//!   stopped reader does not take stay queued until its link fails or the region is withdrawn.
//! - **T-4** UCX's endpoints close before its worker, the worker before its context; what UCX does not
//!   give back is leaked, never freed under it.
//! - **T-5** A source checks every read against its own table, so neither a late, nor a
//!   confused puller, nor one that dies in the middle, can harm it. What waits there is bounded, and
//!   so are answers that are not taken: whoever asks for more of them is closed.
//! - **T-6** Loans of a buffer's bytes, and fetches into them, exclude each other by range; a part
//!   that arrived is free again. What is on its way to a peer is lent to it: it cannot be written
//!   meanwhile, and a read of what is being written is refused. Between two reads who writes to bytes that
//!   are exposed and ready is caught by the reader's digest. Before a buffer is written again its
//!   region is withdrawn ([`Exposed::withdraw`]), so that no reader blames an innocent source.
//! - **T-7** A link that failed is out of the cache before anyone hears of it.
//! - **T-8** A key is good only at the transport that issued it: a successor on the same address
//!   has another owner number.
//! - **T-9** Before both sides have proved the job's token nothing counts but the proof. Afterwards
//!   whoever sends what none of ours sends is closed. Tokens of reads cannot be guessed: only who
//!   was asked can answer, and only into the bytes that were asked for.
//!
//! # What the token does not protect from
//! From nobody who reaches a port of UCX. Proofs are checked in this crate, above UCX, which was not made for hostile peers: its TCP
//! transport does as told by whoever writes its own wire format, memory addresses included. Whoever
//! reaches such a port can kill the process, or write into it what he likes, before the first byte of
//! ours. On one machine no port is needed; between machines keep them on a network of the job's own.
//!
//! # What a fetch costs
//! Through shared memory: of the puller one copy, which takes the digest on its way; of the source
//! nothing but word of where the bytes lie. Over UCX, of the source: the kernel's copy out of memory that is no longer cached, and, over loopback, most
//! of the receiving side's TCP: see `engine::pace` for what is done against that. Of the puller: the
//! kernel's copy into UCX's receive buffer, and one more from there, while it is in the cache, to
//! its place. That second copy goes past the cache and carries the digest (see `digest`): done
//! later, in the caller's thread, the digest alone costs as much again. `examples/fetch_bench`
//! shows bandwidth and processor time.
//!
//! # Three things deliberately not used
//! - **One-sided gets.** Over TCP, UCX emulates them in the source, unchecked: any address a
//!   puller names is read, and with UCX 1.13.1 a source that had been stopped was seen to abort
//!   when it went on after its puller had closed (`uct_tcp_ep_pending_purge`, "Assertion
//!   failed"). A read here is a small active message, answered by one that carries the bytes: as
//!   many copies, and none of that.
//! - **Rendezvous**, by which UCX 1.13 writes into the target and saves the puller a copy. Over TCP it
//!   is emulated with writes that the receiver does not check, and UCX's own perf tool is no faster
//!   with it (5.4 and 5.4 GB/s, 25 runs each in turn): the source's thread is the limit.
//! - **UCX's shared memory** (`UCX_MM_ERROR_HANDLING=y`): see `config`. The user may still set it.
//!
//! # Device memory
//! A [`Buffer`] may lie in a device's memory; peers see no difference. Its bytes pass through pinned
//! blocks of a [`Staging`], whose size is given when it is opened and never grows: `robust-device` has
//! the rules of the blocks, `engine::staged` and `engine::landing` who waits for one. Reads and
//! pieces that find none wait, and their peers are told; fetching and serving have blocks of their
//! own, and a piece whose source has to wait itself gives its block back. So nobody waits in a circle.
//! Host memory needs no staging: UCX takes from it and gives to it.
//!
//! Digests are taken on staging. A path from the network straight into device memory (GPUDirect RDMA)
//! needs a UCX with CUDA support, registered device memory and one-sided or rendezvous transfers, and
//! digests computed on the device: not here; what it would save is one copy over PCIe each way.
//!
//! # Signals
//! UCX's library constructor installs crash handlers before `main`. [`Transport::start`] takes
//! them away again; set `UCX_HANDLE_ERRORS=none` in a child's environment to not have them at all.
mod address;
mod buffer;
mod cancel;
mod command;
mod config;
mod digest;
mod engine;
mod error;
mod exposed;
mod huge;
mod inbox;
mod key;
mod loans;
mod local;
mod loopback;
mod mapping;
mod outside;
mod road;
mod share;
mod shared;
mod start;
mod stats;
mod status;
mod tls;
mod token;
mod transport;
mod ucx;
pub mod words;

pub use address::{Address, AddressError};
pub use buffer::{Buffer, Lent};
pub use cancel::Cancel;
pub use command::Trouble;
pub use config::{Config, Net, Rdma};
#[cfg(fuzzing)]
pub use engine::fuzzing;
pub use error::{BufferError, FetchError, KeyError, TransportError};
pub use exposed::Exposed;
pub use inbox::MAX_MESSAGE_BYTES;
pub use key::{Part, RegionKey};
pub use loopback::{LOOPBACK_SNDBUF, tune_for_loopback};
pub use road::{PIECE_BYTES, RoadKind};
pub use robust_device::{DeviceError, Memory, SMALLEST as SMALLEST_STAGING, Staging};
pub use share::{Duty, Share};
pub use stats::Stats;
pub use tls::Identity;
pub use token::JobToken;
pub use transport::{Arrived, Transport};
pub use ucx::Survey;
