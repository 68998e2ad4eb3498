//! Gradients, Adam and warm-up.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use robust_worker::model::adam::{Adam, AdamConfig, AdamError};
use robust_worker::model::config::Qwen3Config;
use robust_worker::model::grpo::{
    GrpoConfig, GrpoError, TrainBatch, TrainSample, grpo_gradient, logprobs,
};
use robust_worker::model::qwen3::Qwen3;
use robust_worker::model::rng::Stream;
use robust_worker::model::tokenizer::Tokenizer;
use robust_worker::model::warmup::{self, WarmupConfig};
use robust_worker::model::{dataset, hf, single_thread};
use tch::Tensor;

fn small() -> Qwen3Config {
    Qwen3Config {
        num_hidden_layers: 2,
        hidden_size: 32,
        head_dim: 16,
        ..Qwen3Config::demo(24)
    }
}

fn model() -> Qwen3 {
    single_thread();
    Qwen3::random(small(), 21).unwrap()
}

/// Random samples with old logprobs of a policy slightly off this one.
fn batch(model: &Qwen3, count: usize) -> TrainBatch {
    let mut stream = Stream::new(4, 4);
    let sample = |_| {
        let length = 8 + stream.below(20) as usize;
        let ids: Vec<i64> = (0..length).map(|_| stream.below(24) as i64).collect();
        let response_mask = (0..length)
            .map(|at| u8::from(at > 4 && at % 5 != 0))
            .collect();
        let old_logprobs = vec![0.0; length];
        TrainSample {
            ids,
            response_mask,
            old_logprobs,
            ref_logprobs: None,
        }
    };
    let mut batch = TrainBatch {
        samples: (0..count).map(sample).collect(),
    };
    let columns = logprobs(model, &batch, 1.0, 64).unwrap();
    let mut stream = Stream::new(5, 5);
    for (sample, column) in batch.samples.iter_mut().zip(columns) {
        let moved = column
            .iter()
            .map(|logprob| logprob + stream.normal() as f32 * 0.1);
        sample.old_logprobs = moved.collect();
        sample.ref_logprobs = Some(column);
    }
    batch
}

fn advantages(count: usize) -> Vec<f32> {
    (0..count)
        .map(|at| if at % 2 == 0 { 1.0 } else { -0.7 })
        .collect()
}

#[test]
fn a_samples_logprobs_do_not_depend_on_the_samples_beside_it() {
    let shapes = [small(), Qwen3Config::demo(24)];
    for shape in shapes {
        single_thread();
        let model = Qwen3::random(shape, 22).unwrap();
        let whole = batch(&model, 48);
        let bits = |columns: Vec<Vec<f32>>| -> Vec<Vec<u32>> {
            let of = |column: Vec<f32>| column.into_iter().map(f32::to_bits).collect();
            columns.into_iter().map(of).collect()
        };
        let in_one_go = bits(logprobs(&model, &whole, 1.0, 64).unwrap());
        for seed in 0..24 {
            let mut stream = Stream::new(seed, 9);
            let share = 1 + stream.below(8);
            let chosen: Vec<usize> = (0..48).filter(|_| stream.below(8) < share).collect();
            let micro_batch = 1 + stream.below(20) as usize;
            let part = TrainBatch {
                samples: chosen.iter().map(|&at| whole.samples[at].clone()).collect(),
            };
            let alone = bits(logprobs(&model, &part, 1.0, micro_batch).unwrap());
            for (at, column) in chosen.iter().zip(alone) {
                assert_eq!(column, in_one_go[*at], "sample {at}, seed {seed}");
            }
        }
    }
}

#[test]
fn gradients_of_parts_add_up_to_that_of_the_whole() {
    let model = model();
    let (whole, config) = (
        batch(&model, 12),
        GrpoConfig {
            kl_coef: 0.1,
            ..Default::default()
        },
    );
    let (all, tokens) = (advantages(12), whole.response_tokens());
    let out = grpo_gradient(&model, &whole, &all, tokens, &config).unwrap();
    let part = |range: std::ops::Range<usize>| {
        let samples = whole.samples[range.clone()].to_vec();
        grpo_gradient(
            &model,
            &TrainBatch { samples },
            &all[range],
            tokens,
            &config,
        )
        .unwrap()
    };
    let (a, b) = (part(0..5), part(5..12));
    let error = (&out.grad - (&a.grad + &b.grad))
        .abs()
        .max()
        .double_value(&[]);
    assert!(error < 1e-6, "{error}");
    for (whole, a, b) in [
        (out.loss, a.loss, b.loss),
        (out.clip_frac, a.clip_frac, b.clip_frac),
        (out.kl, a.kl, b.kl),
        (out.ref_kl, a.ref_kl, b.ref_kl),
        (out.entropy, a.entropy, b.entropy),
    ] {
        assert!((whole - a - b).abs() < 1e-5, "{whole} {a} {b}");
    }
    assert!(out.clip_frac > 0.0 && out.kl > 0.0 && out.entropy > 0.0);
    let small = GrpoConfig {
        micro_batch: 5,
        ..config
    };
    let split = grpo_gradient(&model, &whole, &all, tokens, &small).unwrap();
    assert!((&out.grad - split.grad).abs().max().double_value(&[]) < 1e-6);
}

