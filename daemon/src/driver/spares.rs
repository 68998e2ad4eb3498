//! Spares beside the job's roles: had while the job is whole, so that their start takes nothing from a recovery.
//!
//! ```text
//!  the job is whole ── what waits on each node ──┬─ Here ──► launcher
//!                                                └─ Remote ► KeepSpares ══► node's daemon
//! ```
//! The controller knows nothing of them: a start is a start, and whether a spare becomes the life is decided where the
//! process runs.
use super::Driver;
use crate::spares::{self, Wanted};
use robust_proto::v1;
use robust_shared::core::{InstanceView, View};
use robust_shared::ids::{NodeId, Role};
use robust_shared::wire::{InstanceState, JobState};
use std::collections::BTreeMap;

impl Driver {
    /// Has spares wait on all nodes, if the job has any and is whole.
    pub(super) fn look_after_spares(&mut self, view: &View) {
        let each = self.parts.job.restart.spares;
        if each == 0 || !is_whole(view) {
            return;
        }
        let revision = self.core.state().revision();
        let mut wanted = wanted(view, each);
        // Where nobody is any more there are none, either.
        for node in self.nodes.ids().chain([NodeId::LEADER]) {
            wanted.entry(node).or_default();
        }
        for (node, wanted) in wanted {
            match node {
                NodeId::LEADER => {
                    spares::keep(&self.here.launcher, &self.here.worker, revision, &wanted);
                }
                node => self.nodes.remote(node).keep_spares(revision, wanted),
            }
        }
    }

    /// Those that wait, here and on other nodes, as they are shown.
    pub(super) fn spares(&self) -> Vec<v1::SpareStatus> {
        if self.parts.job.restart.spares == 0 {
            return Vec::new();
        }
        let here = self.here.launcher.spares();
        let here = here
            .iter()
            .map(spares::shown)
            .map(|of| (NodeId::LEADER, of));
        let there = self.nodes.spares();
        let named = here.chain(there).map(|(node, of)| {
            let name = self.core.node(node).map(|n| n.name.clone());
            let node = name.unwrap_or_default();
            v1::SpareStatus { node, ..of }
        });
        named.collect()
    }
}

/// Nothing is being restarted, and everybody is up who is not kept from it for longer.
fn is_whole(view: &View) -> bool {
    let settled = |one: &InstanceView| {
        use InstanceState::{Quarantined, Running, Waiting};
        matches!(one.state, Running | Quarantined | Waiting)
    };
    matches!(view.state, JobState::Running | JobState::Paused) && view.instances.iter().all(settled)
}

/// For each rank of the trainer, which restart together, so many, and so many for each kind of engine on a node.
fn wanted(view: &View, each: u32) -> BTreeMap<NodeId, Wanted> {
    let mut counts: BTreeMap<NodeId, BTreeMap<Role, u32>> = BTreeMap::new();
    for instance in &view.instances {
        let (role, Some(slot)) = (instance.id.role, &instance.slot) else {
            continue;
        };
        let of_node = counts.entry(slot.node).or_default();
        match role {
            Role::Trainer => *of_node.entry(role).or_default() += each,
            Role::Rollout | Role::Hybrid => drop(of_node.insert(role, each)),
            Role::Agent => {}
        }
    }
    let as_list = |(node, of): (NodeId, BTreeMap<Role, u32>)| (node, of.into_iter().collect());
    counts.into_iter().map(as_list).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use robust_shared::core::{Core, CoreConfig, Input};
    use robust_shared::job::Job;
    use robust_shared::time::Time;
    use std::path::Path;

    #[test]
    #[allow(clippy::unwrap_used)]
    fn a_gang_has_a_spare_for_each_rank_and_a_kind_of_engine_one() {
        let text = include_str!("../../../fixtures/jobs/test.toml");
        let job = Job::parse(text, Path::new("test.toml")).unwrap();
        let mut core = Core::new(CoreConfig::from(&job));
        core.handle(Time::default(), Input::Start);
        let mut view = core.view(Time::default());
        assert!(!is_whole(&view), "its roles are yet to come");
        let at = wanted(&view, 1);
        let ranks = job.trainer.ranks;
        let expected = vec![(Role::Trainer, ranks), (Role::Rollout, 1)];
        assert_eq!(at, BTreeMap::from([(NodeId::LEADER, expected)]));
        assert_eq!(
            wanted(&view, 2)[&NodeId::LEADER][0],
            (Role::Trainer, 2 * ranks)
        );
        view.state = JobState::Running;
        view.instances
            .iter_mut()
            .for_each(|one| one.state = InstanceState::Running);
        assert!(is_whole(&view));
        view.instances[0].state = InstanceState::Recovering;
        assert!(!is_whole(&view));
    }
}
