//! Who is looked at when one hangs.
use crate::core::config::CoreConfig;
use crate::core::recover::testimony::{Answer, Testimony};
use crate::core::roster::instance::Instance;
use crate::core::roster::instances::Instances;
use crate::core::roster::nodes::NodeTable;
use crate::core::work::Work;
use crate::core::work::routes::Asker;
use crate::ids::{Incarnation, InstanceId, Role};
use std::collections::BTreeSet;

/// Who is looked at when one hangs.
#[derive(Clone, Copy, Debug)]
pub struct Witnesses<'a> {
    /// What is known of the job.
    pub config: &'a CoreConfig,
    /// Who is where.
    pub instances: &'a Instances,
    /// On which machines.
    pub nodes: &'a NodeTable,
    /// Who waits for which engine.
    pub work: &'a Work,
}

impl Witnesses<'_> {
    /// Everybody who may be part of the hang, and whether they must not be held up for it.
    pub fn of(&self, who: InstanceId) -> Vec<(Testimony, bool)> {
        let accused = self.accused(who).into_iter().map(|id| (id, false));
        let awaited = self.awaited_by(who).into_iter().map(|id| (id, true));
        let asked = accused.chain(awaited);
        let found = asked.filter_map(|(id, gently)| Some((self.instances.get(id)?, gently)));
        found
            .map(|(i, gently)| (self.unanswered(i), gently))
            .collect()
    }

    /// Whoever hangs with it: of a rank the whole gang.
    fn accused(&self, who: InstanceId) -> Vec<InstanceId> {
        let ranks = self.instances.role(Role::Trainer);
        match who.role {
            Role::Trainer => ranks.filter(|i| i.was_attached()).map(|i| i.id()).collect(),
            Role::Hybrid | Role::Rollout | Role::Agent => vec![who],
        }
    }

    /// Whom it may wait for, as far as that is known here.
    fn awaited_by(&self, who: InstanceId) -> Vec<InstanceId> {
        let Some(hung) = self.instances.get(who) else {
            return Vec::new();
        };
        let routes = self.work.rollouts.table();
        let engines = match who.role {
            // A loop of its own asks the engines through the router.
            Role::Trainer if self.config.own_loop.is_some() => {
                routes.engines_of(|asker| matches!(asker, Asker::Client { .. }))
            }
            Role::Agent => routes.engines_of(
                |asker| matches!(asker, Asker::Agent { agent, .. } if *agent == hung.incarnation()),
            ),
            // The others of the same switch: an engine over several slots switches as a whole.
            Role::Hybrid if hung.turn().waits_since().is_some() => {
                let hybrids = self.instances.role(Role::Hybrid);
                let told = hybrids.filter(|i| i.turn().waits_since().is_some());
                told.map(|i| i.incarnation()).collect()
            }
            Role::Trainer | Role::Hybrid | Role::Rollout => BTreeSet::new(),
        };
        let there = |life: &Incarnation| self.instances.life(*life);
        let there = engines
            .iter()
            .filter_map(there)
            .filter(|i| i.was_attached());
        there.map(|i| i.id()).filter(|id| *id != who).collect()
    }

    fn unanswered(&self, i: &Instance) -> Testimony {
        let node = i.slot().and_then(|slot| self.nodes.get(slot.node));
        Testimony {
            who: i.id(),
            incarnation: i.incarnation(),
            node: node.map(|node| node.spec.name.clone()).unwrap_or_default(),
            phase: i.phase(),
            step: i.phase_step(),
            answer: Answer::Awaited,
            text: String::new(),
        }
    }
}
