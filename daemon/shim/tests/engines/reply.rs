//! What a shim's clients get, of the tests and of the benchmark.
#![allow(dead_code)]

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use serde_json::{Value, json};

/// Nothing here takes long; the bound is for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request of our agents': greedy, never ended by the model's own end of sequence.
pub fn turn(ids: &[u32], tokens: usize) -> Value {
    json!({
        "input_ids": ids, "trajectory": 7, "return_logprob": true, "stream_deltas": true,
        "sampling_params": { "max_new_tokens": tokens, "temperature": 0.0, "ignore_eos": true },
    })
}

/// The same, as a stream.
pub fn stream(ids: &[u32], tokens: usize) -> Value {
    let mut body = turn(ids, tokens);
    body["stream"] = true.into();
    body
}

/// Tokens with their logprobs, and what is said of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Said {
    pub ids: Vec<u32>,
    pub logprobs: Vec<f32>,
    /// Version, first token, one past the last.
    pub spans: Vec<(u64, usize, usize)>,
    /// `stop`, `length`, `abort`, or nothing where it broke off.
    pub finish: String,
}

impl Said {
    /// A whole reply.
    pub fn of(reply: &Value) -> Self {
        let mut said = Self::default();
        said.add(reply);
        said
    }

    fn add(&mut self, chunk: &Value) {
        let meta = &chunk["meta_info"];
        let ids = chunk["output_ids"]
            .as_array()
            .unwrap_or_else(|| panic!("{chunk}"));
        self.ids
            .extend(ids.iter().map(|id| id.as_u64().unwrap() as u32));
        let pairs = meta["output_token_logprobs"].as_array().unwrap().iter();
        self.logprobs
            .extend(pairs.map(|pair| pair[0].as_f64().unwrap() as f32));
        if let Some(finish) = meta["finish_reason"]["type"].as_str() {
            self.finish = finish.to_owned();
            let spans = meta["weight_versions"].as_array().unwrap().iter();
            let number = |value: &Value| value.as_u64().unwrap() as usize;
            let version = |value: &Value| match value {
                Value::String(text) => text.parse().unwrap(),
                other => other.as_u64().unwrap(),
            };
            self.spans = spans
                .map(|s| {
                    (
                        version(&s["version"]),
                        number(&s["start"]),
                        number(&s["end"]),
                    )
                })
                .collect();
        }
    }
}

/// A stream under way.
pub struct Running {
    pub chunks: Receiver<Value>,
    pub said: Said,
}

impl Running {
    /// Waits until so many tokens came, or it ended.
    pub fn until(&mut self, tokens: usize) {
        while self.said.ids.len() < tokens && self.next() {}
    }

    /// Waits for its end.
    pub fn end(mut self) -> Said {
        while self.next() {}
        self.said
    }

    /// Whether another chunk came.
    fn next(&mut self) -> bool {
        match self.chunks.recv_timeout(PATIENCE) {
            Ok(chunk) => {
                self.said.add(&chunk);
                true
            }
            Err(RecvTimeoutError::Disconnected) => false,
            Err(RecvTimeoutError::Timeout) => panic!("nothing comes after {:?}", self.said),
        }
    }
}

/// Whether both are the same log probabilities, by two programs that compute in float32.
pub fn same(one: &[f32], other: &[f32]) -> bool {
    let near = |(a, b): (&f32, &f32)| (a - b).abs() < 5e-4;
    one.len() == other.len() && one.iter().zip(other).all(near)
}
