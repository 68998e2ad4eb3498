//! The fast path: a receiver of ours within the engine, which maps the folder's file and loads it layer by
//! layer. For vLLM a weight-transfer backend (`robustrl.vllm`), which loads a tied output head too; for SGLang
//! a custom loader (`robustrl.sglang`).

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use robust_engine::{Call, Judge, Request};
use robust_shared::job::EngineKind;
use serde_json::{Value, json};

/// What SGLang is started with, and told with each version.
const SGLANG_LOADER: &str = "robustrl.sglang.load";

/// What the engine was told so far.
#[derive(Debug, Default)]
pub(super) struct Plugin {
    /// vLLM sets its backend up once.
    initialised: AtomicBool,
}

/// A version for a plugin.
pub(super) struct Given<'a> {
    pub version: u64,
    /// The folder that has it as a model.
    pub folder: &'a Path,
    /// Whether keys and values of older weights are dropped.
    pub flush: bool,
    /// Processes of the engine that have a part of the weights each.
    pub ranks: u32,
}

impl Plugin {
    /// The orders that load a version from its folder, one after the other; vLLM's cache is not flushed by
    /// them.
    pub fn calls(&self, kind: EngineKind, given: &Given<'_>) -> Vec<Call> {
        match kind {
            EngineKind::Sglang => sglang(given),
            EngineKind::Vllm | EngineKind::Robust => self.vllm(given),
        }
    }

    fn vllm(&self, given: &Given<'_>) -> Vec<Call> {
        let folder = given.folder.display().to_string();
        let mut calls = Vec::new();
        if !self.initialised.swap(true, Ordering::Relaxed) {
            let init = json!({"init_info": {}});
            calls.push(call("/init_weight_transfer_engine", &init, Judge::Status));
        }
        let update = json!({"update_info": {"version": given.version, "folder": folder}});
        let finish = json!({"weight_version": given.version.to_string()});
        calls.push(call("/start_weight_update", &json!({}), Judge::Status));
        calls.push(call("/update_weights", &update, Judge::Status));
        calls.push(call("/finish_weight_update", &finish, Judge::Status));
        calls
    }
}

/// SGLang takes tensors from others only between these two.
fn sglang(given: &Given<'_>) -> Vec<Call> {
    let payload = STANDARD.encode(named(&given.folder.display().to_string()));
    let payloads = vec![payload; given.ranks.max(1) as usize];
    let update = json!({
        "serialized_named_tensors": payloads, "load_format": SGLANG_LOADER,
        "flush_cache": given.flush, "weight_version": given.version.to_string(),
    });
    vec![
        call("/begin_weight_update", &json!({}), Judge::Success),
        call("/update_weights_from_tensor", &update, Judge::Success),
        call("/end_weight_update", &json!({}), Judge::Success),
    ]
}

fn call(path: &'static str, body: &Value, judge: Judge) -> Call {
    Call {
        request: Request::post(path, body),
        judge,
    }
}

/// A list with one pair, of the name and an empty tensor, as Python pickles it (protocol 2): the only shape
/// that `update_weights_from_tensor` takes. The loader needs no tensor but the name.
fn named(name: &str) -> Vec<u8> {
    let length = u32::try_from(name.len()).unwrap_or(u32::MAX).to_le_bytes();
    let mut pickle = b"\x80\x02]X".to_vec();
    pickle.extend(length);
    pickle.extend(name.as_bytes());
    // `torch.FloatTensor()`, which SGLang's own reader of pickles allows; a pair; appended; the end.
    pickle.extend(b"ctorch\nFloatTensor\n)R\x86a.");
    pickle
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(version: u64) -> Given<'static> {
        Given {
            version,
            folder: Path::new("/dev/shm/v7"),
            flush: true,
            ranks: 2,
        }
    }

    fn said(calls: &[Call]) -> Vec<String> {
        calls.iter().map(|call| call.request.to_string()).collect()
    }

    #[test]
    fn vllms_backend_is_set_up_once_and_each_version_has_a_folder() {
        let plugin = Plugin::default();
        let calls = |version| said(&plugin.calls(EngineKind::Vllm, &given(version)));
        let update = [
            "POST /start_weight_update",
            "POST /update_weights",
            "POST /finish_weight_update",
        ];
        assert_eq!(calls(7)[0], "POST /init_weight_transfer_engine");
        assert_eq!(calls(8), update);
    }

    #[test]
    fn each_rank_of_sglang_is_told_the_folder_by_the_name_of_an_empty_tensor() {
        let calls = Plugin::default().calls(EngineKind::Sglang, &given(7));
        let update = [
            "POST /begin_weight_update",
            "POST /update_weights_from_tensor",
            "POST /end_weight_update",
        ];
        assert_eq!(said(&calls), update);
        let body: Value = serde_json::from_slice(&calls[1].request.body).unwrap_or_default();
        // `pickle.loads` makes [("/dev/shm/v7", torch.FloatTensor())] of it.
        let pickle = "gAJdWAsAAAAvZGV2L3NobS92N2N0b3JjaApGbG9hdFRlbnNvcgopUoZhLg==";
        assert_eq!(body["serialized_named_tensors"], json!([pickle, pickle]));
        assert_eq!(body["weight_version"], "7");
    }
}
