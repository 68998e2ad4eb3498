//! One instance's link, which goes to the leader over its node's connection.
use super::agent::Agent;
use super::ledger::{Ledger, Place, one_more};
use super::rank::{Rank, of_manifest};
use super::session::Session;
use super::shape::Shape;
use robust_proto::v1::host_message::Body as Heard;
use robust_proto::v1::role_host_client::RoleHostClient;
use robust_proto::v1::role_message::Body;
use robust_proto::v1::{self, RoleMessage};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Status};

/// Before a link that broke, or that the leader could not take, is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// An instance that was started here. Its link ends with it.
pub(super) struct Instance {
    pub incarnation: u64,
    place: Place,
    told: Arc<Mutex<Told>>,
    link: Option<JoinHandle<()>>,
    ticks: u64,
}

/// What it says in its next hello, and the way to the leader while its link is open.
struct Told {
    hello: v1::Hello,
    up: Option<UnboundedSender<RoleMessage>>,
}

/// What a link does its work with.
struct Link {
    told: Arc<Mutex<Told>>,
    session: Session,
    ledger: Arc<Ledger>,
    shape: Shape,
}

impl Instance {
    /// As it was ordered.
    pub fn new(order: &v1::SpawnRole, pid: u32) -> Self {
        let certificate = robust_identity::Fingerprint::of_pem(&order.identity);
        let hello = v1::Hello {
            role: order.role.clone(),
            index: order.index,
            incarnation: order.incarnation,
            generation: order.generation,
            pid,
            transport_addr: "127.0.0.1:1".to_owned(),
            http_addr: "127.0.0.1:1".to_owned(),
            gradients: vec![v1::Region::default(); 2],
            certificate: certificate.map_or_else(|_| String::new(), |shown| shown.to_string()),
            ..Default::default()
        };
        Self {
            incarnation: order.incarnation,
            place: (order.role.clone(), order.index),
            told: Arc::new(Mutex::new(Told { hello, up: None })),
            link: None,
            ticks: 0,
        }
    }

    /// Which of the job's it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Whether its link is open.
    pub fn is_linked(&self) -> bool {
        lock(&self.told).up.is_some()
    }

    /// Links over this session, and no other any more.
    pub fn link(&mut self, session: &Session, ledger: &Arc<Ledger>, shape: Shape) {
        self.unlink(ledger);
        let link = Link {
            told: Arc::clone(&self.told),
            session: session.clone(),
            ledger: Arc::clone(ledger),
            shape,
        };
        let (role, index) = &self.place;
        let who = format!("{role}-{index}");
        self.link = Some(tokio::spawn(async move {
            while let Err(status) = link.run().await {
                link.closed();
                link.ledger.refused(&who, &status);
                if status.code() == Code::FailedPrecondition {
                    return;
                }
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            link.closed();
        }));
    }

    /// Its process is no more.
    pub fn unlink(&mut self, ledger: &Ledger) {
        if let Some(task) = self.link.take() {
            task.abort();
        }
        closed(&self.told, ledger);
    }

    /// Says what it does, four times a second, and every other time that it does something else now.
    pub fn tick(&mut self) -> v1::RoleUsage {
        self.ticks += 1;
        let busy_us = self.ticks * 100_000;
        if let Some(up) = &lock(&self.told).up {
            let sample = v1::ActivitySample {
                busy_us,
                tokens_total: self.ticks * 8,
                running: 1,
                ..Default::default()
            };
            say(up, Body::Sample(sample));
            if self.ticks.is_multiple_of(2) && self.place.0 != "trainer" {
                let phase = match self.ticks.is_multiple_of(4) {
                    true => "generating",
                    false => "idle",
                };
                let phase = v1::PhaseChange {
                    phase: phase.to_owned(),
                    step: 0,
                };
                say(up, Body::Phase(phase));
            }
        }
        v1::RoleUsage {
            incarnation: self.incarnation,
            busy_us,
            rss_bytes: 100 << 20,
            ..Default::default()
        }
    }
}

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    // What is told is replaced as a whole: nobody leaves it half done.
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

fn closed(told: &Mutex<Told>, ledger: &Ledger) {
    if lock(told).up.take().is_some() {
        ledger.linked.fetch_sub(1, Ordering::Relaxed);
    }
}

fn say(up: &UnboundedSender<RoleMessage>, body: Body) {
    // A link that broke is noticed where it is read.
    let _ = up.send(RoleMessage { body: Some(body) });
}

impl Link {
    /// Until the leader ends it.
    async fn run(&self) -> Result<(), Status> {
        let hello = lock(&self.told).hello.clone();
        let mut rank = Rank {
            incarnation: hello.incarnation,
            generation: hello.generation,
            session: self.session.clone(),
            ledger: Arc::clone(&self.ledger),
            answered: HashMap::new(),
        };
        let agent = Agent {
            incarnation: hello.incarnation,
            session: self.session.clone(),
            ledger: Arc::clone(&self.ledger),
            shape: self.shape,
        };
        let (up, said) = unbounded_channel();
        say(&up, Body::Hello(hello));
        let mut leader =
            RoleHostClient::new(self.session.channel.clone()).max_decoding_message_size(usize::MAX);
        let said = self.session.shown(UnboundedReceiverStream::new(said));
        let mut down = leader.attach(said).await?.into_inner();
        lock(&self.told).up = Some(up.clone());
        one_more(&self.ledger.linked);
        // They end with the link.
        let mut conversations = JoinSet::new();
        while let Some(message) = down.message().await? {
            while conversations.try_join_next().is_some() {}
            match message.body {
                Some(Heard::Call(call)) => {
                    say(&up, Body::Reply(rank.answer(call).await?));
                }
                Some(Heard::Pull(pull)) => self.pull(&up, pull),
                Some(Heard::Dispatch(dispatch)) => {
                    conversations.spawn(agent.clone().converse(dispatch));
                }
                Some(Heard::Shutdown(_)) => return Ok(()),
                _ => {}
            }
        }
        Ok(())
    }

    fn closed(&self) {
        closed(&self.told, &self.ledger);
    }

    /// Has what it is sent for at once.
    fn pull(&self, up: &UnboundedSender<RoleMessage>, pull: v1::PullWeights) {
        let (version, order) = (pull.version, pull.order);
        let served = of_manifest(version, pull.manifest.unwrap_or_default());
        let mut told = lock(&self.told);
        (told.hello.version, told.hello.served) = (Some(version), Some(served.clone()));
        drop(told);
        let result = Some(v1::pull_done::Result::Ok(served));
        let done = v1::PullDone {
            version,
            order,
            result,
        };
        say(up, Body::PullDone(done));
        one_more(&self.ledger.pulls);
    }
}
