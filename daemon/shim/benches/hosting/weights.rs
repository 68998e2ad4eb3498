//! Versions into the engine, beside its own load of the same folder.

use std::time::Instant;

use serde_json::{Map, Value, json};

use super::kind::{Kind, Wish};
use super::scene::Scene;
use super::{figure, median, own_port};

pub fn measure(scene: &mut Scene, wish: &Wish, rounds: u64) -> Map<String, Value> {
    scene.load(1, 1);
    let port = own_port(scene);
    let mut whole = Vec::new();
    let mut own = Vec::new();
    for round in 0..rounds {
        let version = round + 2;
        let order = scene.publish(version, 1 + version % 2);
        let began = Instant::now();
        scene.send(&order);
        scene.pulled().unwrap_or_else(|error| panic!("{error:?}"));
        whole.push(ms(began));
        // The engine's own way, to the same numbers: what it serves stays verified.
        let folder = scene.served_folder(version);
        let (path, body) = reload(wish.kind, &folder);
        let began = Instant::now();
        let (status, text) = scene.post_to(&format!("http://127.0.0.1:{port}{path}"), &body);
        own.push(ms(began));
        assert_eq!(status, 200, "{text}");
    }
    let log = scene.log();
    let told = |field: &str| -> Vec<f64> {
        let loads = log.lines().filter_map(|line| line.split_once(field));
        let all = loads.filter_map(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
        // The first load finds an engine that never loaded.
        all.skip(1).collect()
    };
    let (load, verify) = (told(" load_ms="), told(" verify_ms="));
    let both: Vec<f64> = load.iter().zip(&verify).map(|(a, b)| a + b).collect();
    let bytes: usize = scene
        .models
        .tensors(1)
        .iter()
        .map(|(_, _, b)| b.len())
        .sum();
    let ratio = median(&load) / median(&own);
    let name = |what: &str| format!("{what}_{}_{}_{}", wish.kind.name(), wish.weights, wish.size);
    let figures = [
        ("weights_to", both),
        ("weights_load", load),
        ("weights_verify", verify),
        ("weights_order_to_served", whole),
        ("own_reload", own),
    ];
    let mut all: Map<String, Value> = figures
        .map(|(what, values)| (format!("{}_ms", name(what)), figure(&values)))
        .into_iter()
        .collect();
    all.insert(name("load_over_own"), json!(ratio));
    all.insert(name("bytes"), json!(bytes));
    all
}

fn reload(kind: Kind, folder: &str) -> (&'static str, Value) {
    match kind {
        Kind::Vllm => (
            "/collective_rpc",
            json!({ "method": "reload_weights", "kwargs": { "weights_path": folder } }),
        ),
        Kind::Sglang => (
            "/update_weights_from_disk",
            json!({ "model_path": folder, "flush_cache": true }),
        ),
    }
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
