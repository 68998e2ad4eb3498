//! Pulls that take as long as the network under them: the controller's orders become chunks on links.
//!
//! ```text
//!  AssignPull ──message──► puller ──message──► PullStarted     others may read from it now
//!                             └──connect──► chunks .. ──► verified ──message──► Pulled
//! ```
use super::{Cluster, DAWN, Event};
use crate::wire::fabric::{Fabric, Source};
use robust_shared::core::{Input, PullFailure, PullOrder, RoleEvent};
use robust_shared::ids::{Incarnation, InstanceId, Role, WeightVersion};
use robust_shared::time::Time;
use std::time::Duration;

/// A puller says how far it is.
const PROGRESS: Duration = Duration::from_millis(500);

/// The network of a cluster whose rollouts pull one version, and what came of it.
#[derive(Clone, Debug)]
pub struct Wires {
    /// Links, and who has which chunks. Its rollouts are numbered as the job's.
    pub fabric: Fabric,
    /// From the controller to a process, or back.
    pub message: Duration,
    /// From a puller's order to its first request.
    pub connect: Duration,
    /// Whether a puller says that others may read from it while it pulls.
    pub relays_in_progress: bool,
    /// When the ranks had made the version available.
    pub published: Option<Time>,
    /// Which rollout verified all of it, and when.
    pub served: Vec<(usize, Time)>,
}

impl Cluster {
    /// The same cluster with a network for its pulls.
    #[must_use]
    pub fn wired(mut self, wires: Wires) -> Self {
        self.wires = Some(Box::new(wires));
        self.after(PROGRESS, Event::PullsGoOn);
        self
    }

    /// Its network.
    pub fn wires(&self) -> Option<&Wires> {
        self.wires.as_deref()
    }

    /// Runs until so many rollouts have verified the version, or until `latest`.
    pub fn run_until_served(&mut self, rollouts: usize, latest: Duration) {
        let served = |cluster: &Self| cluster.wires().map_or(0, |wires| wires.served.len());
        while served(self) < rollouts && self.elapsed() < latest && self.outcome.is_none() {
            self.step();
        }
    }

    /// Runs until a rollout has fetched so many bytes, or until `latest`.
    pub fn run_until_fetched(&mut self, rollout: usize, bytes: u64, latest: Duration) {
        let fetched = |cluster: &Self| cluster.wires().map_or(0, |w| w.fabric.bytes(rollout));
        while fetched(self) < bytes && self.elapsed() < latest && self.outcome.is_none() {
            self.step();
        }
    }

    /// All processes of a role die in the same instant, and their machines stay. Returns whether there was one.
    pub fn lose_processes(&mut self, role: Role, count: u32) -> bool {
        let each = (0..count).map(|index| self.lose_process(InstanceId { role, index }));
        each.fold(false, |any, one| any | one)
    }

    /// A process dies alone. Returns whether there was one.
    pub fn lose_process(&mut self, id: InstanceId) -> bool {
        let life = self.life(id).filter(|life| self.alive(*life));
        if let Some(life) = life {
            self.struck(life);
            self.end(life, true);
        }
        life.is_some()
    }

    /// A rollout died: who read from it finds out by its link, at the time the daemon does.
    pub(super) fn wires_broken(&mut self, source: Incarnation, id: InstanceId) {
        let host = id.index as usize;
        let Some(wires) = self.wires.as_mut().filter(|_| id.role == Role::Rollout) else {
            return;
        };
        let readers = wires.fabric.readers(host);
        wires.fabric.stop(host);
        self.pulls.remove(&source);
        for reader in readers {
            let Some(reader) = self.rollout(reader) else {
                continue;
            };
            let Some(PullOrder { version, order }) = self.pulls.get(&reader).copied() else {
                continue;
            };
            let reason = "its link broke".to_owned();
            let failed = Input::Role(
                reader,
                RoleEvent::Pulled {
                    version,
                    order,
                    result: Err(PullFailure::Source { source, reason }),
                },
            );
            let failed = Event::Feed(Box::new(failed));
            self.after(self.plan.timing.exit_seen, failed);
        }
    }

