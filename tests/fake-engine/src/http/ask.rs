//! A request's body as both dialects' handlers need it, and what it has got so far.

use super::App;
use crate::link::{Dead, Request};
use crate::model::Model;
use crate::protocol::{Ending, Generate, Span, Step};
use serde_json::{Value, json};

/// What is asked for besides the prompt.
pub struct Limits {
    /// Tokens at most.
    pub max_tokens: u32,
    /// Tokens that end the request.
    pub stop: Vec<u32>,
    /// Whether the model's own end of sequence is passed over.
    pub ignore_eos: bool,
    /// 0 for a greedy choice.
    pub salt: u64,
}

impl Limits {
    /// Reads sampling parameters; the number of tokens has another name in each dialect.
    pub fn read(app: &App, sampling: &Value, max_tokens: Option<u64>, seed_key: &str) -> Self {
        let stop = sampling["stop_token_ids"].as_array().into_iter().flatten();
        let is_greedy = sampling["temperature"].as_f64() == Some(0.0);
        Self {
            max_tokens: u32::try_from(max_tokens.unwrap_or(u64::MAX))
                .unwrap_or(u32::MAX)
                .max(1),
            stop: stop
                .filter_map(Value::as_u64)
                .filter_map(|id| u32::try_from(id).ok())
                .collect(),
            ignore_eos: sampling["ignore_eos"].as_bool().unwrap_or(false),
            salt: match sampling[seed_key].as_u64() {
                _ if is_greedy => 0,
                Some(seed) => seed.wrapping_add(1).max(1),
                None => app.draw() << 32,
            },
        }
    }

    /// Begins the request.
    pub fn begin(self, app: &App, rid: &str, ids: Vec<u32>) -> Request {
        let room = app.context.saturating_sub(ids.len()).max(1);
        let asked = Generate {
            key: 0,
            max_tokens: self.max_tokens.min(u32::try_from(room).unwrap_or(u32::MAX)),
            stop: self.stop,
            eos: app.model.eos.filter(|_| !self.ignore_eos),
            salt: self.salt,
            ids,
        };
        app.link.generate(rid, asked)
    }
}

/// The tokens of a prompt; nothing if one is no token at all.
pub fn ids(value: &Value) -> Option<Vec<u32>> {
    let all = value.as_array()?.iter();
    all.map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()))
        .collect()
}

/// What a request has got so far.
#[derive(Default)]
pub struct Progress {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Their log probabilities.
    pub logprobs: Vec<f64>,
    /// What the weights were called last.
    pub version: String,
    /// How it ended.
    pub end: Option<(Ending, Vec<Span>)>,
}

impl Progress {
    /// Takes up the next step; says whether it was the last.
    pub async fn step(&mut self, request: &mut Request) -> Result<bool, Dead> {
        let Step {
            token,
            version,
            end,
            ..
        } = request.step().await?;
        if let Some((token, logprob)) = token {
            self.tokens.push(token);
            self.logprobs.push(logprob);
        }
        self.version = version;
        self.end = end;
        Ok(self.end.is_some())
    }

    /// Takes up all steps to the last.
    pub async fn finish(&mut self, request: &mut Request) -> Result<(), Dead> {
        while !self.step(request).await? {}
        Ok(())
    }

    /// The text from the given token on; the token that ended the request has none.
    pub fn text(&self, model: &Model, from: usize) -> String {
        let ended_by = matches!(self.end, Some((Ending::Stop(_) | Ending::Eos(_), _)));
        let count = self.tokens.len() - usize::from(ended_by);
        let tokens = self.tokens.iter().take(count).skip(from);
        tokens.map(|token| model.text(*token)).collect()
    }

    /// The spans of weights' versions, once it has ended.
    pub fn spans(&self) -> Value {
        self.end
            .as_ref()
            .map_or(Value::Null, |(_, spans)| json!(spans))
    }
}
