//! The door: every input comes in here, and is fenced here, once. What lies behind it never asks again
//! whether an incarnation, a generation or a node is the present one.
//!
//! ```text
//!  Role(incarnation, ..) ──┬─ present ──► its handler, with the instance found (`Current`)
//!                          └─ older ────► what is told in `take_from_former`, or dropped (I-1)
//!  Gang(generation, ..) ───┬─ present ──► its handler
//!                          └─ older ────► dropped (I-1)
//!  Node(node, ..) ─────────┬─ known ────► its handler, with where the node is in its life
//!                          └─ not ──────► dropped
//!  the rest names nothing that comes to an end, or something that its own table knows (tickets)
//! ```
//! Every match is exhaustive: a new event does not compile before somebody said what it means from an
//! instance that was replaced, and after the job's end.
use super::output::{Outcome, Output};
use super::state::JobState;
use crate::core::detect::{corruption, exception, exit};
use crate::core::roster::instance::Instance;
use crate::core::roster::instances::Current;
use crate::core::roster::nodes::NodeState;
use crate::core::weights::PullOrder;
use crate::core::{Core, GangEvent, Input, Mutation, NodeEvent, RoleEvent};
use crate::ids::{Generation, Incarnation, NodeId};

impl Core {
    pub(super) fn take(&mut self, input: Input) {
        if let JobState::Over(outcome) = &self.s.job {
            let outcome = outcome.clone();
            return self.take_when_over(input, outcome);
        }
        match input {
            Input::Start => self.on_start(),
            Input::Timeout => {}
            Input::StoodStill => self.on_stood_still(),
            Input::Role(from, event) => match self.s.roster.instances().current(from) {
                Some(current) => self.take_from_role(current, event),
                None => match self.mistaken_for(from, &event) {
                    Some(present) => self.take_from_role(present, event),
                    None => self.take_from_former(from, event),
                },
            },
            Input::Gang(from, event) => {
                if from == self.s.gang.generation() || self.config.mutant(Mutation::DropFence) {
                    self.take_from_gang(from, event);
                }
            }
            Input::Node(from, event) => {
                if let Some(state) = self.node_state(from) {
                    self.take_from_node(from, state, event);
                }
            }
            Input::NodeJoined { node, running } => self.on_node_joined(node, &running),
            Input::ClientRouteRequested { ticket, avoid } => {
                let (work, mut cx) = self.work();
                work.rollouts.client_requested(&mut cx, ticket, avoid);
            }
            Input::RouteReleased { ticket, broken } => self.on_route_released(ticket, broken),
            Input::ServiceLost { reason } => self.finish(Outcome::Failed { reason }),
            Input::Operator(ticket, request) => self.on_request(ticket, request),
            Input::Stop => self.finish(Outcome::Stopped),
        }
    }

    /// A seeded bug: whose end the end of a process that was replaced passes for.
    fn mistaken_for(&self, former: Incarnation, event: &RoleEvent) -> Option<Current> {
        let ends = matches!(event, RoleEvent::Exited { .. });
        if !ends || !self.config.mutant(Mutation::ExitOfFormer) {
            return None;
        }
        let replaced = |i: &&Instance| i.before().is_some_and(|(life, _)| *life == former);
        self.s
            .roster
            .instances()
            .iter()
            .find(replaced)
            .map(Instance::current)
    }

    /// After the end only answers are given; a restored core says again how the job ended.
    fn take_when_over(&mut self, input: Input, outcome: Outcome) {
        match input {
            Input::Operator(ticket, request) => self.on_request(ticket, request),
            Input::Start => {
                if !std::mem::replace(&mut self.started, true) {
                    self.out.push(Output::Finish { outcome });
                }
            }
            // Processes and machines go their ways, and nothing follows from it any more.
            Input::Role(..)
            | Input::Gang(..)
            | Input::Node(..)
            | Input::NodeJoined { .. }
            | Input::ClientRouteRequested { .. }
            | Input::RouteReleased { .. }
            | Input::ServiceLost { .. }
            | Input::Stop
            | Input::StoodStill
            | Input::Timeout => {}
        }
    }

    fn take_from_role(&mut self, from: Current, event: RoleEvent) {
        match event {
            RoleEvent::Spawned { pid } => self.on_spawned(from, pid),
            RoleEvent::SpawnFailed { reason } => self.fault(exit::not_started(from.id, &reason)),
            RoleEvent::Attached { hello } => self.on_attached(from, &hello),
            RoleEvent::Detached => self.on_detached(from),
            RoleEvent::Exited { at, exit, detail } => self.on_exited(from, at, &exit, &detail),
            RoleEvent::PhaseChanged { phase, step } => self.on_phase(from, phase, step),
            RoleEvent::Sampled { sample } => self.on_sample(from, sample),
            RoleEvent::Probed { ok } => self.on_probed(from, ok),
            RoleEvent::Evidence { text, seen } => self.on_evidence(from, &text, &seen),
            RoleEvent::Switched { paused, ok } => self.on_switched(from, paused, ok),
            RoleEvent::PullStarted { version, order } => {
                let (weights, cx) = self.weights();
                weights.pull_started(&cx, from.id, PullOrder { version, order });
            }
            RoleEvent::PullProgress {
                version,
                bytes,
                total,
            } => self.on_pull_progress(from, version, bytes, total),
            RoleEvent::Pulled {
                version,
                order,
                result,
            } => self.on_pulled(from, PullOrder { version, order }, result),
            RoleEvent::Damaged {
                version,
                chunks,
                total,
            } => {
                let engine = self.s.roster.instances().of(from);
                let chunks = (chunks, total);
                let found = corruption::damaged(&self.s.weights, engine, version, chunks);
                if let Some(verdict) = found {
                    self.fault(verdict);
                }
            }
            RoleEvent::TrajectoryFinished {
                trajectory,
                reward,
                oldest_version: oldest,
                lease,
            } => self.on_finished(
                from.incarnation,
                Some(from),
                (trajectory, lease),
                (reward, oldest),
            ),
            RoleEvent::TrajectoryReturned {
                trajectory,
                reason,
                by,
                lease,
            } => self.on_returned(from, (trajectory, lease), &reason, by),
            RoleEvent::RouteRequested { ticket, trajectory } => {
                self.on_route_requested(ticket, from.incarnation, trajectory);
            }
            RoleEvent::FaultStruck { number, refused } => {
                self.on_fault_struck(from, number, refused.as_deref());
            }
        }
    }

