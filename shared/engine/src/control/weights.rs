//! Weights from a folder, and what lies in the engine's memory afterwards.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Call, Judge};
use crate::dialect::{Dialect, Kind};
use crate::error::Unreadable;
use crate::label::Label;
use crate::request::Request;

/// Weights that an engine is to load from files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// The folder, as the engine sees it.
    pub folder: String,
    /// How SGLang is to read it; its default looks at the files.
    pub format: Option<String>,
    /// What the weights are to be called afterwards.
    pub version: Label,
    /// Whether SGLang stays paused afterwards; vLLM does if it was.
    pub keep_pause: bool,
    /// Whether the cache is emptied: keys and values of other weights would answer new prompts. SGLang
    /// refuses the whole load if requests stand in its cache at that moment.
    pub flush: bool,
}

/// What an engine says of its parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checksums {
    /// One over everything, where the engine has it.
    pub engine: Option<String>,
    /// For each rank, by its name, the parameters' checksums in hex: SGLang's have 16 digits of
    /// SHA-256, vLLM's all 64.
    pub ranks: BTreeMap<String, BTreeMap<String, String>>,
}

const MODEL_INFO: &str = "/model_info";
const WEIGHT_INFO: &str = "/weight_info";
const WEIGHTS_CHECKER: &str = "/weights_checker";
const WEIGHT_CHECKER: &str = "/weight_checker";

impl Dialect {
    /// The orders that load weights, to be given one after the other as long as each succeeds.
    pub fn load_from_folder(&self, load: &Load) -> Vec<Call> {
        match self.kind() {
            Kind::Vllm => {
                let reload = json!({"method": "reload_weights",
                    "kwargs": {"weights_path": load.folder}});
                let mut calls = vec![Call::plain(Request::post("/collective_rpc", &reload))];
                calls.extend(load.flush.then(|| self.flush()));
                calls.push(self.set_version(&load.version));
                calls
            }
            Kind::Sglang | Kind::Robust => vec![Call::new(
                Request::post("/update_weights_from_disk", &from_disk(load)),
                Judge::Success,
            )],
        }
    }

    /// Sets what the weights are called, and nothing else.
    pub fn set_version(&self, version: &Label) -> Call {
        let version = version.to_string();
        let body = match self.kind() {
            Kind::Vllm => json!({"new_version": version}),
            Kind::Sglang | Kind::Robust => {
                json!({"new_version": version, "abort_all_requests": false})
            }
        };
        Call::new(
            Request::post("/update_weight_version", &body),
            Judge::Success,
        )
    }

    /// Forgets the keys and values of prompts seen before.
    pub fn flush(&self) -> Call {
        match self.kind() {
            Kind::Vllm => Call::new(Request::post_empty("/reset_prefix_cache"), Judge::Success),
            Kind::Sglang | Kind::Robust => Call::plain(Request::post_empty("/flush_cache")),
        }
    }

    /// Asks what the weights are called that are served.
    pub fn version_served(&self) -> Request {
        Request::get(match self.kind() {
            Kind::Vllm => WEIGHT_INFO,
            Kind::Sglang | Kind::Robust => MODEL_INFO,
        })
    }

    /// Reads the answer to [`Dialect::version_served`]. The built-in rollout says `default` before
    /// its first version, as the others do.
    pub fn read_version(&self, body: &str) -> Result<Label, Unreadable> {
        #[derive(Deserialize)]
        struct Info {
            weight_version: Label,
        }
        let path = self.version_served().path;
        let info = serde_json::from_str(body).map_err(|error| Unreadable::new(path, error));
        info.map(|info: Info| info.weight_version)
    }

    /// Asks for the checksums of what lies in the engine's memory.
    pub fn checksums(&self) -> Call {
        let body = json!({"action": "checksum"});
        match self.kind() {
            Kind::Vllm => Call::plain(Request::post(WEIGHT_CHECKER, &body)),
            Kind::Sglang | Kind::Robust => {
                Call::new(Request::post(WEIGHTS_CHECKER, &body), Judge::Success)
            }
        }
    }

    /// Reads the answer to [`Dialect::checksums`].
    pub fn read_checksums(&self, body: &str) -> Result<Checksums, Unreadable> {
        match self.kind() {
            Kind::Vllm => vllm(body).map_err(|error| Unreadable::new(WEIGHT_CHECKER, error)),
            Kind::Sglang | Kind::Robust => {
                sglang(body).map_err(|error| Unreadable::new(WEIGHTS_CHECKER, error))
            }
        }
    }
}

fn from_disk(load: &Load) -> Value {
    let mut body = json!({
        "model_path": load.folder,
        "weight_version": load.version,
        "flush_cache": load.flush,
        "abort_all_requests": false,
    });
    if let Some(format) = &load.format {
        body["load_format"] = format.as_str().into();
    }
    if load.keep_pause {
        body["keep_pause"] = true.into();
    }
    body
}

