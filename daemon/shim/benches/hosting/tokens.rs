//! Tokens through the shim beside tokens straight from the engine, with the processor time of both.

use std::time::Instant;

use serde_json::{Map, Value, json};

use super::kind::{Kind, LENGTH, Wish};
use super::scene::Scene;
use super::{figure, median, own_port, reply};

/// Streams at the same time.
const STREAMS: u32 = 8;
const PROMPT: usize = 7;
/// What engines keep free of a full context.
const MARGIN: usize = 9;

/// A stretch in which the streams were read.
struct Stretch {
    tokens_per_s: f64,
    shim_s: f64,
    engine_s: f64,
}

pub fn measure(scene: &Scene, wish: &Wish, rounds: u64) -> Map<String, Value> {
    let kind = wish.kind;
    let direct = format!("http://127.0.0.1:{}{}", own_port(scene), path(kind));
    let (mut through, mut straight) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // Whoever is first is so in every other pair; nobody's prompts come again.
        let (first, second) = (round * 2, round * 2 + 1);
        if round % 2 == 0 {
            through.push(stretch(scene, None, kind, first));
            straight.push(stretch(scene, Some(&direct), kind, second));
        } else {
            straight.push(stretch(scene, Some(&direct), kind, first));
            through.push(stretch(scene, None, kind, second));
        }
    }
    let share: Vec<f64> = through
        .iter()
        .map(|s| s.shim_s * 100.0 / s.engine_s)
        .collect();
    let rate = |of: &[Stretch]| of.iter().map(|s| s.tokens_per_s).collect::<Vec<f64>>();
    let engine = |of: &[Stretch]| of.iter().map(|s| s.engine_s).collect::<Vec<f64>>();
    let name = match wish.size {
        "small" => kind.name().to_owned(),
        size => format!("{}_{size}", kind.name()),
    };
    let mut all = Map::new();
    all.insert(format!("shim_cpu_percent_{name}"), figure(&share));
    all.insert(
        format!("tokens_per_s_through_{name}"),
        figure(&rate(&through)),
    );
    all.insert(
        format!("tokens_per_s_direct_{name}"),
        figure(&rate(&straight)),
    );
    let ratio = median(&rate(&through)) / median(&rate(&straight));
    all.insert(format!("tokens_through_over_direct_{name}"), json!(ratio));
    let cost = median(&engine(&through)) / median(&engine(&straight));
    all.insert(
        format!("engine_cpu_through_over_direct_{name}"),
        json!(cost),
    );
    all
}

fn stretch(scene: &Scene, direct: Option<&str>, kind: Kind, salt: u64) -> Stretch {
    let engine: Vec<u32> = scene
        .engine()
        .iter()
        .map(|(pid, _)| pid.cast_unsigned())
        .collect();
    let used = |pids: &[u32]| pids.iter().map(|pid| busy_s(*pid)).sum::<f64>();
    let before = (busy_s(scene.shim()), used(&engine));
    let began = Instant::now();
    let tokens = LENGTH - PROMPT - MARGIN;
    let bodies: Vec<Value> = (0..STREAMS)
        .map(|n| body(kind, direct.is_some(), salt, n))
        .collect();
    match direct {
        Some(url) => scene.read_all(url, &bodies),
        None => {
            let running: Vec<_> = bodies.iter().map(|body| scene.begin(body)).collect();
            for one in running {
                assert_eq!(one.end().ids.len(), tokens);
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    Stretch {
        tokens_per_s: tokens as f64 * f64::from(STREAMS) / seconds,
        shim_s: busy_s(scene.shim()) - before.0,
        engine_s: used(&engine) - before.1,
    }
}

fn path(kind: Kind) -> &'static str {
    match kind {
        Kind::Vllm => "/inference/v1/generate",
        Kind::Sglang => "/generate",
    }
}

fn body(kind: Kind, direct: bool, salt: u64, n: u32) -> Value {
    let mixed = |at: u64| (salt * 131 + u64::from(n) * 17 + at * 29) % 90 + 3;
    let ids: Vec<u32> = (0..PROMPT as u64).map(|at| mixed(at) as u32).collect();
    let tokens = LENGTH - PROMPT - MARGIN;
    match (direct, kind) {
        (false, _) => reply::stream(&ids, tokens),
        (true, Kind::Vllm) => json!({
            "token_ids": ids, "stream": true,
            "sampling_params":
                { "max_tokens": tokens, "temperature": 0, "logprobs": 0, "ignore_eos": true },
        }),
        (true, Kind::Sglang) => json!({
            "input_ids": ids, "stream": true, "return_logprob": true,
            "sampling_params": { "max_new_tokens": tokens, "temperature": 0, "ignore_eos": true },
        }),
    }
}

/// Processor time of a process so far, of all its threads that live.
fn busy_s(pid: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let of_task = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    };
    tasks.flatten().flatten().filter_map(of_task).sum::<f64>() / 1e9
}
