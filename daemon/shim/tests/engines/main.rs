//! Engines behind `robust-shim`, asked, fed and hurt as a job does it.
//!
//! The same tests hold for the engine that the tests play (`fake-engine`, in `make test`) and for the real
//! ones (`make test-engines`, which sets ENGINES to the folder that scripts/engines.sh made): what the
//! played one is taken for, the real ones have to be.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod hurt;
mod kind;
mod lies;
mod moves;
mod pauses;
mod reply;
mod scene;
mod serving;
#[path = "../../../../tests/fake-engine/tests/common/model.rs"]
mod toy;
