//! One link from Hello to its break.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use robust_proto::v1::role_host_client::RoleHostClient;
use robust_proto::v1::role_message::Body;
use robust_proto::v1::{Hello, HostMessage, Pong, RoleMessage, Welcome, host_message};
use tokio::sync::mpsc::{Sender, UnboundedReceiver, UnboundedSender};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::identity;

use super::{DaemonEpoch, FromHost, LinkConfig, LinkEnd, Outgoing, Shared, activity};

/// What was sent so shortly before a break may not have arrived.
const UNSURE: Duration = Duration::from_secs(5);
/// Messages handed to the connection and not yet written.
const IN_FLIGHT: usize = 64;

pub(super) struct Session<'a> {
    pub shared: &'a Shared,
    pub config: &'a LinkConfig,
    pub outgoing: &'a mut UnboundedReceiver<Outgoing>,
    pub recent: &'a mut Vec<(Instant, Outgoing)>,
    pub waiting: &'a mut VecDeque<Outgoing>,
    pub epoch: DaemonEpoch,
}

/// How a link ended.
pub(super) enum Broken {
    End(LinkEnd),
    Retry(String),
}

impl From<Status> for Broken {
    fn from(status: Status) -> Self {
        match status.code() {
            Code::FailedPrecondition => Broken::End(LinkEnd::Fenced(status.message().to_owned())),
            code => Broken::Retry(format!("{code:?}: {}", status.message())),
        }
    }
}

