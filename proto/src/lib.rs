//! The gRPC contract: `robust/v1/*.proto` and the code generated from it, checked in so that
//! building needs no protoc. Serialised with serde, the messages' field names are the JSON names
//! that `robustctl --json` prints.

/// Where a role process finds the secret of its job, which its transport proves to know.
pub const JOB_TOKEN_VARIABLE: &str = "ROBUST_JOB_TOKEN";
/// Where a role finds which roads its weights and gradients take: of `shm`, `tls` and `ucx`, with a comma
/// between them.
pub const ROADS_VARIABLE: &str = "ROBUST_ROADS";
/// Where a role finds its certificate, the certificate's key and that of its authority, in PEM; only where
/// `tls` is one of its roads.
pub const IDENTITY_VARIABLE: &str = "ROBUST_IDENTITY";

/// A role's incarnation, in its environment. A spare, which is none yet, has a 0 there with as many digits as any number has:
/// it writes the number of the life over it that it becomes.
pub const INCARNATION_VARIABLE: &str = "ROBUST_INCARNATION";

/// Where a role process finds the addresses of the job's services: a JSON object of `host:port`, with
/// commas, by the service's name.
pub const SERVICES_VARIABLE: &str = "ROBUST_SERVICES";
/// The variable that tells a trainer's program where the job's router is, where it has one.
pub const ROUTER_VARIABLE: &str = "ROBUST_ROUTER";
/// The variable that names the file with the router's key.
pub const ROUTER_KEY_VARIABLE: &str = "ROBUST_ROUTER_KEY_FILE";

/// The variable that names the file with the key of engines at their own addresses, for programs of a trainer
/// and services of a job whose engines are the user's.
pub const ENGINES_KEY_VARIABLE: &str = "ROBUST_ENGINES_KEY_FILE";

/// How a role process is to log: `human` (also where it is not set) or `json`.
pub const LOG_FORMAT_VARIABLE: &str = "ROBUST_LOG_FORMAT";

/// Conversations of an agent whose tokens come in one call, at most ([`v1::SpansBatch`]).
pub const MOST_PARTS: usize = 4096;

pub mod endpoint;
pub mod manifest;
mod promises;
pub mod requests;
mod rules;
pub mod words;

/// Generated from `robust/v1/*.proto`; a test regenerates and compares it.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
#[rustfmt::skip]
pub mod v1 {
    include!("generated/robust.v1.rs");
}
