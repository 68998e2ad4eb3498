//! Orders to an engine and questions about it, each with the judgement of its reply.
//!
//! A status of success is no proof of success: SGLang says `success` in the body, and both engines
//! answer 200 to a load that put other weights in place than were meant. What a load left is to be
//! asked for ([`Dialect::version_served`], [`Dialect::checksums`]) before the engine gets traffic.

mod judge;
mod memory;
mod weights;

use std::fmt;

use serde_json::json;

use crate::dialect::{Dialect, Kind};
use crate::generate::Generate;
use crate::request::Request;

pub use judge::{Call, Judge};
pub use memory::MemoryPart;
pub use weights::{Checksums, Load};

/// What vLLM puts before a request's name; without it an abort is counted and nothing ends.
const VLLM_PREFIX: &str = "generate-tokens-";

/// What a pause does with the requests under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseMode {
    /// They end.
    Abort,
    /// They stand still with their keys and values and go on later: SGLang's `in_place`, vLLM's
    /// `keep`.
    Keep,
    /// They go back into the queue and are computed again: SGLang only.
    Retract,
    /// They are waited for: vLLM only.
    Wait,
}

impl PauseMode {
    /// The engine's word for it.
    pub fn word(self, kind: Kind) -> Result<&'static str, Unsupported> {
        match (kind, self) {
            (_, PauseMode::Abort) => Ok("abort"),
            (Kind::Vllm, PauseMode::Keep) => Ok("keep"),
            (Kind::Vllm, PauseMode::Wait) => Ok("wait"),
            (Kind::Sglang | Kind::Robust, PauseMode::Keep) => Ok("in_place"),
            (Kind::Sglang | Kind::Robust, PauseMode::Retract) => Ok("retract"),
            (Kind::Vllm, PauseMode::Retract) => Err(Unsupported {
                kind,
                what: "pause that retracts",
            }),
            (Kind::Sglang | Kind::Robust, PauseMode::Wait) => Err(Unsupported {
                kind,
                what: "pause that waits for running requests",
            }),
        }
    }

    /// The pause that an engine's word stands for; without a word they abort.
    pub fn from_word(kind: Kind, word: Option<&str>) -> Option<Self> {
        let Some(word) = word else {
            return Some(PauseMode::Abort);
        };
        let all = [
            PauseMode::Abort,
            PauseMode::Keep,
            PauseMode::Retract,
            PauseMode::Wait,
        ];
        all.into_iter().find(|mode| mode.word(kind) == Ok(word))
    }
}

/// An engine has no means for what was wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub struct Unsupported {
    /// The engine.
    pub kind: Kind,
    /// What it cannot do.
    pub what: &'static str,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has no {}", self.kind.proper_name(), self.what)
    }
}

impl Dialect {
    /// Whether the engine has started; that it generates is another question.
    pub fn started(&self) -> Call {
        Call::plain(Request::get(match self.kind() {
            Kind::Vllm => "/health",
            Kind::Sglang | Kind::Robust => "/model_info",
        }))
    }

    /// Whether the engine takes requests now. SGLang refuses while it is paused; vLLM has no such
    /// question and only says that its HTTP server runs.
    pub fn ready(&self) -> Call {
        Call::plain(Request::get(match self.kind() {
            Kind::Vllm => "/health",
            Kind::Sglang | Kind::Robust => "/ready",
        }))
    }

    /// Whether the engine really generates: one token after `id`. vLLM's `/health` never asks its
    /// engine, and SGLang's takes at least a second. Not to be asked while the engine is paused:
    /// the request would wait, and SGLang calls itself unhealthy after 20 s of it (C-9).
    pub fn health_by_generation(&self, rid: &str, id: u32) -> Call {
        let request = self.generate(&Generate {
            rid: rid.to_owned(),
            ids: vec![id],
            max_new_tokens: 1,
            temperature: 0.0,
            stop_token_ids: Vec::new(),
            ignore_eos: true,
            sampling_seed: None,
            own: None,
            logprobs: false,
            stream: false,
        });
        Call::new(request, Judge::Generates(self.clone()))
    }

    /// Whether the engine's processes answer while it is paused; only vLLM has such a question. One
    /// that stands still does not survive it: it is fit for confirming only.
    pub fn health_while_paused(&self, timeout_s: u32) -> Result<Call, Unsupported> {
        match self.kind() {
            Kind::Vllm => Ok(Call::plain(Request::post(
                "/collective_rpc",
                &json!({"method": "check_health", "timeout": timeout_s}),
            ))),
            kind => Err(Unsupported {
                kind,
                what: "health check that works in a pause",
            }),
        }
    }

