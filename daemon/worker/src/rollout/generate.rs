//! `/generate`: what comes in, and how tokens go out.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use robust_engine::serve::{Asked, Ending, Refusal, Replying, Run};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use super::about::About;
use super::engine::{Finish, Piece};
use crate::model::sampler::SeqRequest;

/// More tokens than any context has.
const AS_MANY_AS_FIT: usize = u32::MAX as usize;

/// The name and the sequence of a request; the reason when it cannot be one. Those of `eos` end it
/// too, unless they are to be ignored.
pub(super) fn sequence(asked: &Asked, eos: &[i64]) -> Result<(String, SeqRequest), Refusal> {
    static UNNAMED: AtomicU64 = AtomicU64::new(0);
    let number = UNNAMED.fetch_add(1, Ordering::Relaxed);
    let sampling = &asked.sampling;
    let position0 = asked.position;
    if position0.checked_add(u64::from(u32::MAX)).is_none() {
        return Err(Refusal::bad(format!("position {position0} is too large")));
    }
    let mut stop_tokens = sampling.stop_token_ids.clone();
    if !sampling.ignore_eos {
        stop_tokens.extend(eos);
    }
    let rid = asked.rid.clone();
    let sequence = SeqRequest {
        key: 0,
        ids: asked.ids.clone(),
        seed: asked.seed.or(sampling.sampling_seed).unwrap_or(0),
        // Without a name of its own, every request draws its own numbers.
        trajectory: asked.trajectory.unwrap_or(u64::MAX - number),
        position0,
        max_new_tokens: sampling.max_new_tokens.unwrap_or(AS_MANY_AS_FIT),
        temperature: sampling.temperature,
        stop_tokens,
    };
    Ok((rid.unwrap_or_else(|| format!("unnamed-{number}")), sequence))
}

/// Turns pieces into SGLang's JSON.
pub(super) struct Replies {
    pieces: UnboundedReceiver<Piece>,
    /// Taken from the channel, but of another version than the chunk before it.
    held: Option<Piece>,
    replying: Replying,
    /// None for our own agents, who read tokens only.
    texts: Option<About>,
    about: About,
    began: Instant,
    ended: bool,
}

impl Replies {
    pub fn new(
        pieces: UnboundedReceiver<Piece>,
        rid: String,
        asked: &Asked,
        about: &About,
    ) -> Self {
        Self {
            pieces,
            held: None,
            replying: Replying::new(rid, asked),
            texts: (!asked.deltas).then(|| about.clone()),
            about: about.clone(),
            began: Instant::now(),
            ended: false,
        }
    }

    /// The next chunk: all tokens there are, up to a change of version. None after the last one.
    pub async fn next(&mut self) -> Option<Value> {
        let ending = self.next_run().await?;
        Some(self.chunk(ending.as_ref()))
    }

    /// Everything in one reply; its `weight_version` is the last one, `weight_versions` has all.
    pub async fn whole(mut self) -> Value {
        loop {
            match self.next_run().await {
                Some(None) => {}
                Some(ending) => return self.chunk(ending.as_ref()),
                None => return self.chunk(Some(&gone())),
            }
        }
    }

    fn chunk(&mut self, ending: Option<&Ending>) -> Value {
        let shown = self.replying.shown();
        let text = self.texts.as_ref().and_then(|about| about.text(shown));
        match ending {
            None => self.replying.chunk(text),
            Some(ending) => {
                let latency_s = self.began.elapsed().as_secs_f64();
                self.replying.last(text, ending, latency_s)
            }
        }
    }

    /// Takes what there is of one version; whether the reply ends with it. None after its end.
    async fn next_run(&mut self) -> Option<Option<Ending>> {
        if self.ended {
            return None;
        }
        let mut run = Run::default();
        let mut piece = match self.held.take() {
            Some(piece) => Some(piece),
            None => self.pieces.recv().await,
        };
        let ending = loop {
            match piece {
                Some(Piece::Token { version, .. })
                    if run.version.is_some_and(|before| before != version) =>
                {
                    self.held = piece;
                    break None;
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
                        break Some(ending(finish));
                    }
                }
                Some(Piece::Aborted(reason)) => break Some(Ending::Abort(reason)),
                // The engine is gone: the process is about to end.
                None => break Some(gone()),
            }
            match self.pieces.try_recv() {
                Ok(next) => piece = Some(next),
                Err(_) => break None,
            }
        };
        self.about.generated(run.ids.len());
        self.replying.push(&run);
        self.ended = ending.is_some();
        Some(ending)
    }
}

fn gone() -> Ending {
    Ending::Abort("the engine ended".into())
}

fn ending(finish: Finish) -> Ending {
    match finish {
        Finish::Stop => Ending::Stop,
        Finish::Length => Ending::Length,
    }
}
