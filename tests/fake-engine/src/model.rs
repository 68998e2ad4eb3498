//! What of a model's folder the engine needs besides its weights: sizes, and a tokenizer of single
//! tokens.

use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// The sizes and the vocabulary of the model that is served.
#[derive(Debug, Clone)]
pub struct Model {
    /// Tokens from here on are outside the vocabulary.
    pub vocab: u32,
    /// The end of sequence, if the model has one.
    pub eos: Option<u32>,
    /// Tokens of prompt and reply together.
    pub context: usize,
    texts: HashMap<u32, String>,
    ids: HashMap<String, u32>,
}

impl Model {
    /// Reads `config.json` and `tokenizer.json`; what is not there has the recorded model's values.
    pub fn read(folder: &Path) -> Self {
        let config = json(folder, "config.json");
        let number = |key: &str| config[key].as_u64();
        let tokenizer = json(folder, "tokenizer.json");
        let special: Vec<_> = tokenizer["added_tokens"]
            .as_array()
            .into_iter()
            .flatten()
            .collect();
        let is_special = |id: u32| special.iter().any(|t| t["id"] == id);
        let ids: HashMap<_, _> = tokenizer["model"]["vocab"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(text, id)| Some((text.clone(), u32::try_from(id.as_u64()?).ok()?)))
            .collect();
        let texts = ids.iter().filter(|(_, id)| !is_special(**id));
        Self {
            vocab: number("vocab_size")
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(96)
                .max(1),
            eos: number("eos_token_id").and_then(|n| u32::try_from(n).ok()),
            context: number("max_position_embeddings").unwrap_or(256) as usize,
            texts: texts.map(|(text, id)| (*id, text.clone())).collect(),
            ids,
        }
    }

    /// The text of a token, nothing for a special one.
    pub fn text(&self, token: u32) -> &str {
        self.texts.get(&token).map_or("", String::as_str)
    }

    /// The tokens of a text, a character each.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        text.chars()
            .map(|c| self.ids.get(&c.to_string()).copied().unwrap_or(0))
            .collect()
    }
}

fn json(folder: &Path, name: &str) -> Value {
    let text = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or(Value::Null)
}
