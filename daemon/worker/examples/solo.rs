//! A GRPO job in one process, without any of the system around it: shows that the model learns
//! and how fast, and serves to choose hyperparameters.
//!
//! `cargo run --release -p robust-worker --example solo -- --help`

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use clap::Parser;
use robust_worker::model::adam::{Adam, AdamConfig};
use robust_worker::model::config::Qwen3Config;
use robust_worker::model::dataset::{self, Prompt};
use robust_worker::model::grpo::{GrpoConfig, TrainBatch, TrainSample, grpo_gradient};
use robust_worker::model::qwen3::Qwen3;
use robust_worker::model::reward::reward;
use robust_worker::model::rng::Stream;
use robust_worker::model::sampler::{Engine, EngineConfig, SeqRequest};
use robust_worker::model::tokenizer::Tokenizer;
use robust_worker::model::warmup::{self, WarmupConfig};
use robust_worker::model::{hf, single_thread};

#[derive(Parser)]
struct Args {
    /// Folder with tokenizers/ and datasets/.
    #[arg(long, default_value = "fixtures")]
    fixtures: PathBuf,
    /// Where warmed-up models are kept.
    #[arg(long, default_value = "target/warmup")]
    cache: PathBuf,
    #[arg(long, default_value_t = 120)]
    steps: usize,
    /// Prompts a step.
    #[arg(long, default_value_t = 8)]
    prompts: usize,
    /// Responses per prompt.
    #[arg(long, default_value_t = 8)]
    group: usize,
    #[arg(long, default_value_t = AdamConfig::default().lr)]
    lr: f64,
    #[arg(long, default_value_t = 0.2)]
    clip: f64,
    #[arg(long, default_value_t = 1.0)]
    temperature: f64,
    /// Generated tokens of a trajectory.
    #[arg(long, default_value_t = 32)]
    max_tokens: usize,
    /// Steps by which the rollout's weights lag behind.
    #[arg(long, default_value_t = 0)]
    lag: usize,
    #[arg(long, default_value_t = 7)]
    seed: u64,
    #[arg(long, default_value_t = WarmupConfig::default().steps)]
    warmup_steps: usize,
    #[arg(long, default_value_t = WarmupConfig::default().lr)]
    warmup_lr: f64,
    #[arg(long, default_value_t = WarmupConfig::default().tool_share)]
    tool_share: f64,
    #[arg(long, default_value_t = WarmupConfig::default().call_mistakes)]
    call_mistakes: f64,
    #[arg(long, default_value_t = WarmupConfig::default().copy_mistakes)]
    copy_mistakes: f64,
    /// Print this many trajectories every ten steps.
    #[arg(long, default_value_t = 0)]
    show: usize,
}

struct Trajectory {
    sample: TrainSample,
    prompt_len: usize,
    reward: f64,
    called: bool,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    single_thread();
    let tokenizer = Tokenizer::load(&args.fixtures.join("tokenizers/arith/tokenizer.json"))?;
    let prompts = dataset::read(&args.fixtures.join("datasets/arith.jsonl"))?;
    let mut model = warm_model(&args, &tokenizer)?;
    let mut lagging = Qwen3::zeroed(model.config().clone())?;
    let mut history = VecDeque::from([model.params().as_bytes().to_vec()]);
    let settings = AdamConfig {
        lr: args.lr,
        ..AdamConfig::default()
    };
    let mut adam = Adam::new(model.params(), settings);
    let mut order = Stream::new(args.seed, 1);
    let mut rewards = Vec::new();
    for step in 0..args.steps {
        lagging.params_mut().copy_from_bytes(&history[0])?;
        let chosen: Vec<&Prompt> = (0..args.prompts)
            .map(|_| &prompts[order.below(prompts.len() as u64) as usize])
            .collect();
        let start = Instant::now();
        let trajectories = rollout(&lagging, &tokenizer, &chosen, step, &args)?;
        let rollout_s = start.elapsed().as_secs_f64();
        let mean = trajectories.iter().map(|t| t.reward).sum::<f64>() / trajectories.len() as f64;
        let called = trajectories.iter().filter(|t| t.called).count();
        let start = Instant::now();
        let stats = update(&mut model, &mut adam, &trajectories, &args)?;
        let update_s = start.elapsed().as_secs_f64();
        history.push_back(model.params().as_bytes().to_vec());
        while history.len() > args.lag + 1 {
            history.pop_front();
        }
        let called = called as f64 / trajectories.len() as f64;
        println!(
            "step {step:3} reward {mean:.3} tool {called:.2} {stats} \
             rollout {rollout_s:.2}s update {update_s:.2}s"
        );
        for t in trajectories
            .iter()
            .take(if step % 10 == 0 { args.show } else { 0 })
        {
            println!("    {} {}", t.reward, tokenizer.decode(&t.sample.ids)?);
        }
        rewards.push(mean);
    }
    summary(&rewards);
    Ok(())
}

fn warm_model(args: &Args, tokenizer: &Tokenizer) -> anyhow::Result<Qwen3> {
    let config = WarmupConfig {
        steps: args.warmup_steps,
        lr: args.warmup_lr,
        tool_share: args.tool_share,
        call_mistakes: args.call_mistakes,
        copy_mistakes: args.copy_mistakes,
        ..WarmupConfig::default()
    };
    let start = Instant::now();
    let model = Qwen3Config::demo(tokenizer.vocab_size());
    let folder = warmup::cached(
        &args.cache,
        &model,
        &config,
        tokenizer,
        args.seed,
        |progress| {
            if progress.step % 25 == 0 {
                let warmup::Progress { step, steps, loss } = progress;
                println!(
                    "warm-up {step}/{steps} loss {loss:.3} {:.0?}",
                    start.elapsed()
                );
            }
        },
    )?;
    let model = hf::load(&folder)?;
    println!(
        "{} parameters, ready after {:.1?}",
        model.params().len(),
        start.elapsed()
    );
    Ok(model)
}

