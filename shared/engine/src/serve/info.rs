//! What a server says of itself.

use serde_json::{Value, json};

use crate::dialect::{Kind, ROBUST_VERSION};
use crate::label::Label;

/// What a pause is answered with.
pub const PAUSED: &str = r#"{"message":"Generation paused successfully.","status":"ok"}"#;
/// What going on is answered with.
pub const CONTINUED: &str = r#"{"message":"Generation continued successfully.","status":"ok"}"#;
/// What an emptied cache is answered with, as plain text.
pub const FLUSHED: &str = "Cache flushed.\nPlease check backend logs for more details. \
    (When there are running or waiting requests, the operation will not be performed.)\n";

/// What does not change while a server runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The folder of the model.
    pub model_path: String,
    /// The folder or file of the tokenizer; empty without one.
    pub tokenizer_path: String,
    /// The most tokens of prompt and reply together.
    pub context_len: usize,
    /// The most requests that run at a time.
    pub max_running: usize,
    /// The version of this build.
    pub robust_version: String,
}

/// Counts of requests and tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Requests that generate.
    pub running: usize,
    /// Requests that wait for others to end.
    pub waiting: usize,
    /// Tokens generated since the start.
    pub generated_tokens: u64,
    /// Input tokens taken since the start.
    pub prompt_tokens: u64,
    /// Requests taken since the start.
    pub requests: u64,
}

impl Facts {
    /// The answer to `/model_info`.
    pub fn model_info(&self, version: Option<u64>) -> Value {
        json!({
            "model_path": self.model_path,
            "served_model_name": self.model_path,
            "tokenizer_path": self.tokenizer_path,
            "is_generation": true,
            "preferred_sampling_params": null,
            "weight_version": version.map_or(Label::Unset, Label::Number),
            "load_format": "auto",
            "disaggregation_mode": "null",
            "has_image_understanding": false,
            "has_audio_understanding": false,
            "model_type": "qwen3",
            "architectures": ["Qwen3ForCausalLM"],
        })
    }

    /// The answer to `/server_info`: `version` is that of SGLang's API which is imitated.
    pub fn server_info(&self, figures: &Figures) -> Value {
        let sglang = Kind::Sglang.tested().last().map(ToString::to_string);
        json!({
            "model_path": self.model_path,
            "tokenizer_path": self.tokenizer_path,
            "context_length": self.context_len,
            "max_running_requests": self.max_running,
            "tp_size": 1,
            "pp_size": 1,
            "dp_size": 1,
            "ep_size": 1,
            "disaggregation_mode": "null",
            "enable_metrics": true,
            "incremental_streaming_output": false,
            "internal_states": [load(figures, self.max_running)],
            "version": sglang,
            "frontend": "robust",
            ROBUST_VERSION: self.robust_version,
        })
    }

    /// The answer to `/v1/models`.
    pub fn models(&self) -> Value {
        json!({"object": "list", "data": [{
            "id": self.model_path,
            "object": "model",
            "created": 0,
            "owned_by": "robust",
            "root": self.model_path,
            "parent": null,
            "max_model_len": self.context_len,
        }]})
    }

    /// The answer to `/v1/loads`.
    pub fn loads(&self, figures: &Figures) -> Value {
        json!({
            "version": Kind::Sglang.tested().last().map(ToString::to_string),
            "accelerator": null,
            "num_accelerators": 0,
            "loads": [load(figures, self.max_running)],
        })
    }
}

fn load(figures: &Figures, max_running: usize) -> Value {
    json!({
        "dp_rank": 0,
        "num_running_reqs": figures.running,
        "num_waiting_reqs": figures.waiting,
        "max_running_requests": max_running,
    })
}

impl Figures {
    /// The answer to `/metrics`, in SGLang's names.
    pub fn metrics(&self) -> String {
        [
            (
                "num_running_reqs",
                "gauge",
                "The number of running requests.",
                self.running as u64,
            ),
            (
                "num_queue_reqs",
                "gauge",
                "The number of requests in the waiting queue.",
                self.waiting as u64,
            ),
            (
                "prompt_tokens_total",
                "counter",
                "Number of prefill tokens processed.",
                self.prompt_tokens,
            ),
            (
                "generation_tokens_total",
                "counter",
                "Number of generation tokens processed.",
                self.generated_tokens,
            ),
            (
                "num_requests_total",
                "counter",
                "Number of requests processed.",
                self.requests,
            ),
        ]
        .map(|(name, kind, help, value)| {
            format!(
                "# HELP sglang:{name} {help}\n# TYPE sglang:{name} {kind}\nsglang:{name} {value}\n"
            )
        })
        .concat()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Dialect, Gauges};

    #[test]
    fn what_is_said_is_read_by_our_own_client() {
        let facts = Facts {
            robust_version: "0.1.0".into(),
            ..Facts::default()
        };
        let info = facts.server_info(&Figures::default()).to_string();
        let dialect = Dialect::detect("/server_info", &info).unwrap();
        assert_eq!((dialect.kind(), dialect.caution()), (Kind::Robust, None));
        for (version, label) in [(None, Label::Unset), (Some(3), Label::Number(3))] {
            let info = facts.model_info(version).to_string();
            assert_eq!(dialect.read_version(&info), Ok(label));
        }
        let figures = Figures {
            running: 2,
            waiting: 1,
            generated_tokens: 99,
            ..Figures::default()
        };
        let gauges = Gauges::read(Kind::Robust, &figures.metrics());
        assert_eq!((gauges.running, gauges.waiting), (Some(2), Some(1)));
        assert_eq!(gauges.generated_tokens, Some(99));
    }
}
