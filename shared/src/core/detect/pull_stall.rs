//! Pull stall: a pull that brings no bytes is tried elsewhere. No verdict on anyone: the puller has a
//! deadline of its own and names its source; this is for the case that its report was lost.
use crate::core::Core;
use crate::core::instance::Instance;
use crate::ids::Role;
use crate::time::Time;

/// When the running pull counts as stalled.
pub fn due(core: &Core, i: &Instance) -> Option<Time> {
    i.pull.as_ref().map(|p| p.moved_at + core.config.pull_stall)
}

impl Core {
    pub(super) fn check_pull_stalls(&mut self) {
        let now = self.now;
        for id in self.s.instances.ids(Role::Rollout) {
            let Some(i) = self.s.instances.get(id) else {
                continue;
            };
            if due(self, i).is_none_or(|at| at > now) {
                continue;
            }
            let (puller, Some(pull)) = (i.incarnation, i.pull.clone()) else {
                continue;
            };
            if let Some(&source) = pull.sources.first() {
                self.pull_failed(puller, pull.version, source, "no bytes came", now);
            }
        }
    }
}
