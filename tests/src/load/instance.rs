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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;

/// An instance that was started here. Its link ends with it.
pub(super) struct Instance {
    pub incarnation: u64,
    hello: Arc<Mutex<v1::Hello>>,
    linked: Arc<AtomicBool>,
    link: Option<(UnboundedSender<RoleMessage>, JoinHandle<()>)>,
    ticks: u64,
}

/// What a link does its work with.
struct Link {
    hello: Arc<Mutex<v1::Hello>>,
    session: Session,
    ledger: Arc<Ledger>,
    shape: Shape,
    up: UnboundedSender<RoleMessage>,
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
            hello: Arc::new(Mutex::new(hello)),
            linked: Arc::default(),
            link: None,
            ticks: 0,
        }
    }

    /// Which of the job's it is.
    pub fn place(&self) -> Place {
        let hello = self.hello.lock().unwrap_or_else(PoisonError::into_inner);
        (hello.role.clone(), hello.index)
    }

    /// Whether its link is open.
    pub fn is_linked(&self) -> bool {
        self.linked.load(Ordering::Relaxed)
    }

    /// Links over this session, and no other any more.
    pub fn link(&mut self, session: &Session, ledger: &Arc<Ledger>, shape: Shape) {
        self.unlink(ledger);
        let (up, said) = unbounded_channel();
        let link = Link {
            hello: Arc::clone(&self.hello),
            session: session.clone(),
            ledger: Arc::clone(ledger),
            shape,
            up: up.clone(),
        };
        let linked = Arc::clone(&self.linked);
        let task = tokio::spawn(async move {
            if let Err(status) = link.run(UnboundedReceiverStream::new(said), &linked).await {
                link.ledger.refused(&status);
            }
        });
        self.link = Some((up, task));
    }

    /// Its process is no more.
    pub fn unlink(&mut self, ledger: &Ledger) {
        if let Some((_, task)) = self.link.take() {
            task.abort();
        }
        if self.linked.swap(false, Ordering::Relaxed) {
            ledger.linked.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Says what it does, four times a second, and every other time that it does something else now.
    pub fn tick(&mut self) -> v1::RoleUsage {
        self.ticks += 1;
        let busy_us = self.ticks * 100_000;
        if let Some((up, _)) = self.link.as_ref().filter(|_| self.is_linked()) {
            let sample = v1::ActivitySample {
                busy_us,
                tokens_total: self.ticks * 8,
                running: 1,
                ..Default::default()
            };
            say(up, Body::Sample(sample));
            let (role, _) = self.place();
            if self.ticks.is_multiple_of(2) && role != "trainer" {
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

fn say(up: &UnboundedSender<RoleMessage>, body: Body) {
    // A link that broke is noticed where it is read.
    let _ = up.send(RoleMessage { body: Some(body) });
}

impl Link {
    /// Until the leader ends it.
    async fn run(
        &self,
        said: UnboundedReceiverStream<RoleMessage>,
        linked: &AtomicBool,
    ) -> Result<(), Status> {
        let hello = self.hello().clone();
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
        say(&self.up, Body::Hello(hello));
        let mut leader =
            RoleHostClient::new(self.session.channel.clone()).max_decoding_message_size(usize::MAX);
        let attaching = leader.attach(self.session.shown(said));
        let mut down = attaching.await?.into_inner();
        linked.store(true, Ordering::Relaxed);
        one_more(&self.ledger.linked);
        // They end with the link.
        let mut conversations = JoinSet::new();
        while let Some(message) = down.message().await? {
            while conversations.try_join_next().is_some() {}
            match message.body {
                Some(Heard::Call(call)) => {
                    say(&self.up, Body::Reply(rank.answer(call).await?));
                }
                Some(Heard::Pull(pull)) => self.pull(pull),
                Some(Heard::Dispatch(dispatch)) => {
                    conversations.spawn(agent.clone().converse(dispatch));
                }
                Some(Heard::Shutdown(_)) => return Ok(()),
                _ => {}
            }
        }
        Ok(())
    }

    fn hello(&self) -> std::sync::MutexGuard<'_, v1::Hello> {
        self.hello.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has what it is sent for at once.
    fn pull(&self, pull: v1::PullWeights) {
        let (version, order) = (pull.version, pull.order);
        let served = of_manifest(version, pull.manifest.unwrap_or_default());
        let mut hello = self.hello();
        (hello.version, hello.served) = (Some(version), Some(served.clone()));
        drop(hello);
        let result = Some(v1::pull_done::Result::Ok(served));
        let done = v1::PullDone {
            version,
            order,
            result,
        };
        say(&self.up, Body::PullDone(done));
        one_more(&self.ledger.pulls);
    }
}
