//! One turn's tokens, from as many rollouts as it takes.

use std::time::Duration;

use futures::StreamExt;
use robust_engine::{
    Dialect, EngineAddr, Event, Finish, Generate, Kind, Label, Own, Refused, Request, Stream,
};
use robust_identity::{EngineClient, EngineKey};
use robust_proto::v1::Span;
use tokio::runtime::Handle;

use super::Turns;
use super::host::{Host, Refusal};
use super::kept::Kept;

/// Pause before a rollout is asked for again after one broke: the daemon needs a moment (at most
/// 100 ms) to see that it is gone.
const PAUSE: Duration = Duration::from_millis(50);
/// A rollout is on this machine or near it.
const CONNECT: Duration = Duration::from_secs(2);
/// What follows a turn's end on its connection is there at once, or the connection is given up.
const DRAIN: Duration = Duration::from_millis(100);

/// What a turn has so far.
#[derive(Debug, Default)]
pub struct Generated {
    /// Tokens in order, cut where the weights changed.
    pub spans: Vec<Span>,
    /// Whether it is complete.
    pub finished: bool,
}

/// Why a turn cannot be generated at all.
pub enum TurnError {
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

impl Broken {
    /// What is wrong with the request is wrong everywhere.
    fn judged(client: bool, reason: String) -> Self {
        if client {
            Broken::Given(TurnError::Failed(reason))
        } else {
            Broken::Elsewhere(reason)
        }
    }
}

/// What a turn continues.
pub struct TurnRequest<'a> {
    /// Its key.
    pub trajectory: u64,
    /// What the built-in rollout draws its tokens by.
    pub seed: u64,
    /// Its number in the trajectory.
    pub turn: u32,
    /// Prompt, turns and results before this turn.
    pub context: &'a [u32],
    /// Tokens that end it.
    pub stop: Vec<i64>,
    /// Tokens it may have at most, and how they are drawn.
    pub sampling: Sampling,
}

/// How a turn's tokens are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Tokens at most.
    pub max_new_tokens: usize,
    /// 0 takes the most likely one.
    pub temperature: f64,
}

/// A client for rollouts. Those of other machines are known by the job's authority and nobody else's: the system's own
/// certificates are not looked at.
pub(super) fn client(engines: Option<&EngineClient>) -> reqwest::Result<reqwest::Client> {
    let client = reqwest::Client::builder()
        .connect_timeout(CONNECT)
        .no_proxy()
        .tcp_nodelay(true);
    match engines {
        Some(engines) => client.tls_backend_preconfigured(engines.config()).build(),
        None => client.tls_certs_only([]).build(),
    }
}

/// Rollouts are spoken to as the built-in one is: foreign engines have somebody beside them that
/// answers so.
fn dialect() -> Dialect {
    Dialect::newest(Kind::Robust)
}

/// A rollout that serves a turn.
struct Engine<'a> {
    http: &'a reqwest::Client,
    at: String,
    key: EngineKey,
}

impl Engine<'_> {
    /// A request on its way to it.
    fn outgoing(&self, request: Request) -> reqwest::RequestBuilder {
        // Neither of the two calls made here has a query.
        let outgoing = self.http.post(EngineAddr::of(&self.at).url(request.path));
        let outgoing = outgoing.bearer_auth(self.key.reveal()).body(request.body);
        match request.content_type {
            Some(content_type) => outgoing.header(reqwest::header::CONTENT_TYPE, content_type),
            None => outgoing,
        }
    }
}

impl Generated {
    /// What an earlier holder of the trajectory left stored.
    pub fn begun(spans: Vec<Span>) -> Self {
        Self {
            spans,
            finished: false,
        }
    }

    /// Its tokens.
    pub fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.spans.iter().flat_map(|span| span.ids.iter().copied())
    }

    /// How many those are.
    pub fn count(&self) -> usize {
        self.spans.iter().map(|span| span.ids.len()).sum()
    }

    fn ends_with_one_of(&self, stop: &[i64]) -> bool {
        let last = self.spans.last().and_then(|span| span.ids.last());
        last.is_some_and(|&id| stop.contains(&i64::from(id)))
    }

    /// Corrects the versions of the tokens from `from` on, by spans that count from `begin`.
    fn correct(&mut self, begin: usize, from: usize, spans: &[(usize, usize, u64)]) {
        let exact = |at: usize| {
            let at = at.checked_sub(begin)?;
            let span = spans
                .iter()
                .find(|(start, end, _)| (*start..*end).contains(&at));
            span.map(|(_, _, version)| *version)
        };
        let mut at = 0;
        for span in std::mem::take(&mut self.spans) {
            for (id, logprob) in span.ids.iter().zip(&span.logprobs) {
                let exact = exact(at).filter(|_| at >= from);
                self.push(exact.unwrap_or(span.version), &[*id], &[*logprob]);
                at += 1;
            }
        }
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
    engine: Engine<'a>,
    ticket: u64,
    rid: String,
    /// Whether the rollout may still be generating for it.
    open: bool,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.host.release(self.ticket, self.open);
        if self.open {
            let abort = dialect().abort(&self.rid).request;
            let abort = self.engine.outgoing(abort).timeout(CONNECT).send();
            // The closed stream says the same; a dead rollout needs no telling.
            if let Ok(runtime) = Handle::try_current() {
                runtime.spawn(async move { drop(abort.await) });
            }
        }
    }
}

