//! A watch at one member, which shows again and again that it is still there.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::stream::{BoxStream, StreamExt as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use super::MAX_MESSAGE_BYTES;
use super::failure::{Failure, said};
use super::members::{Asked, Members};
use super::translate::changes;
use crate::generated::etcdserverpb::watch_client::WatchClient;
use crate::generated::etcdserverpb::watch_request::RequestUnion;
use crate::generated::etcdserverpb::{
    WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
};
use crate::{ArbiterError, Changed, Revision};

/// The stream that [`Arbiter::watch`](crate::Arbiter::watch) promises.
pub(super) fn watch(
    members: Arc<Members>,
    (key, range_end): (Vec<u8>, Vec<u8>),
    from: Revision,
) -> BoxStream<'static, Result<Changed, ArbiterError>> {
    let watching = Watching {
        members,
        create: WatchCreateRequest {
            key,
            range_end,
            start_revision: from.0,
        },
        link: None,
        pending: VecDeque::new(),
        over: false,
    };
    futures::stream::unfold(watching, Watching::step).boxed()
}

struct Watching {
    members: Arc<Members>,
    create: WatchCreateRequest,
    link: Option<Link>,
    /// Changes that came together, and that nobody asked for yet.
    pending: VecDeque<Changed>,
    over: bool,
}

/// What one member sends.
struct Link {
    member: usize,
    /// The connection lives as long as somebody has it.
    _channel: Channel,
    answers: Streaming<WatchResponse>,
    requests: mpsc::Sender<WatchRequest>,
    /// When it is asked whether it is there.
    ask_at: Instant,
    /// It was asked, and did not say anything since.
    asked: bool,
}

impl Watching {
    async fn step(mut self) -> Option<(Result<Changed, ArbiterError>, Self)> {
        loop {
            if let Some(changed) = self.pending.pop_front() {
                return Some((Ok(changed), self));
            }
            if self.over {
                return None;
            }
            if let Err(error) = self.advance().await {
                self.over = true;
                return Some((Err(error), self));
            }
        }
    }

    async fn advance(&mut self) -> Result<(), ArbiterError> {
        let Some(link) = &mut self.link else {
            let create = &self.create;
            let quiet = self.members.timeout() / 2;
            let begin = |asked: Asked| {
                let create = create.clone();
                async move { Link::begin(asked, create, quiet).await }
            };
            self.link = Some(self.members.repeatable(begin).await?);
            return Ok(());
        };
        match link.next(&self.members).await {
            Ok(answer) => {
                self.pending.extend(changes(answer.events)?);
                Ok(())
            }
            Err(failure) => {
                let member = link.member;
                let at = self.members.name(member);
                match failure.verdict(at) {
                    Ok(error) => Err(error),
                    Err(failure) => {
                        self.members.pass_by(member);
                        Err(ArbiterError::WatchBroken {
                            at: at.to_owned(),
                            why: failure.to_string(),
                        })
                    }
                }
            }
        }
    }
}

impl Link {
    /// Returns once the member said that it watches.
    async fn begin(
        asked: Asked,
        create: WatchCreateRequest,
        quiet: std::time::Duration,
    ) -> Result<Self, Failure> {
        let (requests, sent) = mpsc::channel(2);
        let first = WatchRequest {
            request_union: Some(RequestUnion::CreateRequest(create)),
        };
        let sending = requests.send(first).await;
        sending.map_err(|_| Failure::NotDone("the watch ended at once".to_owned()))?;
        let mut client =
            WatchClient::new(asked.channel()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let answers = client.watch(asked.lasting(ReceiverStream::new(sent))).await;
        let mut link = Self {
            member: asked.member(),
            _channel: asked.channel(),
            answers: answers?.into_inner(),
            requests,
            ask_at: Instant::now() + quiet,
            asked: false,
        };
        let answer = link.answers.message().await?;
        let answer = answer.ok_or_else(|| Failure::Lost("the watch ended at once".to_owned()))?;
        check(&answer)?;
        Ok(link)
    }

    /// Its next answer; an error where it says nothing for as long as a call may take.
    async fn next(&mut self, members: &Members) -> Result<WatchResponse, Failure> {
        let quiet = members.timeout() / 2;
        loop {
            tokio::select! {
                biased;
                answer = self.answers.message() => {
                    let answer = answer.map_err(|status| Failure::Lost(said(&status)))?;
                    let ended = || Failure::Lost("it ended the watch".to_owned());
                    let answer = answer.ok_or_else(ended)?;
                    check(&answer)?;
                    self.asked = false;
                    self.ask_at = Instant::now() + quiet;
                    return Ok(answer);
                }
                () = sleep_until(self.ask_at) => {
                    if self.asked {
                        return Err(Failure::Silent(members.timeout()));
                    }
                    // Where this does not go out, the answer is missed as well.
                    _ = self.requests.try_send(WatchRequest {
                        request_union: Some(RequestUnion::ProgressRequest(WatchProgressRequest {})),
                    });
                    self.asked = true;
                    self.ask_at = Instant::now() + members.timeout();
                }
            }
        }
    }
}

fn check(answer: &WatchResponse) -> Result<(), Failure> {
    match answer {
        WatchResponse {
            compact_revision, ..
        } if *compact_revision > 0 => Err(Failure::Compacted(Revision(*compact_revision))),
        WatchResponse { canceled: true, .. } if answer.cancel_reason.contains("no leader") => {
            Err(Failure::Lost(answer.cancel_reason.clone()))
        }
        WatchResponse { canceled: true, .. } => Err(Failure::Refused(answer.cancel_reason.clone())),
        _ => Ok(()),
    }
}
