//! Carrying out what the core wants; [`super::outbox`] says when.
use super::hands::SpawnOrder;
use super::{Driver, ProcessEvent, Struck};
use crate::nodes::unix_ms;
use crate::probe;
use crate::worker::Life;
use robust_proto::v1::{self, host_message};
use robust_shared::core::{Input, Output, PullOrder, Record, Refusal, Reply, RoleEvent};
use robust_shared::ids::{Incarnation, TrajectoryId};
use std::time::Duration;

impl Driver {
    pub(super) fn effect(&mut self, output: Output) {
        match output {
            Output::Spawn {
                id,
                incarnation,
                generation,
                node,
                slot,
                revision,
            } => match self.job_text(node, revision) {
                Ok(job) => {
                    let life = Life {
                        id,
                        incarnation,
                        generation,
                        revision,
                        pool: slot.pool,
                        place: slot.index,
                    };
                    let identity = self.here.worker.certify(&life, unix_ms());
                    let order = SpawnOrder {
                        life,
                        job,
                        identity,
                    };
                    self.spawn(order, node);
                }
                Err(reason) => self
                    .inputs
                    .push_back(Input::Role(incarnation, RoleEvent::SpawnFailed { reason })),
            },
            Output::Kill {
                id,
                incarnation,
                reason,
                ..
            } => {
                tracing::info!("killing {id} {incarnation}: {reason}");
                self.abandon_gang_of(incarnation);
                self.kill(incarnation);
            }
            Output::Strike { incarnation, fault } => self.strike(incarnation, &fault),
            Output::Carry {
                incarnation,
                number,
                fault,
                at,
                peer,
            } => self.carry(incarnation, number, &fault, at, peer),
            Output::TakeBack {
                incarnation,
                number,
            } => self.take_back(incarnation, number),
            Output::Afflict { node, fault } => self.afflict(node, &fault),
            Output::Fence { node, incarnation } => self.fence(node, incarnation),
            Output::Retire { incarnation } => self.retire(incarnation),
            Output::Reply { ticket, result } => self.reply(ticket, result),
            Output::Probe {
                incarnation,
                timeout,
                ..
            } => self.probe(incarnation, timeout),
            Output::CollectEvidence {
                incarnation,
                gently,
                ..
            } => self.collect_evidence(incarnation, gently),
            Output::Restore {
                generation,
                ranks,
                step,
            } => self.restore(generation, ranks, step),
            Output::TrainStep {
                generation,
                ranks,
                step,
                trajectories,
            } => {
                self.train(generation, ranks, step, trajectories);
            }
            Output::Prepare {
                generation,
                ranks,
                step,
                trajectories,
            } => {
                self.prepare(generation, ranks, step, trajectories);
            }
            Output::Pause { engine } => self.switch(engine, true),
            Output::Resume { engine } => self.switch(engine, false),
            Output::Publish {
                generation,
                ranks,
                version,
            } => {
                self.publish(generation, ranks, version);
            }
            Output::AssignPull {
                puller,
                version,
                order,
                sources,
                from_trainer,
            } => {
                let order = PullOrder { version, order };
                self.assign_pull(puller, order, &sources, from_trainer);
            }
            Output::Dispatch {
                agent,
                trajectory,
                lease,
            } => self.dispatch(agent, trajectory, lease),
            Output::Revoke { agent, trajectory } => self.revoke(agent, trajectory),
            Output::Route { ticket, rollout } => self.route(ticket, rollout),
            Output::Record(record) => self.after_record(record),
            Output::Event(event) => self.parts.feeds.event(event),
            Output::Finish { outcome } => self.outcome = Some(outcome),
        }
    }

    fn reply(&mut self, ticket: u64, result: Result<Reply, Refusal>) {
        self.settle_change(ticket, result.is_ok());
        if let Some(answer) = self.requests.remove(&ticket) {
            // The operator may have left.
            let _ = answer.send(result);
            return;
        }
        let Some(answer) = self.injections.remove(&ticket) else {
            return;
        };
        let known = |incarnation| self.processes.get(&incarnation).and_then(|p| p.pid);
        let pid = |incarnation| known(incarnation).unwrap_or(0);
        let struck = match result {
            Ok(Reply::Struck {
                id,
                incarnation,
                slot,
            }) => Ok(Struck {
                id,
                incarnation,
                pid: pid(incarnation),
                slot: slot.map(|s| super::slot(&self.core.view(self.parts.clock.now()), &s)),
                armed: None,
            }),
            Ok(Reply::Armed {
                id, life, number, ..
            }) => Ok(Struck {
                id,
                incarnation: life.unwrap_or(Incarnation(0)),
                pid: life.map_or(0, pid),
                slot: None,
                armed: Some(number),
            }),
            Ok(_) => return,
            Err(refusal) => Err(refusal),
        };
        // The operator may have left.
        let _ = answer.send(struck);
    }

    fn probe(&mut self, incarnation: Incarnation, timeout: Duration) {
        let addr = self
            .links
            .hello(incarnation)
            .map(|h| h.http_addr)
            .unwrap_or_default();
        let key = self.parts.worker.token.engines().of_engine(incarnation.0);
        let client = self.parts.worker.engine_client();
        let events = self.parts.events.clone();
        tokio::spawn(async move {
            let ok = probe::health_generate(&addr, client.as_ref(), &key, timeout).await;
            // When the driver is gone nobody wants to know.
            let _ = events.send(ProcessEvent::Probed { incarnation, ok }.into());
        });
    }

    fn revoke(&mut self, agent: Incarnation, trajectory: TrajectoryId) {
        self.parts.leases.revoke(agent, trajectory);
        // Dropping a waiting request answers it: the lease is void.
        self.routes
            .retain(|_, r| r.lease != Some((agent, trajectory)));
        let message = v1::Revoke {
            trajectory: trajectory.key(),
        };
        self.links.send(agent, host_message::Body::Revoke(message));
    }

    fn route(&mut self, ticket: u64, rollout: Incarnation) {
        let http_addr = self
            .links
            .hello(rollout)
            .map(|h| h.http_addr)
            .unwrap_or_default();
        let reply = v1::RouteReply {
            ticket,
            http_addr,
            rollout: rollout.0,
        };
        let answered = self
            .routes
            .remove(&ticket)
            .map(|waiting| waiting.answer.send(reply));
        if !matches!(answered, Some(Ok(()))) {
            let broken = false;
            self.inputs
                .push_back(Input::RouteReleased { ticket, broken });
        }
    }

    /// What follows from a record, now that it is durable.
    fn after_record(&mut self, record: Record) {
        if let Record::Committed {
            step,
            generation,
            trajectories,
            metrics,
            ..
        } = record
        {
            let view = self.core.view(self.parts.clock.now());
            let line = super::console::step_line(step, &metrics, &view);
            self.printer.print(line);
            let (now, seconds) = (self.parts.clock.now(), view.step_duration.as_secs_f64());
            let shown = super::status::step_line(step, now, &metrics, seconds);
            self.parts.feeds.stepped(shown);
            let every = self.parts.job.checkpoint.every;
            let there = self.written == Some((step, generation));
            if every > 0 && step.0.is_multiple_of(every) && !there && !self.is_put_soon(step) {
                let reward = Some(metrics.reward);
                self.offer_checkpoint(step, generation, trajectories.clone(), reward);
            }
            self.consumed = Some((step, trajectories));
        }
    }
}