impl Turns {
    /// Generates the rest of a turn; what one rollout left unfinished goes on at another from there.
    pub async fn generate(
        &self,
        request: &TurnRequest<'_>,
        mut turn: Generated,
        kept: &mut Kept,
    ) -> Result<Generated, TurnError> {
        for attempt in 0u64.. {
            if attempt > 0 {
                kept.settle(&turn).await?;
                tokio::time::sleep(PAUSE).await;
            }
            let http = self.http.now();
            let http = http.map_err(|error| TurnError::Failed(error.to_string()))?;
            let route = self.host.route(request.trajectory).await?;
            let incarnation = self.host.incarnation;
            let mut ticket = Ticket {
                host: &self.host,
                engine: Engine {
                    http: &http,
                    at: route.http_addr,
                    key: self.keys.of_engine(route.rollout),
                },
                ticket: route.ticket,
                // SGLang aborts a name with all that begin so: none is the beginning of another.
                rid: format!(
                    "{}-{}-{incarnation}-{attempt}.",
                    request.trajectory, request.turn
                ),
                open: true,
            };
            let rollout = self.awaited.wait_for(route.rollout);
            let streamed = tokio::select! {
                streamed = self.stream(request, &ticket, &mut turn, kept) => streamed,
                () = rollout.gone() => Err(Broken::Elsewhere("its machine is lost".into())),
            };
            ticket.open = streamed.is_err();
            match streamed {
                Ok(()) if turn.finished => return Ok(turn),
                Ok(()) => {}
                Err(Broken::Given(up)) => return Err(up),
                Err(Broken::Elsewhere(reason)) => {
                    let (trajectory, tokens) = (request.trajectory, turn.count());
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
        let most = request.sampling.max_new_tokens;
        let left = most.saturating_sub(turn.count());
        let ids: Vec<u32> = request.context.iter().copied().chain(turn.ids()).collect();
        // Who had it before may have died between its last token and its storage.
        if left == 0 || ids.len() >= self.max_len || turn.ends_with_one_of(&request.stop) {
            turn.finished = true;
            return Ok(());
        }
        let asked = self.asked(request, ticket, ids, left);
        let elsewhere = |error: reqwest::Error| Broken::Elsewhere(error.to_string());
        let asked = ticket.engine.outgoing(dialect().generate(&asked));
        let response = asked.send().await.map_err(elsewhere)?;
        let status = response.status();
        if !status.is_success() {
            let text = beginning(response).await;
            let refused = Refused::of(status.as_u16(), &text);
            return Err(Broken::judged(refused.client, refused.to_string()));
        }
        let begin = turn.count();
        let (mut bytes, mut stream) = (response.bytes_stream(), Stream::new(&dialect(), true));
        while !stream.ended() {
            let piece = tokio::select! {
                piece = bytes.next() => piece,
                progress = kept.progress(turn) => {
                    progress?;
                    continue;
                }
            };
            let events = match piece {
                Some(piece) => stream.feed(&piece.map_err(elsewhere)?),
                None => stream.closed().into_iter().collect(),
            };
            for event in events {
                self.take(event, turn, begin.max(kept.said()), begin)?;
            }
        }
        // The connection can carry the next turn once this one's reply was read to its end.
        let rest = async { while bytes.next().await.is_some_and(|piece| piece.is_ok()) {} };
        let _ = tokio::time::timeout(DRAIN, rest).await;
        Ok(())
    }

    fn asked(
        &self,
        request: &TurnRequest<'_>,
        ticket: &Ticket<'_>,
        ids: Vec<u32>,
        left: usize,
    ) -> Generate {
        let stop = request.stop.iter();
        Generate {
            rid: ticket.rid.clone(),
            ids,
            max_new_tokens: left,
            temperature: request.sampling.temperature,
            // A vocabulary has no negative tokens.
            stop_token_ids: stop.filter_map(|id| u32::try_from(*id).ok()).collect(),
            ignore_eos: true,
            sampling_seed: None,
            own: Some(Own {
                trajectory: request.trajectory,
                seed: request.seed,
                // The whole trajectory is sent, so its first token is at position 0.
                position: 0,
            }),
            logprobs: true,
            stream: true,
        }
    }

    /// Takes what a rollout said. Tokens from `from` on, of those since `begin`, are nobody's yet:
    /// the exact versions that come with the end are theirs.
    fn take(
        &self,
        event: Event,
        turn: &mut Generated,
        from: usize,
        begin: usize,
    ) -> Result<(), Broken> {
        match event {
            Event::Tokens {
                ids,
                logprobs,
                version,
            } => {
                let none =
                    || Broken::Elsewhere("a chunk does not say which weights made it".into());
                let version = numbered(&version.ok_or_else(none)?)?;
                turn.push(version, &ids, &logprobs);
                self.link.add_tokens(ids.len() as u64);
                Ok(())
            }
            Event::End {
                finish: Finish::Abort(why),
                ..
            } => {
                let reason = format!("the rollout ended it: {why}");
                Err(Broken::judged(why.client, reason))
            }
            Event::End { spans, .. } => {
                let spans = spans.unwrap_or_default();
                let exact = spans.iter().map(|span| {
                    let version = numbered(&span.version)?;
                    Ok((span.start, span.end, version))
                });
                turn.correct(begin, from, &exact.collect::<Result<Vec<_>, Broken>>()?);
                turn.finished = true;
                Ok(())
            }
            Event::Failed {
                message, retryable, ..
            } => Err(Broken::judged(!retryable, message)),
        }
    }
}

/// Only weights of this job may make tokens for it.
fn numbered(label: &Label) -> Result<u64, Broken> {
    label.number().ok_or_else(|| {
        Broken::Elsewhere(format!(
            "its weights are called `{label}`, which is no version of this job"
        ))
    })
}

/// Bytes that are read of an engine's reason for a refusal.
const REASON: usize = 64 << 10;

/// The beginning of an answer that is no success: an engine that goes on and on is not heard out.
async fn beginning(response: reqwest::Response) -> String {
    let (mut pieces, mut text) = (response.bytes_stream(), Vec::new());
    while let Some(Ok(piece)) = pieces.next().await {
        text.extend_from_slice(&piece);
        if text.len() >= REASON {
            text.truncate(REASON);
            break;
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    /// An engine that refuses, and gives its reasons until nobody listens any more; whether that came.
    fn talks_without_end() -> (String, std::thread::JoinHandle<bool>) {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = format!("http://{}/generate", listener.local_addr().unwrap());
        let talking = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let _ = client.read(&mut [0; 4096]).unwrap();
            let head = "HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\n\r\n";
            client.write_all(head.as_bytes()).unwrap();
            // Far more than any buffer between the two holds.
            (0..1 << 14).any(|_| client.write_all(&[b'x'; REASON]).is_err())
        });
        (at, talking)
    }

    #[test]
    fn an_engine_that_goes_on_about_its_refusal_is_not_heard_out() {
        let (engine, talking) = talks_without_end();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let said = runtime.block_on(async {
            let client = client(None).unwrap();
            let response = client.post(engine).send().await.unwrap();
            tokio::time::timeout(Duration::from_secs(20), beginning(response)).await
        });
        assert_eq!(said.expect("it is cut short").len(), REASON);
        drop(runtime);
        assert!(talking.join().unwrap(), "its connection was closed");
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

    #[test]
    fn exact_versions_replace_those_of_chunks_that_nobody_was_told_yet() {
        let mut turn = Generated::begun(vec![Span {
            ids: vec![1, 2],
            logprobs: vec![-0.1, -0.2],
            version: 3,
        }]);
        turn.push(3, &[5, 6, 7], &[-0.3, -0.4, -0.5]);
        turn.push(4, &[8], &[-0.6]);
        // The update came one token earlier than the chunks said, and one of them is stored.
        turn.correct(2, 3, &[(0, 2, 3), (2, 4, 4)]);
        let versions = |turn: &Generated| {
            let spans = turn.spans.iter();
            spans
                .map(|s| (s.version, s.ids.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(versions(&turn), [(3, vec![1, 2, 5, 6]), (4, vec![7, 8])]);
        turn.correct(2, 3, &[(0, 4, 9)]);
        let expected = [(3, vec![1, 2, 5]), (9, vec![6, 7, 8])];
        assert_eq!(versions(&turn), expected, "what is stored stands");
        turn.correct(2, 3, &[]);
        assert_eq!(versions(&turn), expected);
        let logprobs = turn.spans.iter().flat_map(|span| span.logprobs.clone());
        let logprobs: Vec<f32> = logprobs.collect();
        assert_eq!(logprobs, [-0.1, -0.2, -0.3, -0.4, -0.5, -0.6]);
    }

    #[test]
    fn weights_that_are_no_version_of_the_job_are_named() {
        assert!(matches!(numbered(&Label::Number(3)), Ok(3)));
        let reason = match numbered(&Label::Unset) {
            Err(Broken::Elsewhere(reason)) => reason,
            _ => String::new(),
        };
        assert_eq!(
            reason,
            "its weights are called `default`, which is no version of this job"
        );
    }
}
