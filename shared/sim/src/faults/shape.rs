//! How large a job is and where it runs, drawn from a seed or read from a file.
use robust_ahead::dice::Dice;
use robust_shared::core::{Labels, Mode, NodeSpec, OwnLoop, Policy, RoleSpec};
use robust_shared::ids::Role;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How large the job is and how it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// How generation and training interleave.
    pub mode: Mode,
    /// What a fault may cost.
    pub policy: Policy,
    /// Training steps.
    pub steps: u64,
    /// Ranks of the trainer gang.
    pub ranks: u32,
    /// Rollout replicas.
    pub rollouts: u32,
    /// Agent workers.
    pub agents: u32,
    /// Prompts of a batch.
    pub prompts: u32,
    /// Responses to each.
    pub responses: u32,
    /// Task restarts in a row before the job fails.
    pub max_task_restarts: u32,
    /// Nodes beside the leader's.
    #[serde(default)]
    pub nodes: u32,
    /// Controllers, on machines that have no slots; 0: one, which is on the first node.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub controllers: u32,
    /// Slots of every pool that nobody needs at first.
    #[serde(default)]
    pub spare: u32,
    /// The last node is in another data centre.
    #[serde(default)]
    pub far: bool,
    /// Rollout engines on the trainer's slots.
    #[serde(default)]
    pub hybrid: bool,
    /// Agent workers live in the rollouts' slots.
    #[serde(default)]
    pub shared: bool,
    /// Versions that a trajectory may be too old by.
    #[serde(default)]
    pub max_staleness: Option<u64>,
    /// Engines that one trajectory may take along; 0: any number.
    #[serde(default)]
    pub poison: u32,
    /// Times in a row that one cause is borne; 0: any number.
    #[serde(default)]
    pub same_cause: u32,
    /// Faults of its own from which on a node is cordoned by itself; 0: any number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cordon_after: u32,
    /// The trainer's loop is its own.
    #[serde(default)]
    pub own: Option<OwnLoop>,
}

impl Shape {
    /// Whether a job file may say so.
    pub fn is_possible(&self) -> bool {
        let samples = self.prompts * self.responses;
        let slots = !(self.hybrid && self.mode == Mode::Async);
        let fits = self.controllers == 0 || self.nodes > 0;
        slots && fits && samples > 0 && samples.is_multiple_of(self.ranks.max(1))
    }

    /// Where its slots are: dealt out one by one, the trainer's in one data centre; none: one node
    /// with just what it needs.
    pub(super) fn nodes(&self) -> Vec<NodeSpec> {
        if self.nodes == 0 && self.spare == 0 {
            return Vec::new();
        }
        let first = usize::from(self.controllers > 0);
        let far = self.far && self.nodes > 0 && self.nodes as usize > first;
        let mut nodes: Vec<NodeSpec> = (0..=self.nodes)
            .map(|at| NodeSpec {
                name: format!("node-{at}"),
                labels: Labels {
                    dc: if far && at == self.nodes { "b" } else { "a" }.to_owned(),
                    ..Labels::default()
                },
                ..NodeSpec::default()
            })
            .collect();
        let near = nodes.len() - usize::from(far);
        let agents = if self.shared { "rollout" } else { "agent" };
        let pools = [
            ("train", self.ranks, near),
            ("rollout", self.rollouts, nodes.len()),
            (agents, self.agents, nodes.len()),
        ];
        for (pool, slots, among) in pools {
            let mut dealt = vec![0; among];
            for slot in 0..slots + self.spare {
                dealt[first + slot as usize % (among - first)] += 1;
            }
            for (node, slots) in nodes.iter_mut().zip(dealt) {
                let has: &mut u32 = node.pools.entry(pool.to_owned()).or_default();
                *has = slots.max(*has);
            }
        }
        nodes
    }

    pub(super) fn roles(&self) -> BTreeMap<Role, RoleSpec> {
        let shared = RoleSpec {
            pool: "rollout".to_owned(),
            ..RoleSpec::of(Role::Agent)
        };
        let shared = self.shared.then_some((Role::Agent, shared));
        let none = RoleSpec {
            min: 0,
            max: 0,
            ..RoleSpec::of(Role::Agent)
        };
        let none = self.own.map(|_| (Role::Agent, none));
        shared.into_iter().chain(none).collect()
    }

    pub(super) fn draw(dice: &mut Dice) -> Self {
        let small = |dice: &mut Dice, least: u32, most: u32| {
            least + u32::try_from(dice.below(u64::from(most - least + 1))).unwrap_or(0)
        };
        let mode = match dice.below(5) {
            0 | 1 => Mode::Sync,
            2 => Mode::SemiSync,
            _ => Mode::Async,
        };
        let nodes = match dice.chance(500) {
            true => small(dice, 1, 2),
            false => 0,
        };
        let ranks = small(dice, 1, 3);
        let (prompts, responses) = (small(dice, 1, 2), small(dice, 1, 4));
        Self {
            mode,
            nodes,
            controllers: 0,
            spare: match dice.chance(400) {
                true => small(dice, 1, 2),
                false => 0,
            },
            far: dice.chance(200),
            hybrid: mode != Mode::Async && dice.chance(500),
            shared: dice.chance(150),
            max_staleness: None,
            poison: 0,
            same_cause: 0,
            cordon_after: 0,
            own: None,
            policy: match dice.chance(100) {
                true => Policy::Task,
                false => Policy::Role,
            },
            steps: 2 + dice.below(4),
            ranks,
            rollouts: small(dice, 1, 4),
            agents: small(dice, 1, 3),
            prompts,
            responses: match (prompts * responses).is_multiple_of(ranks) {
                true => responses,
                false => ranks,
            },
            max_task_restarts: match dice.chance(200) {
                true => 3,
                false => 100,
            },
        }
    }
}

/// Schedules of one controller are written as they were before there were several.
fn is_zero(number: &u32) -> bool {
    *number == 0
}
