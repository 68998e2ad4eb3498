//! What the tests of a link need.

use tokio::runtime::Runtime;

/// A runtime as a role's: one thread for all talk.
pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}
