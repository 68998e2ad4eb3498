//! The Qwen3 decoder: a forward for training and a row-wise incremental one for sampling.
//!
//! The incremental forward computes *rows*: one (slot, position, token) each. A prompt is several
//! rows of one slot, a token being generated is one. Every row runs through kernels of the same
//! shape whatever it is, so its logits depend only on its own sequence; see [`super::sampler`].

mod kv_cache;
mod rows;

use tch::{Device, IndexOp, Kind, Tensor};

use super::config::{ConfigError, Qwen3Config};
use super::flat::{FlatParams, layout_of};
use super::rng::Stream;

pub use kv_cache::KvCache;
pub use rows::Rows;

/// Standard deviation of the initial weights, as in the published models.
const INIT_STD: f64 = 0.02;

/// Tokens whose rows of a bfloat16 output layer are widened at once: some 16 MiB for a width of 1024,
/// which the allocator hands out again and again without going to the kernel.
const WIDENED_ROWS: i64 = 4096;

/// A model with its weights.
#[derive(Debug)]
pub struct Qwen3 {
    config: Qwen3Config,
    params: FlatParams,
    layers: Vec<Layer>,
    embed: usize,
    final_norm: usize,
    head: usize,
    /// Rotary tables, [positions, head_dim].
    cos: Tensor,
    sin: Tensor,
}

/// Indices of a layer's tensors among the views.
#[derive(Debug, Clone)]
struct Layer {
    input_norm: usize,
    post_norm: usize,
    q: usize,
    k: usize,
    v: usize,
    o: usize,
    q_norm: usize,
    k_norm: usize,
    gate: usize,
    up: usize,
    down: usize,
}

impl Qwen3 {
    /// A model with zero weights, to be filled.
    pub fn zeroed(config: Qwen3Config) -> Result<Self, ConfigError> {
        config.check()?;
        let params = FlatParams::zeros(layout_of(&config));
        Self::with_params(config, params)
    }

    /// A model with these weights, which have the layout of its shape.
    pub fn with_params(config: Qwen3Config, params: FlatParams) -> Result<Self, ConfigError> {
        config.check()?;
        let index = |name: &str| {
            let found = params
                .layout()
                .binary_search_by(|spec| spec.name.as_str().cmp(name));
            found.map_err(|_| ConfigError::Unsupported(format!("no tensor {name}")))
        };
        let layer = |n: i64| {
            let at = |name: &str| index(&format!("model.layers.{n}.{name}.weight"));
            Ok(Layer {
                input_norm: at("input_layernorm")?,
                post_norm: at("post_attention_layernorm")?,
                q: at("self_attn.q_proj")?,
                k: at("self_attn.k_proj")?,
                v: at("self_attn.v_proj")?,
                o: at("self_attn.o_proj")?,
                q_norm: at("self_attn.q_norm")?,
                k_norm: at("self_attn.k_norm")?,
                gate: at("mlp.gate_proj")?,
                up: at("mlp.up_proj")?,
                down: at("mlp.down_proj")?,
            })
        };
        let layers = (0..config.num_hidden_layers)
            .map(layer)
            .collect::<Result<_, ConfigError>>()?;
        let embed = index("model.embed_tokens.weight")?;
        let head = if config.tie_word_embeddings {
            embed
        } else {
            index("lm_head.weight")?
        };
        let final_norm = index("model.norm.weight")?;
        let (cos, sin) = rope_tables(&config);
        Ok(Self {
            config,
            params,
            layers,
            embed,
            final_norm,
            head,
            cos,
            sin,
        })
    }

    /// A model with random weights that depend on the seed alone.
    pub fn random(config: Qwen3Config, seed: u64) -> Result<Self, ConfigError> {
        let mut model = Self::zeroed(config)?;
        let layout = model.params.layout().to_vec();
        let bytes = model.params.as_bytes_mut();
        for (stream, spec) in layout.iter().enumerate() {
            let mut stream = Stream::new(seed, stream as u64);
            // Norms start at one.
            let is_norm = spec.shape.len() == 1;
            let mut next = || match is_norm {
                true => 1.0f32,
                false => (stream.normal() * INIT_STD) as f32,
            };
            let of = &mut bytes[spec.offset * 4..(spec.offset + spec.len) * 4];
            for value in of.as_chunks_mut::<4>().0 {
                *value = next().to_le_bytes();
            }
        }
        Ok(model)
    }

    /// The model's shape.
    pub fn config(&self) -> &Qwen3Config {
        &self.config
    }

    /// The weights.
    pub fn params(&self) -> &FlatParams {
        &self.params
    }

    /// The weights, to be changed in place.
    pub fn params_mut(&mut self) -> &mut FlatParams {
        &mut self.params
    }

    /// The same model, whose gradients a backward pass adds to the flat tensor that comes with it; see
    /// [`FlatParams::with_gradient`].
    pub fn with_gradient(&self) -> (Self, Tensor) {
        let (params, gradient) = self.params.with_gradient();
        let with = Self {
            config: self.config.clone(),
            params,
            layers: self.layers.clone(),
            embed: self.embed,
            final_norm: self.final_norm,
            head: self.head,
            cos: self.cos.shallow_clone(),
            sin: self.sin.shallow_clone(),
        };
        (with, gradient)
    }

    /// Other weights of the same layout from now on; returns those before.
    pub fn replace_params(&mut self, params: FlatParams) -> FlatParams {
        debug_assert_eq!(self.params.layout(), params.layout());
        std::mem::replace(&mut self.params, params)
    }

