//! Supervised warm-up from scratch: gives the policy both behaviours to choose from.
//!
//! Reinforcement learning needs a start that is right now and then. The warm-up imitates synthetic
//! trajectories on arithmetic: some call the calculator and copy its result, some answer at once
//! (and mostly wrongly: the model is not trained long enough to calculate), and a share of the
//! calls and copies is wrong on purpose. Copying is learned first, from right calls alone: it comes
//! as a sudden step, which a mixture delays by hundreds of updates or misses. The policy then starts
//! at a mean reward of about 0.25 and can learn to use the tool, to call it right and to copy right.

use std::path::{Path, PathBuf};

use robust_shared::job::WARMUP_RECIPE;
use tch::{IndexOp, Kind, Tensor};

use super::adam::{Adam, AdamConfig, AdamError};
use super::config::{ConfigError, Qwen3Config};
use super::hf::{self, HfError};
use super::qwen3::Qwen3;
use super::rng::Stream;
use super::tokenizer::{Tokenizer, TokenizerError};

/// Settings of the warm-up; the defaults are the demo's.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WarmupConfig {
    /// Updates.
    pub steps: usize,
    /// Trajectories an update.
    pub batch: usize,
    /// Highest learning rate.
    pub lr: f64,
    /// Share of the updates, at the beginning, that see right tool calls only.
    pub copying_first: f64,
    /// Share of trajectories that call the tool, later.
    pub tool_share: f64,
    /// Share of tool calls with a wrong digit.
    pub call_mistakes: f64,
    /// Share of copied results with a wrong digit.
    pub copy_mistakes: f64,
}

impl Default for WarmupConfig {
    fn default() -> Self {
        Self {
            steps: 180,
            batch: 64,
            lr: 2e-3,
            copying_first: 0.5,
            tool_share: 0.25,
            call_mistakes: 0.12,
            copy_mistakes: 0.12,
        }
    }
}

/// How far the warm-up is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Updates done.
    pub step: usize,
    /// Updates in all.
    pub steps: usize,
    /// Mean loss per token of the last update.
    pub loss: f64,
}

