//! Replies of `/generate`.

use serde_json::{Value, json};

use crate::stream::Span;

/// Tokens of one weight version, in the order in which they were made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Run {
    /// The tokens.
    pub ids: Vec<i64>,
    /// Their logprobs, as many.
    pub logprobs: Vec<f32>,
    /// The version that made them; none when there are none.
    pub version: Option<u64>,
}

/// Why a reply ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The last token is one that ends it.
    Stop,
    /// A bound on length.
    Length,
    /// Somebody ended it, or it was given up.
    Abort(String),
}

/// A reply under way: takes tokens, gives chunks.
#[derive(Debug)]
pub struct Replying {
    rid: String,
    prompt: Vec<i64>,
    options: Options,
    all: Run,
    spans: Vec<Span>,
    /// How many tokens are in chunks that were given.
    given: usize,
}

#[derive(Debug)]
struct Options {
    logprobs: bool,
    deltas: bool,
    prompt_ids: bool,
}

impl Replying {
    /// A reply to what was asked, without a token yet.
    pub fn new(rid: String, asked: &super::Asked) -> Self {
        Self {
            rid,
            prompt: asked.ids.clone(),
            options: Options {
                logprobs: asked.logprobs,
                deltas: asked.stream && asked.deltas,
                prompt_ids: asked.prompt_ids,
            },
            all: Run::default(),
            spans: Vec::new(),
            given: 0,
        }
    }

    /// Takes the next tokens.
    pub fn push(&mut self, run: &Run) {
        let Some(version) = run.version else { return };
        let start = self.all.ids.len();
        self.all.ids.extend_from_slice(&run.ids);
        self.all.logprobs.extend_from_slice(&run.logprobs);
        self.all.version = run.version;
        let end = self.all.ids.len();
        let label = crate::Label::Number(version);
        match self.spans.last_mut() {
            Some(span) if span.version == label => span.end = end,
            _ => self.spans.push(Span {
                version: label,
                start,
                end,
            }),
        }
    }

    /// What made which tokens, from who knows it exactly; it overrides what was pushed with the tokens,
    /// if it is about all of them.
    pub fn correct(&mut self, spans: Vec<Span>) {
        let adjoin = |pair: &[Span]| pair[0].end == pair[1].start;
        let covers = spans.first().is_some_and(|first| first.start == 0)
            && spans
                .last()
                .is_some_and(|last| last.end == self.all.ids.len())
            && spans.windows(2).all(adjoin);
        if covers {
            self.spans = spans;
        }
    }

    /// The tokens that the next chunk will have.
    pub fn shown(&self) -> &[i64] {
        &self.all.ids[self.from()..]
    }

    /// The next chunk. `text` is of the tokens shown; without a tokenizer there is none, and no
    /// key for it.
    pub fn chunk(&mut self, text: Option<String>) -> Value {
        let meta = self.meta();
        self.reply(text, meta)
    }

    /// The last chunk, or the whole reply.
    pub fn last(&mut self, text: Option<String>, ending: &Ending, e2e_latency_s: f64) -> Value {
        let mut meta = self.meta();
        meta["finish_reason"] = self.finish_reason(ending);
        meta["e2e_latency"] = e2e_latency_s.into();
        meta["weight_versions"] = self
            .spans
            .iter()
            .map(|s| json!({"version": s.version, "start": s.start, "end": s.end}))
            .collect();
        // Ours from before SGLang had spans; goes with the next version.
        meta["weight_spans"] = self
            .spans
            .iter()
            .map(|s| json!([s.version, s.end - s.start]))
            .collect();
        self.reply(text, meta)
    }

    fn from(&self) -> usize {
        if self.options.deltas { self.given } else { 0 }
    }