    /// Logits [B, T, V] of right-padded ids [B, T]. Attention is causal, so what pads compute
    /// reaches no real position.
    pub fn forward(&self, ids: &Tensor) -> Tensor {
        let (_, length) = ids.size2().unwrap_or((0, 0));
        let (cos, sin) = (self.cos.i(..length), self.sin.i(..length));
        let mut hidden = self.embedded(ids);
        for layer in &self.layers {
            let normed = self.norm(&hidden, layer.input_norm);
            hidden = &hidden + self.attention(layer, &normed, &cos, &sin);
            hidden = &hidden + self.feed_forward(layer, &self.norm(&hidden, layer.post_norm));
        }
        self.logits(&self.norm(&hidden, self.final_norm))
    }

    /// Logprobs [B, T-1] of each token given those before it, at a sampling temperature.
    pub fn token_logprobs(&self, ids: &Tensor, temperature: f64) -> Tensor {
        let logprobs = self.next_logprobs(ids, temperature);
        logprobs
            .gather(2, &ids.i((.., 1..)).unsqueeze(2), false)
            .squeeze_dim(2)
    }

    /// Logprobs [B, T-1, V] of all continuations of every position but the last.
    pub fn next_logprobs(&self, ids: &Tensor, temperature: f64) -> Tensor {
        let length = ids.size()[1];
        let logits = self.forward(ids).narrow(1, 0, length - 1);
        let logits = if temperature == 1.0 {
            logits
        } else {
            logits / temperature
        };
        logits.log_softmax(-1, Kind::Float)
    }

    /// A tensor to compute with, which is always float32: one that is held as bfloat16 is widened for as
    /// long as it is used, exactly, so that the kernels are the same and their results depend on the
    /// sequence alone.
    fn weight(&self, index: usize) -> Tensor {
        let held = &self.params.views()[index];
        match held.kind() {
            Kind::Float => held.shallow_clone(),
            _ => held.to_kind(Kind::Float),
        }
    }

    fn linear(&self, x: &Tensor, index: usize) -> Tensor {
        x.linear(&self.weight(index), None::<&Tensor>)
    }

    fn embedded(&self, ids: &Tensor) -> Tensor {
        let table = &self.params.views()[self.embed];
        let rows = Tensor::embedding(table, ids, -1, false, false);
        match rows.kind() {
            Kind::Float => rows,
            _ => rows.to_kind(Kind::Float),
        }
    }

    /// The output layer. Its table is the largest tensor by far: one held as bfloat16 is widened a piece
    /// at a time.
    fn logits(&self, x: &Tensor) -> Tensor {
        let table = &self.params.views()[self.head];
        if table.kind() == Kind::Float {
            return x.linear(table, None::<&Tensor>);
        }
        let pieces = table.split(WIDENED_ROWS, 0);
        let logits = pieces
            .iter()
            .map(|piece| x.linear(&piece.to_kind(Kind::Float), None::<&Tensor>));
        Tensor::cat(&logits.collect::<Vec<_>>(), -1)
    }

    fn norm(&self, x: &Tensor, index: usize) -> Tensor {
        let weight = self.weight(index);
        let inverse = (x.square().mean_dim([-1i64].as_slice(), true, Kind::Float)
            + self.config.rms_norm_eps)
            .rsqrt();
        x * inverse * &weight
    }

    fn feed_forward(&self, layer: &Layer, x: &Tensor) -> Tensor {
        let gate = self.linear(x, layer.gate).silu();
        let up = self.linear(x, layer.up);
        self.linear(&(gate * up), layer.down)
    }

    /// Projects to heads [.., heads, head_dim] and normalises queries and keys.
    fn heads(&self, layer: &Layer, x: &Tensor) -> (Tensor, Tensor, Tensor) {
        let split = |index: usize| {
            let y = self.linear(x, index);
            let mut shape = y.size();
            shape.pop();
            shape.extend([-1, self.config.head_dim]);
            y.view(shape.as_slice())
        };
        let q = self.norm(&split(layer.q), layer.q_norm);
        let k = self.norm(&split(layer.k), layer.k_norm);
        (q, k, split(layer.v))
    }

    fn attention(&self, layer: &Layer, x: &Tensor, cos: &Tensor, sin: &Tensor) -> Tensor {
        let (q, k, v) = self.heads(layer, x);
        let q = rotate(&q.transpose(1, 2), cos, sin);
        let k = rotate(&k.transpose(1, 2), cos, sin);
        let v = v.transpose(1, 2);
        let mixed = Tensor::scaled_dot_product_attention(
            &q,
            &k,
            &v,
            None::<&Tensor>,
            0.0,
            true,
            None,
            self.groups() > 1,
        );
        let (batch, length) = (x.size()[0], x.size()[1]);
        let mixed = mixed.transpose(1, 2).reshape([batch, length, -1]);
        self.linear(&mixed, layer.o)
    }

    fn groups(&self) -> i64 {
        self.config.num_attention_heads / self.config.num_key_value_heads
    }
}

/// Rotary position embedding in the half-split form of Hugging Face's models.
fn rotate(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Tensor {
    let halves = x.chunk(2, -1);
    let turned = Tensor::cat(&[halves[1].neg(), halves[0].shallow_clone()], -1);
    x * cos + turned * sin
}

fn rope_tables(config: &Qwen3Config) -> (Tensor, Tensor) {
    let half = config.head_dim / 2;
    let exponents = Tensor::arange(half, (Kind::Double, Device::Cpu)) / half as f64;
    let frequencies = (exponents * -config.rope_theta.ln())
        .exp()
        .to_kind(Kind::Float);
    let positions =
        Tensor::arange(config.max_position_embeddings, (Kind::Float, Device::Cpu)).unsqueeze(1);
    let angles = positions * frequencies.unsqueeze(0);
    let angles = Tensor::cat(&[angles.shallow_clone(), angles], -1);
    (angles.cos(), angles.sin())
}
