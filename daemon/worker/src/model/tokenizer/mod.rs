//! The job's tokenizer, read from a Hugging Face `tokenizer.json`.

use std::path::{Path, PathBuf};

/// Why a tokenizer cannot be loaded or cannot handle its input.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file cannot be read or is not a tokenizer.
    #[error("loading tokenizer {path}: {why}")]
    Load {
        /// The file.
        path: PathBuf,
        /// What the library said.
        why: String,
    },
    /// The tokenizer lacks a token that the job's format needs.
    #[error("tokenizer {path} has no token {token:?}")]
    MissingToken {
        /// The file.
        path: PathBuf,
        /// The token.
        token: &'static str,
    },
    /// Text with characters outside the vocabulary.
    #[error("encoding {text:?}: {why}")]
    Encode {
        /// The text.
        text: String,
        /// What the library said.
        why: String,
    },
    /// Ids outside the vocabulary.
    #[error("token {0} is outside the vocabulary")]
    Decode(i64),
}

/// Ids of the tokens that structure a trajectory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Specials {
    /// `<pad>`
    pub pad: i64,
    /// `<bos>`, first token of each prompt.
    pub bos: i64,
    /// `<eos>`, last token of each response.
    pub eos: i64,
    /// `<call>`, opens a tool call.
    pub call: i64,
    /// `</call>`, closes a tool call and stops generation until the result is there.
    pub call_end: i64,
    /// `<res>`, opens a tool result.
    pub res: i64,
    /// `</res>`, closes a tool result.
    pub res_end: i64,
}

/// A tokenizer with the job's special tokens.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    specials: Specials,
}

impl Tokenizer {
    /// Loads a `tokenizer.json`.
    pub fn load(path: &Path) -> Result<Self, TokenizerError> {
        let inner = tokenizers::Tokenizer::from_file(path).map_err(|why| TokenizerError::Load {
            path: path.into(),
            why: why.to_string(),
        })?;
        let id = |token: &'static str| {
            let found = inner.token_to_id(token).map(i64::from);
            found.ok_or_else(|| TokenizerError::MissingToken {
                path: path.into(),
                token,
            })
        };
        let specials = Specials {
            pad: id("<pad>")?,
            bos: id("<bos>")?,
            eos: id("<eos>")?,
            call: id("<call>")?,
            call_end: id("</call>")?,
            res: id("<res>")?,
            res_end: id("</res>")?,
        };
        Ok(Self { inner, specials })
    }

    /// The special tokens' ids.
    pub fn specials(&self) -> Specials {
        self.specials
    }

    /// Number of tokens, the model's `vocab_size`.
    pub fn vocab_size(&self) -> i64 {
        self.inner.get_vocab_size(true) as i64
    }

    /// Text, in which special tokens may be written out, to ids.
    pub fn encode(&self, text: &str) -> Result<Vec<i64>, TokenizerError> {
        let failed = |why: String| TokenizerError::Encode {
            text: text.into(),
            why,
        };
        let encoding = self
            .inner
            .encode(text, false)
            .map_err(|why| failed(why.to_string()))?;
        Ok(encoding.get_ids().iter().map(|&id| i64::from(id)).collect())
    }

    /// A prompt's ids: `<bos>` and the text.
    pub fn encode_prompt(&self, prompt: &str) -> Result<Vec<i64>, TokenizerError> {
        let mut ids = vec![self.specials.bos];
        ids.extend(self.encode(prompt)?);
        Ok(ids)
    }

    /// A tool result's ids: `<res>VALUE</res>`.
    pub fn encode_result(&self, value: &str) -> Result<Vec<i64>, TokenizerError> {
        let mut ids = vec![self.specials.res];
        ids.extend(self.encode(value)?);
        ids.push(self.specials.res_end);
        Ok(ids)
    }

    /// Ids to text, special tokens written out.
    pub fn decode(&self, ids: &[i64]) -> Result<String, TokenizerError> {
        let token = |&id: &i64| {
            let token = u32::try_from(id)
                .ok()
                .and_then(|id| self.inner.id_to_token(id));
            token.ok_or(TokenizerError::Decode(id))
        };
        ids.iter().map(token).collect()
    }

    /// Ids to text without special tokens; ids outside the vocabulary are left out.
    pub fn plain_text(&self, ids: &[i64]) -> String {
        let ids: Vec<u32> = ids
            .iter()
            .filter_map(|id| u32::try_from(*id).ok())
            .collect();
        self.inner.decode(&ids, true).unwrap_or_default()
    }

    /// The expression of the tool call that these generated tokens end with, if they do:
    /// `...<call>EXPR</call>`.
    pub fn parse_call(&self, tokens: &[i64]) -> Option<String> {
        let (last, before) = tokens.split_last()?;
        let open = before
            .iter()
            .rposition(|&token| token == self.specials.call)?;
        let expression = &before[open + 1..];
        let s = self.specials;
        let plain = |id: &i64| ![s.pad, s.bos, s.eos, s.call_end, s.res, s.res_end].contains(id);
        if *last != s.call_end || !expression.iter().all(plain) {
            return None;
        }
        self.decode(expression).ok()
    }
}
