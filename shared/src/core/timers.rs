//! Every instant at which something is due though nothing happens, in one table.
use super::instance::Life;
use super::state::JobState;
use super::{Core, detect};
use crate::time::Time;

impl Core {
    /// When [`super::Input::Timeout`] is wanted, if nothing happens before.
    pub fn next_timeout(&self) -> Option<Time> {
        if !self.started || self.s.job != JobState::Running {
            return None;
        }
        let spared = self.s.instances.iter().filter(|i| i.condemned.is_none());
        let lives = spared.filter_map(|i| match i.life {
            Life::Waiting { until }
            | Life::Spawning { until }
            | Life::Starting { until }
            | Life::Unlinked { until } => Some(until),
            Life::None | Life::Attached => None,
        });
        let kills = self
            .s
            .instances
            .iter()
            .filter_map(|i| i.condemned.map(|c| c.until));
        let probes = self.s.instances.iter().filter_map(|i| i.suspect);
        let stalls = self
            .s
            .instances
            .iter()
            .filter_map(|i| detect::pull_stall::due(self, i));
        let avoided = self
            .s
            .instances
            .iter()
            .filter(|i| i.attached() && i.version < self.s.published)
            .flat_map(|i| i.avoid.iter().map(|(_, until)| *until));
        let hangs = self.s.instances.iter().filter_map(|i| {
            let rules = [
                detect::trainer_idle::due(self, i),
                detect::rollout_silent::due(self, i),
                detect::agent_silent::due(self, i),
                detect::phase_overrun::due(self, i),
            ];
            rules.into_iter().flatten().min()
        });
        let returned = self.s.trajectories.next_due(self.now);
        lives
            .chain(kills)
            .chain(probes)
            .chain(stalls)
            .chain(avoided)
            .chain(hangs)
            .chain(returned)
            .min()
    }
}
