//! Injected faults: those of processes, of roles, of nodes and of the leader.
//!
//! ```text
//!  core ── Strike ──► the process's node: signals, limits, devices
//!       ── Carry ───► the role, over its link; it answers FaultStruck
//!       ── Afflict ─► a node that is to be lost; the store's room; this daemon
//! ```
use super::Driver;
use super::hands::Hands;
use robust_proto::v1::leader_message::Body as Down;
use robust_proto::v1::{self, host_message};
use robust_shared::core::Severity;
use robust_shared::fault::{At, Fault, Spec};
use robust_shared::ids::{Incarnation, NodeId};
use std::time::Duration;

/// The daemon dies so much later, that whoever asked for it hears that it does.
const LAST_WORDS: Duration = Duration::from_millis(200);

impl Driver {
    pub(super) fn strike(&mut self, incarnation: Incarnation, fault: &Fault) {
        let process = self.processes.get(&incarnation).copied();
        let struck = match (process, fault) {
            (None, _) => Err("it was gone before it could be struck".to_owned()),
            (Some(process), Fault::Hardware { event }) => {
                let pid = process.pid.unwrap_or_default();
                let here = process.node == NodeId::LEADER;
                let devices = self.parts.test_devices.as_ref().filter(|_| here);
                let devices = devices.ok_or_else(|| "its node has real devices".to_owned());
                devices.and_then(|d| d.show(pid, *event).map_err(|e| e.to_string()))
            }
            (Some(process), fault) => self.hands(process.node).strike(incarnation, fault),
        };
        if let Err(why) = struck {
            self.not_carried_out(incarnation, fault, &why);
        }
    }

    fn not_carried_out(&mut self, incarnation: Incarnation, fault: &Fault, why: &str) {
        let text = format!("`{fault}` is not done to {incarnation}: {why}");
        let now = self.parts.clock.now();
        self.parts.feeds.note(now, Severity::Warn, "inject", text);
    }

    /// Tells a role what to do to itself. One that is not linked is told when it links.
    pub(super) fn carry(
        &mut self,
        incarnation: Incarnation,
        id: u64,
        fault: &Fault,
        at: Option<At>,
        peer: Option<Incarnation>,
    ) {
        let spec = Spec::from(fault);
        let fault = v1::RoleFault {
            id,
            kind: spec.kind,
            at: at.map(|at| at.to_string()).unwrap_or_default(),
            seconds: spec.seconds.unwrap_or_default(),
            peer: spec.peer.unwrap_or_default(),
            peer_incarnation: peer.map_or(0, |p| p.0),
            code: spec.code.unwrap_or_default(),
            peer_addr: peer
                .and_then(|p| self.links.hello(p))
                .map(|h| h.transport_addr)
                .unwrap_or_default(),
        };
        self.links
            .send(incarnation, host_message::Body::Fault(fault));
    }

    /// Tells a role that a fault is not wanted any more.
    pub(super) fn take_back(&mut self, incarnation: Incarnation, id: u64) {
        let disarm = host_message::Body::Disarm(v1::DisarmFault { id });
        self.links.send(incarnation, disarm);
    }

    pub(super) fn afflict(&mut self, node: NodeId, fault: &Fault) {
        match fault {
            Fault::LoseNode { .. } if node != NodeId::LEADER => {
                self.nodes.remote(node).order(Down::Lose(v1::LoseNode {}));
            }
            Fault::LoseNode { .. } => {
                self.lose_this_node();
                die_soon();
            }
            Fault::LeaderCrash => die_soon(),
            Fault::DiskFull { lasts } => self.parts.quota.take_away(*lasts),
            Fault::NoProcesses { lasts } => self.here.launcher.refuse_starts(*lasts),
            // The service that was asked does it: it reads files.
            _ => {}
        }
    }

    /// Processes and what is in memory; what is on disk stays.
    fn lose_this_node(&mut self) {
        let here = |(_, p): &(&Incarnation, &super::hands::Process)| p.node == NodeId::LEADER;
        let lives: Vec<Incarnation> = self
            .processes
            .iter()
            .filter(here)
            .map(|(i, _)| *i)
            .collect();
        for life in lives {
            self.here.kill(life);
        }
        let snapshots = self.parts.state.snapshots();
        if let Err(error) = crate::state::remove_folder(&snapshots) {
            tracing::warn!("{error}");
        }
    }
}

fn die_soon() {
    tokio::spawn(async {
        tokio::time::sleep(LAST_WORDS).await;
        tracing::warn!("this daemon dies on request");
        std::process::abort();
    });
}
