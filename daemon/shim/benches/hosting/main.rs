//! What a shim costs beside its engine, with nothing else at work: the tests play trainer and daemon.
//!
//! ```text
//!  cargo bench -p robust-shim --bench hosting -- --kind vllm --out FILE      (ENGINES: the real ones)
//!
//!  a version:  order ─► pulled ─► the engine loads it ─► verified      beside   the same folder, loaded by
//!                                                                              the engine at its own port
//!  tokens:     eight streams through the shim                          beside   eight streams straight to it
//! ```
//! Both of a pair come after one another, pair after pair: what else the machine does meets both.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../tests/engines/kind.rs"]
mod kind;
#[path = "../../tests/engines/reply.rs"]
mod reply;
#[path = "../../tests/engines/scene.rs"]
mod scene;
#[path = "../../../../tests/fake-engine/tests/common/model.rs"]
mod toy;

mod tokens;
mod weights;

use clap::Parser;
use kind::{Kind, Wish, real};
use scene::Scene;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Measures a shim beside its engine.
#[derive(Parser)]
struct Args {
    /// The engine's make
    #[arg(long, value_parser = ["vllm", "sglang"])]
    kind: String,
    /// Versions, and pairs of reading tokens
    #[arg(long, default_value_t = 8)]
    rounds: u64,
    /// Also the model of 337 MiB
    #[arg(long)]
    large: bool,
    /// Write the result here
    #[arg(long)]
    out: Option<PathBuf>,
    /// cargo says so
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let args = Args::parse();
    let kind = match args.kind.as_str() {
        "vllm" => Kind::Vllm,
        _ => Kind::Sglang,
    };
    let mut all = Map::new();
    let sizes = ["small", "large"];
    for size in &sizes[..if args.large { 2 } else { 1 }] {
        for wish in ways(kind, size) {
            eprintln!("bench: {} {size}, weights {}", kind.name(), wish.weights);
            let mut scene = Scene::start(&wish);
            all.extend(weights::measure(&mut scene, &wish, args.rounds));
            if wish.weights == Wish::sound(kind).weights {
                let rounds = match *size {
                    "small" => args.rounds,
                    // A token of it takes ten times as long.
                    _ => args.rounds.div_ceil(2),
                };
                all.extend(tokens::measure(&scene, &wish, rounds));
            }
        }
    }
    all.insert("real".into(), real().is_some().into());
    all.insert("optimised".into(), (!cfg!(debug_assertions)).into());
    let text = serde_json::to_string_pretty(&Value::Object(all)).unwrap();
    match args.out {
        Some(path) => std::fs::write(path, text).unwrap(),
        None => println!("{text}"),
    }
}

/// The ways by which weights get into an engine of this make.
fn ways(kind: Kind, size: &'static str) -> Vec<Wish> {
    let sound = Wish {
        size,
        open: true,
        ..Wish::sound(kind)
    };
    let plugin = Wish {
        size,
        open: true,
        ..Wish::plugin(kind)
    };
    // On a processor vLLM keeps its tied head, which the canary would find.
    let disk = Wish {
        weights: "disk",
        verify: match kind {
            Kind::Vllm => &["version", "checksum"],
            Kind::Sglang => sound.verify,
        },
        ..sound
    };
    vec![plugin, disk]
}

/// The port that the engine opened, from its own command line.
fn own_port(scene: &Scene) -> u16 {
    let all = scene.engine();
    let (_, line) = all.first().expect("the engine lives");
    let (_, rest) = line.split_once("--port ").expect("it has a port");
    let port = rest.split_whitespace().next().unwrap_or_default();
    port.parse().expect("it is a number")
}

/// Median, smallest, largest and all of them, with the load.
fn figure(values: &[f64]) -> Value {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Option<f64> = load.split(' ').next().and_then(|one| one.parse().ok());
    let (min, max) = (sorted[0], sorted[n - 1]);
    json!({ "median": median, "min": min, "max": max, "all": values, "load": load })
}

fn median(values: &[f64]) -> f64 {
    figure(values)["median"].as_f64().unwrap()
}
