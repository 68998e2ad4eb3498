//! The hands: each output becomes a deed, after the checker has seen it.
use super::machines::{NodeOrder, SpawnOrder};
use super::trainer::Call;
use super::{Happening, World, ms};
use crate::core::{Fault, Input, Output};
use crate::ids::Incarnation;

/// A process that is asked to end takes up to so long.
const GRACE: std::time::Duration = std::time::Duration::from_millis(120);

impl World {
    pub(super) fn act(&mut self, output: Output) {
        self.check_output(&output);
        match output {
            Output::Spawn {
                id,
                incarnation,
                generation,
                slot,
                ..
            } => self.order_spawn(SpawnOrder {
                id,
                life: incarnation,
                generation,
                slot,
            }),
            Output::Fence { node, incarnation } => {
                let at = self.machine_of(node);
                self.order(at, NodeOrder::Kill(incarnation));
            }
            Output::Kill { incarnation, .. } => {
                self.abandon_gang_of(incarnation);
                self.order_of(incarnation, NodeOrder::Kill(incarnation));
            }
            Output::Retire { incarnation } => self.retire(incarnation),
            Output::Strike { incarnation, fault } => {
                let order = match fault {
                    Fault::Kill | Fault::LoseSlot => NodeOrder::Kill(incarnation),
                    Fault::Hang => NodeOrder::Stop(incarnation),
                };
                self.order_of(incarnation, order);
            }
            Output::Restore {
                generation, step, ..
            } => self.call(generation, Call::Restore(step)),
            Output::TrainStep {
                generation,
                step,
                trajectories,
                ..
            } => {
                self.note_batch(generation, step, trajectories);
                self.call(generation, Call::Train(step));
            }
            Output::Prepare {
                generation,
                step,
                trajectories,
                ..
            } => {
                let sum = trajectories
                    .iter()
                    .fold(0, |sum: u64, t| sum.wrapping_mul(31).wrapping_add(t.key()));
                self.call(generation, Call::Prepare(step, sum));
            }
            Output::Pause { engine } => self.order_switch(engine, true),
            Output::Resume { engine } => self.order_switch(engine, false),
            Output::Publish {
                generation,
                version,
                ..
            } => self.call(generation, Call::Publish(version)),
            Output::AssignPull {
                puller,
                version,
                sources,
                from_trainer,
            } => self.order_pull(puller, version, sources, from_trainer),
            Output::Dispatch { agent, trajectory } => self.hand_out(agent, trajectory),
            Output::Revoke { agent, trajectory } => self.revoke(agent, trajectory),
            Output::Route { ticket, rollout } => self.routed(ticket, rollout),
            Output::Probe { incarnation, .. } => {
                let slow = self.procs.get(&incarnation).map_or(1, |p| p.slow);
                self.after(ms(100) * slow, Happening::Probed(incarnation));
            }
            Output::CollectEvidence { incarnation, .. } => {
                let text = "wchan do_signal_stop".to_owned();
                let input = Input::Evidence { incarnation, text };
                let at = self.procs.get(&incarnation).map_or(0, |p| p.machine);
                self.after(ms(40), Happening::Reported(at, input));
            }
            Output::Finish { outcome } => self.outcome = Some(outcome),
            Output::Reply { ticket, result } => self.answered_request(ticket, result),
            Output::Record(_) | Output::Event(_) => {}
        }
    }

    /// What the leader waits for from a gang that is to end never comes.
    fn abandon_gang_of(&mut self, life: Incarnation) {
        if self.gang_of(life).contains(&life) {
            self.gang.task = None;
        }
    }

    /// Orders something where a process runs; one not started yet is known to its node's queue.
    fn order_of(&mut self, life: Incarnation, order: NodeOrder) {
        let runs = self.procs.get(&life).map(|p| p.machine);
        let at = runs.or_else(|| self.machines.waits(life)).unwrap_or(0);
        self.order(at, order);
    }

    /// A process is asked to end, and does so soon; what it was about counts no longer.
    fn retire(&mut self, life: Incarnation) {
        self.abandon_gang_of(life);
        self.pullers.remove(&life);
        self.pullers.retain(|_, o| !o.sources.contains(&life));
        let Some(p) = self.procs.get_mut(&life).filter(|p| p.linked) else {
            return self.order_of(life, NodeOrder::Kill(life));
        };
        (p.pulling, p.over) = (None, true);
        let soon = self.dice.up_to(GRACE);
        self.after(soon, Happening::Retires(life));
    }

    /// One that cannot read what it was asked is killed in the end.
    pub(super) fn retires(&mut self, life: Incarnation) {
        match self.procs.get(&life) {
            Some(p) if p.works() && p.linked => self.die(life),
            Some(p) if p.alive => self.order_of(life, NodeOrder::Kill(life)),
            _ => {}
        }
    }
}
