//! Continuous batching with a KV cache, reproducible to the bit.
//!
//! Each step computes up to [`EngineConfig::max_rows`] rows (see [`super::qwen3`]): one for each
//! sequence that generates, the rest for prompts being read. Sequences join and leave at any step.
//!
//! Guaranteed, on one thread of one machine type with one libtorch, for equal weights and equal
//! [`EngineConfig::max_len`]: a sequence's tokens and logprobs are a function of its ids, seed,
//! trajectory, temperature alone. They do not depend on what else is in the batch, on `max_rows`
//! up to 64, or on whether a prefix was generated here or arrives with a request. Three things
//! make it so: every row, prompt or not, runs through the same kernels over the cache's full
//! capacity; batches are padded to at least [`MIN_ROWS`] rows, below which libtorch picks other
//! kernels; random numbers are a function of (seed, trajectory, position).
//!
//! The price: a row reads `max_len` cached positions however short its sequence is, so `max_len`
//! should not be larger than the job needs.
//!
//! Not guaranteed: equality in the last bits with the training forward, or after a weight swap
//! without [`Engine::refresh`].

use std::collections::{HashSet, VecDeque};

use tch::Tensor;

use super::config::Qwen3Config;
use super::qwen3::{KvCache, Qwen3, Rows};
use super::rng;

/// Fewer rows than this are computed by other kernels, with other last bits.
pub const MIN_ROWS: usize = 4;

/// More rows than this were never compared.
pub const MAX_ROWS: usize = 64;

/// Sequences that there is room for at the start; the cache grows with those that come.
const FIRST_SEQS: usize = 8;

/// The slot of rows that only fill a batch up.
const FILLER_SLOT: i64 = 0;

/// Size of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineConfig {
    /// Sequences in the cache at once; more wait in line.
    pub max_seqs: usize,
    /// Rows per step, [`MIN_ROWS`] to [`MAX_ROWS`].
    pub max_rows: usize,
    /// Longest sequence. Part of the guarantee: engines that continue each other's sequences
    /// must agree on it.
    pub max_len: usize,
}

/// A sequence to continue.
#[derive(Debug, Clone, PartialEq)]
pub struct SeqRequest {
    /// The caller's name for it.
    pub key: u64,
    /// The prompt with everything that was generated so far.
    pub ids: Vec<i64>,
    /// Key of the random numbers.
    pub seed: u64,
    /// Second key of the random numbers.
    pub trajectory: u64,
    /// Position of `ids[0]` in the trajectory: 0 unless the caller cut the front off.
    pub position0: u64,
    /// Tokens to generate at most.
    pub max_new_tokens: usize,
    /// Sampling temperature; 0 takes the most likely token.
    pub temperature: f64,
    /// Tokens that end the sequence; the token itself is part of the output.
    pub stop_tokens: Vec<i64>,
}

/// Why a sequence ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// A stop token was generated.
    Stop,
    /// `max_new_tokens` or the engine's `max_len` was reached.
    Length,
}

/// One generated token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepOut {
    /// The sequence.
    pub key: u64,
    /// The token.
    pub token: i64,
    /// Its logprob at the sampling temperature (at temperature 0: at 1).
    pub logprob: f32,
    /// Set on a sequence's last token.
    pub finished: Option<FinishReason>,
}

/// Why a request or a step was refused.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum SamplerError {
    /// The engine's sizes make no sense.
    #[error("engine configuration: {0}")]
    Config(String),
    /// The key is in use.
    #[error("sequence {0} is already running")]
    DuplicateKey(u64),
    /// The request itself is impossible.
    #[error("sequence {key}: {why}")]
    BadRequest {
        /// The sequence.
        key: u64,
        /// What is wrong with it.
        why: String,
    },
    /// NaN logits: the weights are broken.
    #[error("sequence {key}: the model's logits are not finite")]
    NonFinite {
        /// The first sequence it was seen in.
        key: u64,
    },
}

struct Sequence {
    request: SeqRequest,
    prompt_len: usize,
    /// Tokens whose keys and values are in the cache.
    cached: usize,
    slot: i64,
}

/// The sampler's state; weights are passed to each step.
pub struct Engine {
    config: EngineConfig,
    vocab_size: i64,
    cache: KvCache,
    free: Vec<i64>,
    /// In order of arrival; the front ones have slots.
    running: Vec<Sequence>,
    waiting: VecDeque<SeqRequest>,
    keys: HashSet<u64>,
}

