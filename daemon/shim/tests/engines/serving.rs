//! Versions that come while requests run, and requests that no engine should get.

use super::kind::{Kind, PROMPT, Wish};
use super::reply::{Said, same, stream, turn};
use super::scene::Scene;

/// Long enough that a version comes while it is made.
const LONG: usize = 200;

/// The engine answers as the model does that it was given as this version.
fn serves(scene: &Scene, version: u64, model: u64) {
    let canary = scene.models.canary(model);
    let tokens = canary.ids.len();
    let said = scene.generate(&turn(&PROMPT, tokens));
    assert_eq!(said.ids, canary.ids);
    assert!(
        same(&said.logprobs, &canary.logprobs),
        "{said:?} {canary:?}"
    );
    assert_eq!(said.spans, [(version, 0, tokens)]);
    let streamed = scene.begin(&stream(&PROMPT, tokens)).end();
    assert_eq!((&streamed.ids, &streamed.spans), (&said.ids, &said.spans));
    assert_eq!(streamed.finish, "length");
}

/// Made by one version up to a token, and by the next one from there.
fn goes_over(said: &Said, before: &Said, from: u64, to: u64) {
    assert_eq!((said.ids.len(), said.finish.as_str()), (LONG, "length"));
    let [first, last] = said.spans.as_slice() else {
        panic!("{:?}", said.spans);
    };
    assert_eq!((first.0, first.1), (from, 0));
    assert_eq!((last.0, last.1, last.2), (to, first.2, LONG));
    assert_eq!(said.ids[..first.2], before.ids[..first.2]);
    assert_ne!(said.ids, before.ids, "other weights say something else");
}

fn versions_come_while_requests_run(wish: &Wish) {
    let mut scene = Scene::start(wish);
    let (status, text) = scene.post("/generate", &turn(&PROMPT, 4));
    assert!(
        status == 503 && text.contains("no verified weights"),
        "{status} {text}"
    );
    scene.load(1, 1);
    serves(&scene, 1, 1);
    let before = scene.generate(&turn(&PROMPT, LONG));
    // In order: each is asked when the one before it has tokens.
    let mut running = Vec::new();
    for _ in 0..3 {
        let mut one = scene.begin(&stream(&PROMPT, LONG));
        one.until(3);
        running.push(one);
    }
    scene.load(2, 2);
    for one in running {
        goes_over(&one.end(), &before, 1, 2);
    }
    serves(&scene, 2, 2);
    wrong_bytes_never_reach_it(&mut scene);
    scene.load(4, 1);
    serves(&scene, 4, 1);
}

/// What is not what was published is refused before the engine hears of it, and it serves on.
fn wrong_bytes_never_reach_it(scene: &mut Scene) {
    let order = scene.publish(3, 1);
    scene.damage(3);
    scene.send(&order);
    let (kind, reason) = scene.pulled().unwrap_err();
    assert_eq!(kind, "corrupt", "{reason}");
    serves(scene, 2, 2);
}

#[test]
fn vllm_takes_versions_over_while_requests_run_and_says_which_made_which_tokens() {
    versions_come_while_requests_run(&Wish::plugin(Kind::Vllm));
}

#[test]
fn sglang_takes_versions_over_while_requests_run_and_says_which_made_which_tokens() {
    versions_come_while_requests_run(&Wish::sound(Kind::Sglang));
}

#[test]
fn sglang_takes_versions_over_by_our_loader_too() {
    versions_come_while_requests_run(&Wish::plugin(Kind::Sglang));
}

/// A token that the model does not have ends a SGLang server that gets it.
fn a_bad_token_is_refused(kind: Kind, own: &str, body: &serde_json::Value) {
    let mut scene = Scene::start(&Wish::sound(kind));
    scene.load(1, 1);
    let (status, text) = scene.post("/generate", &turn(&[1, 5, 5000], 4));
    assert!(status == 400 && text.contains("5000"), "{status} {text}");
    let (status, text) = scene.post(own, body);
    assert!(status == 400 && text.contains("5000"), "{status} {text}");
    serves(&scene, 1, 1);
}

#[test]
fn vllm_outlives_a_token_that_its_model_does_not_have() {
    let sampling = serde_json::json!({ "max_tokens": 4 });
    let body = serde_json::json!({ "token_ids": [1, 5, 5000], "sampling_params": sampling });
    a_bad_token_is_refused(Kind::Vllm, "/inference/v1/generate", &body);
}

#[test]
fn sglang_outlives_a_token_that_its_model_does_not_have() {
    let sampling = serde_json::json!({ "max_new_tokens": 4 });
    let body = serde_json::json!({ "input_ids": [1, 5, 5000], "sampling_params": sampling });
    a_bad_token_is_refused(Kind::Sglang, "/generate", &body);
}
