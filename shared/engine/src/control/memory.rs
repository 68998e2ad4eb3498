//! Memory given back for a while, so that a trainer has the device.

use serde_json::json;

use super::Call;
use crate::dialect::{Dialect, Kind};
use crate::request::Request;

/// A part of an engine's memory that is given back and taken again on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryPart {
    /// The parameters.
    Weights,
    /// Keys and values of prompts and replies.
    KvCache,
}

impl MemoryPart {
    /// Both parts.
    pub const ALL: [MemoryPart; 2] = [MemoryPart::Weights, MemoryPart::KvCache];

    fn tag(self) -> &'static str {
        match self {
            MemoryPart::Weights => "weights",
            MemoryPart::KvCache => "kv_cache",
        }
    }
}

impl Dialect {
    /// Gives all of the device's memory back; nothing may run. `weights_come_again` is whether
    /// the parameters will be loaded anew afterwards, so that vLLM need not copy them to the host.
    /// SGLang needs `--enable-memory-saver`, vLLM `--enable-sleep-mode`.
    pub fn sleep(&self, weights_come_again: bool) -> Call {
        let level = if weights_come_again { "2" } else { "1" };
        Call::plain(match self.kind() {
            Kind::Vllm => Request::post_empty("/sleep").with_query("level", level),
            Kind::Sglang | Kind::Robust => Request::post(
                "/release_memory_occupation",
                &json!({"tags": MemoryPart::ALL.map(MemoryPart::tag)}),
            ),
        })
    }

    /// Takes parts of the memory again.
    pub fn wake(&self, parts: &[MemoryPart]) -> Call {
        let tags: Vec<&str> = parts.iter().map(|part| part.tag()).collect();
        Call::plain(match self.kind() {
            Kind::Vllm => tags
                .into_iter()
                .fold(Request::post_empty("/wake_up"), |request, tag| {
                    request.with_query("tags", tag)
                }),
            Kind::Sglang | Kind::Robust => {
                Request::post("/resume_memory_occupation", &json!({"tags": tags}))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_and_taken_again_by_parts() {
        let [sglang, vllm] = [Kind::Sglang, Kind::Vllm].map(Dialect::newest);
        assert_eq!(vllm.sleep(true).request.target(), "/sleep?level=2");
        assert_eq!(vllm.sleep(false).request.target(), "/sleep?level=1");
        assert_eq!(
            vllm.wake(&MemoryPart::ALL).request.target(),
            "/wake_up?tags=weights&tags=kv_cache"
        );
        let tags = br#"{"tags":["weights","kv_cache"]}"#;
        assert_eq!(sglang.sleep(true).request.body, tags);
        let woken = sglang.wake(&[MemoryPart::Weights]).request;
        assert_eq!(woken.path, "/resume_memory_occupation");
        assert_eq!(woken.body, br#"{"tags":["weights"]}"#);
    }
}