impl Engine {
    /// An empty engine for models of this shape.
    pub fn new(model: &Qwen3Config, config: EngineConfig) -> Result<Self, SamplerError> {
        let refuse = |why: String| Err(SamplerError::Config(why));
        if !(MIN_ROWS..=MAX_ROWS).contains(&config.max_rows) {
            return refuse(format!("max_rows must be {MIN_ROWS} to {MAX_ROWS}"));
        }
        if config.max_seqs == 0 {
            return refuse("max_seqs must not be 0".into());
        }
        if config.max_len == 0 || config.max_len as i64 > model.max_position_embeddings {
            let longest = model.max_position_embeddings;
            return refuse(format!("max_len must be 1 to the model's {longest}"));
        }
        // One slot more than sequences: rows that only fill a batch up use it.
        let slots = config.max_seqs.min(FIRST_SEQS) + 1;
        let cache = KvCache::new(model, slots, config.max_len);
        let free = (1..=config.max_seqs as i64).rev().collect();
        let vocab_size = model.vocab_size;
        let (running, waiting, keys) = Default::default();
        Ok(Self {
            config,
            vocab_size,
            cache,
            free,
            running,
            waiting,
            keys,
        })
    }

    /// Takes a sequence in; it starts in the next step that has a slot for it.
    pub fn add(&mut self, request: SeqRequest) -> Result<(), SamplerError> {
        let key = request.key;
        let refuse = |why: String| Err(SamplerError::BadRequest { key, why });
        if request.ids.is_empty() || request.ids.len() >= self.config.max_len {
            let (got, longest) = (request.ids.len(), self.config.max_len - 1);
            return refuse(format!("{got} input tokens, expected 1 to {longest}"));
        }
        if let Some(id) = request
            .ids
            .iter()
            .find(|id| !(0..self.vocab_size).contains(*id))
        {
            return refuse(format!("token {id} is outside the vocabulary"));
        }
        if request.max_new_tokens == 0 {
            return refuse("max_new_tokens is 0".into());
        }
        if !(request.temperature >= 0.0 && request.temperature.is_finite()) {
            return refuse(format!("temperature {} is not usable", request.temperature));
        }
        if !self.keys.insert(key) {
            return Err(SamplerError::DuplicateKey(key));
        }
        self.waiting.push_back(request);
        Ok(())
    }

    /// Drops a sequence; tells whether there was one.
    pub fn abort(&mut self, key: u64) -> bool {
        if !self.keys.remove(&key) {
            return false;
        }
        self.waiting.retain(|request| request.key != key);
        if let Some(at) = self
            .running
            .iter()
            .position(|sequence| sequence.request.key == key)
        {
            self.free.push(self.running.remove(at).slot);
        }
        true
    }

    /// Sequences being computed or in line.
    pub fn running(&self) -> usize {
        self.keys.len()
    }

    /// Forgets all keys and values: the next steps compute them again with the weights they get.
    pub fn refresh(&mut self) {
        self.cache.clear();
        for sequence in &mut self.running {
            sequence.cached = 0;
        }
    }

    /// Computes one batch of rows and returns the tokens that came out of it; an empty result
    /// means that only prompts were read, or that there was nothing to do.
    pub fn step(&mut self, model: &Qwen3) -> Result<Vec<StepOut>, SamplerError> {
        self.admit();
        let (mut rows, sampled) = self.plan();
        if rows.tokens.is_empty() {
            return Ok(Vec::new());
        }
        while rows.tokens.len() < MIN_ROWS {
            rows.tokens.push(0);
            rows.positions.push(0);
            rows.slots.push(FILLER_SLOT);
        }
        let logits = tch::no_grad(|| model.forward_rows(&mut self.cache, &rows));
        self.sample(&logits, &sampled)
    }

    fn admit(&mut self) {
        while !self.free.is_empty() && !self.waiting.is_empty() {
            let (Some(slot), Some(request)) = (self.free.pop(), self.waiting.pop_front()) else {
                return;
            };
            if slot as usize >= self.cache.slots() {
                // Twice as much, so that few sequences wait for a copy of the cache.
                let slots = (self.cache.slots() * 2).max(slot as usize + 1);
                self.cache.grow(slots.min(self.config.max_seqs + 1));
            }
            let prompt_len = request.ids.len();
            self.running.push(Sequence {
                request,
                prompt_len,
                cached: 0,
                slot,
            });
        }
    }

