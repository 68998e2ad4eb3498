//! How many nodes there are, what runs on each, and how much each says.
use crate::JobFile;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// A node beats, tells what its instances use, and each instance what it does, so often.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// A cluster to be played.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Nodes that join the leader.
    pub nodes: u32,
    /// Instances on each of them.
    pub instances: u32,
    /// Turns that the agents of a node append a second, together.
    pub turns_per_s: f64,
    /// Turns of a conversation.
    pub turns: u32,
    /// Conversations that an agent has at a time.
    pub conversations: u32,
}

impl Shape {
    /// So many nodes with so many instances each, with the rates of the bench.
    pub fn of(nodes: u32, instances: u32) -> Self {
        Self {
            nodes,
            instances,
            turns_per_s: 20.0,
            turns: 40,
            conversations: 4,
        }
    }

    /// Every instance of every node.
    pub fn all(&self) -> u32 {
        self.nodes * self.instances
    }

    /// A quarter of a node's instances are agents, the others rollouts.
    pub fn agents(&self) -> u32 {
        (self.instances / 4).max(1)
    }

    /// The job has one rank, on the first node in a rollout's stead.
    fn pools(&self, node: u32) -> (u32, u32, u32) {
        let (train, agents) = (u32::from(node == 0), self.agents());
        (train, self.instances - agents - train, agents)
    }

    /// Between two turns of a conversation.
    pub(super) fn pace(&self) -> Duration {
        let of_an_agent = self.turns_per_s / f64::from(self.agents());
        Duration::from_secs_f64(f64::from(self.conversations) / of_an_agent)
    }

    /// The job, whose files are in this folder: steps take some seconds, and what is silent while this machine is too
    /// busy is not taken for hung. Engines are not asked to generate, since there are none.
    pub(super) fn job(&self, folder: &Path) -> JobFile {
        let (nodes, agents) = (self.nodes, self.nodes * self.agents());
        let rollouts = self.all() - agents - 1;
        // Two batches are under way at a time, and no agent is to wait for its next conversation.
        let (responses, under_way) = (8, agents * self.conversations);
        let prompts = under_way.div_ceil(responses);
        let folder = folder.display();
        let mut text = format!(
            "[job]\nname = \"load\"\nsteps = 1000000\n[model]\npath = \"{folder}/model\"\n[data]\n\
             prompts = \"{folder}/data.jsonl\"\ntokenizer = \"{folder}/tokenizer.json\"\n\
             [batch]\nprompts = {prompts}\nresponses = {responses}\n[checkpoint]\nevery = 0\n\
             [trainer]\nranks = 1\n[rollout]\nreplicas = {rollouts}\n\
             [agent]\nworkers = {agents}\nconcurrency = {}\nmax_turns = {}\n\
             [restart]\nmax = 1000\nsame_cause = 0\nbackoff_ms = 0\n\
             [detect]\nsample_interval_ms = {}\noff = [\"health_probe\", \"rollout_silent\", \"straggler\"]\n\
             [[node]]\nname = \"leader\"\npools = {{}}\n",
            self.conversations,
            self.turns,
            TICK.as_millis(),
        );
        for node in 0..nodes {
            let (train, rollout, agent) = self.pools(node);
            let name = name(node);
            let pools = format!("train = {train}, rollout = {rollout}, agent = {agent}");
            // A String takes whatever is written to it.
            let _ = writeln!(text, "[[node]]\nname = \"{name}\"\npools = {{ {pools} }}");
        }
        JobFile::of_text(&text)
    }
}

/// A node's name.
pub(super) fn name(node: u32) -> String {
    format!("n{node:04}")
}
