//! The tensors of a model of the paper's largest size, and how trainer and rollouts cut them.
use robust_shared::weights::layout::even_cuts;
use robust_shared::weights::{Layout, LayoutError, Split, TensorSpec};

/// Widths of a mixture-of-experts transformer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths {
    /// Layers.
    pub layers: u64,
    /// Experts of a layer.
    pub experts: u64,
    /// Width between layers.
    pub hidden: u64,
    /// Width within an expert.
    pub inner: u64,
    /// Query heads.
    pub heads: u64,
    /// Key-value heads.
    pub kv_heads: u64,
    /// Width of a head.
    pub head: u64,
    /// Tokens of the vocabulary.
    pub vocabulary: u64,
}

/// Qwen3-235B-A22B: 470 GB in BF16.
pub const QWEN3_235B: Widths = Widths {
    layers: 94,
    experts: 128,
    hidden: 4096,
    inner: 1536,
    heads: 64,
    kv_heads: 4,
    head: 128,
    vocabulary: 151_936,
};

impl Widths {
    /// Every tensor under its Hugging Face name, in BF16.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let Self {
            hidden,
            inner,
            head,
            vocabulary,
            ..
        } = *self;
        let (query, key) = (self.heads * head, self.kv_heads * head);
        let mut all = vec![("model.embed_tokens".to_owned(), vec![vocabulary, hidden])];
        for layer in 0..self.layers {
            let mut add = |name: &str, shape: &[u64]| {
                all.push((format!("model.layers.{layer}.{name}"), shape.to_vec()));
            };
            add("input_layernorm", &[hidden]);
            add("self_attn.q_proj", &[query, hidden]);
            add("self_attn.k_proj", &[key, hidden]);
            add("self_attn.v_proj", &[key, hidden]);
            add("self_attn.q_norm", &[head]);
            add("self_attn.k_norm", &[head]);
            add("self_attn.o_proj", &[hidden, query]);
            add("post_attention_layernorm", &[hidden]);
            add("mlp.gate", &[self.experts, hidden]);
            for expert in 0..self.experts {
                add(&format!("mlp.experts.{expert}.gate_proj"), &[inner, hidden]);
                add(&format!("mlp.experts.{expert}.up_proj"), &[inner, hidden]);
                add(&format!("mlp.experts.{expert}.down_proj"), &[hidden, inner]);
            }
        }
        all.push(("model.norm".to_owned(), vec![hidden]));
        all.push(("lm_head".to_owned(), vec![vocabulary, hidden]));
        let mut offset = 0;
        let mut spec = |(name, shape): (String, Vec<u64>)| {
            let bytes = shape.iter().product::<u64>() * 2;
            let spec = TensorSpec {
                name: format!("{name}.weight"),
                dtype: "BF16".to_owned(),
                shape,
                offset,
                bytes,
            };
            offset += bytes;
            spec
        };
        all.into_iter().map(&mut spec).collect()
    }

    /// The trainer's ranks: flat shards of equal size, as data-parallel training keeps them.
    pub fn trainer(&self, ranks: usize) -> Result<Layout, LayoutError> {
        Layout::data_parallel(&self.tensors(), ranks, 1)
    }

    /// A rollout's ranks: tensor parallel as inference engines cut it. Heads and the experts' inner
    /// width are divided, fewer key-value heads than ranks are held by neighbours, and what is small
    /// by all.
    pub fn rollout(&self, ranks: usize) -> Result<Layout, LayoutError> {
        let along = |dim, size, unit: u64, parts: usize| {
            let cuts = even_cuts(size, parts, unit);
            Split::Along { dim, cuts }
        };
        let kv = usize::try_from(self.kv_heads).map_or(ranks, |heads| heads.min(ranks));
        Layout::tensor_parallel(&self.tensors(), ranks, |spec| {
            let is = |part: &str| spec.name.contains(part);
            match spec.shape.as_slice() {
                [rows, _] if is("k_proj") || is("v_proj") => along(0, *rows, self.head, kv),
                [rows, _] if is("q_proj") => along(0, *rows, self.head, ranks),
                [_, cols] if is("o_proj") => along(1, *cols, self.head, ranks),
                [_, cols] if is("down_proj") => along(1, *cols, 1, ranks),
                [rows, _] if !is("mlp.gate.") => along(0, *rows, 1, ranks),
                _ => Split::Whole,
            }
        })
    }
}
