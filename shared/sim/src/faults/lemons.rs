//! Lemons: nodes on which one place fails again and again, in jobs that cordon such nodes by themselves.
//! Faults drawn one by one hardly ever meet on one node, so some seeds have them on purpose.
use super::{Fault, Schedule, Timed};
use crate::world::id;
use robust_ahead::dice::Dice;
use robust_shared::ids::Role;

/// Of a thousand seeds with several nodes so many have them.
const SHARE: u64 = 400;

impl Schedule {
    /// With dice of its own and after all else, which stays as the seed had it before.
    pub(super) fn draw_lemons(&mut self) {
        let mut dice = Dice::keyed(self.seed, 13);
        if self.shape.nodes == 0 || !dice.chance(SHARE) {
            return;
        }
        let some = |dice: &mut Dice, below: u64| u32::try_from(dice.below(below)).unwrap_or(0);
        let config = self.config();
        self.shape.cordon_after = 1 + some(&mut dice, 3);
        let role = [Role::Trainer, Role::Rollout, Role::Agent][some(&mut dice, 3) as usize];
        let who = id(role, some(&mut dice, u64::from(config.count(role)).max(1)));
        for _ in 0..=some(&mut dice, 4) {
            let fault = match dice.chance(700) {
                true => Fault::Kill(who),
                false => Fault::Stop(who),
            };
            let timed = Timed {
                on: None,
                // Those that come at once are one.
                after_ms: 3000 + dice.below(5000),
                fault,
            };
            self.faults.push(timed);
        }
    }
}
