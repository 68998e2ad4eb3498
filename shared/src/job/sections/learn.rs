//! What is learnt, from what: `[model]`, `[data]`, `[batch]`, `[train]`.
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// `[model]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// A Hugging Face folder of the Qwen3 architecture: `config.json` and `model.safetensors`, or shards
    /// with `model.safetensors.index.json`, of float32, bfloat16 or float16. With it, `config` and
    /// `warmup` are not used; without it, a warm-up makes such a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Shape of the model that the warm-up trains.
    pub config: ModelConfig,
    /// The warm-up.
    pub warmup: WarmupSettings,
}

/// `[model.config]`: Qwen3's numbers, named as in Hugging Face's `config.json`. The vocabulary's
/// size is the tokenizer's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// Width of the residual stream.
    pub hidden_size: u32,
    /// Decoder layers.
    pub num_hidden_layers: u32,
    /// Query heads.
    pub num_attention_heads: u32,
    /// Key and value heads; divides the query heads.
    pub num_key_value_heads: u32,
    /// Width of a head; even.
    pub head_dim: u32,
    /// Width of the gated feed-forward layer.
    pub intermediate_size: u32,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Added to the mean square under RMSNorm's root.
    pub rms_norm_eps: f64,
    /// Longest sequence, in tokens.
    pub max_position_embeddings: u32,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            hidden_size: 128,
            num_hidden_layers: 4,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            head_dim: 32,
            intermediate_size: 384,
            rope_theta: 10_000.0,
            rms_norm_eps: 1e-6,
            max_position_embeddings: 64,
        }
    }
}

/// `[model.warmup]`: supervised training that gives RL something to start from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WarmupSettings {
    /// Updates; 0 leaves the weights random.
    pub steps: u64,
    /// Conversations per update.
    pub batch: u32,
    /// Highest learning rate.
    pub lr: f64,
    /// Seed of initial weights and data.
    pub seed: u64,
    /// Share of the updates, at the beginning, that see right tool calls only, 0 to 1: copying comes
    /// as a sudden step, which a mixture delays or misses.
    pub copying_first: f64,
    /// Share of conversations that call the tool, later, 0 to 1.
    pub tool_share: f64,
    /// Share of tool calls with a wrong digit, 0 to 1: there must be something left to learn.
    pub call_mistakes: f64,
    /// Share of copied results with a wrong digit, 0 to 1.
    pub copy_mistakes: f64,
}

impl Default for WarmupSettings {
    fn default() -> Self {
        Self {
            steps: 180,
            batch: 64,
            lr: 2e-3,
            seed: 7,
            copying_first: 0.5,
            tool_share: 0.25,
            call_mistakes: 0.12,
            copy_mistakes: 0.12,
        }
    }
}

/// `[data]`; paths are relative to the job file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// JSONL, one object `{"prompt": ..., "answer": ...}` a line.
    pub prompts: PathBuf,
    /// Hugging Face `tokenizer.json`.
    pub tokenizer: PathBuf,
    /// Whether a prompt is put through the tokenizer's chat template, as the one message of a user: that
    /// of `chat_template.jinja` or `tokenizer_config.json` beside the tokenizer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chat_template: bool,
}

/// `[batch]`: samples of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BatchShape {
    /// Prompts (= groups) per step.
    pub prompts: u32,
    /// Responses per prompt: the group size of GRPO, at least 2.
    pub responses: u32,
    /// Versions that a trajectory's oldest tokens may be older than the weights its step trains. One
    /// that ends older is thrown away and generated again. Any number if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_staleness: Option<u64>,
}

impl Default for BatchShape {
    fn default() -> Self {
        Self {
            prompts: 8,
            responses: 8,
            max_staleness: None,
        }
    }
}

/// `[train]`: GRPO's loss and Adam.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Train {
    /// Learning rate.
    pub lr: f64,
    /// Adam's decays of the first and second moment.
    pub betas: [f64; 2],
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay (AdamW).
    pub weight_decay: f64,
    /// Bound on the gradient's global norm; 0 switches clipping off.
    pub max_grad_norm: f64,
    /// The policy ratio counts within `1 +- clip_eps`.
    pub clip_eps: f64,
    /// Another upper bound than `clip_eps` (clip-higher).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_eps_high: Option<f64>,
    /// Bound on the loss of a token with negative advantage, as a multiple of it (dual clip), above
    /// 1; 0 switches it off.
    pub dual_clip: f64,
    /// Weight of the divergence from the initial policy; 0 leaves it out.
    pub kl_coef: f64,
    /// Samples per forward and backward pass; bounds memory.
    pub micro_batch: u32,
}

impl Default for Train {
    fn default() -> Self {
        Self {
            lr: 3e-5,
            betas: [0.9, 0.99],
            eps: 1e-8,
            weight_decay: 0.0,
            max_grad_norm: 1.0,
            clip_eps: 0.2,
            clip_eps_high: None,
            dual_clip: 3.0,
            kl_coef: 0.0,
            micro_batch: 64,
        }
    }
}