    fn reply(&mut self, text: Option<String>, meta: Value) -> Value {
        let mut reply = json!({"output_ids": self.shown(), "meta_info": meta});
        if let Some(text) = text {
            reply["text"] = text.into();
        }
        if self.options.prompt_ids {
            reply["prompt_token_ids"] = self.prompt.clone().into();
        }
        self.given = self.all.ids.len();
        reply
    }

    fn meta(&self) -> Value {
        let (version, tokens) = (self.all.version, self.all.ids.len());
        let mut meta = json!({
            "id": self.rid,
            "finish_reason": null,
            "weight_version": version.map(|version| version.to_string()),
            "prompt_tokens": self.prompt.len(),
            "completion_tokens": tokens,
            "cached_tokens": 0,
            "reasoning_tokens": 0,
            "num_retractions": 0,
            "dp_rank": null,
        });
        if self.options.logprobs {
            let pairs = self.all.logprobs.iter().zip(&self.all.ids);
            meta["output_token_logprobs"] = pairs
                .skip(self.from())
                .map(|(logprob, id)| json!([logprob, id, null]))
                .collect();
            meta["output_token_logprobs_length"] = tokens.into();
        }
        meta
    }

    fn finish_reason(&self, ending: &Ending) -> Value {
        match ending {
            Ending::Stop => json!({"type": "stop", "matched": self.all.ids.last()}),
            Ending::Length => json!({"type": "length", "length": self.all.ids.len()}),
            Ending::Abort(message) => json!({"type": "abort", "message": message,
                "status_code": null, "err_type": null}),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::serve::Asked;

    fn replying(body: &str) -> Replying {
        let asked = Asked::read(body.as_bytes()).unwrap();
        let mut replying = Replying::new("r".into(), &asked);
        for (version, ids) in [(3, vec![5, 6]), (4, vec![7])] {
            let logprobs = vec![-0.5; ids.len()];
            let version = Some(version);
            replying.push(&Run {
                ids,
                logprobs,
                version,
            });
        }
        replying
    }

    #[test]
    fn a_whole_reply_is_sglangs() {
        let mut replying = replying(r#"{"input_ids": [1, 2], "return_logprob": true}"#);
        let reply = replying.last(Some("ab".into()), &Ending::Stop, 0.5);
        assert_eq!(
            reply,
            json!({"text": "ab", "output_ids": [5, 6, 7], "meta_info": {
                "id": "r", "finish_reason": {"type": "stop", "matched": 7},
                "weight_version": "4", "prompt_tokens": 2, "completion_tokens": 3,
                "cached_tokens": 0, "reasoning_tokens": 0, "num_retractions": 0, "dp_rank": null,
                "e2e_latency": 0.5,
                "output_token_logprobs": [[-0.5, 5, null], [-0.5, 6, null], [-0.5, 7, null]],
                "output_token_logprobs_length": 3,
                "weight_versions": [{"version": "3", "start": 0, "end": 2},
                    {"version": "4", "start": 2, "end": 3}],
                "weight_spans": [["3", 2], ["4", 1]],
            }})
        );
    }

    #[test]
    fn chunks_repeat_everything_unless_deltas_are_asked_for() {
        for (deltas, second) in [("false", vec![5, 6, 7, 8]), ("true", vec![8])] {
            let body =
                format!(r#"{{"input_ids": [1], "stream": true, "stream_deltas": {deltas}}}"#);
            let mut replying = replying(&body);
            assert_eq!(replying.chunk(None)["output_ids"], json!([5, 6, 7]));
            let (ids, logprobs, version) = (vec![8], vec![-1.0], Some(4));
            replying.push(&Run {
                ids,
                logprobs,
                version,
            });
            assert_eq!(replying.shown(), second);
            let last = replying.last(None, &Ending::Length, 0.0);
            assert_eq!(last["output_ids"], json!(second));
            assert_eq!(last["meta_info"]["completion_tokens"], 4);
            assert_eq!(last["meta_info"]["finish_reason"]["length"], 4);
            assert!(last.get("text").is_none());
        }
    }
}
