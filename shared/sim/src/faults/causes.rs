//! Causes: roles that die of the same again and again, or of this and that in turns. That is rare where
//! every fault is drawn by itself, so some seeds have places that are born with it.
use super::{Fault, Schedule, Timed};
use crate::world::{Ailment, Start, id};
use robust_ahead::dice::Dice;
use robust_shared::core::CoreConfig;
use robust_shared::ids::Role;

/// Of a thousand seeds so many have them.
const SHARE: u64 = 250;
/// Most lives in a row that die so, one after the other.
const LIVES: u64 = 9;

impl Schedule {
    /// With dice of its own, so that all else stays as the seed had it before.
    pub(super) fn draw_causes(&mut self, config: &CoreConfig) {
        let mut dice = Dice::keyed(self.seed, 9);
        if !dice.chance(SHARE) {
            return;
        }
        self.shape.same_cause = 1 + u32::try_from(dice.below(4)).unwrap_or(0);
        for _ in 0..=dice.below(3) {
            let roles = [Role::Trainer, Role::Rollout, Role::Agent, Role::Hybrid];
            let role = roles[pick(&mut dice, 4)];
            let index = dice.below(u64::from(config.count(role)).max(1));
            let who = id(role, u32::try_from(index).unwrap_or(0));
            let timed = Timed {
                on: None,
                after_ms: dice.below(2500),
                fault: Fault::Doom(who, lives(&mut dice)),
            };
            let at = pick(&mut dice, self.faults.len() as u64 + 1);
            self.faults.insert(at, timed);
        }
    }
}

/// How the next lives of a place end: mostly of one cause, now and then of another, and one may do well.
fn lives(dice: &mut Dice) -> Vec<Start> {
    let usual = Ailment::ALL[pick(dice, 4)];
    let changes = [0, 150, 500][pick(dice, 3)];
    let well = [0, 150][pick(dice, 2)];
    let early = [0, 500, 1000][pick(dice, 3)];
    let mut life = || {
        let of = match dice.chance(changes) {
            true => Ailment::ALL[pick(dice, 4)],
            false => usual,
        };
        match (dice.chance(well), dice.chance(early)) {
            (true, _) => Start::Fine,
            (_, true) => Start::Says(of),
            (_, false) => Start::Ails(of),
        }
    };
    let mut all: Vec<Start> = (0..LIVES).map(|_| life()).collect();
    all.truncate(1 + pick(dice, LIVES));
    all
}

fn pick(dice: &mut Dice, of: u64) -> usize {
    usize::try_from(dice.below(of)).unwrap_or(0)
}
