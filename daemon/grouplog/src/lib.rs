//! A job's log in an object store, or in a folder that several machines see: whatever happens to the controller's
//! machine, another one has all that was acknowledged.
//!
//! ```text
//!  URL/JOB/current                       names the life of the job that is written now
//!  URL/JOB/files/DIGEST                  a file that the job is made of: model, tokenizer, prompts
//!  URL/JOB/RUN/log/EPOCH/NUMBER          a group: all writes of one commit of the store, and what came before it
//!  URL/JOB/RUN/base/NUMBER-EPOCH/PART    a dump of the store, with which nobody has to begin at the first group
//!                               /manifest.json   put last: the base is there when this is
//!
//!     base at 40           41        42        43
//!        ■ ◄──────────────[e7]◄─────[e7]◄─────[e9]     each names the digest and the epoch of the one before
//!                                     ╲
//!                                      ◄──[e7]         of a controller that lost its place: in no chain from the tip
//! ```
//! A controller writes groups under its own epoch, so that nobody overwrites what another one wrote. Which chain counts is
//! decided by its tip: with several controllers the arbiter names it, and a single controller's is that of the newest
//! epoch. A group that no chain from the tip leads to was never acknowledged.
//!
//! A base is read from a store that goes on writing: it has everything up to the group in its name, and perhaps some of
//! what came later. Writes name whole values, so applying the later groups over it gives exactly what was there.
mod base;
mod error;
mod files;
mod group;
mod keys;
mod log;
mod seal;

pub use base::{Base, BaseEntry};
pub use error::LogError;
pub use files::{Content, FileError, FileStore};
pub use group::{Digest, Entry, Group, Position};
pub use log::GroupLog;
pub use seal::{Seal, SealError};
