//! `/generate`: what comes in, and how tokens go out.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use super::engine::{Finish, Piece};
use crate::model::sampler::SeqRequest;

/// A request's body: the part of SGLang's that is served, and `trajectory`, `seed` and `position`
/// of our own. Other keys are ignored, as SGLang does.
#[derive(Debug, Deserialize)]
pub(super) struct Body {
    input_ids: Vec<i64>,
    #[serde(default)]
    sampling_params: SamplingParams,
    #[serde(default)]
    pub return_logprob: bool,
    #[serde(default)]
    pub stream: bool,
    #[serde(default)]
    rid: Option<String>,
    /// Keys the random numbers, together with seed and position.
    #[serde(default)]
    trajectory: Option<u64>,
    #[serde(default)]
    seed: Option<u64>,
    /// Position of the first input token in its trajectory.
    #[serde(default)]
    position: u64,
}

#[derive(Debug, Deserialize)]
#[serde(default)]
struct SamplingParams {
    max_new_tokens: usize,
    temperature: f64,
    stop_token_ids: Option<Vec<i64>>,
    sampling_seed: Option<u64>,
    top_p: f64,
    top_k: i64,
    min_p: f64,
    n: u64,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            max_new_tokens: 128,
            temperature: 1.0,
            stop_token_ids: None,
            sampling_seed: None,
            top_p: 1.0,
            top_k: -1,
            min_p: 0.0,
            n: 1,
        }
    }
}

impl Body {
    /// The request's name and sequence; the reason when it asks for what is not served.
    pub fn request(&self) -> Result<(String, SeqRequest), String> {
        static UNNAMED: AtomicU64 = AtomicU64::new(0);
        let s = &self.sampling_params;
        if s.top_p != 1.0 || s.top_k > 0 || s.min_p != 0.0 || s.n != 1 {
            return Err("top_p, top_k, min_p and n are not supported: leave them out".into());
        }
        let number = UNNAMED.fetch_add(1, Ordering::Relaxed);
        let rid = self
            .rid
            .clone()
            .unwrap_or_else(|| format!("unnamed-{number}"));
        let sequence = SeqRequest {
            key: 0,
            ids: self.input_ids.clone(),
            seed: self.seed.or(s.sampling_seed).unwrap_or(0),
            // Without a name of its own, every request draws its own numbers.
            trajectory: self.trajectory.unwrap_or(u64::MAX - number),
            position0: self.position,
            max_new_tokens: s.max_new_tokens,
            temperature: s.temperature,
            stop_tokens: s.stop_token_ids.clone().unwrap_or_default(),
        };
        if sequence
            .position0
            .checked_add(u64::from(u32::MAX))
            .is_none()
        {
            return Err(format!("position {} is too large", sequence.position0));
        }
        Ok((rid, sequence))
    }
}

/// Turns pieces into SGLang's JSON.
pub(super) struct Replies {
    pieces: UnboundedReceiver<Piece>,
    /// Taken from the channel, but of another version than the chunk before it.
    held: Option<Piece>,
    rid: String,
    logprobs: bool,
    prompt_tokens: usize,
    completion_tokens: usize,
    ended: bool,
}

/// Consecutive tokens of one version.
#[derive(Default)]
struct Run {
    ids: Vec<i64>,
    logprobs: Vec<f32>,
    version: Option<u64>,
    finish: Value,
}

impl Replies {
    pub fn new(
        pieces: UnboundedReceiver<Piece>,
        rid: String,
        logprobs: bool,
        prompt_tokens: usize,
    ) -> Self {
        let (held, completion_tokens, ended) = Default::default();
        Self {
            pieces,
            held,
            rid,
            logprobs,
            prompt_tokens,
            completion_tokens,
            ended,
        }
    }

    /// The next chunk: all tokens there are, up to a change of version. None after the last one.
    pub async fn next(&mut self) -> Option<Value> {
        let run = self.next_run().await?;
        Some(self.json(&run))
    }

    /// Everything in one reply; its `weight_version` is the last one, `weight_spans` has all.
    pub async fn whole(mut self) -> Value {
        let (mut all, mut spans) = (Run::default(), Vec::<(u64, usize)>::new());
        while let Some(mut run) = self.next_run().await {
            match (spans.last_mut(), run.version) {
                (Some((before, count)), Some(version)) if *before == version => {
                    *count += run.ids.len();
                }
                (_, Some(version)) => spans.push((version, run.ids.len())),
                (_, None) => {}
            }
            all.ids.append(&mut run.ids);
            all.logprobs.append(&mut run.logprobs);
            all.version = run.version.or(all.version);
            all.finish = run.finish;
        }
        let spans = spans
            .iter()
            .map(|(version, count)| json!([version.to_string(), count]));
        let mut reply = self.json(&all);
        reply["meta_info"]["weight_spans"] = spans.collect();
        reply
    }

    async fn next_run(&mut self) -> Option<Run> {
        if self.ended {
            return None;
        }
        let mut run = Run::default();
        let mut piece = match self.held.take() {
            Some(piece) => Some(piece),
            None => self.pieces.recv().await,
        };
        loop {
            match piece {
                Some(Piece::Token { version, .. })
                    if run.version.is_some_and(|before| before != version) =>
                {
                    self.held = piece;
                    break;
                }
                Some(Piece::Token {
                    id,
                    logprob,
                    version,
                    finish,
                }) => {
                    run.ids.push(id);
                    run.logprobs.push(logprob);
                    run.version = Some(version);
                    if let Some(finish) = finish {
                        run.finish = finish_json(finish);
                        self.ended = true;
                        break;
                    }
                }
                Some(Piece::Aborted(reason)) => {
                    run.finish = json!({"type": "abort", "message": reason});
                    self.ended = true;
                    break;
                }
                None => {
                    // The engine is gone: the process is about to end.
                    run.finish = json!({"type": "abort", "message": "the engine ended"});
                    self.ended = true;
                    break;
                }
            }
            match self.pieces.try_recv() {
                Ok(next) => piece = Some(next),
                Err(_) => break,
            }
        }
        self.completion_tokens += run.ids.len();
        Some(run)
    }

    fn json(&self, run: &Run) -> Value {
        let mut meta = json!({
            "id": self.rid,
            "finish_reason": run.finish,
            "weight_version": run.version.map(|version| version.to_string()),
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
        });
        if self.logprobs {
            let pairs = run.logprobs.iter().zip(&run.ids);
            meta["output_token_logprobs"] = pairs
                .map(|(logprob, id)| json!([logprob, id, null]))
                .collect();
        }
        json!({"text": "", "output_ids": run.ids, "meta_info": meta})
    }
}

fn finish_json(finish: Finish) -> Value {
    match finish {
        Finish::Stop => json!({"type": "stop"}),
        Finish::Length => json!({"type": "length"}),
    }
}