fn rollout(
    model: &Qwen3,
    tokenizer: &Tokenizer,
    prompts: &[&Prompt],
    step: usize,
    args: &Args,
) -> anyhow::Result<Vec<Trajectory>> {
    let sizes = EngineConfig {
        max_seqs: 64,
        max_rows: 64,
        max_len: 64,
    };
    let mut engine = Engine::new(model.config(), sizes)?;
    let mut trajectories = Vec::new();
    let request = |index: usize, t: &Trajectory| SeqRequest {
        key: index as u64,
        ids: t.sample.ids.clone(),
        seed: args.seed,
        trajectory: (step * args.prompts * args.group + index) as u64,
        position0: 0,
        max_new_tokens: args.max_tokens,
        temperature: args.temperature,
        stop_tokens: tokenizer.specials().stops(),
    };
    for index in 0..prompts.len() * args.group {
        let ids = tokenizer.encode_prompt(&prompts[index / args.group].prompt)?;
        let (zeros, mask) = (vec![0.0; ids.len()], vec![0; ids.len()]);
        let prompt_len = ids.len();
        let sample = TrainSample {
            ids,
            response_mask: mask,
            old_logprobs: zeros,
            ref_logprobs: None,
        };
        let trajectory = Trajectory {
            sample,
            prompt_len,
            reward: 0.0,
            called: false,
        };
        engine.add(request(index, &trajectory))?;
        trajectories.push(trajectory);
    }
    while engine.running() > 0 {
        for out in engine.step(model)? {
            let index = out.key as usize;
            let t = &mut trajectories[index];
            t.sample.ids.push(out.token);
            t.sample.response_mask.push(1);
            t.sample.old_logprobs.push(out.logprob);
            if out.finished.is_none() {
                continue;
            }
            let response = &t.sample.ids[t.prompt_len..];
            let value = tokenizer.parse_call(response).filter(|_| !t.called);
            if let Some(value) = value.and_then(|expression| calculate(&expression)) {
                t.called = true;
                let result = tokenizer.encode_result(&value.to_string())?;
                t.sample.ids.extend(&result);
                t.sample.response_mask.resize(t.sample.ids.len(), 0);
                t.sample.old_logprobs.resize(t.sample.ids.len(), 0.0);
                if t.sample.ids.len() < sizes.max_len {
                    engine.add(request(index, t))?;
                    continue;
                }
            }
            let response = &t.sample.ids[t.prompt_len..];
            t.reward = reward(tokenizer, response, &prompts[index / args.group].answer);
        }
    }
    Ok(trajectories)
}

/// `A op B` with whole numbers: all that the demo's prompts need.
fn calculate(expression: &str) -> Option<i64> {
    let at = expression.find(['+', '-', '*'])?;
    let (a, b) = (&expression[..at], &expression[at + 1..]);
    let (a, b): (i64, i64) = (a.parse().ok()?, b.parse().ok()?);
    match expression.as_bytes()[at] {
        b'+' => a.checked_add(b),
        b'-' => a.checked_sub(b),
        _ => a.checked_mul(b),
    }
}

fn update(
    model: &mut Qwen3,
    adam: &mut Adam,
    trajectories: &[Trajectory],
    args: &Args,
) -> anyhow::Result<String> {
    let advantages: Vec<f32> = trajectories
        .chunks(args.group)
        .flat_map(advantages)
        .collect();
    let samples = trajectories.iter().map(|t| t.sample.clone()).collect();
    let batch = TrainBatch { samples };
    let config = GrpoConfig {
        clip_eps: args.clip,
        temperature: args.temperature,
        ..GrpoConfig::default()
    };
    let out = grpo_gradient(model, &batch, &advantages, batch.response_tokens(), &config)?;
    let stats = adam.step(model.params_mut(), &out.grad).context("update")?;
    Ok(format!(
        "loss {:+.4} clip {:.3} kl {:.4} entropy {:.3} norm {:.2}",
        out.loss, out.clip_frac, out.kl, out.entropy, stats.grad_norm
    ))
}

fn advantages(group: &[Trajectory]) -> Vec<f32> {
    let mean = group.iter().map(|t| t.reward).sum::<f64>() / group.len() as f64;
    let variance =
        group.iter().map(|t| (t.reward - mean).powi(2)).sum::<f64>() / group.len() as f64;
    group
        .iter()
        .map(|t| ((t.reward - mean) / (variance.sqrt() + 1e-6)) as f32)
        .collect()
}

fn summary(rewards: &[f64]) {
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    let edge = rewards.len().min(20);
    let tens: HashMap<usize, f64> = rewards
        .chunks(10)
        .enumerate()
        .map(|(at, part)| (at, mean(part)))
        .collect();
    let curve: Vec<String> = (0..tens.len())
        .map(|at| format!("{:.2}", tens[&at]))
        .collect();
    println!("means of ten: {}", curve.join(" "));
    let (first, last) = (
        mean(&rewards[..edge]),
        mean(&rewards[rewards.len() - edge..]),
    );
    println!(
        "first {edge}: {first:.3}, last {edge}: {last:.3}, ratio {:.2}",
        last / first
    );
}
