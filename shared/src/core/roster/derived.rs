//! What follows from who is where: it is derived anew from what was touched, and told as news.
use super::Roster;
use super::index::{Counts, Facts, Globals, Index, Others};
use crate::core::config::CoreConfig;
use crate::ids::{InstanceId, NodeId, Role};

/// What is to be done about who is where. Of a roster of which nothing is derived yet: all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    /// Something changed that those without a slot wait for.
    slots: bool,
    /// Something changed about those that are to go.
    retire: bool,
}

impl Default for Due {
    fn default() -> Self {
        Self {
            slots: true,
            retire: true,
        }
    }
}

/// What is new of an instance.
#[derive(Clone, Debug)]
pub struct News {
    /// Of which.
    pub id: InstanceId,
    /// Whether it is there.
    pub is_there: bool,
    /// What followed from it before.
    pub old: Facts,
    /// What follows from it now.
    pub new: Facts,
}

impl News {
    /// Whether recoveries look at what changed.
    pub fn concerns_recoveries(&self) -> bool {
        self.old.recovery() != self.new.recovery()
    }
}

impl Roster {
    /// How many instances of a role are how far, as the index was last brought up to date.
    pub fn counts(&self, role: Role) -> Counts {
        self.index.counts(role)
    }

    /// What is derived from an instance is to be derived anew.
    pub fn touch(&mut self, id: InstanceId) {
        self.instances.touch(id);
    }

    /// What is derived from all of a role is to be derived anew.
    pub fn touch_role(&mut self, role: Role) {
        self.instances.touch_role(role);
    }

    /// What is derived from all of it is to be derived anew.
    pub fn touch_all(&mut self) {
        drop(self.instances.iter_mut());
        self.nodes = std::mem::take(&mut self.nodes).all_changed();
    }

    /// Nothing is derived yet. For comparisons with a full scan.
    pub fn forget_index(&mut self) {
        self.index = Index::default();
        self.touch_all();
    }

    /// All is to be looked at, as if something had changed.
    pub fn look_again(&mut self) {
        self.due = Due::default();
        self.touch_all();
    }

    /// Whether nothing was touched since it was last derived.
    pub fn untouched(&self) -> bool {
        self.instances.untouched()
    }

    /// Whether all of it is derived, the others being like that.
    pub fn is_derived(&self, globals: Globals) -> bool {
        self.instances.untouched() && self.nodes.unchanged() && self.index.globals() == globals
    }

    /// Whether something changed that those without a slot wait for.
    pub fn is_slot_due(&self) -> bool {
        self.due.slots
    }

    /// The same, and it is looked at now.
    pub fn take_slot_due(&mut self) -> bool {
        std::mem::take(&mut self.due.slots)
    }

    /// Whether something changed about those that are to go.
    pub fn is_retire_due(&self) -> bool {
        self.due.retire
    }

    /// The same, and it is looked at now.
    pub fn take_retire_due(&mut self) -> bool {
        std::mem::take(&mut self.due.retire)
    }

    /// Touches all that depends on what differs from how the others were before. Returns whether weights and
    /// recoveries depend on it, too.
    pub fn notice(&mut self, now: Globals) -> bool {
        let before = self.index.globals();
        if now.published != before.published {
            self.instances.touch_role(Role::Hybrid);
            self.instances.touch_role(Role::Rollout);
        }
        if now.context != before.context {
            self.instances.touch_role(Role::Hybrid);
        }
        if now.stage != before.stage {
            // A call that begins is what an idle rank is measured against.
            self.instances.touch_role(Role::Trainer);
        }
        let wanted = before.wanted;
        (Globals { wanted, ..now }) != before
    }

    /// Takes in what nodes that changed are like now.
    pub fn survey(&mut self, config: &CoreConfig) {
        while let Some(node) = self.nodes.next_changed() {
            self.index.survey(node, &self.nodes, config);
            self.due.slots = true;
            for id in self.on_node(node) {
                // Its labels may be others.
                self.instances.touch(id);
            }
        }
    }

    /// Who occupies a node's slots.
    pub fn on_node(&self, node: NodeId) -> Vec<InstanceId> {
        self.index.slots().on_node(node)
    }

    /// One of those touched.
    pub fn next_touched(&mut self) -> Option<InstanceId> {
        self.instances.next_touched()
    }

    /// Derives anew what follows from an instance. None: what it was.
    pub fn refresh(&mut self, id: InstanceId, others: Others<'_>) -> Option<News> {
        let i = self.instances.get(id);
        let new = i.map_or_else(Facts::default, |i| others.facts(&self.nodes, i));
        let slot = i.and_then(|i| i.slot());
        let moved = self.index.place(id, slot, &self.nodes, others.config);
        self.due.slots |= moved;
        let places = self.instances.count(id.role) as usize;
        let old = self.index.replace(id, &new, places)?;
        self.due.retire |= old.going || new.going;
        // A rollout gives way to a rank where another one serves.
        let matters = |f: &Facts| (f.linked, f.homeless, f.serves);
        self.due.slots |= matters(&old) != matters(&new);
        Some(News {
            id,
            is_there: i.is_some(),
            old,
            new,
        })
    }

    /// Takes in how the others are. Those whose timers are to be set: those derived anew, and all ranks if
    /// something waits for them that did not at the beginning.
    pub fn settle(&mut self, now: Globals, before: Globals, again: &mut Vec<InstanceId>) {
        self.index.keep(now);
        if now.wanted && !before.wanted {
            again.extend(self.instances.role(Role::Trainer).map(|i| i.id()));
        }
    }

    /// An empty list, for those whose timers are to be set.
    pub fn lend_rearm(&mut self) -> Vec<InstanceId> {
        std::mem::take(&mut self.rearm)
    }

    /// It is given back.
    pub fn return_rearm(&mut self, rearm: Vec<InstanceId>) {
        self.rearm = rearm;
    }
}
