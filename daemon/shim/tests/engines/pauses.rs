//! Pauses that a client orders, by the engine's own routes.

use serde_json::{Value, json};

use super::kind::{Kind, PROMPT, Wish};
use super::reply::{stream, turn};
use super::scene::Scene;

const LONG: usize = 200;

/// How a request under way ends that a pause of this mode met.
type Met = (&'static str, fn(&str, usize) -> bool);

fn ended(finish: &str, tokens: usize) -> bool {
    finish == "abort" && tokens < LONG
}

fn whole(finish: &str, tokens: usize) -> bool {
    finish == "length" && tokens == LONG
}

fn pause(scene: &Scene, kind: Kind, mode: &str) -> (u16, String) {
    match kind {
        Kind::Vllm => scene.post(&format!("/pause?mode={mode}"), &Value::Null),
        Kind::Sglang => scene.post("/pause_generation", &json!({ "mode": mode })),
    }
}

fn go_on(scene: &Scene, kind: Kind) -> (u16, String) {
    match kind {
        Kind::Vllm => scene.post("/resume", &Value::Null),
        Kind::Sglang => scene.post("/continue_generation", &json!({})),
    }
}

fn a_pause_closes_the_door(kind: Kind, modes: &[Met]) {
    let mut scene = Scene::start(&Wish::sound(kind));
    scene.load(1, 1);
    let before = scene.generate(&turn(&PROMPT, LONG));
    for (mode, met) in modes {
        let mut running = scene.begin(&stream(&PROMPT, LONG));
        running.until(3);
        let (status, text) = pause(&scene, kind, mode);
        assert_eq!(status, 200, "{mode}: {text}");
        let (status, text) = scene.post("/generate", &turn(&PROMPT, 4));
        assert!(
            status == 503 && text.contains("paused"),
            "{mode}: {status} {text}"
        );
        assert_eq!(
            scene.get("/health_generate"),
            (200, "paused".to_owned()),
            "{mode}"
        );
        let (status, text) = go_on(&scene, kind);
        assert_eq!(status, 200, "{mode}: {text}");
        let said = running.end();
        assert!(met(&said.finish, said.ids.len()), "{mode}: {said:?}");
        assert_eq!(said.ids[..], before.ids[..said.ids.len()], "{mode}");
        assert_eq!(
            scene.generate(&turn(&PROMPT, LONG)).ids,
            before.ids,
            "{mode}"
        );
    }
}

#[test]
fn a_paused_vllm_gets_no_requests_and_goes_on_as_its_mode_says() {
    a_pause_closes_the_door(
        Kind::Vllm,
        &[("abort", ended), ("wait", whole), ("keep", whole)],
    );
}

#[test]
fn a_paused_sglang_gets_no_requests_and_goes_on_as_its_mode_says() {
    let modes: [Met; 3] = [("abort", ended), ("retract", whole), ("in_place", whole)];
    a_pause_closes_the_door(Kind::Sglang, &modes);
}
