//! Checkpoints in an object store: S3, Google Cloud Storage, Azure Blob Storage, or a folder.
//!
//! ```text
//! URL/RUN/step-7.g3/rank-0.safetensors   the very bytes of the checkpoint on disk
//!                   rank-1.safetensors
//!                   manifest.signature   where the job has a key for it: who put it there, see `signature`
//!                   manifest.json        put last: the checkpoint is there when this is
//! URL/RUN/step-7.g3.pinned               only where an operator wants it to stay
//! ```
//! `RUN` names the job's life (as the nodes know it), `g3` the gang that made the step. Neither a job
//! begun anew nor a gang that was rolled back can therefore write over what another one put there:
//! no key is ever written twice with different bytes, and nothing depends on conditional writes,
//! which some servers ignore silently. Of one run, the newest checkpoint is that of the highest
//! generation, and of its steps the highest ([`Remote::newest`]): what an older gang put beyond the
//! first step of a newer one is history that did not happen.
//!
//! One machine puts all of a checkpoint from its disk ([`Remote::upload`]), or several put each what it has in memory and
//! one makes it whole ([`Remote::put_shard`], [`Remote::complete`]).
//!
//! Every byte is hashed on its way out and back in and compared with the manifest. Credentials come
//! from the providers' usual environment variables (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT`,
//! `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_NAME`, ...), from the machine's role where it has
//! one.
mod error;
mod fetch;
mod list;
mod open;
mod place;
mod shards;
mod signature;
mod tidy;
mod transfer;
mod upload;

pub use error::RemoteError;
pub use list::Kept;
pub use open::{Remote, check};
pub use place::Place;
pub use shards::PutShard;
pub use signature::SigningKey;
pub use tidy::{Surplus, Why};
pub use upload::{Local, Uploaded};