impl Session<'_> {
    pub async fn run(
        mut self,
        mut client: RoleHostClient<Channel>,
        hello: &(dyn Fn() -> Hello + Send + Sync),
        events: &UnboundedSender<FromHost>,
    ) -> Broken {
        let (up, stream) = tokio::sync::mpsc::channel(IN_FLIGHT);
        self.collect_waiting();
        if up
            .send(message(Body::Hello(self.named(hello()))))
            .await
            .is_err()
        {
            return Broken::Retry("closed before the hello".into());
        }
        let limit = self.config.welcome_within;
        let welcomed = welcomed(&mut client, ReceiverStream::new(stream));
        let mut down = match tokio::time::timeout(limit, welcomed).await {
            Ok(Ok((welcome, down))) => {
                tracing::info!(daemon = %welcome.daemon_version, epoch = self.epoch.0, "linked");
                down
            }
            Ok(Err(broken)) => return broken,
            Err(_) => {
                tracing::warn!(
                    "the daemon did not welcome this process within {limit:?}: it is asked again"
                );
                return Broken::Retry("no welcome came in time".into());
            }
        };
        self.shared.linked.send_replace(true);
        let broken = match self.replay(&up).await {
            Ok(()) => self.pump(&up, &mut down, events).await,
            Err(broken) => broken,
        };
        self.shared.linked.send_replace(false);
        broken
    }

    fn named(&self, hello: Hello) -> Hello {
        Hello {
            role: self.config.role.name().to_owned(),
            index: self.config.index,
            incarnation: self.config.incarnation,
            generation: self.config.generation,
            pid: std::process::id(),
            certificate: identity::fingerprint(),
            answers_pings: true,
            ..hello
        }
    }

    /// What the last link may have lost, and what was queued since: only what must not be lost.
    fn collect_waiting(&mut self) {
        let unsent = std::mem::take(self.waiting);
        self.waiting
            .extend(self.recent.drain(..).map(|(_, out)| out).chain(unsent));
        while let Ok(out) = self.outgoing.try_recv() {
            self.waiting.push_back(out);
        }
        self.waiting.retain(Outgoing::is_lasting);
    }

    async fn replay(&mut self, up: &Sender<RoleMessage>) -> Result<(), Broken> {
        let phase = self
            .shared
            .phase
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(phase) = phase {
            self.send(
                up,
                Outgoing {
                    body: Body::Phase(phase),
                    epoch: None,
                },
            )
            .await?;
        }
        while let Some(out) = self.waiting.pop_front() {
            self.send(up, out).await?;
        }
        Ok(())
    }

    async fn pump(
        &mut self,
        up: &Sender<RoleMessage>,
        down: &mut Streaming<HostMessage>,
        events: &UnboundedSender<FromHost>,
    ) -> Broken {
        let mut ticks = tokio::time::interval(self.config.sample_interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            let sent = tokio::select! {
                received = down.message() => match received {
                    Ok(Some(HostMessage { body: Some(host_message::Body::Identity(new)) })) => {
                        let body = Body::IdentityTaken(identity::take(&new));
                        self.send(up, Outgoing { body, epoch: None }).await
                    }
                    Ok(Some(HostMessage { body: Some(host_message::Body::Ping(ping)) })) => {
                        let body = Body::Pong(Pong { number: ping.number });
                        self.send(up, Outgoing { body, epoch: None }).await
                    }
                    Ok(Some(message)) => match self.receive(message, events) {
                        Some(end) => return Broken::End(end),
                        None => Ok(()),
                    },
                    Ok(None) => return Broken::Retry("closed by the daemon".into()),
                    Err(status) => return status.into(),
                },
                out = self.outgoing.recv() => match out {
                    Some(out) => self.send(up, out).await,
                    None => return Broken::End(LinkEnd::Shutdown),
                },
                _ = ticks.tick() => {
                    let sample = activity::sample(&self.config.busy, &self.shared.counters);
                    self.send(up, Outgoing { body: Body::Sample(sample), epoch: None }).await
                }
            };
            if let Err(broken) = sent {
                return broken;
            }
        }
    }

    fn receive(&self, message: HostMessage, events: &UnboundedSender<FromHost>) -> Option<LinkEnd> {
        match &message.body {
            Some(host_message::Body::Shutdown(_)) => return Some(LinkEnd::Shutdown),
            // At once: the role may compute for long before it looks at its inbox.
            Some(host_message::Body::Fault(order)) => {
                self.shared.faults.arm(order);
                return None;
            }
            Some(host_message::Body::Disarm(disarm)) => {
                self.shared.faults.disarm(disarm.id);
                return None;
            }
            _ => {}
        }
        let gone = events
            .send(FromHost::Message(self.epoch, Box::new(message)))
            .is_err();
        gone.then_some(LinkEnd::Shutdown)
    }

    async fn send(&mut self, up: &Sender<RoleMessage>, out: Outgoing) -> Result<(), Broken> {
        if out.epoch.is_some_and(|epoch| epoch != self.epoch) {
            return Ok(());
        }
        let now = Instant::now();
        self.recent
            .retain(|(sent, _)| now.duration_since(*sent) < UNSURE);
        if out.is_lasting() {
            self.recent.push((now, out.clone()));
        }
        let closed = |_| Broken::Retry("the connection is closed".into());
        up.send(message(out.body)).await.map_err(closed)
    }
}

/// Attaches, and waits for the first word of the daemon.
async fn welcomed(
    client: &mut RoleHostClient<Channel>,
    said: ReceiverStream<RoleMessage>,
) -> Result<(Welcome, Streaming<HostMessage>), Broken> {
    let mut down = client.attach(said).await?.into_inner();
    match down.message().await? {
        Some(HostMessage {
            body: Some(host_message::Body::Welcome(welcome)),
        }) => Ok((welcome, down)),
        Some(_) => Err(Broken::Retry("the first message was no welcome".into())),
        None => Err(Broken::Retry("closed before the welcome".into())),
    }
}

impl Outgoing {
    /// Whether it must reach the daemon even if the link breaks.
    fn is_lasting(&self) -> bool {
        matches!(
            self.body,
            Body::Reply(_) | Body::PullDone(_) | Body::Returned(_)
        )
    }
}

fn message(body: Body) -> RoleMessage {
    RoleMessage { body: Some(body) }
}
