//! A moment for a fault: so many inputs after a machine came into a state. What goes wrong then is what
//! times drawn at random seldom hit: the other machines have not heard of the change yet, or half of them.
use super::Fault;
use crate::world::World;
use robust_ahead::dice::Dice;
use robust_shared::core::{self, CELL_TABLES, Machine};
use robust_shared::fault::At;
use robust_shared::ids::{InstanceId, Role};
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

    /// What chance alone seldom brings at this moment, though it can come then: faults in their order, each with
    /// the milliseconds from the one before.
    pub(super) fn seldom_met(&self, dice: &mut Dice) -> Vec<(u64, Fault)> {
        let rollout = |dice: &mut Dice| InstanceId {
            role: Role::Rollout,
            index: u32::try_from(dice.below(4)).unwrap_or(0),
        };
        match (self.machine, self.state.as_str()) {
            (Machine::Instance(Role::Rollout), "condemned") => {
                vec![(0, Fault::Scrub(rollout(dice)))]
            }
            // It finds itself damaged while it answers that it cannot do what it is armed with.
            (Machine::Instance(Role::Rollout), "attached") if dice.chance(100) => {
                let (who, phase) = (rollout(dice), At::phases(Role::Rollout)[0]);
                let at = At { phase, percent: 0 };
                let armed = Fault::Arm(who, core::Fault::Exit { code: 3 }, at);
                vec![(0, Fault::Scrub(who)), (17, armed)]
            }
            // What it says last is still under way when it is given up.
            (Machine::Node, "lost") => {
                let at = 1 + u32::try_from(dice.below(2)).unwrap_or(0);
                let device = Fault::Device(rollout(dice), dice.chance(500));
                vec![(0, device), (0, Fault::LeaveNode(at, dice.below(8000)))]
            }
            // It stands still while it writes how the job ended.
            (Machine::Job, "over") => vec![(0, Fault::HaltDaemon(2000 + dice.below(4000)))],
            _ => Vec::new(),
        }
    }

    /// Lets the world go on to that moment; not for ever.
    pub(crate) fn wait(&self, world: &mut World) {
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
