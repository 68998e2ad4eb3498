//! The architecture's numbers, as in Hugging Face's `config.json`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Why a `config.json` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("reading {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not the JSON expected.
    #[error("parsing {path}: {source}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// What the parser said, with line and column.
        source: serde_json::Error,
    },
    /// The numbers do not describe a Qwen3 model that is supported here.
    #[error("config.json: {0}")]
    Unsupported(String),
}

/// A Qwen3 model's shape. Unknown keys of the file are ignored, as other readers do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Qwen3Config {
    /// Always `qwen3`; other models are refused.
    #[serde(default = "default_model_type")]
    pub model_type: String,
    /// Named by Hugging Face so that other tools find the model's class.
    #[serde(default = "default_architectures")]
    pub architectures: Vec<String>,
    /// Width of the residual stream.
    pub hidden_size: i64,
    /// Number of decoder layers.
    pub num_hidden_layers: i64,
    /// Query heads.
    pub num_attention_heads: i64,
    /// Key and value heads; divides the query heads.
    pub num_key_value_heads: i64,
    /// Width of a head, independent of `hidden_size / num_attention_heads`.
    pub head_dim: i64,
    /// Width of the gated feed-forward layer.
    pub intermediate_size: i64,
    /// Added to the mean square under RMSNorm's root.
    #[serde(default = "default_eps")]
    pub rms_norm_eps: f64,
    /// Base of the rotary frequencies.
    #[serde(default = "default_theta")]
    pub rope_theta: f64,
    /// Where transformers 5 keeps `rope_theta`; folded into it on reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rope_parameters: Option<RopeParameters>,
    /// Number of tokens.
    pub vocab_size: i64,
    /// Longest sequence.
    pub max_position_embeddings: i64,
    /// Whether the output layer is the embedding itself.
    #[serde(default)]
    pub tie_word_embeddings: bool,
    /// Scaling of older files; refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rope_scaling: Option<serde_json::Value>,
    /// Attention to a window only; refused.
    #[serde(default)]
    pub use_sliding_window: bool,
    /// Biases in the attention's projections: no Qwen3 model has them, and they are refused.
    #[serde(default)]
    pub attention_bias: bool,
    /// The feed-forward layer's activation; only `silu`.
    #[serde(default = "default_act")]
    pub hidden_act: String,
}

/// Rotary settings as transformers 5 writes them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RopeParameters {
    /// Base of the rotary frequencies.
    #[serde(default)]
    pub rope_theta: Option<f64>,
    /// Scaling scheme; only `default`.
    #[serde(default)]
    pub rope_type: Option<String>,
}

fn default_model_type() -> String {
    "qwen3".into()
}

fn default_architectures() -> Vec<String> {
    vec!["Qwen3ForCausalLM".into()]
}

fn default_eps() -> f64 {
    1e-6
}

fn default_theta() -> f64 {
    10_000.0
}

fn default_act() -> String {
    "silu".into()
}

impl Qwen3Config {
    /// The demo's model: 0.8M parameters for a character vocabulary of `vocab_size`.
    pub fn demo(vocab_size: i64) -> Self {
        Self {
            model_type: default_model_type(),
            architectures: default_architectures(),
            hidden_size: 128,
            num_hidden_layers: 4,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            head_dim: 32,
            intermediate_size: 384,
            rms_norm_eps: default_eps(),
            rope_theta: default_theta(),
            rope_parameters: None,
            vocab_size,
            max_position_embeddings: 64,
            tie_word_embeddings: true,
            rope_scaling: None,
            use_sliding_window: false,
            attention_bias: false,
            hidden_act: default_act(),
        }
    }

    /// Reads and checks a `config.json`.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read(path).map_err(|source| ConfigError::Read {
            path: path.into(),
            source,
        })?;
        let mut config: Self =
            serde_json::from_slice(&text).map_err(|source| ConfigError::Parse {
                path: path.into(),
                source,
            })?;
        if let Some(rope) = config.rope_parameters.take() {
            if let Some(kind) = rope.rope_type.filter(|kind| kind != "default") {
                let why = format!("rope_type {kind:?} is not supported, only \"default\"");
                return Err(ConfigError::Unsupported(why));
            }
            config.rope_theta = rope.rope_theta.unwrap_or(config.rope_theta);
        }
        config.check()?;
        Ok(config)
    }

    /// Refuses what the implementation cannot compute.
    pub fn check(&self) -> Result<(), ConfigError> {
        let refuse = |why: String| Err(ConfigError::Unsupported(why));
        let sizes = [
            ("hidden_size", self.hidden_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
            ("head_dim", self.head_dim),
            ("intermediate_size", self.intermediate_size),
            ("vocab_size", self.vocab_size),
            ("max_position_embeddings", self.max_position_embeddings),
        ];
        if let Some((name, value)) = sizes
            .iter()
            .find(|(_, value)| !(1..1 << 31).contains(value))
        {
            return refuse(format!(
                "{name} is {value}, expected a positive 31-bit number"
            ));
        }
        if self.model_type != "qwen3" {
            return refuse(format!(
                "model_type is {:?}, expected \"qwen3\"",
                self.model_type
            ));
        }
        if self.num_attention_heads % self.num_key_value_heads != 0 {
            return refuse("num_key_value_heads must divide num_attention_heads".into());
        }
        if self.head_dim % 2 != 0 {
            return refuse(format!(
                "head_dim is {}, expected an even number",
                self.head_dim
            ));
        }
        let unsupported = [
            ("attention_bias", self.attention_bias),
            ("use_sliding_window", self.use_sliding_window),
            (
                "rope_scaling",
                self.rope_scaling
                    .as_ref()
                    .is_some_and(|value| !value.is_null()),
            ),
        ];
        if let Some((name, _)) = unsupported.iter().find(|(_, set)| *set) {
            return refuse(format!("{name} is not supported"));
        }
        if self.hidden_act != "silu" {
            return refuse(format!(
                "hidden_act is {:?}, expected \"silu\"",
                self.hidden_act
            ));
        }
        Ok(())
    }
}
