//! `/generate` in our own dialect: deltas, with the weight version of every chunk.
//!
//! Our agents name a trajectory in their request; whoever does not speaks with the engine itself, if that
//! has such a route.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use robust_engine::serve::{Asked, Ending, Refusal, Replying, Run};
use robust_engine::{Event, Finish, Generate, Label, Refused, Stream, check_ids};
use robust_shared::job::EngineKind;
use serde_json::Value;

use super::{Bounds, Failure, Front, MAX_BODY_BYTES, Shared, pass};
use crate::gate::Entered;

/// Longest body of an error that is read.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Without a name of its own a request gets this one and a number.
static UNNAMED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

pub(super) async fn on_generate(
    State(front): Shared,
    request: Request,
) -> Result<Response, Failure> {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, MAX_BODY_BYTES).await;
    let body = body.map_err(|error| Refusal::bad(format!("the body: {error}")))?;
    let is_ours = |body: &Bytes| {
        let keys: Value = serde_json::from_slice(body).unwrap_or_default();
        !keys["trajectory"].is_null()
    };
    if front.command.kind == EngineKind::Sglang && !is_ours(&body) {
        return pass::on(&front, head, body).await;
    }
    let asked = Asked::read(&body)?;
    let turn = Turn::begin(&front, &asked).await?;
    if !asked.stream {
        return Ok(axum::Json(turn.whole().await).into_response());
    }
    let chunks = futures::stream::unfold(Some(turn), async |turn| {
        let mut turn = turn?;
        match turn.next().await {
            Some(chunk) => Some((event(&chunk.to_string()), Some(turn))),
            None => Some((event("[DONE]"), None)),
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    Ok((headers, Body::from_stream(chunks)).into_response())
}

fn event(data: &str) -> Result<Bytes, Infallible> {
    Ok(Bytes::from(format!("data: {data}\n\n")))
}

/// A request under way at the engine. Dropped, its connection closes, and the engine ends it.
struct Turn {
    entered: Entered,
    front: Front,
    body: Incoming,
    stream: Stream,
    events: VecDeque<Event>,
    reply: Replying,
    began: Instant,
    ended: bool,
}

impl Turn {
    async fn begin(front: &Front, asked: &Asked) -> Result<Self, Failure> {
        let dialect = front.dialect()?.clone();
        let wanted = wanted(asked, front.bounds)?;
        let entered = front.gate.enter().await?;
        let response = front.client.open(&dialect.generate(&wanted)).await?;
        let status = response.status();
        if !status.is_success() {
            let limited = http_body_util::Limited::new(response.into_body(), MAX_ERROR_BYTES);
            let said = limited.collect().await.map(|body| body.to_bytes());
            let said = String::from_utf8_lossy(&said.unwrap_or_default()).into_owned();
            return Err(Refused::of(status.as_u16(), &said).into());
        }
        Ok(Self {
            entered,
            front: front.clone(),
            body: response.into_body(),
            stream: Stream::new(&dialect, true),
            events: VecDeque::new(),
            reply: Replying::new(wanted.rid, asked),
            began: Instant::now(),
            ended: false,
        })
    }

    /// The next chunk; none after the last one.
    async fn next(&mut self) -> Option<Value> {
        while !self.ended {
            let mut any = false;
            while let Some(event) = self.events.pop_front() {
                match self.take(event).await {
                    Some(ending) => return Some(self.last(&ending)),
                    None => any = true,
                }
            }
            if any {
                return Some(self.reply.chunk(None));
            }
            self.receive().await;
        }
        None
    }

    async fn whole(mut self) -> Value {
        let mut last = Value::Null;
        while let Some(chunk) = self.next().await {
            last = chunk;
        }
        last
    }

    /// Waits for more of the engine's reply.
    async fn receive(&mut self) {
        match self.body.frame().await {
            Some(Ok(frame)) => {
                if let Some(bytes) = frame.data_ref() {
                    self.events.extend(self.stream.feed(bytes));
                }
            }
            Some(Err(error)) => {
                tracing::debug!(%error, "the engine's stream broke");
                self.events.extend(self.stream.closed());
            }
            None => self.events.extend(self.stream.closed()),
        }
    }

    /// Takes an event over once the weights behind it are verified; why the reply ended, if it did.
    async fn take(&mut self, event: Event) -> Option<Ending> {
        if let Err(refused) = self.front.gate.passes().await {
            return Some(Ending::Abort(refused.to_string()));
        }
        match event {
            Event::Tokens {
                ids,
                logprobs,
                version,
            } => {
                self.front.gate.tokens(ids.len());
                let said = version.as_ref().and_then(Label::number);
                self.reply.push(&Run {
                    ids: ids.into_iter().map(i64::from).collect(),
                    logprobs,
                    version: Some(said.unwrap_or_else(|| self.entered.version())),
                });
                None
            }
            Event::End { finish, spans } => {
                if let Some(spans) = spans {
                    self.reply.correct(spans);
                }
                Some(match finish {
                    Finish::Stop => Ending::Stop,
                    Finish::Length => Ending::Length,
                    Finish::Abort(why) => Ending::Abort(why.message),
                })
            }
            Event::Failed { message, .. } => Some(Ending::Abort(message)),
        }
    }

    fn last(&mut self, ending: &Ending) -> Value {
        self.ended = true;
        let seconds = self.began.elapsed().as_secs_f64();
        self.reply.last(None, ending, seconds)
    }
}

/// What the engine is to be asked.
fn wanted(asked: &Asked, bounds: Bounds) -> Result<Generate, Refusal> {
    let token = |id: &i64| u32::try_from(*id).map_err(|_| Refusal::bad(format!("token {id}")));
    let ids = asked
        .ids
        .iter()
        .map(token)
        .collect::<Result<Vec<u32>, _>>()?;
    check_ids(&ids, bounds.vocabulary).map_err(Refusal::bad)?;
    let room = bounds.longest.saturating_sub(ids.len());
    if room == 0 {
        let (got, most) = (ids.len(), bounds.longest.saturating_sub(1));
        let message =
            format!("the prompt has {got} tokens, at most {most} leave room for one more");
        return Err(Refusal::bad(message));
    }
    let s = &asked.sampling;
    let stop = s
        .stop_token_ids
        .iter()
        .map(token)
        .collect::<Result<Vec<u32>, _>>()?;
    let number = UNNAMED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    Ok(Generate {
        rid: asked
            .rid
            .clone()
            .unwrap_or_else(|| format!("unnamed-{number}")),
        max_new_tokens: s.max_new_tokens.unwrap_or(room).min(room),
        temperature: s.temperature,
        // Only ours end a turn: the model's own end of sequence is one of them where it should be.
        ignore_eos: s.ignore_eos || asked.trajectory.is_some(),
        stop_token_ids: stop,
        sampling_seed: s.sampling_seed.or_else(|| seed(asked, ids.len())),
        own: None,
        logprobs: true,
        stream: true,
        ids,
    })
}

/// Each turn of each trajectory has numbers of its own. What an engine makes of them depends on what
/// runs beside: no tokens are promised to come again.
fn seed(asked: &Asked, tokens: usize) -> Option<u64> {
    let (seed, trajectory) = (asked.seed?, asked.trajectory?);
    let mixed = seed ^ trajectory.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Some(mixed.wrapping_add(tokens as u64).rotate_left(17))
}
