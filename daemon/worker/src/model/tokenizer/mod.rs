//! The job's tokenizer, read from a Hugging Face `tokenizer.json`.
//!
//! ```text
//!  tokenizer.json              vocabulary, and how text becomes ids
//!  tokenizer_config.json       beside it: chat template, names of special tokens
//!  chat_template.jinja         beside it: the chat template, where it is a file
//!  generation_config.json      in the model's folder: which tokens end an answer
//! ```
//! Tools are for vocabularies that have the tokens of a call (`<call>`, `</call>`, `<res>`, `</res>`);
//! with others a conversation is one turn.

mod specials;
mod template;

use std::path::{Path, PathBuf};

use robust_shared::job::Job;
use serde_json::Value;

pub use specials::{Specials, ToolTokens};
use template::ChatTemplate;

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
    /// The tokenizer lacks a token that is named.
    #[error("tokenizer {path} has no token {token:?}")]
    MissingToken {
        /// The file.
        path: PathBuf,
        /// The token.
        token: String,
    },
    /// Nothing says which token ends an answer.
    #[error(
        "no token that ends an answer: {path} has no \"<eos>\", tokenizer_config.json beside it no \
         eos_token, the model's generation_config.json no eos_token_id; add one of them"
    )]
    NoEnd {
        /// The tokenizer.
        path: PathBuf,
    },
    /// A file beside the tokenizer or the weights is not what it should be.
    #[error("{path}: {why}")]
    Beside {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The job asks for a chat template that is not there.
    #[error(
        "data.chat_template is set, and there is no chat template beside {tokenizer}: neither \
         chat_template.jinja nor `chat_template` in tokenizer_config.json"
    )]
    NoTemplate {
        /// The tokenizer.
        tokenizer: PathBuf,
    },
    /// The chat template cannot be parsed, or not rendered with a prompt.
    #[error("chat template {path}: {why}")]
    Template {
        /// The file it is from.
        path: PathBuf,
        /// What the template engine said, with the line.
        why: String,
    },
    /// Text with characters outside the vocabulary.
    #[error("encoding {text:?}: {why}")]
    Encode {
        /// The text.
        text: String,
        /// What the library said.
        why: String,
    },
    /// A vocabulary without the tokens of tool calls, where they are to be imitated.
    #[error("the tokenizer has no tokens of tool calls: <call>, </call>, <res> and </res>")]
    NoTools,
    /// Ids outside the vocabulary.
    #[error("token {0} is outside the vocabulary")]
    Decode(i64),
}

/// A tokenizer with the job's special tokens.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    specials: Specials,
    template: Option<ChatTemplate>,
}

impl Tokenizer {
    /// Loads a `tokenizer.json` and what stands beside it, without a chat template.
    pub fn load(path: &Path) -> Result<Self, TokenizerError> {
        Self::load_for(path, None, false)
    }

    /// The tokenizer of a job's data, whose model lies in `model`.
    pub fn of_data(job: &Job, model: &Path) -> Result<Self, TokenizerError> {
        Self::load_for(&job.data.tokenizer, Some(model), job.data.chat_template)
    }

    /// The same, or of a job that has no data that of the model, if one lies there.
    pub fn of_job(job: &Job, model: &Path) -> Result<Option<Self>, TokenizerError> {
        if job.own_loop().is_none() {
            return Self::of_data(job, model).map(Some);
        }
        let path = model.join("tokenizer.json");
        let there = path.exists();
        there
            .then(|| Self::load_for(&path, Some(model), false))
            .transpose()
    }

    fn load_for(
        path: &Path,
        model: Option<&Path>,
        chat_template: bool,
    ) -> Result<Self, TokenizerError> {
        let inner = tokenizers::Tokenizer::from_file(path).map_err(|why| TokenizerError::Load {
            path: path.into(),
            why: why.to_string(),
        })?;
        let specials = Specials::of(&inner, path, model)?;
        let template = chat_template.then(|| ChatTemplate::beside(path));
        Ok(Self {
            inner,
            specials,
            template: template.transpose()?,
        })
    }

    /// The special tokens' ids.
    pub fn specials(&self) -> &Specials {
        &self.specials
    }

    /// Number of tokens, the model's `vocab_size`.
    pub fn vocab_size(&self) -> i64 {
        self.inner.get_vocab_size(true) as i64
    }

    /// Text, in which special tokens may be written out, to ids.
    pub fn encode(&self, text: &str) -> Result<Vec<i64>, TokenizerError> {
        self.encode_with(text, false)
    }

    fn encode_with(&self, text: &str, add_specials: bool) -> Result<Vec<i64>, TokenizerError> {
        let encoding = self.inner.encode(text, add_specials);
        let encoding = encoding.map_err(|why| TokenizerError::Encode {
            text: text.into(),
            why: why.to_string(),
        })?;
        Ok(encoding.get_ids().iter().map(|&id| i64::from(id)).collect())
    }

    /// A prompt's ids: the text through the chat template where the job wants it, which then writes all
    /// special tokens; else those that the tokenizer adds by itself, and `<bos>` first if it has one.
    pub fn encode_prompt(&self, prompt: &str) -> Result<Vec<i64>, TokenizerError> {
        if let Some(template) = &self.template {
            return self.encode(&template.of_prompt(prompt)?);
        }
        let ids = self.encode_with(prompt, true)?;
        let bos = self.specials.bos.filter(|bos| ids.first() != Some(bos));
        Ok(bos.into_iter().chain(ids).collect())
    }

    /// A tool result's ids, `<res>VALUE</res>`; none where the vocabulary has no tools' tokens.
    pub fn encode_result(&self, value: &str) -> Result<Vec<i64>, TokenizerError> {
        let Some(tools) = self.specials.tools else {
            return Ok(Vec::new());
        };
        let mut ids = vec![tools.res];
        ids.extend(self.encode(value)?);
        ids.push(tools.res_end);
        Ok(ids)
    }

    /// Ids to text, special tokens written out.
    pub fn decode(&self, ids: &[i64]) -> Result<String, TokenizerError> {
        let token = |&id: &i64| {
            let known = u32::try_from(id).ok();
            let token = known.and_then(|id| Some((id, self.inner.id_to_token(id)?)));
            token.ok_or(TokenizerError::Decode(id))
        };
        let tokens: Vec<(u32, String)> = ids.iter().map(token).collect::<Result<_, _>>()?;
        if self.inner.get_decoder().is_none() {
            // Tokens are the text itself.
            return Ok(tokens.into_iter().map(|(_, text)| text).collect());
        }
        let ids: Vec<u32> = tokens.iter().map(|(id, _)| *id).collect();
        let text = self.inner.decode(&ids, false);
        text.map_err(|_| TokenizerError::Decode(i64::from(ids[0])))
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
        let tools = self.specials.tools?;
        let (last, before) = tokens.split_last()?;
        let open = before.iter().rposition(|&token| token == tools.call)?;
        let expression = &before[open + 1..];
        let plain = |id: &i64| !self.specials.contains(*id);
        if *last != tools.call_end || !expression.iter().all(plain) {
            return None;
        }
        self.decode(expression).ok()
    }
}

/// A JSON file beside another; none where it is not there.
fn read_json(path: &Path) -> Result<Option<Value>, TokenizerError> {
    let wrong = |why: String| TokenizerError::Beside {
        path: path.to_owned(),
        why,
    };
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| wrong(error.to_string())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(wrong(error.to_string())),
    }
}
