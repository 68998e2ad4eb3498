//! One turn's tokens, from as many rollouts as it takes.

use std::time::Duration;

use futures::StreamExt;
use robust_proto::v1::Span;
use serde::Deserialize;
use serde_json::json;
use tokio::runtime::Handle;

use super::Worker;
use super::host::{Host, Refusal};
use super::kept::Kept;

/// Pause before a rollout is asked for again after one broke: the daemon needs a moment (at most
/// 100 ms) to see that it is gone.
const PAUSE: Duration = Duration::from_millis(50);
/// A rollout is on this machine or near it.
const CONNECT: Duration = Duration::from_secs(2);
/// Longest line of a stream: one chunk has few tokens.
const MAX_LINE_BYTES: usize = 1 << 20;

/// What a turn has so far.
#[derive(Debug, Default)]
pub(super) struct Generated {
    /// Tokens in order, cut where the weights changed.
    pub spans: Vec<Span>,
    /// Whether it is complete.
    pub finished: bool,
}

/// Why a turn cannot be generated at all.
pub(super) enum TurnError {
    /// The lease is void.
    Void,
    /// It will not work elsewhere either.
    Failed(String),
}

impl From<Refusal> for TurnError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Void => TurnError::Void,
            Refusal::Other(reason) => TurnError::Failed(reason),
        }
    }
}

/// Why a stream ended before the turn did.
enum Broken {
    /// Another rollout may do.
    Elsewhere(String),
    /// The turn cannot be generated.
    Given(TurnError),
}

impl From<Refusal> for Broken {
    fn from(refusal: Refusal) -> Self {
        Broken::Given(refusal.into())
    }
}

/// What a turn continues.
pub(super) struct TurnRequest<'a> {
    pub trajectory: u64,
    pub seed: u64,
    pub turn: u32,
    /// Prompt, turns and results before this turn.
    pub context: &'a [u32],
    pub stop: [i64; 2],
}

/// A client for rollouts.
pub(super) fn client() -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .connect_timeout(CONNECT)
        .no_proxy()
        .tcp_nodelay(true)
        .build()
}

impl Generated {
    /// What an earlier holder of the trajectory left stored.
    pub fn begun(spans: Vec<Span>) -> Self {
        Self {
            spans,
            finished: false,
        }
    }

    pub fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.spans.iter().flat_map(|span| span.ids.iter().copied())
    }

    pub fn len(&self) -> usize {
        self.spans.iter().map(|span| span.ids.len()).sum()
    }

    fn ends_with_one_of(&self, stop: &[i64]) -> bool {
        let last = self.spans.last().and_then(|span| span.ids.last());
        last.is_some_and(|&id| stop.contains(&i64::from(id)))
    }

    fn push(&mut self, version: u64, ids: &[u32], logprobs: &[f32]) {
        if ids.is_empty() {
            return;
        }
        match self.spans.last_mut() {
            Some(span) if span.version == version => {
                span.ids.extend_from_slice(ids);
                span.logprobs.extend_from_slice(logprobs);
            }
            _ => {
                let (ids, logprobs) = (ids.to_vec(), logprobs.to_vec());
                self.spans.push(Span {
                    ids,
                    logprobs,
                    version,
                });
            }
        }
    }
}

/// Holds a rollout's place; gives it back however the turn ends, and ends the request there.
struct Ticket<'a> {
    host: &'a Host,
    http: &'a reqwest::Client,
    ticket: u64,
    url: String,
    rid: String,
    /// Whether the rollout may still be generating for it.
    open: bool,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.host.release(self.ticket, self.open);
        if self.open {
            let abort = self.http.post(format!("{}/abort_request", self.url));
            let abort = abort.body(json!({"rid": self.rid}).to_string());
            let abort = abort.timeout(CONNECT).send();
            // The closed stream says the same; a dead rollout needs no telling.
            if let Ok(runtime) = Handle::try_current() {
                runtime.spawn(async move { drop(abort.await) });
            }
        }
    }
}

impl Worker {
    /// Generates the rest of a turn; what one rollout left unfinished goes on at another from there.
    pub async fn generate(
        &self,
        request: &TurnRequest<'_>,
        mut turn: Generated,
        mut kept: Kept,
    ) -> Result<Generated, TurnError> {
        for attempt in 0u64.. {
            if attempt > 0 {
                kept.settle(&turn).await?;
                tokio::time::sleep(PAUSE).await;
            }
            let route = self.host.route(request.trajectory).await?;
            let incarnation = self.host.incarnation;
            let mut ticket = Ticket {
                host: &self.host,
                http: &self.http,
                ticket: route.ticket,
                url: format!("http://{}", route.http_addr),
                rid: format!(
                    "{}-{}-{incarnation}-{attempt}",
                    request.trajectory, request.turn
                ),
                open: true,
            };
            let rollout = self.rollouts.wait_for(route.rollout);
            let streamed = tokio::select! {
                streamed = self.stream(request, &ticket, &mut turn, &mut kept) => streamed,
                () = rollout.gone() => Err(Broken::Elsewhere("its machine is lost".into())),
            };
            ticket.open = streamed.is_err();
            match streamed {
                Ok(()) if turn.finished => return Ok(turn),
                Ok(()) => {}
                Err(Broken::Given(up)) => return Err(up),
                Err(Broken::Elsewhere(reason)) => {
                    let (trajectory, tokens) = (request.trajectory, turn.len());
                    tracing::info!(trajectory, tokens, %reason, "goes on at another rollout");
                }
            }
        }
        Err(TurnError::Failed("no rollout finished the turn".into()))
    }