    /// Stops generation. No traffic is to be sent before it ends: requests that come in between
    /// wait without end (C-10).
    pub fn pause(&self, mode: PauseMode) -> Result<Call, Unsupported> {
        let word = mode.word(self.kind())?;
        Ok(Call::plain(match self.kind() {
            Kind::Vllm => Request::post_empty("/pause").with_query("mode", word),
            Kind::Sglang | Kind::Robust => {
                Request::post("/pause_generation", &json!({"mode": word}))
            }
        }))
    }

    /// Goes on with generation.
    pub fn resume(&self) -> Call {
        Call::plain(match self.kind() {
            Kind::Vllm => Request::post_empty("/resume"),
            Kind::Sglang | Kind::Robust => Request::post("/continue_generation", &json!({})),
        })
    }

    /// Ends one request; one that is not running is no error. An empty name ends nothing. SGLang
    /// may end others with it whose names begin so; vLLM has put its own before each name.
    pub fn abort(&self, rid: &str) -> Call {
        Call::plain(match self.kind() {
            Kind::Vllm => Request::post(
                "/inference/v1/abort_requests",
                &json!({"request_ids": [format!("{VLLM_PREFIX}{rid}")]}),
            ),
            Kind::Sglang | Kind::Robust => Request::post("/abort_request", &json!({"rid": rid})),
        })
    }

    /// Ends every request.
    pub fn abort_all(&self) -> Call {
        Call::plain(match self.kind() {
            Kind::Vllm => Request::post("/abort_requests", &json!({})),
            Kind::Sglang | Kind::Robust => {
                Request::post("/abort_request", &json!({"abort_all": true}))
            }
        })
    }

    /// Where the engine counts; SGLang does with `--enable-metrics` only. See [`crate::Gauges`].
    pub fn metrics(&self) -> Request {
        Request::get("/metrics")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn said(call: Call) -> String {
        let body = String::from_utf8(call.request.body.clone()).unwrap();
        format!("{} {body}", call.request).trim_end().to_owned()
    }

    #[test]
    fn orders_are_given_in_each_engines_words() {
        let [sglang, vllm] = [Kind::Sglang, Kind::Vllm].map(Dialect::newest);
        for (call, text) in [
            (
                sglang.pause(PauseMode::Keep).unwrap(),
                r#"POST /pause_generation {"mode":"in_place"}"#,
            ),
            (
                vllm.pause(PauseMode::Keep).unwrap(),
                "POST /pause?mode=keep",
            ),
            (sglang.resume(), "POST /continue_generation {}"),
            (vllm.resume(), "POST /resume"),
            (sglang.abort("a"), r#"POST /abort_request {"rid":"a"}"#),
            (
                vllm.abort("a"),
                r#"POST /inference/v1/abort_requests {"request_ids":["generate-tokens-a"]}"#,
            ),
            (
                sglang.abort_all(),
                r#"POST /abort_request {"abort_all":true}"#,
            ),
            (vllm.abort_all(), "POST /abort_requests {}"),
            (sglang.ready(), "GET /ready"),
            (vllm.ready(), "GET /health"),
            (sglang.started(), "GET /model_info"),
            (
                vllm.health_while_paused(3).unwrap(),
                r#"POST /collective_rpc {"method":"check_health","timeout":3}"#,
            ),
        ] {
            assert_eq!(said(call), text);
        }
    }

    #[test]
    fn what_an_engine_cannot_do_is_said_before_it_is_asked() {
        let [sglang, vllm] = [Kind::Sglang, Kind::Vllm].map(Dialect::newest);
        assert_eq!(
            sglang.pause(PauseMode::Wait).unwrap_err().to_string(),
            "SGLang has no pause that waits for running requests"
        );
        assert!(vllm.pause(PauseMode::Retract).is_err());
        assert!(sglang.health_while_paused(3).is_err());
        for kind in Kind::ALL {
            for mode in [PauseMode::Abort, PauseMode::Keep] {
                let word = mode.word(kind).unwrap();
                assert_eq!(PauseMode::from_word(kind, Some(word)), Some(mode));
            }
            assert_eq!(PauseMode::from_word(kind, None), Some(PauseMode::Abort));
            assert_eq!(PauseMode::from_word(kind, Some("x")), None);
        }
    }

    #[test]
    fn health_is_asked_by_generating_and_never_by_vllms_health_route() {
        for kind in Kind::ALL {
            let call = Dialect::newest(kind).health_by_generation("probe", 0);
            assert!(call.request.path.ends_with("/generate"), "{kind}");
        }
        let vllm = Dialect::newest(Kind::Vllm).health_by_generation("probe", 0);
        let whole = r#"{"choices": [{"token_ids": [3], "finish_reason": "length"}]}"#;
        assert_eq!(vllm.judge(200, whole), Ok(()));
        let aborted = r#"{"choices": [{"token_ids": [], "finish_reason": "abort"}]}"#;
        assert_eq!(vllm.judge(200, aborted).unwrap_err().message, "abort");
        assert!(vllm.judge(200, "{}").is_err());
        assert!(vllm.judge(503, "").is_err());
    }
}
