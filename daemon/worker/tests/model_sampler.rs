//! What the sampler guarantees: the same tokens and logprobs however a sequence is computed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use robust_shared::job::Dtype;
use robust_transport::Buffer;
use robust_worker::model::config::Qwen3Config;
use robust_worker::model::flat::FlatParams;
use robust_worker::model::qwen3::{KvCache, Qwen3, Rows};
use robust_worker::model::sampler::{
    Engine, EngineConfig, FinishReason, MAX_ROWS, MIN_ROWS, SamplerError, SeqRequest, StepOut,
};
use robust_worker::model::single_thread;
use tch::Kind;

const SIZES: EngineConfig = EngineConfig {
    max_seqs: 64,
    max_rows: 64,
    max_len: 64,
};

/// A demo model with weights large enough that the distributions are far from flat.
fn model() -> Qwen3 {
    single_thread();
    let mut model = Qwen3::random(Qwen3Config::demo(24), 11).unwrap();
    let louder = model.params().tensor() * 2.0;
    model.params_mut().copy_from(&louder).unwrap();
    model
}

fn request(key: u64) -> SeqRequest {
    let length = 3 + key % 9;
    SeqRequest {
        key,
        ids: (0..length)
            .map(|at| ((key * 7 + at * 5) % 24) as i64)
            .collect(),
        seed: 5,
        trajectory: 1000 + key,
        position0: 0,
        max_new_tokens: 30,
        temperature: 1.0,
        stop_tokens: vec![2],
    }
}

type Tokens = Vec<(i64, u32)>;

fn collect(outputs: &mut BTreeMap<u64, Tokens>, step: &[StepOut]) {
    for out in step {
        outputs
            .entry(out.key)
            .or_default()
            .push((out.token, out.logprob.to_bits()));
    }
}

fn drain(engine: &mut Engine, model: &Qwen3) -> BTreeMap<u64, Tokens> {
    let mut outputs = BTreeMap::new();
    while engine.running() > 0 {
        collect(&mut outputs, &engine.step(model).unwrap());
    }
    outputs
}

fn run(
    model: &Qwen3,
    sizes: EngineConfig,
    keys: impl IntoIterator<Item = u64>,
) -> BTreeMap<u64, Tokens> {
    let mut engine = Engine::new(model.config(), sizes).unwrap();
    for key in keys {
        engine.add(request(key)).unwrap();
    }
    drain(&mut engine, model)
}

#[test]
fn tokens_and_logprobs_do_not_depend_on_the_batch() {
    let model = model();
    let all = run(&model, SIZES, 0..64);
    assert!(all.values().any(|tokens| tokens.len() == 30));
    for key in 0..8 {
        assert_eq!(
            run(&model, SIZES, [key])[&key],
            all[&key],
            "sequence {key} alone"
        );
    }
    for count in [2, 3, 5, 7, 12, 17, 33, 50, 63] {
        let some = run(&model, SIZES, (0..count).rev());
        assert!(
            some.iter().all(|(key, tokens)| tokens == &all[key]),
            "batch of {count}"
        );
    }
    for max_rows in [4, 6, 13, 32] {
        let sizes = EngineConfig {
            max_rows,
            max_seqs: 9,
            ..SIZES
        };
        assert_eq!(run(&model, sizes, 0..64), all, "max_rows {max_rows}");
    }
}

#[test]
fn a_sequence_resumed_elsewhere_continues_with_the_same_tokens() {
    let model = model();
    let whole = run(&model, SIZES, 0..24);
    for (&key, tokens) in &whole {
        let cut = tokens.len() / 2;
        // Company differs from that of the first run.
        let mut engine = Engine::new(model.config(), SIZES).unwrap();
        (100..100 + key % 20).for_each(|other| engine.add(request(other)).unwrap());
        let mut resumed = request(key);
        resumed
            .ids
            .extend(tokens[..cut].iter().map(|(token, _)| token));
        resumed.max_new_tokens -= cut;
        engine.add(resumed).unwrap();
        assert_eq!(
            drain(&mut engine, &model)[&key],
            tokens[cut..],
            "sequence {key}"
        );
    }
}

