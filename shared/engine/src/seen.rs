//! What others ask of an engine, seen by who passes their requests on.

use serde_json::Value;

use crate::control::{MemoryPart, PauseMode};
use crate::dialect::Kind;
use crate::label::Label;

/// A request that changes what may be expected of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Generation stops; a mode of a word unknown here is none.
    Pause(Option<PauseMode>),
    /// Generation goes on.
    Continue,
    /// Weights are about to change in several steps.
    UpdateBegins,
    /// The last step of that.
    UpdateEnds {
        /// What the weights are called from now on, where it is said.
        version: Option<Label>,
    },
    /// Weights change, all of them or a part.
    Load {
        /// What they are called from now on, where it is said.
        version: Option<Label>,
    },
    /// Weights are called something else.
    Renamed {
        /// What they are called.
        version: Label,
    },
    /// Memory is given back, at least one part of it: nothing can be generated until it is taken again.
    Sleep(Vec<MemoryPart>),
    /// Memory is taken again.
    Wake(Vec<MemoryPart>),
    /// Requests end.
    Abort {
        /// Which; none for all.
        rids: Option<Vec<String>>,
    },
    /// Tokens are asked for, by any of the engine's routes.
    Generate,
}

impl Seen {
    /// What a request is; none when it changes nothing. `query` is without its question mark.
    pub fn of(kind: Kind, method: &str, path: &str, query: &str, body: &[u8]) -> Option<Self> {
        let path = path.trim_end_matches('/');
        let post = matches!(method, "POST" | "PUT");
        if post && is_generation(path) {
            return Some(Seen::Generate);
        }
        let body = || serde_json::from_slice(body).unwrap_or_default();
        match kind {
            Kind::Vllm if post => vllm(path, query, &body()),
            Kind::Vllm => None,
            Kind::Sglang | Kind::Robust => sglang(post || method == "GET", post, path, &body()),
        }
    }
}

/// Routes of the engines' own and of the APIs that they imitate.
fn is_generation(path: &str) -> bool {
    const PATHS: [&str; 11] = [
        "/generate",
        "/inference/v1/generate",
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/messages",
        "/invocations",
        "/vertex_generate",
        "/api/chat",
        "/api/generate",
        "/v1/score",
    ];
    PATHS.contains(&path)
}

fn label(body: &Value, key: &str) -> Option<Label> {
    body[key].as_str().map(Label::from)
}

/// The parts of memory that tags are of, all of them without a tag.
fn parts(tags: &[&str]) -> Vec<MemoryPart> {
    let named = |part: &MemoryPart| tags.is_empty() || tags.iter().any(|tag| part.is(tag));
    MemoryPart::ALL.into_iter().filter(named).collect()
}

/// Memory is given back by GET as well.
fn sglang(get: bool, post: bool, path: &str, body: &Value) -> Option<Seen> {
    let version = || label(body, "weight_version");
    let tags = || {
        let tags = body["tags"].as_array().map_or(&[][..], Vec::as_slice);
        tags.iter().filter_map(Value::as_str).collect::<Vec<_>>()
    };
    match path {
        "/release_memory_occupation" if get => Some(Seen::Sleep(parts(&tags()))),
        "/resume_memory_occupation" if get => Some(Seen::Wake(parts(&tags()))),
        _ if !post => None,
        "/pause_generation" => {
            let mode = PauseMode::from_word(Kind::Sglang, body["mode"].as_str());
            Some(Seen::Pause(mode))
        }
        "/continue_generation" => Some(Seen::Continue),
        "/begin_weight_update" => Some(Seen::UpdateBegins),
        "/end_weight_update" => Some(Seen::UpdateEnds { version: None }),
        "/update_weights_from_disk"
        | "/update_weights_from_tensor"
        | "/update_weights_from_distributed"
        | "/update_weights_from_ipc" => Some(Seen::Load { version: version() }),
        "/update_weight_version" => {
            label(body, "new_version").map(|v| Seen::Renamed { version: v })
        }
        "/abort_request" => match (&body["abort_all"], body["rid"].as_str()) {
            (Value::Bool(true), _) => Some(Seen::Abort { rids: None }),
            (_, Some(rid)) if !rid.is_empty() => Some(Seen::Abort {
                rids: Some(vec![rid.to_owned()]),
            }),
            // Without a name nothing ends.
            _ => None,
        },
        _ => None,
    }
}

