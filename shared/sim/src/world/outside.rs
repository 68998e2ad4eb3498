//! Whoever is no part of the job: clients of the router, services beside it, operators who strike nodes,
//! and what comes after the job's end.
use super::{Happening, World};
use robust_shared::core::{
    Input, NodeEvent, NodeSpec, Output, Record, Request, RestartTarget, RoleEvent,
};
use robust_shared::fault::Fault;
use robust_shared::ids::{Incarnation, InstanceId, NodeId, Role};
use std::time::Duration;

/// So much of what may come twice is remembered.
const REMEMBERED: usize = 40;

impl World {
    /// Clients of the router ask for an engine each, and keep it for so long.
    pub fn clients(&mut self, count: u32, keep: Duration) {
        for _ in 0..count {
            let ticket = self.number();
            self.clients.insert(ticket, keep);
            let avoid = None;
            self.feed(Input::ClientRouteRequested { ticket, avoid });
        }
    }

    /// A client has its engine; whether it was one's ticket.
    pub(super) fn serve_client(&mut self, ticket: u64) -> bool {
        let Some(keep) = self.clients.remove(&ticket) else {
            return false;
        };
        let broken = false;
        let released = Input::RouteReleased { ticket, broken };
        self.after(keep, Happening::Feed(released));
        true
    }

    /// What may come twice and was said of late comes again now.
    pub fn echo(&mut self, count: u32) {
        for _ in 0..count {
            let of = self.said.len() as u64;
            if of == 0 {
                return;
            }
            let at = usize::try_from(self.dice.below(of)).unwrap_or(0);
            if let Some(input) = self.said.get(at).cloned() {
                self.feed(input);
            }
        }
    }

    pub(super) fn remember_said(&mut self, input: &Input) {
        if self.said.len() == REMEMBERED {
            self.said.pop_front();
        }
        self.said.push_back(input.clone());
    }

    /// What an engine serves is damaged, and it reads it again and says so.
    pub fn scrub(&mut self, who: InstanceId) {
        let life = self.life(who);
        let Some(p) = self.procs.get_mut(&life).filter(|p| p.works() && p.linked) else {
            return;
        };
        let (Some(version), link) = (p.version, p.link) else {
            return;
        };
        p.corrupt = true;
        let damaged = RoleEvent::Damaged {
            version,
            chunks: 1,
            total: 4,
        };
        let said = Happening::Said(life, link, Input::Role(life, damaged));
        self.after(super::ms(20), said);
    }

    /// A service is given up that the job cannot do without.
    pub fn lose_service(&mut self) {
        let reason = "the service `judge` is given up".to_owned();
        self.feed(Input::ServiceLost { reason });
    }

    /// An operator strikes a node, of which the node makes nothing.
    pub fn afflict(&mut self, at: usize) {
        let name = self.machines.all.get(at).map(|m| m.spec.name.clone());
        let node = name.unwrap_or_else(|| "nobody".to_owned());
        let fault = Fault::LoseNode { node };
        self.ask(Role::Trainer, None, Request::Afflict { fault });
    }

    /// What comes after the job's end is answered where somebody asks, and nothing follows from it.
    pub(crate) fn speak_after_the_end(&mut self) {
        if !self.daemon.up || self.core.state().outcome().is_none() {
            return;
        }
        let life = self
            .core
            .view(self.now)
            .instances
            .first()
            .map(|i| i.incarnation);
        let life = life.unwrap_or(Incarnation(0));
        let node = self.core.node(NodeId::LEADER).cloned();
        let name = node.as_ref().map_or(String::new(), |n| n.name.clone());
        let (role, index) = (Role::Rollout, 0);
        let inject = |at| Request::Inject {
            fault: Fault::Kill,
            role,
            index: Some(index),
            incarnation: None,
            at,
        };
        let at = robust_shared::fault::At {
            phase: robust_shared::phase::Phase::Init,
            percent: 0,
        };
        let requests = [
            inject(None),
            inject(Some(at)),
            Request::Afflict {
                fault: Fault::LeaderCrash,
            },
            Request::Disarm { number: None },
            Request::RestoreSlot {
                node: name.clone(),
                pool: "rollout".to_owned(),
                index,
            },
            Request::Scale {
                role,
                count: 1,
                revision: 0,
            },
            Request::Update {
                role,
                config: Box::new(self.config.clone()),
                revision: 1,
                changes: Vec::new(),
            },
            Request::Quarantine { role, index },
            Request::Readmit { role, index },
            Request::Cordon { node: name.clone() },
            Request::Uncordon { node: name },
            Request::Pause,
            Request::Resume,
            Request::Restart {
                target: RestartTarget::Task,
            },
        ];
        let asked = requests.len();
        let tickets = (0..).map(|n| u64::MAX - n);
        let asks = tickets
            .zip(requests)
            .map(|(ticket, request)| Input::Operator(ticket, request));
        let joins = node.map(|node| Input::NodeJoined {
            node: NodeSpec { ..node },
            running: vec![life],
        });
        let late = [
            Input::Start,
            Input::Timeout,
            Input::Stop,
            Input::StoodStill,
            Input::Role(life, RoleEvent::Detached),
            Input::Node(NodeId::LEADER, NodeEvent::Beat),
            Input::ClientRouteRequested {
                ticket: 1,
                avoid: None,
            },
            Input::RouteReleased {
                ticket: 1,
                broken: true,
            },
            Input::ServiceLost {
                reason: "it is over".to_owned(),
            },
        ];
        let mut answers = 0;
        for input in late.into_iter().chain(joins).chain(asks) {
            self.coverage.note(&self.core, &input);
            let start = input == Input::Start;
            self.core.handle(self.now, input);
            while let Some(output) = self.core.poll_output() {
                let answer = matches!(output, Output::Reply { .. });
                answers += usize::from(answer);
                // A daemon that comes back says again how it ended; faults that wait are taken back.
                let said = matches!(output, Output::Finish { .. }) && start;
                let disarmed = matches!(
                    output,
                    Output::Record(Record::Armed { armed: false, .. })
                        | Output::TakeBack { .. }
                        | Output::Event(_)
                );
                self.must(answer || said || disarmed, "over", || {
                    format!("the job is over, and this follows: {output:?}")
                });
            }
        }
        self.must(answers == asked, "over", || {
            format!("{asked} requests came after the end, and {answers} were answered")
        });
    }
}
