//! What operators ask of nodes and their slots: that nothing new is started there, and that a slot is there
//! again.
use super::ask::Ask;
use crate::core::ops::refusal::{Refusal, Reply};
use crate::core::output::Severity;
use crate::core::roster::nodes::{Node, SlotRef};
use crate::core::{Core, Mutation};
use crate::ids::NodeId;

/// Whether a node may be cordoned, or let in again.
fn check_cordon(ask: &Ask<'_>, name: &str, out: bool) -> Result<NodeId, Refusal> {
    ask.running_job()?;
    let id = ask.node(name)?;
    let known = ask.state.roster.nodes().get(id);
    // What it was cordoned for by itself, an operator may make his own word.
    if known.is_some_and(|n| n.cordoned == out && !n.faults.cordoned()) {
        let what = match out {
            true => format!("node `{name}` is cordoned already"),
            false => format!("node `{name}` is not cordoned"),
        };
        return Err(Refusal::AlreadyThere { what });
    }
    Ok(id)
}

/// Which slot there is again: one that is out of use.
fn check_restore(ask: &Ask<'_>, name: &str, pool: &str, index: u32) -> Result<SlotRef, Refusal> {
    ask.running_job()?;
    let node = ask.node(name)?;
    let known = ask.state.roster.nodes().get(node);
    if !known.is_some_and(|n| n.has(pool, index)) {
        return Err(Refusal::UnknownSlot {
            node: name.to_owned(),
            pool: pool.to_owned(),
            index,
            has: known.map(Node::slots_in_words).unwrap_or_default(),
        });
    }
    let key = (pool.to_owned(), index);
    let out = |n: &Node| n.lost.contains(&key) || n.draining.contains(&key);
    if !known.is_some_and(out) {
        let what = format!("slot {index} of pool `{pool}` on node `{name}` is not out of use");
        return Err(Refusal::AlreadyThere { what });
    }
    Ok(SlotRef {
        node,
        pool: pool.to_owned(),
        index,
    })
}

impl Core {
    /// Nothing new is started on a node, or again; what runs there goes on.
    pub(super) fn on_cordon(&mut self, name: &str, out: bool) -> Result<Reply, Refusal> {
        let id = check_cordon(&self.ask(), name, out)?;
        let ignored = self.config.mutant(Mutation::IgnoreCordon);
        self.s.roster.cordon(id, out && !ignored);
        self.note_revision(0);
        let text = match out {
            true => format!("nothing new is started on node {name} from now on"),
            false => format!("node {name} may be used again"),
        };
        self.event(Severity::Info, "node", None, text);
        let node = name.to_owned();
        Ok(Reply::Cordoned { node, out })
    }

    /// A lost slot is there again.
    pub(super) fn on_restore_slot(
        &mut self,
        name: &str,
        pool: &str,
        index: u32,
    ) -> Result<Reply, Refusal> {
        let slot = check_restore(&self.ask(), name, pool, index)?;
        self.s.roster.restore_slot(&slot);
        self.note_revision(0);
        let text = format!("{} is there again", self.s.roster.nodes().named(&slot));
        self.event(Severity::Info, "slot", None, text);
        Ok(Reply::SlotRestored { slot })
    }
}
