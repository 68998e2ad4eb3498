//! One conversation between the model and an environment, from its dispatch to its reward.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use robust_proto::v1::{AppendTurnRequest, Dispatch, FinishTrajectoryRequest, Span, Turn};
use robust_role::turns::{Generated, Refusal, Sampling, TurnError, TurnRequest, Turns};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::script::{Next, Script, Wrong};
use super::words::{Said, Told};

/// What all conversations of a worker share.
pub struct Shared {
    pub turns: Turns,
    pub told: UnboundedSender<Told>,
    pub sampling: Sampling,
    /// The model's ends of a sequence.
    pub stop: Vec<i64>,
    /// How long the program may say nothing of a conversation that waits for it.
    pub silent: Duration,
    /// Conversations whose turn is being generated.
    pub generating: AtomicUsize,
}

/// Why a conversation stops before its end.
pub enum Stop {
    /// The lease is void: nothing is to be said of it.
    Void,
    /// It is given back, and goes on from what is stored of it.
    Failed(String),
    /// What is stored of it cannot be gone on from.
    Diverged(String),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Void => Stop::Void,
            Refusal::Other(reason) => Stop::Failed(reason),
        }
    }
}

impl From<TurnError> for Stop {
    fn from(error: TurnError) -> Self {
        match error {
            TurnError::Void => Stop::Void,
            TurnError::Failed(reason) => Stop::Failed(reason),
        }
    }
}

/// A turn is being generated while this lives.
struct Generating<'a>(&'a AtomicUsize);

impl<'a> Generating<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Generating<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the program asked of the next turn.
struct Asked {
    ids: Vec<u32>,
    sampling: Sampling,
    stop: Vec<i64>,
}

/// A conversation that is held.
pub struct Conversation {
    shared: Arc<Shared>,
    number: u64,
    trajectory: u64,
    seed: u64,
    script: Script,
}

impl Conversation {
    /// Holds the conversation that the program knows by this number; the error is why it stops.
    pub async fn hold(
        shared: Arc<Shared>,
        number: u64,
        mut dispatch: Dispatch,
        mut said: UnboundedReceiver<Said>,
    ) -> Result<(), Stop> {
        let turns = std::mem::take(&mut dispatch.turns);
        let mut held = Self {
            shared,
            number,
            trajectory: dispatch.trajectory,
            seed: dispatch.seed,
            script: Script::new(turns, std::mem::take(&mut dispatch.running)),
        };
        held.tell(Told::Begin {
            conversation: number,
            prompt: dispatch.prompt,
            answer: dispatch.answer,
            seed: dispatch.seed,
            calls: held.script.calls(),
        });
        loop {
            let next = tokio::time::timeout(held.shared.silent, said.recv()).await;
            let Ok(Some(next)) = next else {
                let seconds = held.shared.silent.as_secs_f64();
                return Err(Stop::Failed(format!(
                    "the environment said nothing for {seconds} s (agent.command.silent_s)"
                )));
            };
            match held.obey(next).await {
                Ok(true) => {
                    held.tell(Told::Finished {
                        conversation: number,
                    });
                    return Ok(());
                }
                Ok(false) => {}
                Err(Ended::Refused(reason)) => held.tell(Told::Refused {
                    conversation: number,
                    reason,
                }),
                Err(Ended::Stop(stop)) => return Err(stop),
            }
        }
    }