    /// What counts though the incarnation that it comes from was replaced, each with its reason; of all
    /// else nothing follows (I-1).
    fn take_from_former(&mut self, from: Incarnation, event: RoleEvent) {
        match event {
            // It is durable, whoever stored it, and must not be generated again (I-2).
            RoleEvent::TrajectoryFinished {
                trajectory,
                reward,
                oldest_version: oldest,
                lease,
            } => self.on_finished(from, None, (trajectory, lease), (reward, oldest)),
            // An engine that was asked to end computes until it does, and the ranks wait for that.
            RoleEvent::Exited { .. } => self.s.roster.has_left(from),
            // The present incarnation, if there is one, speaks for itself.
            RoleEvent::Spawned { .. }
            | RoleEvent::SpawnFailed { .. }
            | RoleEvent::Attached { .. }
            | RoleEvent::Detached
            | RoleEvent::PhaseChanged { .. }
            | RoleEvent::Sampled { .. }
            | RoleEvent::Probed { .. }
            | RoleEvent::Switched { .. }
            | RoleEvent::FaultStruck { .. } => {}
            // Its incident was closed when it was replaced.
            RoleEvent::Evidence { .. } => {}
            // Its memory went with it.
            RoleEvent::Damaged { .. } => {}
            // What it pulled, nobody reads any more; and a source that it accuses is accused again, or
            // is sound.
            RoleEvent::PullStarted { .. }
            | RoleEvent::PullProgress { .. }
            | RoleEvent::Pulled { .. } => {}
            // Its leases were void when it was replaced.
            RoleEvent::TrajectoryReturned { .. } | RoleEvent::RouteRequested { .. } => {}
        }
    }

    fn take_from_gang(&mut self, from: Generation, event: GangEvent) {
        match event {
            GangEvent::Restored { step } => self.on_restored(step),
            GangEvent::Prepared { step } => self.s.gang.note_prepared(step),
            GangEvent::StepDone { step, metrics } => self.on_step_done(from, step, metrics),
            GangEvent::TrainerOver => self.on_trainer_over(),
            GangEvent::StepFailed {
                step,
                rank,
                fault,
                reason,
            } => {
                let reason = format!("step {step} failed: {reason}");
                let (gang, _, around) = self.gang();
                let failed = exception::call_failed(&around, gang, rank, fault, reason);
                if let Some(verdict) = failed {
                    self.fault(verdict);
                }
            }
            GangEvent::Published { version, bytes, .. } => self.on_published(version, bytes),
        }
    }

    fn take_from_node(&mut self, from: NodeId, state: NodeState, event: NodeEvent) {
        match event {
            // Of one that is lost too: it is heard of again before it joins.
            NodeEvent::Beat => self.s.roster.beat(from, self.now),
            NodeEvent::Leaving { reason } => {
                // The leader's own never leaves, and one that is gone has left already.
                if from != NodeId::LEADER && state == NodeState::Here {
                    self.on_node_leaving(from, &reason);
                }
            }
            NodeEvent::Left { reason } => {
                // The leader's own never leaves, and one that is gone cannot again.
                if from != NodeId::LEADER && state == NodeState::Here {
                    self.on_node_left(from, &reason);
                }
            }
            // Of one that is lost too: whoever computes on the device is fenced by itself.
            NodeEvent::Hardware {
                device,
                finding,
                users,
            } => self.on_hardware(from, device, &finding, &users),
        }
    }
}

impl Input {
    /// Whether a node speaks of itself, or nobody could hear it. That may come late, and counts all the same: nodes
    /// whose time is over are lost before anything else is taken in, and not before this.
    pub(super) fn is_sign_of_node(&self) -> bool {
        match self {
            Input::NodeJoined { .. } | Input::StoodStill => true,
            Input::Node(_, event) => match event {
                NodeEvent::Beat | NodeEvent::Leaving { .. } | NodeEvent::Left { .. } => true,
                NodeEvent::Hardware { .. } => false,
            },
            Input::Start
            | Input::Timeout
            | Input::Role(..)
            | Input::Gang(..)
            | Input::ClientRouteRequested { .. }
            | Input::RouteReleased { .. }
            | Input::ServiceLost { .. }
            | Input::Operator(..)
            | Input::Stop => false,
        }
    }
}
