//! From arrivals to inputs. Nothing is decided here; what the core need not know (replies, samples
//! of links, what a process serves) is noted.
use super::happening::{Fenced, Happening};
use super::world::Arrival;
use super::{Driver, LinkSample, WaitingRoute, translate};
use crate::control::StepOutcome;
use crate::launcher::LaunchEvent;
use crate::links::{Down, LinkId, Via};
use crate::telemetry::{ProcessSample, Samples, Usage};
use robust_proto::v1::pull_done::Result as PullResult;
use robust_proto::v1::{self, host_message, role_message::Body};
use robust_shared::core::{Exit, Input, NodeEvent, Request, RoleEvent, Sample};
use robust_shared::ids::{Incarnation, NodeId};
use robust_shared::time::Time;
use std::time::Duration;
use tokio::sync::oneshot;

impl Driver {
    pub(super) async fn on_arrival(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Happening(happening) => self.on_happening(happening).await,
            Arrival::Launch(LaunchEvent::Exited {
                incarnation,
                at,
                exit,
                tail_of_log,
            }) => {
                let at = self.parts.clock.at(at);
                self.on_exited(incarnation, at, exit, tail_of_log);
            }
            Arrival::Samples(samples) => self.on_samples(*samples),
            Arrival::Checkpoint(event) => self.on_checkpoint(&event),
            Arrival::Store(condition) => self.on_store(&condition),
            Arrival::Timeout => self.inputs.push_back(Input::Timeout),
            Arrival::StatusDue => {
                self.dirty = true;
                self.turn_page(false);
                self.press_checkpoint();
            }
        }
    }

    async fn on_happening(&mut self, happening: Happening) {
        match happening {
            Happening::Attach {
                hello,
                link,
                down,
                via,
                admitted,
            } => {
                let from = self.node_of(via.as_ref());
                self.on_attach(*hello, from, (link, down), admitted).await;
            }
            Happening::LinkClosed { incarnation, link } => {
                if self.links.close(incarnation, link) {
                    self.inputs
                        .push_back(Input::Role(incarnation, RoleEvent::Detached));
                }
            }
            Happening::Said {
                incarnation,
                link,
                body,
            } => self.on_said(incarnation, link, *body),
            Happening::Finished {
                incarnation,
                trajectory,
                reward,
                oldest_version,
            } => {
                let oldest_version = robust_shared::ids::WeightVersion(oldest_version);
                self.inputs.push_back(Input::Role(
                    incarnation,
                    RoleEvent::TrajectoryFinished {
                        trajectory,
                        reward,
                        oldest_version,
                    },
                ));
            }
            Happening::RouteWanted {
                ticket,
                incarnation,
                trajectory,
                answer,
            } => {
                let lease = Some((incarnation, trajectory));
                self.routes.insert(ticket, WaitingRoute { lease, answer });
                self.inputs.push_back(Input::Role(
                    incarnation,
                    RoleEvent::RouteRequested { ticket, trajectory },
                ));
            }
            Happening::ClientRouteWanted {
                ticket,
                avoid,
                answer,
            } => {
                let lease = None;
                self.routes.insert(ticket, WaitingRoute { lease, answer });
                self.inputs
                    .push_back(Input::ClientRouteRequested { ticket, avoid });
            }
            Happening::RouteReleased { ticket, broken } => {
                self.routes.remove(&ticket);
                let released = Input::RouteReleased { ticket, broken };
                self.inputs.push_back(released);
            }
            Happening::Stepped { task, outcome } => self.on_stepped(task, *outcome),
            Happening::Replayed { task, replayed } => self.on_replayed(task, *replayed),
            Happening::Brought { step, brought } => {
                self.snapshots.moved(step, brought);
                self.replicate(step);
            }
            Happening::Probed { incarnation, ok } => {
                self.inputs
                    .push_back(Input::Role(incarnation, RoleEvent::Probed { ok }));
            }
            Happening::Switched {
                incarnation,
                paused,
                ok,
            } => self
                .inputs
                .push_back(Input::Role(incarnation, RoleEvent::Switched { paused, ok })),
            Happening::Evidence { incarnation, text } => {
                self.inputs
                    .push_back(Input::Role(incarnation, RoleEvent::Evidence { text }));
            }
            Happening::Inject {
                fault,
                role,
                index,
                incarnation,
                at,
                answer,
            } => {
                self.tasks += 1;
                let ticket = self.tasks;
                self.injections.insert(ticket, answer);
                self.inputs.push_back(Input::Operator(
                    ticket,
                    Request::Inject {
                        fault,
                        role,
                        index,
                        incarnation,
                        at,
                    },
                ));
            }
            Happening::Asked { request, answer } => {
                self.tasks += 1;
                self.requests.insert(self.tasks, answer);
                self.inputs.push_back(Input::Operator(self.tasks, request));
            }
            Happening::ReadLog {
                id,
                offset,
                bytes,
                answer,
            } => self.on_read_log(id, (offset, bytes), answer),
            Happening::Retired { incarnation } => self.kill(incarnation),
            Happening::Change {
                role,
                change,
                answer,
            } => self.on_change(role, change, answer),
            Happening::Revised { revision, written } => self.on_revised(*revision, written),
            Happening::Service(heard) => {
                self.services.heard(self.parts.clock.now(), heard);
                self.dirty = true;
            }
            Happening::Stop => {
                self.outbox.hurry();
                self.inputs.push_back(Input::Stop);
            }
            Happening::NodeJoined { joined, admitted } => {
                self.on_node_joined(*joined, admitted);
            }
            Happening::NodeSaid { link, body } => self.on_node_said(link, *body),
            Happening::NodeGone { link } => self.on_node_gone(link),
        }
    }

    async fn on_attach(
        &mut self,
        hello: v1::Hello,
        from: Option<NodeId>,
        (link, down): (LinkId, Down),
        admitted: oneshot::Sender<Result<(), Fenced>>,
    ) {
        let incarnation = Incarnation(hello.incarnation);
        // The process id too: a store that was lost or discarded issues numbers anew.
        let known = self
            .processes
            .get(&incarnation)
            .filter(|p| Some(p.node) == from && p.pid.is_none_or(|pid| pid == hello.pid))
            .map(|p| p.node);
        if let Some(node) = known {
            // Its node's own word of it may come later.
            self.on_spawned(node, incarnation, hello.pid);
        }
        if known.is_none() || self.core.is_current(incarnation).is_none() {
            // Whoever asked may be gone already.
            let _ = admitted.send(Err(Fenced(incarnation)));
            return;
        }
        let said = translate::hello(&hello);
        if let Some(served) = hello.served.clone() {
            self.served.add(incarnation, served);
        }
        if let Some(started) = hello.pulling.clone() {
            self.served.growing(incarnation, started);
        }
        let (held, awaited) = (said.leases.clone(), hello.rollouts.clone());
        self.links.open(hello, link, down);
        let welcome = v1::Welcome {
            daemon_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        self.links
            .send(incarnation, host_message::Body::Welcome(welcome));
        if admitted.send(Ok(())).is_err() {
            // The link before it, if there was one, is replaced by then.
            if self.links.close(incarnation, link) {
                self.inputs
                    .push_back(Input::Role(incarnation, RoleEvent::Detached));
            }
            return;
        }
        self.calls.resend(incarnation);
        self.tell_of_the_gone(incarnation, &awaited);
        // What waits comes first: the leases below are those after it.
        self.take_inputs();
        self.core.handle(
            self.parts.clock.now(),
            Input::Role(incarnation, RoleEvent::Attached { hello: said }),
        );
        for trajectory in held {
            if self.core.holds_lease(incarnation, trajectory) {
                self.parts.leases.grant(incarnation, trajectory).await;
            }
        }
        // Makes the loop fetch what the core wants now.
        self.inputs.push_back(Input::Timeout);
    }

    fn on_said(&mut self, incarnation: Incarnation, link: LinkId, body: Body) {
        if !self.links.is_current(incarnation, link) {
            return;
        }
        match &body {
            Body::Reply(reply) => return self.calls.answer(incarnation, reply.clone()),
            Body::Sample(sample) => {
                let said = LinkSample {
                    busy: Duration::from_micros(sample.busy_us),
                    tokens_total: sample.tokens_total,
                    running: sample.running,
                    tool_failures: sample.tool_failures,
                    callers_refused: sample.callers_refused,
                };
                self.link_samples.insert(incarnation, said);
                return;
            }
            Body::PullDone(v1::PullDone {
                result: Some(PullResult::Ok(served)),
                ..
            }) => {
                self.served.add(incarnation, served.clone());
            }
            Body::PullStarted(started) => self.served.growing(incarnation, started.clone()),
            _ => {}
        }
        let name = |source: Incarnation| {
            // Before the first byte it has its orders only.
            let ordered = self.core.pulls_from(incarnation).first();
            let source = ordered
                .filter(|_| source.0 == 0)
                .map_or(source, |first| *first);
            self.core.is_current(source).map(|id| id.to_string())
        };
        let more = self.pulls.note(incarnation, &body, name);
        if let Some(who) = self.core.is_current(incarnation).filter(|_| more > 0) {
            self.parts.feeds.metrics().pulled(who, more);
        }
        if let Some(id) = self.core.is_current(incarnation) {
            self.taped
                .said(self.parts.clock.now(), id, incarnation, &body);
        }
        match translate::input(incarnation, &body) {
            Ok(input) => self.inputs.extend(input),
            Err(error) => tracing::warn!("{incarnation} says nonsense: {error}"),
        }
    }

    pub(super) fn on_exited(
        &mut self,
        incarnation: Incarnation,
        at: Time,
        exit: Exit,
        detail: String,
    ) {
        self.forget(incarnation);
        self.inputs.push_back(Input::Role(
            incarnation,
            RoleEvent::Exited {
                at: Some(at),
                exit,
                detail,
            },
        ));
    }

    /// The node that a link came through; none that is known: nobody's.
    fn node_of(&self, via: Option<&Via>) -> Option<NodeId> {
        via.map_or(Some(NodeId::LEADER), |via| self.core.node_id(&via.0))
    }

    pub(super) fn on_usage(&mut self, incarnation: Incarnation, usage: &Usage) {
        let link = self
            .link_samples
            .get(&incarnation)
            .copied()
            .unwrap_or_default();
        let sample = Sample {
            // The system tells of the role's own process; beside a program of the user's that is the shim,
            // which idles while the program computes.
            busy: usage.busy.max(link.busy),
            tokens_total: link.tokens_total,
            running: link.running,
            rss_bytes: usage.rss_bytes,
            disk_read_bytes: usage.disk_read_bytes,
            disk_write_bytes: usage.disk_write_bytes,
            accelerator: usage.accelerator,
            tool_failures: link.tool_failures,
            callers_refused: link.callers_refused,
        };
        self.inputs
            .push_back(Input::Role(incarnation, RoleEvent::Sampled { sample }));
    }

    fn on_samples(&mut self, samples: Samples) {
        self.parts.feeds.metrics().samples(&samples);
        self.gauges.note_host(samples.host);
        for sample in &samples.processes {
            let ProcessSample {
                incarnation,
                usage,
                device,
            } = sample;
            self.gauges.note(*incarnation, *device);
            self.on_usage(*incarnation, usage);
        }
        for found in samples.devices.findings {
            self.inputs.push_back(Input::Node(
                NodeId::LEADER,
                NodeEvent::Hardware {
                    device: found.device,
                    users: found.users,
                    finding: found.finding,
                },
            ));
        }
    }

    fn on_stepped(&mut self, task: u64, outcome: StepOutcome) {
        if self
            .gang
            .as_ref()
            .is_none_or(|running| running.number != task)
        {
            return;
        }
        let step = match &outcome {
            StepOutcome::Done { step, .. } => Some(*step),
            _ => None,
        };
        // While it is known which ranks did it: where they are, their shards are.
        let input = self.note_outcome(outcome);
        let task = self.gang.take();
        match (step, task) {
            (Some(step), Some(task)) => self.on_done(task, step, input),
            _ => self.inputs.push_back(input),
        }
    }
}
