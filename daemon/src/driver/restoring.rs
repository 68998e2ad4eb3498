//! Restoring the gang: where from, what is said meanwhile, and whether it came to what was published.
use super::Driver;
use super::gang::Work;
use crate::control::{
    self, Disk, GangWorkEvent, Memory, Needed, Origin, PeerMemory, Progress, Replayed, Source, Way,
};
use crate::snapshots::SnapshotShards;
use robust_shared::core::Severity;
use robust_shared::ids::{Generation, Incarnation, NodeId, Step, WeightVersion};
use robust_shared::job::Kept;
use std::sync::Arc;

impl Driver {
    pub(super) fn restore(&mut self, generation: Generation, ranks: Vec<Incarnation>, step: Step) {
        // The number that the task will have, if it is started.
        let attempt = self.tasks + 1;
        let own = self.own_shards();
        let way = Way {
            sources: self.sources(&ranks, own),
            peers: self.peers(&ranks),
            own,
            store: self.parts.store.clone(),
            progress: self.progress(attempt),
            attempt,
        };
        self.begin(Work::Restore(step), generation, ranks, |gang| {
            control::restore(gang, step, way)
        });
    }

    /// Where states may be; of one step, the first is preferred.
    fn sources(&mut self, ranks: &[Incarnation], own: bool) -> Vec<Arc<dyn Source>> {
        let (known, peers) = (self.snapshots.all().clone(), self.peer_memory());
        let needed = self.needed_here(ranks, own);
        let mut sources: Vec<Arc<dyn Source>> = Vec::new();
        // Of a gang with ranks on other nodes this machine's memory alone never has a whole snapshot.
        let is_here =
            |snapshot: &SnapshotShards| snapshot.shards.iter().all(|s| !s.path.is_empty());
        if known.is_empty() || known.values().any(is_here) {
            let here = known.iter().filter(|(_, snapshot)| is_here(snapshot));
            let here = here.map(|(step, snapshot)| (*step, snapshot.clone()));
            sources.push(Arc::new(Memory::new(here.collect())));
        }
        sources.push(Arc::new(PeerMemory::new(known, peers, needed)));
        sources.push(Arc::new(Disk::new(self.parts.checkpoints.clone())));
        if let Some(far) = &self.parts.far {
            let far = Arc::clone(far);
            sources.push(far);
        }
        sources
    }

    /// Whether a rank needs its own shard alone: where the trainer is a program, states are kept rank by rank.
    fn own_shards(&self) -> bool {
        let command = self.parts.job.trainer.command.as_ref();
        command.is_some_and(|command| command.snapshot == Kept::Slot)
    }

    /// The shards that this gang's restore needs on this machine: those for ranks that run on it, and all for nodes that
    /// can ask nobody else.
    fn needed_here(&self, ranks: &[Incarnation], own: bool) -> Needed {
        let node = |rank: &Incarnation| self.processes.get(rank).map(|p| p.node);
        let asks_here = |node: NodeId| {
            let remote = self.nodes.get(node);
            node != NodeId::LEADER && remote.is_none_or(|remote| remote.shards.is_empty())
        };
        if ranks.iter().filter_map(node).any(asks_here) {
            return Needed::All;
        }
        let here = (0..)
            .zip(ranks)
            .filter(|(_, r)| node(r) == Some(NodeId::LEADER));
        let here: Vec<u32> = here.map(|(rank, _)| rank).collect();
        match own || here.is_empty() {
            true => Needed::Of(here),
            false => Needed::All,
        }
    }

    fn progress(&self, task: u64) -> Progress {
        let events = self.parts.events.clone();
        Box::new(move |replayed| {
            let replayed = Box::new(replayed);
            // When the driver is gone nobody wants to know.
            let _ = events.send(GangWorkEvent::Replayed { task, replayed }.into());
        })
    }

    /// The gang is on its way to the committed step.
    pub(super) fn on_replayed(&mut self, task: u64, replayed: Replayed) {
        if self.gang.as_ref().is_none_or(|t| t.number != task) {
            return;
        }
        let now = self.parts.clock.now();
        match replayed {
            Replayed::Begins { text } => {
                self.parts.feeds.note(now, Severity::Warn, "replay", text);
            }
            Replayed::Step {
                generation,
                again,
                until,
                snapshot,
            } => {
                self.replayed = Some(generation);
                let snapshot = self.at_homes(snapshot);
                self.snapshots.add(again.step, snapshot);
                self.replicate(again.step);
                self.tidy_kept_shards();
                let how = match again.same {
                    true => "with the same figures",
                    false => "with other figures than the first time",
                };
                let text = format!("step {} of {until} trained again, {how}", again.step);
                self.parts.feeds.note(now, Severity::Info, "replay", text);
            }
        }
    }

    pub(super) fn note_restored(&mut self, generation: Generation, step: Step, from: &Origin) {
        let severity = match from.again.iter().all(|a| a.same) {
            true => Severity::Info,
            false => Severity::Warn,
        };
        let text = format!("gang {generation} is at step {step}: {from}");
        let now = self.parts.clock.now();
        self.parts.feeds.note(now, severity, "restored", text);
    }

    /// A version that is published again must be what it was; after a replay this says whether.
    pub(super) fn compare_published(
        &mut self,
        generation: Generation,
        version: WeightVersion,
        digest: &str,
    ) {
        let before = self.version_digest.replace((version, digest.to_owned()));
        let Some((_, before)) = before.filter(|(of, _)| *of == version) else {
            return;
        };
        let replayed = self.replayed.take_if(|g| *g == generation).is_some();
        let (severity, text) = match (before == digest, replayed) {
            (true, false) => return,
            (true, true) => (
                Severity::Info,
                format!("{version} is bit for bit what was published before: {digest}"),
            ),
            (false, _) => (
                Severity::Warn,
                format!(
                    "{version} is not what was published before ({before}, now {digest}): the gang \
                     does not compute the same bits twice; whoever has the earlier one keeps it \
                     until the next version"
                ),
            ),
        };
        let now = self.parts.clock.now();
        self.parts.feeds.note(now, severity, "replay", text);
    }
}
