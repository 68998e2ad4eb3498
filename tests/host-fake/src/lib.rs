//! A daemon as roles see it, which can die and come back on the same socket.
//!
//! ```text
//!   role ── Attach, Hello, replies, ... ──► FakeHost ──► wait(...) by the test
//!        ◄── whatever the test sends ──────    │
//!   role ── Route, AppendTurn, ... ───────────►└──────► asked() by the test
//! ```
//! A test plays the daemon with it; the role's parts under test are the real ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod faults;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use robust_proto::v1::host_message::Body as Down;
use robust_proto::v1::role_host_server::{RoleHost, RoleHostServer};
use robust_proto::v1::role_message::Body as Up;
use robust_proto::v1::*;
use tokio::runtime::Runtime;
use tokio_stream::wrappers::{UnboundedReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status, Streaming};

/// Nothing here takes long; the bound is for a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

type ToRole = tokio::sync::mpsc::UnboundedSender<Result<HostMessage, Status>>;

/// What a request to the daemon was.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    /// A rollout for this trajectory.
    Route(u64),
    /// The place of this ticket is given back.
    Release(u64),
    /// A turn to store.
    Append(AppendTurnRequest),
    /// Tokens of a turn under way to store.
    Spans(AppendSpansRequest),
    /// A trajectory's end to store.
    Finish(FinishTrajectoryRequest),
}

/// A daemon in threads of this process.
pub struct FakeHost {
    /// Where roles link to it.
    pub socket: PathBuf,
    shared: Arc<Shared>,
    messages: Mutex<Receiver<(u64, Up)>>,
    life: Option<Runtime>,
}

struct Shared {
    up: Mutex<Sender<(u64, Up)>>,
    links: Mutex<HashMap<u64, ToRole>>,
    asked: Mutex<Vec<Asked>>,
    /// The parts of each call with tokens of turns under way.
    batches: Mutex<Vec<usize>>,
    /// Rollouts in the order in which they are given out; the last one for ever.
    rollouts: Mutex<Vec<String>>,
    fenced: Mutex<bool>,
    /// Links are taken and not answered.
    silent: Mutex<bool>,
    /// How many links were asked for.
    attaches: Mutex<usize>,
    void: Mutex<bool>,
    /// Writes that are acknowledged before nothing is any more, as from a daemon that stopped.
    writes_left: Mutex<Option<usize>>,
}

impl FakeHost {
    /// Starts it, with its socket in this folder.
    pub fn start(folder: &Path) -> Self {
        let (up, messages) = channel();
        let shared = Arc::new(Shared {
            up: Mutex::new(up),
            links: Mutex::default(),
            asked: Mutex::default(),
            batches: Mutex::default(),
            rollouts: Mutex::default(),
            fenced: Mutex::default(),
            silent: Mutex::default(),
            attaches: Mutex::default(),
            void: Mutex::default(),
            writes_left: Mutex::default(),
        });
        let socket = folder.join("roles.sock");
        let messages = Mutex::new(messages);
        let mut host = Self {
            socket,
            shared,
            messages,
            life: None,
        };
        host.live();
        host
    }

    /// Comes back on the same socket after [`Self::die`].
    pub fn live(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = {
            let _on_runtime = runtime.enter();
            tokio::net::UnixListener::bind(&self.socket).unwrap()
        };
        let service = RoleHostServer::new(Service(Arc::clone(&self.shared)));
        runtime.spawn(
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(UnixListenerStream::new(listener)),
        );
        self.life = Some(runtime);
    }

    /// Dies as by SIGKILL: all connections break.
    pub fn die(&mut self) {
        self.shared.links.lock().unwrap().clear();
        if let Some(life) = self.life.take() {
            life.shutdown_timeout(Duration::from_secs(5));
        }
    }

