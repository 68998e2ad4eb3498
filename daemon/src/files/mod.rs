//! The files that a job is made of (prompts, tokenizer, model): on every controller before it may lead, and on whichever
//! machine the job goes on.
//!
//! ```text
//!  the leader   hashes what its job file names ──► STATE/files.json: name, size, BLAKE3 of each ──► the job's log
//!                 └── then, beside the job: what the object store does not have ──► URL/JOB/files/DIGEST
//!  a follower   files.json comes with the log ──► looks, file by file:
//!                 the same at the path that its own job file names ──────────────► has it, and copies nothing
//!                 the same in STATE/files/KIND/NAME ─────────────────────────────► has it
//!                 neither ──► from the object store, under another name until its digest is right ──► has it
//!                 another file at that path ─────────────────────────────────────► says so, and waits
//!               it may lead once it has all of them, and says until then what it lacks
//! ```
//! - **What counts is the digest.** Paths are each machine's own: a leader that finds a file at another path than the one
//!   before it, or has only the copy, names that one in `job.json`, and the job is the same.
//! - **The record comes first.** It is in the log before the first node is welcomed, and so before a role of another machine
//!   reads any of the files. That they are in the object store is no part of it: a model of some hundred gigabytes holds no job up, and whoever
//!   lacks it meanwhile is not elected, and looks again. Copies are named by what they are, so that nothing is believed that
//!   was not compared.
//! - **Nobody has all of them:** then nobody leads, and each controller says what it lacks, and where that is looked for.
//! - **No change of a running job names other files** (`robustctl update` takes none of those keys), so a life of the job has
//!   one record. Objects are kept for the lives before it, and removed only where their bytes are not those of their name.
//! - Without a record, of a job whose leader was of an earlier build or has not welcomed a node yet, a controller has what its
//!   own job file names if that is there.
mod error;
mod follow;
mod holder;
mod look;
mod manifest;
mod put;
mod served;

pub use error::{Differs, FilesError, Lacks};
pub use follow::{Following, Standing};
pub use holder::Holder;
pub use look::{Located, Look, Paths};
pub use manifest::{Kind, Manifest, Needed};
pub use put::put_missing;
pub(crate) use served::parts;
pub use served::{JobFiles, PART_BYTES};

/// Bytes, for people.
fn size(bytes: u64) -> String {
    let units = ["KB", "MB", "GB", "TB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1e3;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < units.len() {
        value /= 1e3;
        unit += 1;
    }
    format!("{value:.1} {}", units[unit])
}

#[cfg(test)]
mod tests;
