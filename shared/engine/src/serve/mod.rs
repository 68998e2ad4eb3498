//! The other side: how a server answers that a client written for SGLang takes for SGLang.
//!
//! What the built-in sampler has no means for is refused by its name, never ignored: a client that
//! asks for `json_schema` and gets free text would train on it. Keys unknown at the top level are
//! ignored and those inside `sampling_params` refused, as SGLang 0.5.23 does.

mod asked;
mod info;
mod refusal;
mod reply;
mod sampling;

pub use asked::{Asked, DELTAS};
pub use info::{CONTINUED, FLUSHED, Facts, Figures, PAUSED};
pub use refusal::Refusal;
pub use reply::{Ending, Replying, Run};
pub use sampling::Sampling;
