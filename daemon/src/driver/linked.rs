//! What role processes say over their links, and requests for a rollout.
use super::{Driver, LinkSample, WaitingRoute, translate};
use crate::links::{Down, Fenced, LinkEvent, LinkId, RouteEvent, Via};
use robust_proto::v1::pull_done::Result as PullResult;
use robust_proto::v1::{self, call_reply, host_message, role_message::Body};
use robust_shared::core::{Input, RoleEvent};
use robust_shared::ids::{Incarnation, NodeId, WeightVersion};
use std::time::Duration;
use tokio::sync::oneshot;

impl Driver {
    pub(super) fn on_link(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Attach {
                hello,
                link,
                down,
                via,
                admitted,
            } => {
                let from = self.node_of(via.as_ref());
                self.on_attach(*hello, from, (link, down), admitted);
            }
            LinkEvent::Closed { incarnation, link } => self.on_link_closed(incarnation, link),
            LinkEvent::Said {
                incarnation,
                link,
                body,
            } => self.on_said(incarnation, link, *body),
            LinkEvent::Finished {
                incarnation,
                trajectory,
                reward,
                oldest_version,
                lease,
            } => {
                let finished = RoleEvent::TrajectoryFinished {
                    trajectory,
                    reward,
                    oldest_version: WeightVersion(oldest_version),
                    lease,
                };
                self.inputs.push_back(Input::Role(incarnation, finished));
            }
        }
    }

    fn on_link_closed(&mut self, incarnation: Incarnation, link: LinkId) {
        if self.links.close(incarnation, link) {
            self.inputs
                .push_back(Input::Role(incarnation, RoleEvent::Detached));
        }
    }

    pub(super) fn on_route(&mut self, event: RouteEvent) {
        match event {
            RouteEvent::Wanted {
                ticket,
                incarnation,
                trajectory,
                answer,
            } => {
                let lease = Some((incarnation, trajectory));
                self.routes.insert(ticket, WaitingRoute { lease, answer });
                let wanted = RoleEvent::RouteRequested { ticket, trajectory };
                self.inputs.push_back(Input::Role(incarnation, wanted));
            }
            RouteEvent::WantedByClient {
                ticket,
                avoid,
                answer,
            } => {
                let lease = None;
                self.routes.insert(ticket, WaitingRoute { lease, answer });
                self.inputs
                    .push_back(Input::ClientRouteRequested { ticket, avoid });
            }
            RouteEvent::Released { ticket, broken } => {
                self.routes.remove(&ticket);
                self.inputs
                    .push_back(Input::RouteReleased { ticket, broken });
            }
        }
    }

    fn on_attach(
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
        self.on_certificate(incarnation, &hello.certificate);
        self.links.open(hello, link, down);
        let welcome = v1::Welcome {
            daemon_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        self.links
            .send(incarnation, host_message::Body::Welcome(welcome));
        if admitted.send(Ok(())).is_err() {
            // The link before it, if there was one, is replaced by then.
            return self.on_link_closed(incarnation, link);
        }
        self.calls.resend(incarnation);
        self.tell_of_the_gone(incarnation, &awaited);
        let attached = RoleEvent::Attached { hello: said };
        self.inputs.push_back(Input::Role(incarnation, attached));
        // The leases below are those after it.
        self.decide();
        for trajectory in held {
            if self.core.holds_lease(incarnation, trajectory) {
                let lease = self.core.lease_of(trajectory);
                self.parts.leases.keep(incarnation, trajectory, lease);
            }
        }
    }

    fn on_said(&mut self, incarnation: Incarnation, link: LinkId, body: Body) {
        if !self.links.is_current(incarnation, link) {
            return;
        }
        match &body {
            Body::Reply(reply) => {
                let process = self.processes.get(&incarnation);
                let elsewhere = process.is_none_or(|process| process.node != NodeId::LEADER);
                let is_shard = |path: &str| !elsewhere || self.parts.shards.has(path);
                let reply = vetted(reply.clone(), is_shard);
                return self.calls.answer(incarnation, reply);
            }
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
            Body::IdentityTaken(taken) => {
                if !taken.error.is_empty() {
                    tracing::warn!("{incarnation} takes no new certificate: {}", taken.error);
                }
                return self.on_certificate(incarnation, &taken.fingerprint);
            }
            Body::PullStarted(started) => self.served.growing(incarnation, started.clone()),
            Body::Pong(pong) => return self.on_pong(incarnation, pong.number),
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

    /// The node that a link came through; none that is known: nobody's.
    fn node_of(&self, via: Option<&Via>) -> Option<NodeId> {
        via.map_or(Some(NodeId::LEADER), |via| self.core.node_id(&via.0))
    }
}

/// A role's answer. One that names a file of this machine names a shard that its node gave: it is read, and written to
/// checkpoints that every node may read.
fn vetted(reply: v1::CallReply, is_shard: impl Fn(&str) -> bool) -> v1::CallReply {
    match &reply.result {
        Some(call_reply::Result::Snapshot(shard))
            if !shard.path.is_empty() && !is_shard(&shard.path) =>
        {
            v1::CallReply {
                call_id: reply.call_id,
                error: format!("{} is no shard that its node gave", shard.path),
                ..v1::CallReply::default()
            }
        }
        _ => reply,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_on_another_machine_that_names_a_file_of_this_one_is_an_error() {
        let reply = |path: &str| v1::CallReply {
            call_id: 7,
            result: Some(call_reply::Result::Snapshot(v1::SnapshotReply {
                path: path.to_owned(),
                ..v1::SnapshotReply::default()
            })),
            ..v1::CallReply::default()
        };
        let is_shard = |path: &str| path == "/dev/shm/job/kept-1-0-7.shard";
        for path in ["", "/dev/shm/job/kept-1-0-7.shard"] {
            assert_eq!(vetted(reply(path), is_shard), reply(path));
        }
        let refused = vetted(reply("/etc/shadow"), is_shard);
        assert_eq!((refused.call_id, &refused.result), (7, &None));
        assert_eq!(refused.error, "/etc/shadow is no shard that its node gave");
    }
}
