//! Swarm: a search in which every seed has all kinds of faults, each now and then, seldom has many of one
//! kind, and so never what only many of one kind bring about. So some seeds draw first which kinds they
//! have and how often anything happens (Groce et al., "Swarm Testing", ISSTA 2012), in longer jobs with
//! more of each role, and faults wait for a moment of a machine (`moment`).
use super::moment::Moment;
use super::{Fault, Schedule, Timed};
use robust_ahead::dice::Dice;
use robust_shared::core::Mode;

/// Of a thousand seeds so many are of the swarm.
const SHARE: u64 = 400;
/// Tries for a fault of a kind that the seed has.
const TRIES: u32 = 40;

impl Schedule {
    /// With dice of its own, so that all else stays as the seed had it before.
    pub(super) fn draw_swarm(&mut self) {
        let mut dice = Dice::keyed(self.seed, 8);
        if !dice.chance(SHARE) {
            return;
        }
        self.grow(&mut dice);
        self.weather.answers_twice = dice.chance(500);
        let config = self.config();
        let kinds = dice.below(1 << Fault::KINDS);
        let has = |fault: &Fault| kinds & (1 << fault.kind()) != 0;
        let longest = [60, 400, 1500][pick(&mut dice, 3)];
        let waits = [0, 300, 800][pick(&mut dice, 3)];
        for _ in 0..4 + dice.below(24) {
            let mut any = (0..TRIES).map(|_| match dice.below(10) {
                0 | 1 => Fault::draw_control(&mut dice, &config),
                2 => Fault::draw_outside(&mut dice, &config),
                _ => Fault::draw(&mut dice, &config),
            });
            let Some(fault) = any.find(has) else {
                continue;
            };
            let on = dice.chance(waits).then(|| Moment::draw(&mut dice));
            let seldom = on.as_ref().map(|on| on.seldom_met(&mut dice));
            let mut seldom = seldom.into_iter().flatten();
            let timed = Timed {
                after_ms: dice.below(longest),
                on,
                fault: seldom.next().map_or(fault, |(_, fault)| fault),
            };
            let further = seldom.map(|(after_ms, fault)| Timed {
                after_ms,
                on: None,
                fault,
            });
            let at = pick(&mut dice, self.faults.len() as u64 + 1);
            let all = std::iter::once(timed).chain(further);
            self.faults.splice(at..at, all);
        }
    }

    /// A longer job, with more of each role.
    fn grow(&mut self, dice: &mut Dice) {
        let mut some = |below: u64| u32::try_from(dice.below(below)).unwrap_or(0);
        let mut larger = self.shape;
        larger.rollouts += some(4);
        larger.nodes += match larger.nodes {
            0 => 0,
            _ => some(3),
        };
        if larger.own.is_none() {
            larger.agents += some(3);
            larger.steps += u64::from(some(6));
            larger.prompts *= 1 + some(2);
        }
        if larger.mode != Mode::Sync {
            larger.spare += some(2);
        }
        if larger.is_possible() {
            self.shape = larger;
        }
    }
}

fn pick(dice: &mut Dice, of: u64) -> usize {
    usize::try_from(dice.below(of)).unwrap_or(0)
}
