//! Loads that an engine acknowledges and that are not what it serves afterwards.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::kind::{Kind, PROMPT, Wish};
use super::reply::turn;
use super::scene::Scene;

/// The shim gives the engine up, says what it saw and what cures it, and nothing reached a client.
fn is_found_out(wish: &Wish, cure: &str) {
    let mut scene = Scene::start(wish);
    // What it was started with.
    scene.load(1, 1);
    let order = scene.publish(2, 2);
    scene.send(&order);
    let (code, words) = scene.ended();
    assert_eq!(code, 7, "{words}");
    assert!(
        words.contains("version 2 is not what the engine serves"),
        "{words}"
    );
    assert!(
        words.contains("the canary") && words.contains(cure),
        "{words}"
    );
}

#[test]
fn a_vllm_that_keeps_its_tied_head_when_it_reloads_gets_no_traffic() {
    let wish = Wish {
        weights: "disk",
        quirk: Some("lying-reload"),
        ..Wish::sound(Kind::Vllm)
    };
    is_found_out(&wish, "weights = \"plugin\"");
}

#[test]
fn an_sglang_that_answers_from_the_keys_of_older_weights_gets_no_traffic() {
    let wish = Wish {
        flush: "never",
        quirk: Some("stale-kv"),
        ..Wish::sound(Kind::Sglang)
    };
    is_found_out(&wish, "flush = \"always\"");
}

/// An exception in a loader ends SGLang's scheduler: ours never raises, and what was not loaded is found.
#[test]
fn a_folder_that_is_not_there_does_not_end_sglang() {
    let mut scene = Scene::start(&Wish::plugin(Kind::Sglang));
    scene.load(1, 1);
    // [("/nowhere", torch.FloatTensor())], as `weights/plugin.rs` writes it.
    let pickle = b"\x80\x02]X\x08\0\0\0/nowherectorch\nFloatTensor\n)R\x86a.";
    let update = json!({
        "serialized_named_tensors": [STANDARD.encode(pickle)],
        "load_format": "robustrl.sglang.load", "weight_version": "1",
    });
    for (path, body) in [
        ("/begin_weight_update", json!({})),
        ("/update_weights_from_tensor", update),
        ("/end_weight_update", json!({})),
    ] {
        let (status, text) = scene.post(path, &body);
        assert_eq!(status, 200, "{path}: {text}");
    }
    let (status, text) = scene.post("/generate", &turn(&PROMPT, 4));
    assert_eq!(status, 503, "a client loaded something: {text}");
    scene.load(2, 2);
    let canary = scene.models.canary(2);
    let said = scene.generate(&turn(&PROMPT, canary.ids.len()));
    assert_eq!(said.ids, canary.ids);
}