fn vllm(path: &str, query: &str, body: &Value) -> Option<Seen> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    match path {
        "/pause" => {
            let mode = pairs.rfind(|(key, _)| *key == "mode");
            let mode = PauseMode::from_word(Kind::Vllm, mode.map(|(_, mode)| mode));
            Some(Seen::Pause(mode))
        }
        "/sleep" => match pairs.rfind(|(key, _)| *key == "level") {
            // It stands still, and keeps its memory.
            Some((_, "0")) => Some(Seen::Pause(Some(PauseMode::Abort))),
            _ => Some(Seen::Sleep(MemoryPart::ALL.to_vec())),
        },
        "/release_kv_cache_memory" => Some(Seen::Sleep(vec![MemoryPart::KvCache])),
        "/wake_up" => {
            let tags = pairs.filter(|(key, _)| *key == "tags");
            let tags: Vec<&str> = tags.map(|(_, tag)| tag).collect();
            Some(Seen::Wake(parts(&tags)))
        }
        "/resume" => Some(Seen::Continue),
        "/start_weight_update" | "/start_draft_weight_update" => Some(Seen::UpdateBegins),
        "/update_weights" => Some(Seen::Load { version: None }),
        "/finish_weight_update" => Some(Seen::UpdateEnds {
            version: label(body, "weight_version"),
        }),
        "/collective_rpc" => {
            let loads = matches!(
                body["method"].as_str(),
                Some("reload_weights" | "update_weights" | "load_weights" | "reset_weights")
            );
            loads.then_some(Seen::Load { version: None })
        }
        "/update_weight_version" => {
            label(body, "new_version").map(|v| Seen::Renamed { version: v })
        }
        "/abort_requests" | "/inference/v1/abort_requests" => {
            let rids = body["request_ids"].as_array();
            let rids = rids.map(|rids| rids.iter().filter_map(Value::as_str).map(str::to_owned));
            let rids = rids.map(Iterator::collect::<Vec<_>>);
            Some(Seen::Abort {
                rids: rids.filter(|rids| !rids.is_empty()),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sglang(path: &str, body: &str) -> Option<Seen> {
        Seen::of(Kind::Sglang, "POST", path, "", body.as_bytes())
    }

    fn vllm(path: &str, query: &str, body: &str) -> Option<Seen> {
        Seen::of(Kind::Vllm, "POST", path, query, body.as_bytes())
    }

    #[test]
    fn pauses_and_updates_that_others_order_are_seen() {
        let version = Some(Label::Number(4));
        for (path, body, seen) in [
            (
                "/pause_generation",
                "{}",
                Seen::Pause(Some(PauseMode::Abort)),
            ),
            (
                "/pause_generation",
                r#"{"mode": "in_place"}"#,
                Seen::Pause(Some(PauseMode::Keep)),
            ),
            ("/pause_generation", r#"{"mode": "x"}"#, Seen::Pause(None)),
            ("/continue_generation", "{}", Seen::Continue),
            ("/begin_weight_update", "{}", Seen::UpdateBegins),
            ("/end_weight_update", "", Seen::UpdateEnds { version: None }),
            (
                "/update_weights_from_distributed",
                r#"{"names": [], "weight_version": "4"}"#,
                Seen::Load { version },
            ),
            (
                "/release_memory_occupation",
                "{}",
                Seen::Sleep(MemoryPart::ALL.to_vec()),
            ),
            (
                "/resume_memory_occupation",
                r#"{"tags": ["kv_cache", "cuda_graph"]}"#,
                Seen::Wake(vec![MemoryPart::KvCache]),
            ),
            (
                "/abort_request",
                r#"{"abort_all": true}"#,
                Seen::Abort { rids: None },
            ),
            ("/generate", "{}", Seen::Generate),
            ("/v1/chat/completions", "{}", Seen::Generate),
        ] {
            assert_eq!(sglang(path, body), Some(seen), "{path} {body}");
        }
        assert_eq!(sglang("/abort_request", r#"{"rid": ""}"#), None);
        assert_eq!(sglang("/weights_checker", "{}"), None);
        assert_eq!(Seen::of(Kind::Sglang, "GET", "/model_info", "", b""), None);
    }

    #[test]
    fn vllms_are_seen_in_its_words() {
        let keep = Seen::Pause(Some(PauseMode::Keep));
        assert_eq!(
            vllm("/pause", "clear_cache=false&mode=keep", ""),
            Some(keep)
        );
        let abort = Seen::Pause(Some(PauseMode::Abort));
        assert_eq!(vllm("/pause", "", ""), Some(abort));
        assert_eq!(
            vllm("/finish_weight_update", "", r#"{"weight_version": "4"}"#),
            Some(Seen::UpdateEnds {
                version: Some(Label::Number(4))
            })
        );
        assert_eq!(
            vllm("/collective_rpc", "", r#"{"method": "reload_weights"}"#),
            Some(Seen::Load { version: None })
        );
        let health = r#"{"method": "check_health"}"#;
        assert_eq!(vllm("/collective_rpc", "", health), None);
        assert_eq!(
            vllm("/abort_requests", "", r#"{"request_ids": ["a", "b"]}"#),
            Some(Seen::Abort {
                rids: Some(vec!["a".into(), "b".into()])
            })
        );
        assert_eq!(
            vllm("/abort_requests", "", "{}"),
            Some(Seen::Abort { rids: None })
        );
        let weights = vec![MemoryPart::Weights];
        for (path, query, seen) in [
            ("/sleep", "", Seen::Sleep(MemoryPart::ALL.to_vec())),
            ("/sleep", "level=0", Seen::Pause(Some(PauseMode::Abort))),
            (
                "/release_kv_cache_memory",
                "",
                Seen::Sleep(vec![MemoryPart::KvCache]),
            ),
            ("/wake_up", "tags=weights", Seen::Wake(weights)),
            ("/wake_up", "", Seen::Wake(MemoryPart::ALL.to_vec())),
        ] {
            assert_eq!(vllm(path, query, ""), Some(seen), "{path} {query}");
        }
        // SGLang's words mean nothing to it.
        assert_eq!(vllm("/pause_generation", "", "{}"), None);
    }
}
