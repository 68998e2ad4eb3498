//! Schedules of several controllers: the job and what befalls it are drawn as with one, and what befalls controllers, etcd and
//! the object store is drawn between that.
use super::{Fault, Schedule, Timed};
use crate::world::{Apart, Which, World, ms};
use robust_ahead::dice::Dice;
use serde::{Deserialize, Serialize};

/// What goes wrong above the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Upset {
    /// A controller's process or machine ends, and is back so many milliseconds later; without its disk (true).
    Crash(Which, u64, bool),
    /// A controller stands still for so many milliseconds.
    Freeze(Which, u64),
    /// A controller is cut off from these for so many milliseconds.
    Part(Which, Vec<Apart>, u64),
    /// A controller is told to end, and is started again.
    HandOver(Which),
    /// etcd has no majority for so many milliseconds.
    NoQuorum(u64),
    /// The object store cannot be reached for so many milliseconds.
    NoStore(u64),
}

impl Upset {
    /// Lets it happen now.
    pub(super) fn strike(&self, world: &mut World) {
        match self {
            Upset::Crash(which, back_ms, wiped) => {
                world.crash_controller(*which, ms(*back_ms), *wiped);
            }
            Upset::Freeze(which, for_ms) => world.freeze_controller(*which, ms(*for_ms)),
            Upset::Part(which, from, for_ms) => {
                world.part_controller(*which, from, ms(*for_ms));
            }
            Upset::HandOver(which) => world.hand_over(*which),
            Upset::NoQuorum(for_ms) => world.lose_quorum(ms(*for_ms)),
            Upset::NoStore(for_ms) => world.lose_store(ms(*for_ms)),
        }
    }
}

/// Of a thousand schedules so many have nothing but what befalls controllers.
const ALONE: u64 = 500;

impl Schedule {
    /// The schedule of a seed, with so many controllers.
    pub fn of_controllers(seed: u64, controllers: u32) -> Self {
        let mut schedule = Self::of(seed);
        let mut dice = Dice::keyed(seed, 10);
        let some = |dice: &mut Dice, n| u32::try_from(dice.below(n)).unwrap_or(0);
        schedule.shape.controllers = controllers;
        let nodes = 1 + some(&mut dice, 3);
        schedule.shape.nodes = schedule.shape.nodes.max(nodes);
        if dice.chance(300) {
            schedule.weather.late_per_mille = dice.below(40);
        }
        if dice.chance(ALONE) {
            schedule.faults.clear();
        }
        // There is time for each to be seen, or there is not.
        let longest = [400, 1500, 4000][some(&mut dice, 3) as usize];
        for _ in 0..1 + dice.below(8) {
            let mut drawn = draw(&mut dice, (controllers, schedule.shape.nodes));
            if let Some(first) = drawn.first_mut() {
                first.0 += dice.below(longest);
            }
            let at = some(&mut dice, schedule.faults.len() as u64 + 1) as usize;
            let timed = drawn.into_iter().map(|(after_ms, upset)| Timed {
                after_ms,
                on: None,
                fault: Fault::Above(upset),
            });
            schedule.faults.splice(at..at, timed);
        }
        // The job begins when the first of them leads.
        if let Some(first) = schedule.faults.first_mut() {
            first.after_ms += dice.below(2500);
        }
        schedule
    }
}

/// Everything that it asks and is asked for.
const ALL: [Apart; 4] = [Apart::Requests, Apart::Answers, Apart::Store, Apart::Nodes];

/// One thing that goes wrong, or a few that belong together, each with the milliseconds from the one before.
fn draw(dice: &mut Dice, (controllers, nodes): (u32, u32)) -> Vec<(u64, Upset)> {
    let which = |dice: &mut Dice| match dice.chance(700) {
        true => Which::Leader,
        false => number(dice, controllers),
    };
    let who = which(dice);
    let one = |upset| vec![(0, upset)];
    match dice.below(20) {
        0..=3 => one(Upset::Crash(who, dice.below(6000), dice.chance(300))),
        4 | 5 => one(Upset::Freeze(who, 500 + dice.below(6000))),
        6 => one(Upset::Freeze(who, 500 + dice.below(19_500))),
        7..=11 => {
            let (from, for_ms) = (apart(dice, nodes), dice.below(8000));
            one(Upset::Part(who, from, for_ms))
        }
        12 | 13 => one(Upset::NoQuorum(dice.below(6000))),
        14 | 15 => one(Upset::NoStore(dice.below(6000))),
        16 => one(Upset::HandOver(who)),
        // One that was cut off reaches its nodes again before etcd, and the one that leads now is gone from them.
        17 | 18 => {
            let gone = match dice.below(3) {
                0 => Upset::Crash(Which::Leader, dice.below(3000), false),
                _ => Upset::Part(Which::Leader, vec![Apart::Nodes], dice.below(3000)),
            };
            let again = Upset::Part(Which::Former, vec![Apart::Requests], 3000);
            vec![
                (0, Upset::Part(Which::Leader, ALL.to_vec(), 10_000)),
                (1000 + dice.below(900), again),
                (dice.below(400), gone),
            ]
        }
        // A term that hardly begins.
        _ => {
            let crash = |dice: &mut Dice| {
                let wiped = dice.chance(200);
                Upset::Crash(Which::Leader, dice.below(1500), wiped)
            };
            let times = 2 + dice.below(3);
            (0..times)
                .map(|_| (dice.below(1200), crash(dice)))
                .collect()
        }
    }
}

fn number(dice: &mut Dice, controllers: u32) -> Which {
    Which::Number(u32::try_from(dice.below(u64::from(controllers))).unwrap_or(0))
}

/// The kinds of partitions of a cluster, from the side of a controller.
fn apart(dice: &mut Dice, nodes: u32) -> Vec<Apart> {
    let node = 1 + u32::try_from(dice.below(u64::from(nodes))).unwrap_or(0);
    match dice.below(9) {
        // From everything, also with a minority of etcd beside it, which answers nothing.
        0 | 1 => ALL.to_vec(),
        // With some of the nodes on its side.
        2 => {
            let others = (1..=nodes).filter(|n| *n != node).map(Apart::Node);
            let etcd = [Apart::Requests, Apart::Answers, Apart::Store];
            etcd.into_iter().chain(others).collect()
        }
        3 => vec![Apart::Node(node)],
        // One way only.
        4 => vec![Apart::Requests],
        5 => vec![Apart::Answers],
        // It reaches nodes, and not etcd.
        6 => vec![Apart::Requests, Apart::Answers],
        7 => vec![Apart::Store],
        _ => vec![Apart::Nodes],
    }
}