#[test]
fn the_gradient_is_the_slope_of_the_loss() {
    let mut model = model();
    let (batch, config) = (
        batch(&model, 6),
        GrpoConfig {
            kl_coef: 0.05,
            ..Default::default()
        },
    );
    let tokens = batch.response_tokens();
    let loss = |model: &Qwen3| {
        grpo_gradient(model, &batch, &advantages(6), tokens, &config)
            .unwrap()
            .loss
    };
    let grad = grpo_gradient(&model, &batch, &advantages(6), tokens, &config)
        .unwrap()
        .grad;
    let norm = grad.norm().double_value(&[]);
    let start = model.params().tensor().copy();
    let step = 2e-3;
    let along = |model: &mut Qwen3, length: f64| {
        model
            .params_mut()
            .copy_from(&(&start + &grad * (length / norm)))
            .unwrap();
        loss(model)
    };
    let slope = (along(&mut model, step) - along(&mut model, -step)) / (2.0 * step);
    assert!(
        (slope / norm - 1.0).abs() < 0.02,
        "slope {slope}, norm {norm}"
    );
}

#[test]
fn prompt_and_tool_tokens_do_not_count() {
    let model = model();
    let mut batch = batch(&model, 4);
    let tokens = batch.response_tokens();
    let config = GrpoConfig::default();
    let before = grpo_gradient(&model, &batch, &advantages(4), tokens, &config).unwrap();
    for sample in &mut batch.samples {
        let masked = sample.response_mask.iter().zip(&mut sample.old_logprobs);
        masked
            .filter(|(mask, _)| **mask == 0)
            .for_each(|(_, old)| *old = f32::NAN);
    }
    let after = grpo_gradient(&model, &batch, &advantages(4), tokens, &config).unwrap();
    assert_eq!(before.grad, after.grad);
    assert_eq!(before.loss, after.loss);
}

#[test]
fn a_batch_without_samples_has_a_zero_gradient() {
    let model = model();
    let config = GrpoConfig::default();
    let out = grpo_gradient(&model, &TrainBatch::default(), &[], 10, &config).unwrap();
    assert_eq!(out.grad.abs().max().double_value(&[]), 0.0);
    assert_eq!(out.loss, 0.0);
}

#[test]
fn broken_numbers_and_columns_are_typed_errors() {
    let mut model = model();
    let good = batch(&model, 2);
    let config = GrpoConfig::default();
    let error = |model: &Qwen3, batch: &TrainBatch, advantages: &[f32]| {
        grpo_gradient(model, batch, advantages, 10, &config).unwrap_err()
    };
    let fault = error(&model, &good, &[f32::INFINITY, 1.0]);
    assert!(
        matches!(fault, GrpoError::NonFinite { what: "loss", .. }),
        "{fault}"
    );
    assert_eq!(
        error(&model, &good, &[1.0]),
        GrpoError::Advantages {
            expected: 2,
            got: 1
        }
    );
    let mut bad = good.clone();
    bad.samples[1].old_logprobs.pop();
    assert!(
        error(&model, &bad, &[1.0; 2])
            .to_string()
            .starts_with("sample 1: column old_logprobs")
    );
    let mut bad = good.clone();
    bad.samples[0].ids[3] = 24;
    assert_eq!(
        error(&model, &bad, &[1.0; 2]).to_string(),
        "sample 0: token 24 is outside the vocabulary"
    );
    let mut bad = good.clone();
    bad.samples[1].ref_logprobs = None;
    let kl = GrpoConfig {
        kl_coef: 0.1,
        ..config
    };
    let missing = grpo_gradient(&model, &bad, &[1.0; 2], 10, &kl).unwrap_err();
    assert_eq!(missing, GrpoError::NoReference { sample: 1 });
    let nan = model.params().tensor() * f64::NAN;
    model.params_mut().copy_from(&nan).unwrap();
    assert!(matches!(
        error(&model, &good, &[1.0; 2]),
        GrpoError::NonFinite { .. }
    ));
}