    /// The next message that fits; others are dropped.
    pub fn wait<T>(&self, what: &str, mut pick: impl FnMut(u64, Up) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let (from, message) = self
                .messages
                .lock()
                .unwrap()
                .recv_timeout(left)
                .unwrap_or_else(|_| panic!("waited in vain for {what}"));
            if let Some(found) = pick(from, message) {
                return found;
            }
        }
    }

    /// Waits for the hello of this incarnation.
    pub fn hello(&self, incarnation: u64) -> Hello {
        self.wait("a hello", |from, message| match message {
            Up::Hello(hello) if from == incarnation => Some(hello),
            _ => None,
        })
    }

    /// Sends to the newest link of this incarnation.
    pub fn send(&self, incarnation: u64, body: Down) {
        let links = self.shared.links.lock().unwrap();
        let link = links.get(&incarnation).expect("it is linked");
        link.send(Ok(HostMessage { body: Some(body) })).unwrap();
    }

    /// Waits for the end of a pull of this incarnation.
    pub fn pull_done(&self, incarnation: u64) -> PullDone {
        self.wait("the end of a pull", |from, message| match message {
            Up::PullDone(done) if from == incarnation => Some(done),
            _ => None,
        })
    }

    /// Everything that was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// Of how many conversations each call had tokens.
    pub fn batches(&self) -> Vec<usize> {
        self.shared.batches.lock().unwrap().clone()
    }

    /// As if nothing had been asked.
    pub fn forget_asked(&self) {
        self.shared.asked.lock().unwrap().clear();
    }

    /// Waits until something was asked that fits.
    pub fn wait_asked(&self, what: &str, fits: impl Fn(&Asked) -> bool) -> Asked {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = self.asked().into_iter().find(|asked| fits(asked)) {
                return found;
            }
            assert!(
                Instant::now() < deadline,
                "waited in vain for {what}: {:?}",
                self.asked()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Gives these rollouts out, in this order; the last one for ever.
    pub fn route_to(&self, rollouts: &[String]) {
        *self.shared.rollouts.lock().unwrap() = rollouts.to_vec();
    }

    /// Refuses every further link as of an old incarnation.
    pub fn fence(&self) {
        *self.shared.fenced.lock().unwrap() = true;
    }

    /// Whether links are answered from now on; else they are taken, and nothing follows.
    pub fn welcome(&self, answers: bool) {
        *self.shared.silent.lock().unwrap() = !answers;
    }

    /// Waits until so many links were asked for.
    pub fn wait_attaches(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while *self.shared.attaches.lock().unwrap() < count {
            assert!(
                Instant::now() < deadline,
                "{count} links within {PATIENCE:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stores so many more turns and spans; the rest is neither stored nor answered. None: stores all.
    pub fn store_only(&self, writes: Option<usize>) {
        *self.shared.writes_left.lock().unwrap() = writes;
    }

    /// Refuses every further write as of a void lease.
    pub fn void_leases(&self) {
        *self.shared.void.lock().unwrap() = true;
    }
}

impl Drop for FakeHost {
    fn drop(&mut self) {
        self.die();
    }
}

struct Service(Arc<Shared>);

impl Service {
    async fn note(&self, asked: Asked) -> Result<Response<Ack>, Status> {
        let frozen = match &mut *self.0.writes_left.lock().unwrap() {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        };
        if frozen {
            std::future::pending::<()>().await;
        }
        if *self.0.void.lock().unwrap() {
            return Err(Status::failed_precondition("the lease is void"));
        }
        self.0.asked.lock().unwrap().push(asked);
        Ok(Response::new(Ack {}))
    }
}

#[tonic::async_trait]
impl RoleHost for Service {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<HostMessage, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<RoleMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        *self.0.attaches.lock().unwrap() += 1;
        let silent = *self.0.silent.lock().unwrap();
        if silent {
            std::future::pending::<()>().await;
        }
        if *self.0.fenced.lock().unwrap() {
            return Err(Status::failed_precondition(
                "incarnation 1 was followed by 2",
            ));
        }
        let mut stream = request.into_inner();
        let Some(Up::Hello(hello)) = stream.message().await?.and_then(|message| message.body)
        else {
            return Err(Status::invalid_argument("no hello"));
        };
        let incarnation = hello.incarnation;
        let (down, messages) = tokio::sync::mpsc::unbounded_channel();
        let welcome = Welcome {
            daemon_version: "test".into(),
        };
        down.send(Ok(HostMessage {
            body: Some(Down::Welcome(welcome)),
        }))
        .unwrap();
        self.0.links.lock().unwrap().insert(incarnation, down);
        let up = self.0.up.lock().unwrap().clone();
        let _ = up.send((incarnation, Up::Hello(hello)));
        tokio::spawn(async move {
            while let Some(Ok(message)) = stream.next().await {
                if let Some(body) = message.body {
                    let _ = up.send((incarnation, body));
                }
            }
        });
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(
            messages,
        ))))
    }

    async fn route(&self, request: Request<RouteRequest>) -> Result<Response<RouteReply>, Status> {
        let mut asked = self.0.asked.lock().unwrap();
        let ticket = asked.len() as u64;
        asked.push(Asked::Route(request.into_inner().trajectory));
        let mut rollouts = self.0.rollouts.lock().unwrap();
        let http_addr = match rollouts.len() {
            0 => return Err(Status::unavailable("no rollout")),
            1 => rollouts[0].clone(),
            _ => rollouts.remove(0),
        };
        Ok(Response::new(RouteReply {
            ticket,
            http_addr,
            rollout: 1,
        }))
    }

    async fn release_route(
        &self,
        request: Request<ReleaseRouteRequest>,
    ) -> Result<Response<Ack>, Status> {
        self.0
            .asked
            .lock()
            .unwrap()
            .push(Asked::Release(request.into_inner().ticket));
        Ok(Response::new(Ack {}))
    }

    async fn append_turn(
        &self,
        request: Request<AppendTurnRequest>,
    ) -> Result<Response<Ack>, Status> {
        self.note(Asked::Append(request.into_inner())).await
    }

    async fn append_spans(
        &self,
        request: Request<AppendSpansRequest>,
    ) -> Result<Response<Ack>, Status> {
        self.note(Asked::Spans(request.into_inner())).await
    }

    async fn append_spans_batch(
        &self,
        request: Request<SpansBatch>,
    ) -> Result<Response<SpansBatchReply>, Status> {
        let mut replies = Vec::new();
        let parts = request.into_inner().parts;
        self.0.batches.lock().unwrap().push(parts.len());
        for part in parts {
            let noted = self.note(Asked::Spans(part)).await;
            let refused = noted.err();
            replies.push(PartReply {
                code: refused
                    .as_ref()
                    .map_or(tonic::Code::Ok, Status::code)
                    .into(),
                message: refused.map_or_else(String::new, |status| status.message().to_owned()),
            });
        }
        Ok(Response::new(SpansBatchReply { replies }))
    }

    async fn finish_trajectory(
        &self,
        request: Request<FinishTrajectoryRequest>,
    ) -> Result<Response<Ack>, Status> {
        self.note(Asked::Finish(request.into_inner())).await
    }
}
