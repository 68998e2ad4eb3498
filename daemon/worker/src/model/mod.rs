//! The reference model of the job: Qwen3 in libtorch, its sampler and its training mathematics.
//!
//! ```text
//!  hf ──► qwen3::Qwen3 ──► sampler::Engine ──► tokens + logprobs   (rollout)
//!            │  ▲ flat::FlatParams: all weights in one buffer
//!            ▼  │
//!  grpo::grpo_gradient ──► flat gradient ──► adam::Adam ──► the same buffer   (trainer)
//! ```
//!
//! Weights, gradient and Adam's moments are flat float32 buffers in one documented order, so a
//! snapshot, a transfer or an average over ranks is a plain copy or sum. Everything is
//! deterministic on one thread: call [`single_thread`] first thing in a process.

pub mod adam;
pub mod config;
pub mod dataset;
pub mod flat;
pub mod grpo;
pub mod hf;
pub mod qwen3;
pub mod reward;
pub mod rng;
pub mod sampler;
pub mod tokenizer;
pub mod warmup;

/// Restricts libtorch to one thread: its results on two threads differ in the last bits, and with
/// shared cores two threads are slower. Whoever starts the process also sets `MKL_CBWR=AVX2,STRICT`:
/// without it, on some processors, a row's last bits depend on how many rows are beside it.
pub fn single_thread() {
    tch::set_num_threads(1);
}