/// Why the warm-up failed.
#[derive(Debug, thiserror::Error)]
pub enum WarmupError {
    /// The architecture is unusable.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The tokenizer cannot write arithmetic.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// An update failed.
    #[error("warm-up step {step}: {source}")]
    Update {
        /// The update, from 0.
        step: usize,
        /// Why.
        source: AdamError,
    },
    /// The result could not be stored or read back.
    #[error(transparent)]
    Store(#[from] HfError),
    /// The model cannot hold a trajectory.
    #[error("a trajectory has {got} tokens, the model holds {longest}")]
    TooLong {
        /// Tokens of the trajectory.
        got: usize,
        /// The model's limit.
        longest: i64,
    },
}

/// Trains a model from scratch; the result depends on the arguments alone.
pub fn run(
    model_config: &Qwen3Config,
    config: &WarmupConfig,
    tokenizer: &Tokenizer,
    seed: u64,
    mut progress: impl FnMut(Progress),
) -> Result<Qwen3, WarmupError> {
    let mut model = Qwen3::random(model_config.clone(), seed)?;
    let settings = AdamConfig {
        beta2: 0.99,
        ..AdamConfig::default()
    };
    let mut adam = Adam::new(model.params(), settings);
    let mut stream = Stream::new(seed, u64::MAX);
    let copying_only = WarmupConfig {
        tool_share: 1.0,
        call_mistakes: 0.0,
        copy_mistakes: 0.0,
        ..*config
    };
    for step in 0..config.steps {
        let copying = (step as f64) < config.copying_first * config.steps as f64;
        let mix = if copying { &copying_only } else { config };
        let samples = (0..config.batch)
            .map(|_| Example::draw(mix, &mut stream).encode(tokenizer))
            .collect::<Result<Vec<_>, _>>()?;
        adam.set_lr(config.lr * schedule(step, config.steps));
        let (loss, grad) = gradient(&model, &samples)?;
        adam.step(model.params_mut(), &grad)
            .map_err(|source| WarmupError::Update { step, source })?;
        progress(Progress {
            step: step + 1,
            steps: config.steps,
            loss,
        });
    }
    Ok(model)
}

/// The folder with the warmed-up model below `dir`; trained and stored on the first call. Its
/// name is a digest of everything the result depends on.
pub fn cached(
    dir: &Path,
    model_config: &Qwen3Config,
    config: &WarmupConfig,
    tokenizer: &Tokenizer,
    seed: u64,
    progress: impl FnMut(Progress),
) -> Result<PathBuf, WarmupError> {
    let recipe = format!(
        "{WARMUP_RECIPE} {model_config:?} {config:?} {:?} {seed}",
        tokenizer.specials()
    );
    let folder = dir.join(format!("warmup-{:016x}", fnv1a(recipe.as_bytes())));
    if !folder.join(hf::WEIGHTS_FILE).exists() {
        let model = run(model_config, config, tokenizer, seed, progress)?;
        hf::save(&model, &folder)?;
    }
    Ok(folder)
}

fn fnv1a(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// Linear rise over the first twentieth, then a cosine down to a twentieth.
fn schedule(step: usize, steps: usize) -> f64 {
    let rise = (steps / 20).max(1);
    if step < rise {
        return (step + 1) as f64 / rise as f64;
    }
    let done = (step - rise) as f64 / (steps - rise).max(1) as f64;
    0.05 + 0.95 * 0.5 * (1.0 + (std::f64::consts::PI * done).cos())
}

/// Ids, and 1 for each token to imitate.
type Imitation = (Vec<i64>, Vec<f32>);

fn gradient(model: &Qwen3, samples: &[Imitation]) -> Result<(f64, Tensor), WarmupError> {
    let longest = samples.iter().map(|(ids, _)| ids.len()).max().unwrap_or(0);
    let limit = model.config().max_position_embeddings;
    if longest as i64 > limit {
        return Err(WarmupError::TooLong {
            got: longest,
            longest: limit,
        });
    }
    let (mut ids, mut mask) = (
        vec![0i64; samples.len() * longest],
        vec![0f32; samples.len() * longest],
    );
    for (row, (sample_ids, sample_mask)) in samples.iter().enumerate() {
        let at = row * longest..row * longest + sample_ids.len();
        ids[at.clone()].copy_from_slice(sample_ids);
        mask[at].copy_from_slice(sample_mask);
    }
    let shape = [samples.len() as i64, longest as i64];
    let ids = Tensor::from_slice(&ids).view(shape);
    let mask = Tensor::from_slice(&mask).view(shape).i((.., 1..));
    let logprobs = model.token_logprobs(&ids, 1.0);
    let loss = (logprobs * &mask).sum(Kind::Float).neg() / mask.sum(Kind::Float);
    let grads = Tensor::run_backward(&[&loss], model.params().views(), false, false);
    let grads: Vec<Tensor> = grads.iter().map(|grad| grad.reshape([-1])).collect();
    Ok((loss.double_value(&[]), Tensor::cat(&grads, 0)))
}

/// A trajectory to imitate.
struct Example {
    prompt: String,
    /// Expression and result, if the tool is called.
    call: Option<(String, String)>,
    answer: String,
}

impl Example {
    fn draw(config: &WarmupConfig, stream: &mut Stream) -> Self {
        let (mut a, operator, mut b) = problem(stream);
        let prompt = format!("{a}{operator}{b}=");
        if stream.uniform() >= config.tool_share {
            let answer = apply(a, operator, b).to_string();
            return Self {
                prompt,
                call: None,
                answer,
            };
        }
        if stream.uniform() < config.call_mistakes {
            let side = if stream.below(2) == 0 { &mut a } else { &mut b };
            *side = spoil(&side.to_string(), stream).parse().unwrap_or(*side);
        }
        let result = apply(a, operator, b).to_string();
        let wrong = stream.uniform() < config.copy_mistakes;
        let answer = if wrong {
            spoil(&result, stream)
        } else {
            result.clone()
        };
        Self {
            prompt,
            call: Some((format!("{a}{operator}{b}"), result)),
            answer,
        }
    }

    fn encode(&self, tokenizer: &Tokenizer) -> Result<Imitation, TokenizerError> {
        let specials = tokenizer.specials();
        let mut ids = tokenizer.encode_prompt(&self.prompt)?;
        let mut mask = vec![0.0; ids.len()];
        if let Some((expression, result)) = &self.call {
            let tools = specials.tools.ok_or(TokenizerError::NoTools)?;
            ids.push(tools.call);
            ids.extend(tokenizer.encode(expression)?);
            ids.push(tools.call_end);
            mask.resize(ids.len(), 1.0);
            // The result is the tool's, not the model's: nothing to imitate.
            ids.extend(tokenizer.encode_result(result)?);
            mask.resize(ids.len(), 0.0);
        }
        ids.extend(tokenizer.encode(&self.answer)?);
        ids.extend(specials.eos.first());
        mask.resize(ids.len(), 1.0);
        Ok((ids, mask))
    }
}

fn problem(stream: &mut Stream) -> (i64, char, i64) {
    let operator = ['+', '-', '*'][stream.below(3) as usize];
    let number = |stream: &mut Stream| {
        // As many two-digit numbers as three-digit ones.
        if stream.below(2) == 0 {
            10 + stream.below(90) as i64
        } else {
            100 + stream.below(900) as i64
        }
    };
    if operator == '*' {
        return (
            10 + stream.below(90) as i64,
            '*',
            2 + stream.below(98) as i64,
        );
    }
    (number(stream), operator, number(stream))
}

fn apply(a: i64, operator: char, b: i64) -> i64 {
    match operator {
        '+' => a + b,
        '-' => a - b,
        _ => a * b,
    }
}

/// Replaces one digit by another, never making a leading zero.
fn spoil(text: &str, stream: &mut Stream) -> String {
    let digits: Vec<usize> = text
        .char_indices()
        .filter(|(_, c)| c.is_ascii_digit())
        .map(|(at, _)| at)
        .collect();
    let Some(&at) = digits.get(stream.below(digits.len() as u64) as usize) else {
        return text.into();
    };
    let old = text.as_bytes()[at];
    let mut new = b'1' + stream.below(8) as u8;
    if new >= old {
        new += 1;
    }
    format!("{}{}{}", &text[..at], new as char, &text[at + 1..])
}
