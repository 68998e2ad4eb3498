//! Which tokens structure a trajectory.

use std::path::Path;

use serde_json::Value;

use super::template::{CONFIG_FILE, token_text};
use super::{TokenizerError, read_json};

/// Where a model's folder says which tokens end an answer.
const GENERATION_FILE: &str = "generation_config.json";

/// Ids of the tokens that structure a trajectory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Specials {
    /// Fills sequences up; what it is decides nothing.
    pub pad: i64,
    /// `<bos>`, first token of each prompt without a chat template, where the vocabulary has it.
    pub bos: Option<i64>,
    /// Each of them ends a response; at least one.
    pub eos: Vec<i64>,
    /// The tokens of tool calls, where the vocabulary has all of them.
    pub tools: Option<ToolTokens>,
}

/// Ids of the tokens of tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolTokens {
    /// `<call>`, opens a tool call.
    pub call: i64,
    /// `</call>`, closes a tool call and stops generation until the result is there.
    pub call_end: i64,
    /// `<res>`, opens a tool result.
    pub res: i64,
    /// `</res>`, closes a tool result.
    pub res_end: i64,
}

impl Specials {
    /// From the first source that names them: the model's generation_config.json, the tokenizer's
    /// tokenizer_config.json, the vocabulary's `<eos>` and `<pad>`.
    pub(super) fn of(
        tokenizer: &tokenizers::Tokenizer,
        path: &Path,
        model: Option<&Path>,
    ) -> Result<Self, TokenizerError> {
        let id = |token: &str| tokenizer.token_to_id(token).map(i64::from);
        let generation = model.map(|folder| folder.join(GENERATION_FILE));
        let generation = generation.as_deref().map(read_json).transpose()?.flatten();
        let generation = generation.unwrap_or_default();
        let config = read_json(&path.with_file_name(CONFIG_FILE))?.unwrap_or_default();
        let named = |key: &str| -> Result<Option<i64>, TokenizerError> {
            let Some(token) = config.get(key).and_then(token_text) else {
                return Ok(None);
            };
            let missing = || TokenizerError::MissingToken {
                path: path.into(),
                token: token.to_owned(),
            };
            id(token).ok_or_else(missing).map(Some)
        };
        let mut eos = ids(&generation["eos_token_id"]);
        if eos.is_empty() {
            eos.extend(named("eos_token")?.or_else(|| id("<eos>")));
        }
        let Some(&end) = eos.first() else {
            return Err(TokenizerError::NoEnd { path: path.into() });
        };
        let pad = match ids(&generation["pad_token_id"]).first() {
            Some(&pad) => pad,
            None => named("pad_token")?.or_else(|| id("<pad>")).unwrap_or(end),
        };
        let tools = || {
            Some(ToolTokens {
                call: id("<call>")?,
                call_end: id("</call>")?,
                res: id("<res>")?,
                res_end: id("</res>")?,
            })
        };
        Ok(Self {
            pad,
            bos: id("<bos>"),
            eos,
            tools: tools(),
        })
    }

    /// Whether an id is one of them.
    pub fn contains(&self, id: i64) -> bool {
        let tools = self
            .tools
            .map(|t| [t.call, t.call_end, t.res, t.res_end].contains(&id));
        id == self.pad || self.bos == Some(id) || self.eos.contains(&id) || tools == Some(true)
    }

    /// The tokens at which a turn ends.
    pub fn stops(&self) -> Vec<i64> {
        let call_end = self.tools.map(|tools| tools.call_end);
        self.eos.iter().copied().chain(call_end).collect()
    }
}

/// One id, or a list of them.
fn ids(value: &Value) -> Vec<i64> {
    match value {
        Value::Array(all) => all.iter().filter_map(Value::as_i64).collect(),
        one => one.as_i64().into_iter().collect(),
    }
}