    /// Chooses rows: generating sequences first, then prompts in order of arrival. The second
    /// value maps a row to the index of the sequence that samples from it.
    fn plan(&mut self) -> (Rows, Vec<(usize, usize)>) {
        let (mut rows, mut sampled) = (Rows::default(), Vec::new());
        let mut order: Vec<usize> = (0..self.running.len()).collect();
        let pending = |sequence: &Sequence| sequence.request.ids.len() - sequence.cached;
        order.sort_by_key(|&index| pending(&self.running[index]) > 1);
        for index in order {
            let sequence = &mut self.running[index];
            let room = self.config.max_rows - rows.tokens.len();
            let take = pending(sequence).min(room);
            for position in sequence.cached..sequence.cached + take {
                rows.tokens.push(sequence.request.ids[position]);
                rows.positions.push(position as i64);
                rows.slots.push(sequence.slot);
            }
            sequence.cached += take;
            if take > 0 && pending(sequence) == 0 {
                sampled.push((rows.tokens.len() - 1, index));
            }
        }
        (rows, sampled)
    }

    fn sample(
        &mut self,
        logits: &Tensor,
        sampled: &[(usize, usize)],
    ) -> Result<Vec<StepOut>, SamplerError> {
        let width = self.vocab_size as usize;
        let mut values = vec![0.0f32; logits.numel()];
        logits.copy_data(&mut values, logits.numel());
        let mut outputs = Vec::with_capacity(sampled.len());
        for &(row, index) in sampled {
            let sequence = &self.running[index];
            let (request, length) = (&sequence.request, sequence.request.ids.len());
            let number = rng::uniform(
                request.seed,
                request.trajectory,
                request.position0 + length as u64,
            );
            let row = &values[row * width..(row + 1) * width];
            let Some((token, logprob)) = choose(row, request.temperature, number) else {
                return Err(SamplerError::NonFinite { key: request.key });
            };
            outputs.push((index, token, logprob));
        }
        let outputs: Vec<StepOut> = outputs
            .into_iter()
            .map(|(index, token, logprob)| self.push(index, token, logprob))
            .collect();
        for ended in outputs.iter().filter(|out| out.finished.is_some()) {
            self.abort(ended.key);
        }
        Ok(outputs)
    }

    fn push(&mut self, index: usize, token: i64, logprob: f32) -> StepOut {
        let max_len = self.config.max_len;
        let sequence = &mut self.running[index];
        let request = &mut sequence.request;
        request.ids.push(token);
        let generated = request.ids.len() - sequence.prompt_len;
        let finished = if request.stop_tokens.contains(&token) {
            Some(FinishReason::Stop)
        } else if generated >= request.max_new_tokens || request.ids.len() >= max_len {
            Some(FinishReason::Length)
        } else {
            None
        };
        StepOut {
            key: request.key,
            token,
            logprob,
            finished,
        }
    }
}

/// Draws a token by inverting the distribution function, in double precision and in vocabulary
/// order, so that the result is a function of the logits' bits. None if they are not finite.
fn choose(logits: &[f32], temperature: f64, number: f64) -> Option<(i64, f32)> {
    let scale = if temperature == 0.0 {
        1.0
    } else {
        1.0 / temperature
    };
    let (mut best, mut highest) = (0, f64::NEG_INFINITY);
    for (token, &logit) in logits.iter().enumerate() {
        if !logit.is_finite() {
            return None;
        }
        if f64::from(logit) * scale > highest {
            (best, highest) = (token, f64::from(logit) * scale);
        }
    }
    let weight = |logit: f32| (f64::from(logit) * scale - highest).exp();
    let total: f64 = logits.iter().map(|&logit| weight(logit)).sum();
    let mut token = best;
    if temperature > 0.0 {
        let mut left = number * total;
        for (candidate, &logit) in logits.iter().enumerate() {
            left -= weight(logit);
            if left < 0.0 {
                token = candidate;
                break;
            }
        }
    }
    let logprob = f64::from(logits[token]) * scale - highest - total.ln();
    Some((token as i64, logprob as f32))
}
