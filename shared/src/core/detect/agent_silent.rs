//! Agent silent: an agent worker that holds trajectories and uses *no processor time at all* for two
//! of the rollouts' windows is stopped. Its work is waiting, so anything less says nothing: a living
//! one wakes for its heartbeat. Silent in `awaiting_tool` and without leases.
use super::Verdict;
use crate::core::Core;
use crate::core::instance::Instance;
use crate::ids::Role;
use crate::phase::Phase;
use crate::time::Time;

/// When the rule falls, if nothing moves.
pub fn due(core: &Core, i: &Instance) -> Option<Time> {
    let applies = i.id.role == Role::Agent && i.was_attached() && i.condemned.is_none();
    let works = i.phase != Phase::AwaitingTool && core.s.trajectories.leases(i.incarnation) > 0;
    let since = i.moved_at.max(i.phase_since);
    (applies && works && i.sampled_at > since)
        .then(|| since + core.config.rollout_silent_window * 2)
}

impl Core {
    pub(super) fn check_agents_silent(&mut self) {
        let now = self.now;
        for who in self.s.instances.ids(Role::Agent) {
            let Some(i) = self.s.instances.get(who) else {
                continue;
            };
            if due(self, i).is_none_or(|at| at > now) {
                continue;
            }
            let held = self.s.trajectories.leases(i.incarnation);
            let still = now.since(i.moved_at).as_secs_f64();
            let reason = format!("no processor time at all for {still:.1} s with {held} leases");
            let (rule, startup_error) = ("agent silent", None);
            self.fault(Verdict {
                who,
                rule,
                reason,
                startup_error,
                ended: false,
                hangs: true,
            });
        }
    }
}