#[test]
fn sequences_that_join_and_leave_do_not_disturb_the_others() {
    let model = model();
    let alone = run(&model, SIZES, [3]);
    let mut engine = Engine::new(model.config(), SIZES).unwrap();
    let mut outputs = BTreeMap::new();
    engine.add(request(3)).unwrap();
    for step in 0..40 {
        engine.add(request(200 + step)).unwrap();
        if step % 3 == 2 {
            engine.abort(200 + step - 2);
        }
        collect(&mut outputs, &engine.step(&model).unwrap());
    }
    assert_eq!(outputs[&3], alone[&3]);
}

#[test]
fn refreshing_without_new_weights_changes_nothing() {
    let model = model();
    let whole = run(&model, SIZES, 0..16);
    let mut engine = Engine::new(model.config(), SIZES).unwrap();
    (0..16).for_each(|key| engine.add(request(key)).unwrap());
    let mut outputs = BTreeMap::new();
    for step in 0.. {
        if step % 5 == 4 {
            engine.refresh();
        }
        if engine.running() == 0 {
            break;
        }
        collect(&mut outputs, &engine.step(&model).unwrap());
        assert!(step < 1000);
    }
    assert_eq!(outputs, whole);
}

#[test]
fn after_a_swap_and_refresh_a_sequence_continues_as_on_a_fresh_engine() {
    let old = model();
    let mut new = model();
    let moved = new.params().tensor() * 1.1;
    new.params_mut().copy_from(&moved).unwrap();
    let mut engine = Engine::new(old.config(), SIZES).unwrap();
    engine.add(request(1)).unwrap();
    let mut first = BTreeMap::new();
    (0..6).for_each(|_| collect(&mut first, &engine.step(&old).unwrap()));
    engine.refresh();
    let continued = drain(&mut engine, &new);

    let mut resumed = request(1);
    resumed.ids.extend(first[&1].iter().map(|(token, _)| token));
    resumed.max_new_tokens -= first[&1].len();
    let mut fresh = Engine::new(new.config(), SIZES).unwrap();
    fresh.add(resumed).unwrap();
    assert_eq!(continued[&1], drain(&mut fresh, &new)[&1]);
}

#[test]
fn sequences_end_at_stop_tokens_and_limits() {
    let model = model();
    let mut engine = Engine::new(model.config(), SIZES).unwrap();
    let greedy = SeqRequest {
        temperature: 0.0,
        max_new_tokens: 1,
        ..request(1)
    };
    engine.add(greedy.clone()).unwrap();
    let out = loop {
        if let Some(out) = engine.step(&model).unwrap().first() {
            break *out;
        }
    };
    assert_eq!(out.finished, Some(FinishReason::Length));
    engine
        .add(SeqRequest {
            stop_tokens: vec![out.token],
            max_new_tokens: 9,
            ..greedy
        })
        .unwrap();
    let stopped = engine.step(&model).unwrap()[0];
    assert_eq!(
        (stopped.token, stopped.finished),
        (out.token, Some(FinishReason::Stop))
    );
    let long = SeqRequest {
        ids: vec![7; 60],
        stop_tokens: vec![],
        ..request(2)
    };
    engine.add(long).unwrap();
    assert_eq!(
        drain(&mut engine, &model)[&2].len(),
        4,
        "the engine holds 64 tokens"
    );
}

#[test]
fn impossible_requests_are_refused_with_a_reason() {
    let model = model();
    let mut engine = Engine::new(model.config(), SIZES).unwrap();
    let mut why = |request| engine.add(request).unwrap_err().to_string();
    assert!(
        why(SeqRequest {
            ids: vec![],
            ..request(0)
        })
        .contains("0 input tokens")
    );
    assert!(
        why(SeqRequest {
            ids: vec![1; 64],
            ..request(0)
        })
        .contains("64 input tokens")
    );
    assert!(
        why(SeqRequest {
            ids: vec![24],
            ..request(0)
        })
        .contains("token 24")
    );
    assert!(
        why(SeqRequest {
            temperature: -1.0,
            ..request(0)
        })
        .contains("temperature")
    );
    assert!(
        why(SeqRequest {
            temperature: f64::NAN,
            ..request(0)
        })
        .contains("temperature")
    );
    assert!(
        why(SeqRequest {
            max_new_tokens: 0,
            ..request(0)
        })
        .contains("max_new_tokens")
    );
    engine.add(request(0)).unwrap();
    assert_eq!(engine.add(request(0)), Err(SamplerError::DuplicateKey(0)));
    assert!(engine.abort(0) && !engine.abort(0));
    assert_eq!(engine.running(), 0);
    let too_long = EngineConfig {
        max_len: 65,
        ..SIZES
    };
    assert!(Engine::new(model.config(), too_long).is_err());
}