    async fn stream(
        &self,
        request: &TurnRequest<'_>,
        ticket: &Ticket<'_>,
        turn: &mut Generated,
        kept: &mut Kept,
    ) -> Result<(), Broken> {
        let left = self.max_new_tokens.saturating_sub(turn.len());
        let ids: Vec<u32> = request.context.iter().copied().chain(turn.ids()).collect();
        // Who had it before may have died between its last token and its storage.
        if left == 0 || ids.len() >= self.max_len || turn.ends_with_one_of(&request.stop) {
            turn.finished = true;
            return Ok(());
        }
        let body = json!({
            "input_ids": ids,
            "sampling_params": {
                "max_new_tokens": left,
                "temperature": self.temperature,
                "stop_token_ids": request.stop,
            },
            "return_logprob": true,
            "stream": true,
            "rid": ticket.rid,
            "trajectory": request.trajectory,
            "seed": request.seed,
            // The whole trajectory is sent, so its first token is at position 0.
            "position": 0,
        });
        let elsewhere = |error: reqwest::Error| Broken::Elsewhere(error.to_string());
        let url = format!("{}/generate", ticket.url);
        let response = self.http.post(url).body(body.to_string()).send().await;
        let response = response.map_err(elsewhere)?;
        let status = response.status();
        if !status.is_success() {
            let text = response.text().await.unwrap_or_default();
            let reason = format!("{status}: {text}");
            let refused = status.is_client_error();
            return Err(if refused {
                Broken::Given(TurnError::Failed(reason))
            } else {
                Broken::Elsewhere(reason)
            });
        }
        let (mut stream, mut lines) = (response.bytes_stream(), Lines::default());
        loop {
            let bytes = tokio::select! {
                bytes = stream.next() => bytes,
                progress = kept.progress(turn) => {
                    progress?;
                    continue;
                }
            };
            let Some(bytes) = bytes else { break };
            for data in lines.feed(&bytes.map_err(elsewhere)?)? {
                if data == "[DONE]" {
                    return Ok(());
                }
                self.take(&data, turn)?;
            }
        }
        if turn.finished {
            Ok(())
        } else {
            Err(Broken::Elsewhere("the stream ended".into()))
        }
    }

    fn take(&self, data: &str, turn: &mut Generated) -> Result<(), Broken> {
        let chunk: Chunk = serde_json::from_str(data)
            .map_err(|error| Broken::Elsewhere(format!("a chunk is unreadable: {error}")))?;
        let logprobs: Vec<f32> = chunk
            .meta_info
            .output_token_logprobs
            .iter()
            .map(|entry| entry.0)
            .collect();
        if logprobs.len() != chunk.output_ids.len() {
            let (ids, got) = (chunk.output_ids.len(), logprobs.len());
            return Err(Broken::Elsewhere(format!(
                "{got} logprobs for {ids} tokens"
            )));
        }
        if !chunk.output_ids.is_empty() {
            let version = chunk
                .meta_info
                .weight_version
                .as_deref()
                .and_then(|v| v.parse().ok());
            let version = version.ok_or_else(|| {
                Broken::Elsewhere("a chunk does not say which weights made it".into())
            })?;
            turn.push(version, &chunk.output_ids, &logprobs);
            self.link.add_tokens(chunk.output_ids.len() as u64);
        }
        match chunk.meta_info.finish_reason.map(|finish| finish.kind) {
            None => Ok(()),
            Some(kind) if kind == "stop" || kind == "length" => {
                turn.finished = true;
                Ok(())
            }
            Some(kind) => Err(Broken::Elsewhere(format!("the rollout ended it: {kind}"))),
        }
    }
}

#[derive(Deserialize)]
struct Chunk {
    output_ids: Vec<u32>,
    meta_info: Meta,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    finish_reason: Option<FinishReason>,
    #[serde(default)]
    weight_version: Option<String>,
    #[serde(default)]
    output_token_logprobs: Vec<(f32, u32, Option<String>)>,
}

#[derive(Deserialize)]
struct FinishReason {
    #[serde(rename = "type")]
    kind: String,
}

/// Cuts a byte stream into the data of its events.
#[derive(Default)]
struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    fn feed(&mut self, bytes: &[u8]) -> Result<Vec<String>, Broken> {
        self.rest.extend_from_slice(bytes);
        let mut data = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            if let Some(payload) = line.trim_end().strip_prefix("data:") {
                data.push(payload.trim_start().to_owned());
            }
        }
        if self.rest.len() > MAX_LINE_BYTES {
            return Err(Broken::Elsewhere("a line has no end".into()));
        }
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_however_the_stream_is_cut() {
        let text = b"data: {\"a\":1}\n\ndata: [DONE]\n\n";
        for cut in 0..text.len() {
            let mut lines = Lines::default();
            let mut data = Vec::new();
            for part in [&text[..cut], &text[cut..]] {
                data.extend(lines.feed(part).unwrap_or_default());
            }
            assert_eq!(data, ["{\"a\":1}", "[DONE]"], "cut at {cut}");
        }
    }

    #[test]
    fn tokens_of_one_version_make_one_span() {
        let mut turn = Generated::default();
        turn.push(1, &[5, 6], &[-0.1, -0.2]);
        turn.push(1, &[7], &[-0.3]);
        turn.push(2, &[8], &[-0.4]);
        let versions: Vec<_> = turn
            .spans
            .iter()
            .map(|span| (span.version, &span.ids))
            .collect();
        assert_eq!(versions, [(1, &vec![5, 6, 7]), (2, &vec![8])]);
        assert_eq!(turn.ids().collect::<Vec<_>>(), [5, 6, 7, 8]);
    }
}