fn sglang(body: &str) -> serde_json::Result<Checksums> {
    #[derive(Deserialize)]
    struct Rank {
        checksums: BTreeMap<String, String>,
    }
    #[derive(Deserialize)]
    struct Reply {
        #[serde(default)]
        per_engine_checksum: Option<String>,
        ranks: Vec<Rank>,
    }
    let reply: Reply = serde_json::from_str(body)?;
    let ranks = reply.ranks.into_iter().enumerate();
    Ok(Checksums {
        engine: reply.per_engine_checksum,
        ranks: ranks
            .map(|(number, rank)| (number.to_string(), rank.checksums))
            .collect(),
    })
}

/// vLLM puts the rank before the name: `dp0:pp0:pcp0:tp0:model.norm.weight`.
fn vllm(body: &str) -> serde_json::Result<Checksums> {
    #[derive(Deserialize)]
    struct Reply {
        checksums: BTreeMap<String, String>,
    }
    let reply: Reply = serde_json::from_str(body)?;
    let mut all = Checksums::default();
    for (name, sum) in reply.checksums {
        let (rank, name) = name.rsplit_once(':').unwrap_or(("", &name));
        let rank = all.ranks.entry(rank.to_owned()).or_default();
        rank.insert(name.to_owned(), sum);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn load() -> Load {
        Load {
            folder: "/dev/shm/job/v7".into(),
            format: None,
            version: Label::Number(7),
            keep_pause: true,
            flush: true,
        }
    }

    fn said(calls: &[Call]) -> Vec<String> {
        let body = |call: &Call| String::from_utf8(call.request.body.clone()).unwrap();
        let said = |call: &Call| format!("{} {}", call.request, body(call));
        calls.iter().map(said).collect()
    }

    #[test]
    fn sglang_loads_in_one_order_that_empties_its_cache() {
        let calls = Dialect::newest(Kind::Sglang).load_from_folder(&load());
        assert_eq!(calls.len(), 1);
        let body: Value = serde_json::from_slice(&calls[0].request.body).unwrap();
        assert_eq!(calls[0].request.path, "/update_weights_from_disk");
        assert_eq!(
            body,
            json!({"model_path": "/dev/shm/job/v7", "weight_version": "7", "flush_cache": true,
                "abort_all_requests": false, "keep_pause": true})
        );
        let no = r#"{"success": false, "message": "Failed: no file", "num_paused_requests": 0}"#;
        let refused = calls[0].judge(400, no).unwrap_err();
        assert_eq!(refused.message, "Failed: no file");
    }

    #[test]
    fn vllm_loads_then_empties_its_cache_then_is_told_the_version() {
        let calls = Dialect::newest(Kind::Vllm).load_from_folder(&load());
        assert_eq!(
            said(&calls),
            [
                "POST /collective_rpc {\"kwargs\":{\"weights_path\":\"/dev/shm/job/v7\"},\
                 \"method\":\"reload_weights\"}",
                "POST /reset_prefix_cache ",
                "POST /update_weight_version {\"new_version\":\"7\"}",
            ]
        );
        assert_eq!(calls[0].judge(200, r#"{"results": [null]}"#), Ok(()));
        assert_eq!(calls[0].judge(200, ""), Ok(()));
        // Blocks are still held.
        assert!(calls[1].judge(200, r#"{"success": false}"#).is_err());
    }

    #[test]
    fn the_version_is_a_text_that_may_be_no_number_of_ours() {
        for kind in Kind::ALL {
            let dialect = Dialect::newest(kind);
            let read = |text| dialect.read_version(text);
            assert_eq!(read(r#"{"weight_version": "7"}"#), Ok(Label::Number(7)));
            assert_eq!(read(r#"{"weight_version": "default"}"#), Ok(Label::Unset));
            let error = read(r#"{"weight_version": null}"#).unwrap_err();
            assert!(error.to_string().contains("_info is unreadable"), "{error}");
        }
    }

    #[test]
    fn checksums_are_told_by_rank_and_name() {
        let sglang = Dialect::newest(Kind::Sglang).read_checksums(
            r#"{"success": true, "message": "Success.", "per_engine_checksum": "ab",
                "ranks": [{"checksums": {"model.norm.weight": "0011"}, "per_gpu_checksum": "c",
                    "parallelism_info": {}}]}"#,
        );
        let sglang = sglang.unwrap();
        assert_eq!(sglang.engine.as_deref(), Some("ab"));
        assert_eq!(sglang.ranks["0"]["model.norm.weight"], "0011");
        let vllm = Dialect::newest(Kind::Vllm)
            .read_checksums(r#"{"checksums": {"dp0:pp0:pcp0:tp1:model.norm.weight": "22"}}"#);
        let vllm = vllm.unwrap();
        assert_eq!(vllm.ranks["dp0:pp0:pcp0:tp1"]["model.norm.weight"], "22");
        assert!(Dialect::newest(Kind::Vllm).read_checksums("[]").is_err());
    }
}
