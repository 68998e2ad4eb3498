//! A tokenizer's chat template: Jinja, rendered as Hugging Face's libraries render it.

use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value as Values, context};
use serde_json::Value;

use super::{TokenizerError, read_json};

/// The template as a file of its own, which is looked for first.
const TEMPLATE_FILE: &str = "chat_template.jinja";
/// Where it is else.
pub(super) const CONFIG_FILE: &str = "tokenizer_config.json";
/// Of several templates the one for conversations.
const DEFAULT: &str = "default";

/// A template that was found and parsed.
#[derive(Debug, Clone)]
pub(super) struct ChatTemplate {
    environment: Environment<'static>,
    /// Where it is from.
    path: PathBuf,
    /// Texts of special tokens, which templates write out by name.
    specials: Vec<(String, String)>,
}

impl ChatTemplate {
    /// The template that stands beside a tokenizer.
    pub fn beside(tokenizer: &Path) -> Result<Self, TokenizerError> {
        let file = tokenizer.with_file_name(TEMPLATE_FILE);
        let config = tokenizer.with_file_name(CONFIG_FILE);
        let json = read_json(&config)?.unwrap_or_default();
        let found = match std::fs::read_to_string(&file) {
            Ok(text) => Some((file, text)),
            Err(_) => of_config(&json).map(|text| (config, text)),
        };
        let Some((path, text)) = found else {
            let tokenizer = tokenizer.to_owned();
            return Err(TokenizerError::NoTemplate { tokenizer });
        };
        let mut environment = environment();
        environment
            .add_template_owned(DEFAULT, text)
            .map_err(|why| wrong(&path, &why))?;
        Ok(Self {
            environment,
            path,
            specials: special_texts(&json),
        })
    }

    /// The text of a conversation of one message, up to where the model is to answer.
    pub fn of_prompt(&self, prompt: &str) -> Result<String, TokenizerError> {
        let messages = [context! { role => "user", content => prompt }];
        let specials = Values::from_pairs(self.specials.clone());
        let values = context! { messages, add_generation_prompt => true, ..specials };
        let template = self.environment.get_template(DEFAULT);
        let rendered = template.and_then(|template| template.render(values));
        rendered.map_err(|why| wrong(&self.path, &why))
    }
}

/// Jinja with what Hugging Face's templates use beyond it.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    // Delimiters are the default ones, which are valid.
    environment.set_syntax(syntax.unwrap_or_default());
    // Methods of Python's strings and lists: `content.split(..)`, `text.startswith(..)`.
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    let raise = |why: String| Err::<String, _>(Error::new(ErrorKind::InvalidOperation, why));
    environment.add_function("raise_exception", raise);
    environment
}

/// `chat_template`: a text, or a list of named ones.
fn of_config(config: &Value) -> Option<String> {
    match config.get("chat_template")? {
        Value::String(text) => Some(text.clone()),
        Value::Array(named) => {
            let default = named.iter().find(|one| one["name"] == DEFAULT)?;
            Some(default["template"].as_str()?.to_owned())
        }
        _ => None,
    }
}

/// `bos_token`, `eos_token` and the like as texts.
fn special_texts(config: &Value) -> Vec<(String, String)> {
    let named = config.as_object().into_iter().flatten();
    let named = named.filter(|(name, _)| name.ends_with("_token"));
    let text =
        |(name, token): (&String, &Value)| Some((name.clone(), token_text(token)?.to_owned()));
    named.filter_map(text).collect()
}

/// A token of the configuration: its text, or an object with it.
pub(super) fn token_text(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token.get("content")?.as_str())
}

fn wrong(path: &Path, why: &Error) -> TokenizerError {
    TokenizerError::Template {
        path: path.to_owned(),
        // With the line, and in a call of raise_exception its words.
        why: why.to_string(),
    }
}
