//! What is said to inference engines and what they answer: SGLang, vLLM and the built-in rollout.
//!
//! Requests leave as [`Request`] values, replies come in as statuses, texts and bytes; whoever has
//! a socket carries them. No I/O, no clock, no async.
//!
//! ```text
//!   Generate ──Dialect::generate──► Request ──► engine ──► bytes ──Lines──► data ──Stream──► Event
//!   control  ──Dialect::pause, load, ..──► Call ──► engine ──► status, body ──Call::judge──► done
//!   others' requests ──Seen::of──► what they change          serve: the built-in rollout's side
//! ```
//!
//! # What the engines do that this crate knows of
//! - **C-1** A body without `Content-Type: application/json` is refused by both: every request with
//!   a body says it.
//! - **C-2** SGLang repeats in each chunk everything so far, unless its operator asked for deltas:
//!   which of the two it is, is decided by `completion_tokens`, chunk by chunk.
//! - **C-3** A weight version is a text: `default` until somebody sets one, anything later.
//! - **C-4** Only the last chunk says exactly which tokens which weights made; it overrides what
//!   the chunks before it said.
//! - **C-5** An end by abort comes with HTTP 200.
//! - **C-6** So does an error in a stream; its code judges it.
//! - **C-7** Keys of our own go to the built-in rollout only.
//! - **C-8** Engines stop at the model's end of sequence too, unless told not to.
//! - **C-9** A paused engine answers no health check that generates.
//! - **C-10** A paused engine lets requests wait without end.
//! - **C-11** Prompts go one by one, streams are server-sent events.
//! - **C-12** What is wrong with a request is told in four shapes of JSON.
//! - **C-13** One token outside the vocabulary ends a SGLang server: ids are checked before.
//! - **C-14** Told to give memory back without the argument that makes it able to, each engine keeps it
//!   and answers 200.
//! - **C-15** A SGLang that is to give memory back while a request is with it ends.
//! - **C-16** A woken engine's weights may be anything: SGLang and vLLM's level 2 keep no copy, and both go
//!   on calling them what they were called.

mod address;
mod control;
mod dialect;
mod error;
mod gauges;
mod generate;
mod label;
mod request;
mod seen;
pub mod serve;
mod sse;
mod stream;

pub use address::EngineAddr;
pub use control::{Call, Checksums, Judge, Load, MemoryPart, PauseMode, Unsupported};
pub use dialect::{Dialect, Kind, UnknownKind, Version};
pub use error::{Refused, Unreadable};
pub use gauges::Gauges;
pub use generate::{Generate, Own, TokenOutside, check_body, check_ids};
pub use label::Label;
pub use request::{JSON, Method, Request, SWITCH_HEADER};
pub use seen::Seen;
pub use sse::{Lines, TooLong};
pub use stream::{Event, Finish, Span, Stream};
