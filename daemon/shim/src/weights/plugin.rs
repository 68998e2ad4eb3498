//! The fast path of vLLM: a weight-transfer backend within the engine (`robustrl.vllm`), which maps the
//! folder's file and loads it layer by layer, the tied output head included.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use robust_engine::{Call, Judge, Request};
use serde_json::json;

/// What the engine was told so far.
#[derive(Debug, Default)]
pub(super) struct Plugin {
    /// vLLM sets its backend up once.
    initialised: AtomicBool,
}

impl Plugin {
    /// The orders that load a version from its folder, one after the other.
    pub fn calls(&self, version: u64, folder: &Path) -> Vec<Call> {
        let call = |request| Call {
            request,
            judge: Judge::Status,
        };
        let folder = folder.display().to_string();
        let mut calls = Vec::new();
        if !self.initialised.swap(true, Ordering::Relaxed) {
            let init = json!({"init_info": {}});
            calls.push(call(Request::post("/init_weight_transfer_engine", &init)));
        }
        let update = json!({"update_info": {"version": version, "folder": folder}});
        let finish = json!({"weight_version": version.to_string()});
        calls.push(call(Request::post("/start_weight_update", &json!({}))));
        calls.push(call(Request::post("/update_weights", &update)));
        calls.push(call(Request::post("/finish_weight_update", &finish)));
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backend_is_set_up_once_and_each_version_has_a_folder() {
        let plugin = Plugin::default();
        let said = |version| -> Vec<String> {
            let calls = plugin.calls(version, Path::new("/dev/shm/v7"));
            calls.iter().map(|call| call.request.to_string()).collect()
        };
        let update = [
            "POST /start_weight_update",
            "POST /update_weights",
            "POST /finish_weight_update",
        ];
        assert_eq!(said(7)[0], "POST /init_weight_transfer_engine");
        assert_eq!(said(8), update);
    }
}