    pub(super) fn wires_next(&self) -> Option<Time> {
        let next = self.wires.as_ref()?.fabric.next_at()?;
        // Links count in nanoseconds, the controller in microseconds.
        let micros = next.as_nanos().div_ceil(1000);
        Some(Time(DAWN.0 + u64::try_from(micros).unwrap_or(u64::MAX)))
    }

    pub(super) fn wires_published(&mut self) {
        let now = self.now;
        if let Some(wires) = &mut self.wires {
            wires.published.get_or_insert(now);
        }
    }

    /// Something happens in the network.
    pub(super) fn wires_step(&mut self) {
        let now = self.now;
        let Some(wires) = &mut self.wires else {
            return;
        };
        let Some(host) = wires.fabric.step() else {
            return;
        };
        wires.served.push((host, now));
        let message = wires.message;
        let engine = self.rollout(host);
        if let Some(engine) = engine
            && let Some(ordered) = self.pulls.get(&engine)
        {
            self.after(message, Event::PullEnds(engine, ordered.version.0));
        }
    }

    fn rollout(&self, host: usize) -> Option<Incarnation> {
        let index = u32::try_from(host).ok()?;
        let role = Role::Rollout;
        self.life(InstanceId { role, index })
    }

    /// Whether it was told to pull this version, and last of all that.
    fn pulls(&self, puller: Incarnation, version: u64) -> bool {
        let ordered = self.pulls.get(&puller);
        ordered.is_some_and(|o| o.version.0 == version)
    }

    pub(super) fn wired_pull(
        &mut self,
        puller: Incarnation,
        version: WeightVersion,
        sources: &[Incarnation],
        from_trainer: bool,
    ) {
        let relay = sources.first().and_then(|source| self.process(*source));
        let source = match (from_trainer, relay) {
            (false, Some(relay)) => Source::Rollout(relay.id.index as usize),
            _ => Source::Trainer,
        };
        if let Some(wires) = &self.wires {
            let begins = Event::PullBegins(puller, version.0, source);
            self.after(wires.message, begins);
        }
    }

    /// A puller hears its order.
    pub(super) fn pull_begins(&mut self, puller: Incarnation, version: u64, source: Source) {
        let Some(wires) = &self.wires else {
            return;
        };
        let ordered = self.pulls.get(&puller).copied();
        let ordered = ordered.filter(|o| o.version.0 == version && self.alive(puller));
        let Some(PullOrder { version, order }) = ordered else {
            return;
        };
        let (message, connect) = (wires.message, wires.connect);
        if wires.relays_in_progress {
            let started = Input::Role(puller, RoleEvent::PullStarted { version, order });
            self.after(message, Event::Feed(Box::new(started)));
        }
        self.after(connect, Event::Fetch(puller, version.0, source));
    }

    /// A puller is connected and asks for chunks.
    pub(super) fn fetch(&mut self, puller: Incarnation, version: u64, source: Source) {
        if !self.alive(puller) || !self.pulls(puller, version) {
            return;
        }
        let host = self.process(puller).map(|p| p.id.index as usize);
        let now = self.elapsed();
        if let (Some(wires), Some(host)) = (&mut self.wires, host) {
            wires.fabric.pull(now, host, source);
        }
    }

    /// Every puller says how far it is.
    pub(super) fn report_pulls(&mut self) {
        let mut pulls: Vec<_> = self.pulls.iter().map(|(p, o)| (*p, o.version)).collect();
        pulls.sort_unstable();
        for (puller, version) in pulls {
            let host = self.process(puller).map(|p| p.id.index as usize);
            let (Some(wires), Some(host)) = (&self.wires, host) else {
                continue;
            };
            let (bytes, total) = (wires.fabric.bytes(host), wires.fabric.total());
            self.feed(Input::Role(
                puller,
                RoleEvent::PullProgress {
                    version,
                    bytes,
                    total,
                },
            ));
        }
        self.after(PROGRESS, Event::PullsGoOn);
    }
}