#[test]
fn broken_weights_are_an_error_and_leave_no_trace_after_a_refresh() {
    let good = model();
    let mut broken = model();
    let nan = broken.params().tensor() * f64::NAN;
    broken.params_mut().copy_from(&nan).unwrap();
    let mut engine = Engine::new(good.config(), SIZES).unwrap();
    engine.add(request(4)).unwrap();
    assert_eq!(
        engine.step(&broken),
        Err(SamplerError::NonFinite { key: 4 })
    );
    engine.refresh();
    assert_eq!(drain(&mut engine, &good)[&4], run(&good, SIZES, [4])[&4]);
}

/// A model whose weights are held as bfloat16, and one of float32 with the same values.
fn rounded(model: &Qwen3) -> [Qwen3; 2] {
    let (config, params) = (model.config().clone(), model.params());
    let halves = params.tensor().to_kind(Kind::BFloat16);
    let same = halves.to_kind(Kind::Float);
    let mut wide = Qwen3::zeroed(config.clone()).unwrap();
    wide.params_mut().copy_from(&same).unwrap();
    let memory = Buffer::new(params.len() * 2).unwrap();
    let singles = wide.params().as_bytes().as_chunks::<4>().0.iter();
    // The upper half of a float32 that is one.
    let bytes: Vec<u8> = singles.flat_map(|single| [single[2], single[3]]).collect();
    memory.write_at(0, &bytes).unwrap();
    let held = FlatParams::lying_as(Dtype::Bfloat16, params.layout().to_vec(), &memory).unwrap();
    [Qwen3::with_params(config, held).unwrap(), wide]
}

#[test]
fn weights_held_as_bfloat16_give_the_tokens_and_logprobs_of_their_values() {
    let [held, wide] = rounded(&model());
    let all = run(&held, SIZES, 0..64);
    assert_eq!(all, run(&wide, SIZES, 0..64));
    for count in [1, 2, 3, 7, 33] {
        let some = run(&held, SIZES, 0..count);
        assert!(
            some.iter().all(|(key, tokens)| tokens == &all[key]),
            "batch of {count}"
        );
    }
    assert_ne!(
        all,
        run(&model(), SIZES, 0..64),
        "rounding changes something"
    );
}

/// The fact that the sampler rests on, for the demo's shape and for one with odd sizes.
#[test]
fn a_rows_logits_are_bit_identical_for_every_batch_size_from_4_to_64() {
    single_thread();
    let odd = Qwen3Config {
        hidden_size: 48,
        num_attention_heads: 6,
        head_dim: 16,
        intermediate_size: 80,
        ..Qwen3Config::demo(37)
    };
    // An output layer that is widened in pieces.
    let many_tokens = Qwen3::random(Qwen3Config::demo(9_000), 2).unwrap();
    let [in_pieces, _] = rounded(&many_tokens);
    for model in [model(), Qwen3::random(odd, 1).unwrap(), in_pieces] {
        let mut reference = Vec::new();
        for count in (MIN_ROWS as i64..=MAX_ROWS as i64).rev() {
            let mut cache = KvCache::new(model.config(), 64, 64);
            let mut bits = Vec::new();
            for position in 0..3 {
                let rows = Rows {
                    tokens: (0..count)
                        .map(|slot| (slot * 5 + position * 3) % 24)
                        .collect(),
                    positions: vec![position; count as usize],
                    slots: (0..count).collect(),
                };
                let logits = tch::no_grad(|| model.forward_rows(&mut cache, &rows));
                let logits = Vec::<f32>::try_from(logits.narrow(0, 0, 4).reshape([-1])).unwrap();
                bits.extend(logits.into_iter().map(f32::to_bits));
            }
            if reference.is_empty() {
                reference = bits;
            } else {
                assert!(bits == reference, "batch of {count}");
            }
        }
    }
}
