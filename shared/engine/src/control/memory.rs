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
    /// Keys and values of prompts and replies; SGLang's recorded graphs, which compute with them, go
    /// and come with them.
    KvCache,
}

impl MemoryPart {
    /// Both parts, in the order in which they are to be taken again: weights that are loaded once more
    /// need room, which keys and values would fill.
    pub const ALL: [MemoryPart; 2] = [MemoryPart::Weights, MemoryPart::KvCache];

    /// Whether a tag of either engine is of this part.
    pub(crate) fn is(self, tag: &str) -> bool {
        let names = |kind| self.tags(kind).contains(&tag);
        names(Kind::Vllm) || names(Kind::Sglang)
    }

    fn tags(self, kind: Kind) -> &'static [&'static str] {
        match (self, kind) {
            (MemoryPart::Weights, _) => &["weights"],
            (MemoryPart::KvCache, Kind::Vllm) => &["kv_cache"],
            (MemoryPart::KvCache, Kind::Sglang | Kind::Robust) => &["kv_cache", "cuda_graph"],
        }
    }
}

fn tags(kind: Kind, parts: &[MemoryPart]) -> Vec<&'static str> {
    let each = parts.iter().flat_map(|part| part.tags(kind));
    each.copied().collect()
}

impl Dialect {
    /// Gives all of the device's memory back; nothing may run, or SGLang's scheduler ends (C-15).
    /// `weights_come_again` is whether the parameters will be loaded anew afterwards, so that vLLM
    /// need not copy them to the host. SGLang never does so by itself. Without `--enable-sleep-mode`
    /// (vLLM) or `--enable-memory-saver` (SGLang) nothing is given back (C-14).
    pub fn sleep(&self, weights_come_again: bool) -> Call {
        let level = if weights_come_again { "2" } else { "1" };
        let kind = self.kind();
        Call::plain(match kind {
            Kind::Vllm => {
                let request = Request::post_empty("/sleep").with_query("level", level);
                request.with_query("mode", "abort")
            }
            Kind::Sglang | Kind::Robust => Request::post(
                "/release_memory_occupation",
                &json!({"tags": tags(kind, &MemoryPart::ALL)}),
            ),
        })
    }

    /// Takes parts of the memory again. What the weights are afterwards nobody knows (C-16).
    pub fn wake(&self, parts: &[MemoryPart]) -> Call {
        let tags = tags(self.kind(), parts);
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
        let asleep = |again| vllm.sleep(again).request.target();
        assert_eq!(asleep(true), "/sleep?level=2&mode=abort");
        assert_eq!(asleep(false), "/sleep?level=1&mode=abort");
        assert_eq!(
            vllm.wake(&MemoryPart::ALL).request.target(),
            "/wake_up?tags=weights&tags=kv_cache"
        );
        let tags = br#"{"tags":["weights","kv_cache","cuda_graph"]}"#;
        assert_eq!(sglang.sleep(true).request.body, tags);
        let woken = sglang.wake(&[MemoryPart::Weights]).request;
        assert_eq!(woken.path, "/resume_memory_occupation");
        assert_eq!(woken.body, br#"{"tags":["weights"]}"#);
        let woken = sglang.wake(&[MemoryPart::KvCache]).request;
        assert_eq!(woken.body, br#"{"tags":["kv_cache","cuda_graph"]}"#);
    }
}
