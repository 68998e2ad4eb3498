//! Supervised warm-up from scratch.
use super::qwen3::Qwen3;