    /// Does what the program says; whether that was the end.
    async fn obey(&mut self, said: Said) -> Result<bool, Ended> {
        match said {
            Said::Generate {
                ids,
                max_new_tokens,
                temperature,
                stop,
                calls,
                ..
            } => {
                let room = self.shared.turns.max_len;
                if ids.len() >= room {
                    let most = room - 1;
                    let length = ids.len();
                    return Err(Ended::Refused(format!(
                        "the context is full: {length} tokens, at most {most} leave room for another"
                    )));
                }
                let of_job = self.shared.sampling;
                let asked = Asked {
                    sampling: Sampling {
                        max_new_tokens: max_new_tokens.unwrap_or(of_job.max_new_tokens).max(1),
                        temperature: temperature.unwrap_or(of_job.temperature),
                    },
                    stop: stop.unwrap_or_else(|| self.shared.stop.clone()),
                    ids,
                };
                let next = self.script.go_on(&asked.ids, &calls)?;
                let spans = match next {
                    Next::Stored(spans) => spans,
                    Next::Generate { store, begun } => self.generate(&asked, store, begun).await?,
                };
                self.tell_tokens(&spans, &asked.stop);
                Ok(false)
            }
            Said::Finish { reward, answer, .. } => {
                let number = reward.parse::<f64>().ok().filter(|r| r.is_finite());
                let Some(reward) = number else {
                    return Err(Ended::Refused(format!(
                        "the reward is {reward}; it must be a finite number"
                    )));
                };
                if let Some(turn) = self.script.end()? {
                    self.store(turn).await?;
                }
                self.finish(reward, answer).await?;
                Ok(true)
            }
            Said::Unable { reason, .. } => Err(Ended::Stop(Stop::Failed(reason))),
            Said::Attach { .. } => Ok(false),
        }
    }

    async fn generate(
        &mut self,
        asked: &Asked,
        store: Option<Turn>,
        begun: Vec<Span>,
    ) -> Result<Vec<Span>, Stop> {
        if let Some(turn) = store {
            self.store(turn).await?;
        }
        let _generating = Generating::begin(&self.shared.generating);
        let turns = &self.shared.turns;
        let request = TurnRequest {
            trajectory: self.trajectory,
            seed: self.seed,
            turn: self.script.turn(),
            context: &asked.ids,
            stop: asked.stop.clone(),
            sampling: asked.sampling,
        };
        let begun = Generated::begun(begun);
        let mut kept = turns.keeper(self.trajectory, request.turn, self.script.prompt(), &begun);
        let generated = turns.generate(&request, begun, &mut kept).await?;
        // Nobody knows how long the environment takes from here.
        kept.settle(&generated).await?;
        self.script.spoke(generated.spans.clone());
        Ok(generated.spans)
    }

    async fn store(&self, turn: Turn) -> Result<(), Stop> {
        let host = &self.shared.turns.host;
        let first = turn.index == 0;
        let prompt = first.then(|| self.script.prompt().to_vec());
        let request = AppendTurnRequest {
            incarnation: host.incarnation,
            trajectory: self.trajectory,
            prompt_ids: prompt.unwrap_or_default(),
            turn: Some(turn),
        };
        Ok(host.append(request).await?)
    }

    async fn finish(&self, reward: f64, answer: String) -> Result<(), Stop> {
        let host = &self.shared.turns.host;
        let request = FinishTrajectoryRequest {
            incarnation: host.incarnation,
            trajectory: self.trajectory,
            reward,
            turns: self.script.turn(),
            answer,
        };
        Ok(host.finish(request).await?)
    }

    fn tell_tokens(&self, spans: &[Span], stop: &[i64]) {
        let ids: Vec<u32> = spans.iter().flat_map(|span| span.ids.clone()).collect();
        let mut at = 0;
        let version = |span: &Span| {
            let from = at;
            at += span.ids.len();
            (span.version, from, at)
        };
        let versions = spans.iter().map(version).collect();
        let ended = ids.last().is_some_and(|id| stop.contains(&i64::from(*id)));
        self.tell(Told::Tokens {
            conversation: self.number,
            logprobs: spans.iter().flat_map(|s| s.logprobs.clone()).collect(),
            ids,
            versions,
            finish: if ended { "stop" } else { "length" },
        });
    }

    fn tell(&self, told: Told) {
        // The program may have ended, which the worker sees by itself.
        let _ = self.shared.told.send(told);
    }
}

/// Why the program is not obeyed.
enum Ended {
    /// It may ask for something else.
    Refused(String),
    /// The conversation stops.
    Stop(Stop),
}

impl From<Stop> for Ended {
    fn from(stop: Stop) -> Self {
        Ended::Stop(stop)
    }
}

impl From<Wrong> for Ended {
    fn from(wrong: Wrong) -> Self {
        match wrong {
            Wrong::Refused(reason) => Ended::Refused(reason),
            Wrong::Diverged(reason) => Ended::Stop(Stop::Diverged(reason)),
        }
    }
}
