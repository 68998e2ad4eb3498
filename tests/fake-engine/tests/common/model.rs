//! A model's folder with the recorded model's tensors by name, and few numbers in them.

use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

const VOCAB: usize = 96;

/// Writes a model whose numbers come from the seed.
pub fn write(folder: &Path, seed: u8, eos: Option<u32>) {
    std::fs::create_dir_all(folder).unwrap();
    let config =
        json!({ "vocab_size": VOCAB, "max_position_embeddings": 256, "eos_token_id": eos });
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let vocab: BTreeMap<_, _> = (0..VOCAB)
        .map(|id| (char::from(b' ' + id as u8).to_string(), id))
        .collect();
    let tokenizer = json!({ "model": { "vocab": vocab }, "added_tokens": [] });
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let data: BTreeMap<_, _> = names()
        .into_iter()
        .map(|name| (name.clone(), numbers(&name, seed)))
        .collect();
    let views = data.iter().map(|(name, bytes)| {
        let shape = vec![if name.contains("embed") { VOCAB } else { 2 }, 1];
        (name, TensorView::new(Dtype::F32, shape, bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, &folder.join("model.safetensors")).unwrap();
}

fn names() -> Vec<String> {
    let parts = [
        "input_layernorm",
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
        "self_attn.q_norm",
        "self_attn.k_norm",
        "post_attention_layernorm",
        "mlp.gate_proj",
        "mlp.up_proj",
        "mlp.down_proj",
    ];
    let layers =
        (0..4).flat_map(|layer| parts.map(|part| format!("model.layers.{layer}.{part}.weight")));
    let ends = ["model.embed_tokens.weight", "model.norm.weight"].map(str::to_owned);
    layers.chain(ends).collect()
}

fn numbers(name: &str, seed: u8) -> Vec<u8> {
    let count = if name.contains("embed") { VOCAB } else { 2 };
    (0..count)
        .flat_map(|i| (i as f32 + f32::from(seed) + name.len() as f32).to_le_bytes())
        .collect()
}