#[test]
fn adam_restored_from_bytes_steps_bit_for_bit_like_one_that_went_on() {
    let mut first = model();
    let config = AdamConfig {
        lr: 1e-2,
        weight_decay: 0.01,
        ..AdamConfig::default()
    };
    let mut adam = Adam::new(first.params(), config);
    let gradient = |seed: u64| {
        let mut stream = Stream::new(seed, 0);
        let values: Vec<f32> = (0..model().params().len())
            .map(|_| stream.normal() as f32)
            .collect();
        Tensor::from_slice(&values)
    };
    for seed in 0..3 {
        adam.step(first.params_mut(), &gradient(seed)).unwrap();
    }
    let mut second = model();
    second
        .params_mut()
        .copy_from_bytes(first.params().as_bytes())
        .unwrap();
    let mut restored = Adam::new(second.params(), config);
    restored
        .restore(adam.step_count(), adam.m_bytes(), adam.v_bytes())
        .unwrap();
    for seed in 3..6 {
        let stats = adam.step(first.params_mut(), &gradient(seed)).unwrap();
        assert_eq!(
            restored.step(second.params_mut(), &gradient(seed)).unwrap(),
            stats
        );
    }
    assert!(first.params().as_bytes() == second.params().as_bytes());
    assert!(adam.m_bytes() == restored.m_bytes() && adam.v_bytes() == restored.v_bytes());
}

#[test]
fn adam_moves_like_the_textbook_and_refuses_broken_gradients() {
    let mut model = model();
    let before = model.params().tensor().copy();
    let config = AdamConfig {
        lr: 0.1,
        grad_clip: 0.0,
        ..AdamConfig::default()
    };
    let mut adam = Adam::new(model.params(), config);
    let grad = model.params().tensor().ones_like() * -3.0;
    adam.step(model.params_mut(), &grad).unwrap();
    // The first step has length lr against the gradient's sign.
    let moved = (model.params().tensor() - before - 0.1)
        .abs()
        .max()
        .double_value(&[]);
    assert!(moved < 1e-6, "{moved}");
    let bytes = model.params().as_bytes().to_vec();
    let refused = adam
        .step(model.params_mut(), &(grad * f64::NAN))
        .unwrap_err();
    assert!(matches!(refused, AdamError::NonFiniteGradient(_)));
    assert!(model.params().as_bytes() == bytes && adam.step_count() == 1);
    assert!(adam.restore(1, &bytes[..8], &bytes).is_err());
}

#[test]
fn a_warm_up_is_deterministic_learns_and_is_cached() {
    single_thread();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let tokenizer = Tokenizer::load(&fixtures.join("tokenizers/arith/tokenizer.json")).unwrap();
    let config = WarmupConfig {
        steps: 25,
        batch: 16,
        ..WarmupConfig::default()
    };
    let mut losses = Vec::new();
    let first = warmup::run(&small(), &config, &tokenizer, 3, |at| losses.push(at.loss)).unwrap();
    assert!(losses[24] < losses[0] * 0.9, "{losses:?}");
    let folder = tempfile::tempdir().unwrap();
    let cached = |seed: u64| {
        let mut steps = 0;
        let count = |_| steps += 1;
        let path = warmup::cached(folder.path(), &small(), &config, &tokenizer, seed, count);
        (path.unwrap(), steps)
    };
    let (path, steps) = cached(3);
    assert_eq!(steps, 25);
    assert_eq!(cached(3), (path.clone(), 0));
    assert_ne!(cached(4).0, path);
    assert!(hf::load(&path).unwrap().params().as_bytes() == first.params().as_bytes());
}

#[test]
fn the_same_gradient_comes_out_twice() {
    let model = model();
    let (batch, config) = (batch(&model, 16), GrpoConfig::default());
    let again = || grpo_gradient(&model, &batch, &advantages(16), 99, &config).unwrap();
    assert_eq!(again().grad, again().grad);
}

#[test]
fn the_demo_files_fit_together() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let tokenizer = Tokenizer::load(&fixtures.join("tokenizers/arith/tokenizer.json")).unwrap();
    let config = Qwen3Config::read(&fixtures.join("models/demo/config.json")).unwrap();
    assert_eq!(config, Qwen3Config::demo(tokenizer.vocab_size()));
    let prompts = dataset::read(&fixtures.join("datasets/arith.jsonl")).unwrap();
    assert!(prompts.len() >= 2000);
    for prompt in &prompts {
        let ids = tokenizer.encode_prompt(&prompt.prompt).unwrap();
        assert_eq!(Some(ids[0]), tokenizer.specials().bos);
        assert_eq!(tokenizer.decode(&ids[1..]).unwrap(), prompt.prompt);
        tokenizer.encode(&prompt.answer).unwrap();
    }
    let refused = tokenizer.encode("12 plus 3").unwrap_err().to_string();
    assert!(refused.starts_with("encoding \"12 plus 3\""), "{refused}");
}
