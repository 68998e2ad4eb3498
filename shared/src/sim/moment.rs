//! A moment for a fault: so many inputs after a machine came into a state. What goes wrong then is what
//! times drawn at random seldom hit: the other machines have not heard of the change yet, or half of them.
use super::dice::Dice;
use super::faults::Fault;
use super::world::World;
use crate::core::{CELL_TABLES, Machine};
use crate::ids::{InstanceId, Role};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A fault does not wait for its moment for longer.
const LONGEST: Duration = Duration::from_secs(3);

/// So many inputs after a machine came into a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// The machine.
    pub machine: Machine,
    /// Its state, as the table of the search names it.
    pub state: String,
    /// Inputs after that.
    pub inputs: u64,
}

impl Moment {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        let machine = match dice.below(8) {
            0 | 1 => Machine::Gang,
            2 => Machine::Job,
            3 => Machine::Node,
            _ => {
                let roles = [Role::Trainer, Role::Hybrid, Role::Rollout, Role::Agent];
                Machine::Instance(roles[usize::try_from(dice.below(4)).unwrap_or(0)])
            }
        };
        // The first row is of what is no more, or was not yet.
        let states = &CELL_TABLES[machine.table()].states[1..];
        let at = dice.below(states.len() as u64);
        Self {
            machine,
            state: states[usize::try_from(at).unwrap_or(0)].to_owned(),
            inputs: dice.below(4),
        }
    }

    /// What chance alone seldom brings at this moment, though it can come then.
    pub(super) fn seldom_met(&self, dice: &mut Dice) -> Option<Fault> {
        let condemned =
            self.state == "condemned" && self.machine == Machine::Instance(Role::Rollout);
        let index = u32::try_from(dice.below(4)).unwrap_or(0);
        let role = Role::Rollout;
        condemned.then_some(Fault::Scrub(InstanceId { role, index }))
    }

    /// Lets the world go on to that moment; not for ever.
    pub(super) fn wait(&self, world: &mut World) {
        let states = CELL_TABLES[self.machine.table()].states;
        let Some(state) = states.iter().position(|state| *state == self.state) else {
            return;
        };
        let (end, mut before) = (
            world.now + LONGEST,
            world.core.in_state(self.machine, state),
        );
        let mut at = None;
        while world.goes_on(end) && at.is_none_or(|inputs| world.inputs < inputs) {
            world.step();
            let now = world.core.in_state(self.machine, state);
            if at.is_none() && now > before {
                at = Some(world.inputs + self.inputs);
            }
            before = now;
        }
    }
}
